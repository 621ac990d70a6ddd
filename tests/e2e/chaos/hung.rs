//! Members that hang, or that are cut off from all others, during a rollout.

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use kube::ResourceExt as _;
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::PodFaults;
use tokio::time::sleep;

use super::operation::Broken;
use super::stage::{Cluster, Stage};

/// The longest wait for the first step of a rollout. Another rollout or a fault may delay it.
const FIRST_STEP: Duration = Duration::from_secs(10);
/// The label that names the template revision of a pod.
const REVISION: &str = "controller-revision-hash";

/// How a member hangs, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hang {
    pub(super) how: How,
    pub(super) when: When,
    pub(super) length: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum How {
    Frozen,
    /// Neither peers nor clients reach the member.
    CutOff,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    /// Before the first step, which may replace this member for that reason.
    AtOnce,
    /// After the first member was replaced.
    Midway,
}

/// Makes the member hang during a rollout. The template has just been changed.
pub(super) async fn during_a_rollout(
    stage: &Stage,
    cluster: usize,
    member: &str,
    hang: Hang,
) -> Result<()> {
    let cluster = stage.cluster(cluster)?;
    if matches!(hang.when, When::Midway) {
        // If no step was taken until then, the member hangs all the same.
        let _ = eventually(FIRST_STEP, "a member is replaced", || is_under_way(cluster)).await;
    }
    let _unrest = cluster.unrest.read().await;
    let since = Timestamp::now();
    let faults = PodFaults::find(&stage.world.sandbox, member).await?;
    match hang.how {
        How::Frozen => {
            let frozen = faults.freeze()?;
            sleep(hang.length).await;
            frozen.thaw();
        }
        How::CutOff => {
            let cuts = [faults.partition()?, faults.ignore_clients()?];
            sleep(hang.length).await;
            drop(cuts);
        }
    }
    stage.was_broken(Broken::Member(member.to_owned()), since);
    Ok(())
}

async fn is_under_way(cluster: &Cluster) -> Result<()> {
    let set = cluster.etcd.stateful_set().await?;
    let revision = set.status.and_then(|status| status.update_revision);
    let pods = cluster.etcd.pods().await?;
    let has =
        |pod: &k8s_openapi::api::core::v1::Pod| pod.labels().get(REVISION).cloned() == revision;
    ensure!(pods.iter().any(has), "no pod has the new revision");
    Ok(())
}

/// Checks that every pod belongs to its StatefulSet and has the revision of the template, so that
/// no rollout ended halfway.
pub(super) async fn no_rollout_is_left(cluster: &Cluster, within: Duration) -> Result<()> {
    let etcd = &cluster.etcd;
    let what = format!("every pod of {} has the last template", etcd.name());
    eventually(within, what, || async {
        let set = etcd.stateful_set().await?;
        let (uid, generation) = (set.uid(), set.metadata.generation);
        let replicas = set.spec.and_then(|spec| spec.replicas).unwrap_or_default();
        let status = set.status.unwrap_or_default();
        ensure!(
            status.observed_generation == generation,
            "its controller has not seen the template"
        );
        for ordinal in 0..replicas {
            let pod = etcd.pod(&format!("{}-{ordinal}", etcd.name())).await?;
            let revision = pod.labels().get(REVISION);
            ensure!(
                revision == status.update_revision.as_ref(),
                "{} has {revision:?} and not {:?}",
                pod.name_any(),
                status.update_revision
            );
            let mut owners = pod.owner_references().iter();
            ensure!(
                owners.any(|owner| Some(&owner.uid) == uid.as_ref()),
                "{} is not its StatefulSet's",
                pod.name_any()
            );
        }
        Ok(())
    })
    .await
}
