//! Facts about a member's pod for its defragmentation: where its metrics are, what its liveness
//! probe bears, whether a sidecar defragments, and how much room its volume has.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PersistentVolumeClaim, Pod};
use kube::Api;

use super::claim_names::CLAIM_NAME;
use super::containers::etcd_status;
use super::observer::Observer;
use super::settings::Settings;
use super::view::ClusterView;
use super::{etcd_container, pods, sidecar};
use crate::etcd::Endpoint;
use crate::named;
use crate::quorum::evidence::Target;
use crate::quorum::{ClusterRef, PodName, PodUid, Work};

/// The schedule by which that sidecar defragments where no flag names another.
const SIDECAR_SCHEDULE: &str = "0 0 */3 * *";

/// The room that is kept for the write-ahead log and for snapshots: etcd keeps five segments of
/// 64 MiB and creates the next one ahead.
const RESERVED: u64 = 512 << 20;

impl ClusterView {
    /// The endpoint of this pod's member, as a round asks it.
    pub fn endpoint_of(&self, pod: &PodName) -> Option<&Endpoint> {
        self.endpoint_at(&Target::Pod(pods::uid(self.pod(pod)?)))
    }

    fn endpoint_at(&self, target: &Target) -> Option<&Endpoint> {
        self.endpoints().iter().find(|e| e.target == *target)
    }

    /// The UID of the pod with this endpoint, if it is not Ready.
    pub(super) fn unready(&self, target: &Target) -> Option<PodUid> {
        let mut pods = self.pods().iter();
        let pod = pods.find(|pod| Target::Pod(pods::uid(pod)) == *target)?;
        (!pods::is_ready(pod)).then(|| pods::uid(pod))
    }

    /// The endpoint of the metrics of a member in a pod: the URL that etcd's settings name, else
    /// the container port named `metrics`, else the client port, which serves them too.
    pub fn metrics_endpoint(&self, target: &Target) -> Option<Endpoint> {
        let client = self.endpoint_at(target)?.clone();
        let is_here = |pod: &&Pod| Target::Pod(pods::uid(pod)) == *target;
        let container =
            etcd_container::of_pod(self.pods().iter().find(is_here)?, self.etcd_container())?;
        let Some((plain, port)) = told(container).or_else(|| named(container)) else {
            return Some(client);
        };
        let (host, _) = client.address.rsplit_once(':')?;
        Some(Endpoint {
            address: format!("{host}:{port}"),
            tls: client.tls.clone().filter(|_| !plain),
            ..client
        })
    }

    /// The restarts of etcd's container in this pod, as far as its node has told.
    pub fn etcd_restarts(&self, pod: &PodName) -> Option<i32> {
        let status = etcd_status(self.pod(pod)?, self.etcd_container())?;
        Some(status.restart_count)
    }

    /// The time without an answer that the liveness probe of this pod's member bears at least.
    pub fn liveness(&self, pod: &PodName) -> Option<Duration> {
        let probe = etcd_container::of_pod(self.pod(pod)?, self.etcd_container())?
            .liveness_probe
            .as_ref()?;
        let seconds = |given: Option<i32>, default: u64| {
            given
                .and_then(|given| u64::try_from(given).ok())
                .filter(|given| *given > 0)
                .unwrap_or(default)
        };
        let failures = seconds(probe.failure_threshold, 3);
        let period = seconds(probe.period_seconds, 10);
        let first = seconds(probe.timeout_seconds, 1);
        Some(Duration::from_secs(
            (failures - 1).saturating_mul(period).saturating_add(first),
        ))
    }

    /// The schedule by which a sidecar of druid's defragments, if there is one.
    pub fn sidecar_schedule(&self) -> Option<String> {
        let sidecar = self.pods().iter().find_map(sidecar::container)?;
        let mut words = sidecar.command.iter().chain(&sidecar.args).flatten();
        let flag = words.find_map(|word| word.strip_prefix("--defragmentation-schedule="));
        let schedule = flag.unwrap_or(SIDECAR_SCHEDULE).trim_matches(['"', '\'']);
        (!schedule.is_empty()).then(|| schedule.to_owned())
    }
}

