//! The container of etcd-backup-restore beside a member: where it listens, and which of its starts
//! it runs in.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};

use super::belonging::controller;
use super::observer::Observer;
use super::settings::Settings;
use super::view::ClusterView;
use super::ways::credentials::Credentials;
use super::ways::named::authority_in;
use super::{containers, endpoints, pods};
use crate::etcd::{Endpoint, TlsIdentity};
use crate::quorum::evidence::Target;
use crate::quorum::{ClusterRef, PodName};

/// The container's name, by etcd-druid's convention.
const NAME: &str = "backup-restore";

/// The volume with the authority of the container's own certificate, by etcd-druid's convention.
const CA_VOLUME: &str = "backup-restore-ca";

/// The port of the container where no flag names another.
const PORT: u16 = 8080;

/// The names of the Leases that etcd-backup-restore renews for its snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotLeases {
    /// The Lease for full snapshots.
    pub full: String,
    /// The Lease for delta snapshots.
    pub delta: String,
}

/// The Leases that an etcd-backup-restore in the pods of this StatefulSet renews, by its flags. By
/// etcd-druid's convention they are named after the owner. `None` if there is no such container.
pub fn snapshot_leases(set: &StatefulSet) -> Option<SnapshotLeases> {
    let pod = set.spec.as_ref()?.template.spec.as_ref()?;
    let restartable = pod.init_containers.iter().flatten();
    pod.containers
        .iter()
        .chain(restartable)
        .find_map(|container| {
            let settings = Settings::from_container(container);
            let flag = |kind| settings.flag(&format!("{kind}-snapshot-lease-name"));
            let (full, delta) = (flag("full"), flag("delta"));
            let renews = settings.is_on("enable-snapshot-lease-renewal");
            let is_one = renews || full.is_some() || delta.is_some() || container.name == NAME;
            let default = |kind| {
                if renews {
                    return format!("{kind}-snapshot-revisions");
                }
                let owner = controller(&set.metadata).map(|owner| owner.name.clone());
                let owner = owner.or_else(|| set.metadata.name.clone());
                format!("{}-{kind}-snap", owner.unwrap_or_default())
            };
            is_one.then(|| SnapshotLeases {
                full: full.map_or_else(|| default("full"), |flag| flag.value),
                delta: delta.map_or_else(|| default("delta"), |flag| flag.value),
            })
        })
}

/// The starts of etcd's container and of the one beside it, in one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarStarts {
    /// The UID of the pod.
    pub pod: String,
    /// The restarts of etcd's container.
    pub etcd: i32,
    /// The restarts of the container beside it, in which it counts from 0.
    pub sidecar: i32,
    /// Whether the container beside it cannot have counted anything for an earlier start of etcd's
    /// container.
    pub is_first: bool,
}

/// The container of etcd-backup-restore, by etcd-druid's convention: beside etcd's, or an init
/// container that runs on.
pub(super) fn container(pod: &Pod) -> Option<&Container> {
    let spec = pod.spec.as_ref()?;
    let running_on = spec.init_containers.iter().flatten();
    let mut containers = spec.containers.iter().chain(running_on);
    containers.find(|container| container.name == NAME)
}

/// The starts of etcd's container and of etcd-backup-restore's. `None` if the pod has none of them,
/// or one of them does not run. `named` is the container of etcd that the budget names.
pub fn starts(pod: &Pod, named: Option<&str>) -> Option<SidecarStarts> {
    let etcd = containers::etcd_status(pod, named)?;
    let status = pod.status.as_ref()?;
    let running_on = status.init_container_statuses.iter().flatten();
    let mut reported = status.container_statuses.iter().flatten().chain(running_on);
    let sidecar = reported.find(|status| status.name == NAME)?;
    let (etcd_began, sidecar_began) = (began(etcd)?, began(sidecar)?);
    Some(SidecarStarts {
        pod: pods::uid(pod).to_string(),
        etcd: etcd.restart_count,
        sidecar: sidecar.restart_count,
        is_first: etcd.restart_count == 0 || sidecar_began > etcd_began,
    })
}

fn began(status: &ContainerStatus) -> Option<Timestamp> {
    let running = status.state.as_ref()?.running.as_ref()?;
    Some(running.started_at.as_ref()?.0)
}

impl Observer {
    /// The endpoint of the etcd-backup-restore in this pod. `None` if the pod has none or no
    /// address. The error says for people why it cannot be asked.
    pub async fn sidecar(
        &self,
        cluster: &ClusterRef,
        view: &ClusterView,
        pod: &PodName,
    ) -> Result<Option<Endpoint>, String> {
        let Some(found) = view.pod(pod) else {
            return Ok(None);
        };
        let (Some(container), Some(address)) = (container(found), pods::address(found)) else {
            return Ok(None);
        };
        let settings = Settings::from_container(container);
        let port = settings.get("server-port");
        let port = port
            .and_then(|port| port.value.parse().ok())
            .unwrap_or(PORT);
        let tls = match settings.get("server-cert") {
            None => None,
            Some(_) => Some(self.sidecar_identity(cluster, found).await?),
        };
        Ok(Some(Endpoint {
            target: Target::Pod(pods::uid(found)),
            address: endpoints::with_port(address, port),
            server_names: endpoints::dns_name(found, view.service(), &cluster.namespace)
                .into_iter()
                .collect(),
            tls,
        }))
    }

