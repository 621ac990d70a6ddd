//! The temperature of a ledger: written down once a replica has watched it for a settle time, taken back when the gate was
//! not in force.
//!
//! Any replica does this. A ledger in which no permission can be missing starts warm: where every pod of the cluster is younger
//! than the budget, and the gate has been in force since. Times of the API server have whole seconds, so a pod of the same
//! second counts as older.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};

use super::enrol::belongs_to;
use super::force::OutOfForce;
use crate::api::names;
use crate::ledger::{Ledger, LedgerError, Page, temperature};
use crate::quorum::{ClusterRef, Temperature};

/// What a step left to do.
pub(super) struct Warmed {
    pub(super) page: Page,
    /// When to look again where nothing wakes before.
    pub(super) next: Option<Duration>,
}

/// Writes down what the ledger's temperature is now. `force` is by what the gate is in force, as seen just now; `lapse` whether
/// it was not at some moment since the last step.
pub(super) async fn step(
    client: &Client,
    ledger: &Ledger,
    mut page: Page,
    force: &Result<String, OutOfForce>,
    lapse: Option<&OutOfForce>,
    settle_time: Duration,
) -> Result<Warmed, LedgerError> {
    if let Some(why) = force.as_ref().err().or(lapse) {
        page = ledger
            .suspend(&page, &why.to_string())
            .await?
            .unwrap_or(page);
    }
    let Ok(by) = force else {
        return Ok(Warmed { page, next: None });
    };
    page = ledger.in_force(&page, by).await?.unwrap_or(page);
    if is_warm(&page) {
        return Ok(Warmed { page, next: None });
    }
    match temperature(&page, ledger.seen(), settle_time) {
        Temperature::Warm => {}
        Temperature::Cold { remaining } => {
            if !starts_warm(client, &page).await? {
                let next = Some(remaining);
                return Ok(Warmed { page, next });
            }
        }
    }
    page = ledger.warm(&page).await?.unwrap_or(page);
    Ok(Warmed { page, next: None })
}

/// Whether it is written that this very ledger is warm. A status may have been copied from another budget.
pub(super) fn is_warm(page: &Page) -> bool {
    page.status().is_some_and(|status| {
        status.ledger.warm && status.ledger.budget_uid.as_deref() == Some(page.uid.as_str())
    })
}

/// Whether no permission can be missing in a ledger that was never cold before: every pod is younger than it.
async fn starts_warm(client: &Client, page: &Page) -> Result<bool, LedgerError> {
    let never_cooled = page
        .status()
        .is_none_or(|s| s.ledger.epoch == 0 && s.ledger.cold_because.is_none());
    if !never_cooled {
        return Ok(false);
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &page.cluster.namespace);
    let members = ListParams::default().labels(names::POD_NAME);
    let pods = pods.list(&members).await.map_err(LedgerError::Read)?;
    let born = page.budget().creation_timestamp();
    Ok(all_younger(&page.cluster, &pods.items, born.as_ref()))
}

fn all_younger(cluster: &ClusterRef, pods: &[Pod], than: Option<&Time>) -> bool {
    let Some(budget) = than else {
        return false;
    };
    pods.iter()
        .filter(|pod| belongs_to(pod).as_ref() == Some(cluster))
        .all(|pod| pod.creation_timestamp().is_some_and(|born| born > *budget))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    fn pod(name: &str, born: i64) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.namespace = Some("a".into());
        pod.metadata.name = Some(name.into());
        pod.metadata.creation_timestamp = Some(at(born));
        pod
    }

    #[test]
    fn a_ledger_starts_warm_only_where_every_pod_of_its_cluster_is_younger() {
        let cluster = ClusterRef::new("a", "etcd");
        let budget = at(100);
        let younger = |pods: &[Pod]| all_younger(&cluster, pods, Some(&budget));
        assert!(younger(&[]));
        assert!(younger(&[pod("etcd-0", 101), pod("web-0", 1)]));
        assert!(!younger(&[pod("etcd-0", 101), pod("etcd-1", 99)]));
    }

    #[test]
    fn a_pod_of_the_same_second_counts_as_older() {
        let cluster = ClusterRef::new("a", "etcd");
        let budget = at(100);
        assert!(!all_younger(&cluster, &[pod("etcd-0", 100)], Some(&budget)));
    }

    #[test]
    fn a_budget_without_a_birth_starts_cold() {
        assert!(!all_younger(&ClusterRef::new("a", "etcd"), &[], None));
    }
}