impl Observer {
    /// The work of the process of etcd in the pod with this UID, and its age. `None` if its metrics
    /// cannot be read.
    pub async fn work(
        &self,
        view: &ClusterView,
        pod: &PodUid,
        limit: Duration,
    ) -> Option<(Work, Duration)> {
        let endpoint = view.metrics_endpoint(&Target::Pod(pod.clone()))?;
        let metrics = self.prober().metrics(&endpoint, limit).await.ok()?;
        Some((metrics.work, metrics.age?))
    }

    /// The room that is left on the claim of this pod's member beside a database of this size: what
    /// the claim was given, without the database and without what etcd keeps beside it. `None`
    /// where the data is on no claim, or the claim cannot be read.
    pub async fn room(
        &self,
        cluster: &ClusterRef,
        view: &ClusterView,
        pod: &PodName,
        database: u64,
    ) -> Option<u64> {
        let claim = view.data_claim(pod)?;
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client().clone(), &cluster.namespace);
        let claim = named::get_opt(&claims, CLAIM_NAME, &claim).await.ok()??;
        let capacity = claim.status?.capacity?;
        let capacity = bytes(&capacity.get("storage")?.0)?;
        Some(capacity.saturating_sub(database.saturating_add(RESERVED)))
    }
}

fn told(container: &Container) -> Option<(bool, u16)> {
    let settings = Settings::from_container(container);
    if settings.file().is_some() {
        return None;
    }
    let urls = settings.get("listen-metrics-urls")?.value;
    urls.split(',').find_map(|url| {
        let (scheme, authority) = url.trim().split_once("://")?;
        let (host, port) = authority.trim_end_matches('/').rsplit_once(':')?;
        let own = ["localhost", "127.", "[::1]"];
        let reached = !own.iter().any(|own| host.starts_with(own));
        let port = reached.then(|| port.parse().ok()).flatten()?;
        Some((scheme == "http", port))
    })
}

fn named(container: &Container) -> Option<(bool, u16)> {
    let mut ports = container.ports.iter().flatten();
    let port = ports.find(|port| port.name.as_deref() == Some("metrics"))?;
    Some((true, u16::try_from(port.container_port).ok()?))
}

/// The bytes of a quantity in the forms in which the capacity of a claim is written.
pub(super) fn bytes(quantity: &str) -> Option<u64> {
    let digits = quantity.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = quantity.split_at(digits.unwrap_or(quantity.len()));
    let factor: u64 = match unit {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metrics_are_where_the_settings_or_the_port_say() {
        let container = |rest: serde_json::Value| -> Container {
            let mut whole = json!({"name": "etcd"});
            json_patch::merge(&mut whole, &rest);
            serde_json::from_value(whole).unwrap()
        };
        let flag = |urls: &str| {
            let flag = format!("--listen-metrics-urls={urls}");
            told(&container(json!({"args": [flag]})))
        };
        assert_eq!(flag("http://0.0.0.0:2381"), Some((true, 2381)));
        assert_eq!(flag("https://0.0.0.0:2381"), Some((false, 2381)));
        assert_eq!(flag("http://127.0.0.1:2381"), None);
        let port = json!({"ports": [{"name": "metrics", "containerPort": 2399}]});
        assert_eq!(named(&container(port)), Some((true, 2399)));
    }

    #[test]
    fn the_capacity_of_a_claim_is_read_in_its_usual_forms() {
        assert_eq!(bytes("8Gi"), Some(8 << 30));
        assert_eq!(bytes("10G"), Some(10_000_000_000));
        assert_eq!(bytes("1024"), Some(1024));
        assert_eq!(bytes("1.5Gi"), None);
    }
}