    /// The authority of the container's certificate, which the wrapper of etcd trusts. No client
    /// certificate is asked for.
    async fn sidecar_identity(
        &self,
        cluster: &ClusterRef,
        pod: &Pod,
    ) -> Result<Arc<TlsIdentity>, String> {
        let spec = pod.spec.as_ref();
        let authority = spec.and_then(|spec| authority_in(spec, CA_VOLUME));
        if authority.is_none() {
            return Err(format!("it serves TLS, and there is no volume {CA_VOLUME}"));
        }
        let wanted = Credentials {
            authority,
            ..Credentials::default()
        };
        self.tls_identities()
            .read(&cluster.namespace, &wanted, self.clock().instant())
            .await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn with(etcd: (i32, &str), sidecar: &Value) -> Option<SidecarStarts> {
        let running = |at: &str| json!({"running": {"startedAt": format!("2026-01-01T00:{at}Z")}});
        let pod = json!({
            "metadata": {"uid": "u"},
            "spec": {"containers": [{"name": "etcd"}, {"name": NAME}]},
            "status": {"containerStatuses": [
                {"name": "etcd", "ready": true, "restartCount": etcd.0, "image": "", "imageID": "", "state": running(etcd.1)},
                {"name": NAME, "ready": true, "restartCount": sidecar["restarts"], "image": "", "imageID": "",
                 "state": sidecar["began"].as_str().map_or(json!({}), running)},
            ]},
        });
        starts(&serde_json::from_value(pod).unwrap(), None)
    }

    #[test]
    fn snapshot_leases_are_those_of_the_flags_or_of_the_convention() {
        let of = |container: Value, owners: Value| {
            let set = json!({
                "metadata": {"name": "etcd", "ownerReferences": owners},
                "spec": {"serviceName": "etcd", "selector": {}, "template": {"spec": {"containers": [{"name": "etcd"}, container]}}},
            });
            snapshot_leases(&serde_json::from_value(set).unwrap())
        };
        let names = |full: &str, delta: &str| {
            let (full, delta) = (full.to_owned(), delta.to_owned());
            Some(SnapshotLeases { full, delta })
        };
        let flags = json!([
            "--enable-snapshot-lease-renewal=true",
            "--full-snapshot-lease-name=f",
            "--delta-snapshot-lease-name",
            "d"
        ]);
        assert_eq!(
            of(json!({"name": "x", "args": flags}), json!([])),
            names("f", "d")
        );
        let renews = json!({"name": "x", "args": ["--enable-snapshot-lease-renewal"]});
        let own = names("full-snapshot-revisions", "delta-snapshot-revisions");
        assert_eq!(of(renews, json!([])), own);
        let beside = json!({"name": NAME});
        let convention = of(beside.clone(), json!([]));
        assert_eq!(convention, names("etcd-full-snap", "etcd-delta-snap"));
        let owner = json!([{"apiVersion": "a/v1", "kind": "Etcd", "name": "main", "uid": "1", "controller": true}]);
        assert_eq!(
            of(beside, owner),
            names("main-full-snap", "main-delta-snap")
        );
        assert_eq!(of(json!({"name": "metrics"}), json!([])), None);
    }

    #[test]
    fn counts_belong_to_the_first_start_of_etcd_or_to_that_before_which_nothing_was_counted() {
        let is_first = |etcd, sidecar| with(etcd, &sidecar).map(|starts| starts.is_first);
        let began = |at: &str| json!({"restarts": 0, "began": at});
        assert_eq!(is_first((0, "00:09"), began("00:01")), Some(true));
        assert_eq!(is_first((2, "00:09"), began("00:01")), Some(false));
        assert_eq!(is_first((2, "00:09"), began("00:10")), Some(true));
        assert_eq!(is_first((0, "00:09"), json!({"restarts": 1})), None);
    }

    #[test]
    fn an_init_container_that_runs_on_is_the_one_beside_etcd_too() {
        let running = json!({"running": {"startedAt": "2026-01-01T00:00:01Z"}});
        let status = |name: &str| {
            json!({
                "name": name, "ready": true, "restartCount": 0, "image": "", "imageID": "",
                "state": running,
            })
        };
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"uid": "u"},
            "spec": {
                "containers": [{"name": "etcd"}],
                "initContainers": [{"name": NAME, "restartPolicy": "Always"}],
            },
            "status": {
                "containerStatuses": [status("etcd")], "initContainerStatuses": [status(NAME)],
            },
        }))
        .unwrap();
        assert!(container(&pod).is_some());
        assert!(starts(&pod, None).is_some_and(|starts| starts.is_first));
    }
}
