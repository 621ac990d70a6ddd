//! Pods that kubelets reject. Such a pod has failed without ever running, and its StatefulSet
//! controller deletes it, which asks the gate.

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, EvictParams, ListParams, PostParams, WatchEvent, WatchParams};
use quorumgate_testbed::etcd_cluster::{PodManagement, Readiness};
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use crate::asking::{By, refusal};
use crate::vigil::Vigil;
use crate::world::{SOON, World};

/// The number of incarnations that are rejected before the node has room.
const SEVERAL: usize = 3;

/// A watch for rejected pods of members.
pub(crate) struct Rejections {
    watch: JoinHandle<()>,
    rejected: UnboundedReceiver<Pod>,
}

impl Rejections {
    /// Starts a watch.
    pub(crate) async fn watch(world: &World) -> Result<Self> {
        let pods: Api<Pod> = world.pods();
        let version = pods.list(&ListParams::default()).await?.metadata;
        let version = version.resource_version.context("a list without version")?;
        let (tell, rejected) = unbounded_channel();
        let mut events = pods.watch(&WatchParams::default(), &version).await?.boxed();
        let watch = tokio::spawn(async move {
            while let Some(Ok(event)) = events.next().await {
                if let WatchEvent::Modified(pod) = event
                    && is_rejected(&pod)
                {
                    let _ = tell.send(pod);
                }
            }
        });
        Ok(Self { watch, rejected })
    }

    /// Waits for the next incarnation that is rejected.
    pub(crate) async fn next(&mut self) -> Result<Pod> {
        let next = tokio::time::timeout(SOON, self.rejected.recv()).await;
        next.context("nothing is rejected")?
            .context("the watch has ended")
    }
}

impl Drop for Rejections {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

fn is_rejected(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let reason = status.and_then(|status| status.reason.as_deref());
    pod.metadata.deletion_timestamp.is_none() && reason == Some("OutOfcpu")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_successors_are_rejected_comes_back_and_the_others_stay_meanwhile()
-> Result<()> {
    let world = World::new("rejected").await?;
    let vigil = Vigil::start(&world.etcd).await?;
    let mut rejections = Rejections::watch(&world).await?;
    let full = faults::reject(&world.sandbox, "etcd-1")?;
    world.lets_go(By::Delete, "etcd-1").await?;
    for _ in 0..SEVERAL {
        rejections.next().await?;
        for other in ["etcd-0", "etcd-2"] {
            world.has_to_wait(other, &["etcd-1"]).await?;
        }
    }
    full.mend();
    world.whole().await?;
    vigil.assert_never_below(2).await?;
    world.close().await
}

/// After a power loss. With ordered pod management the controller neither creates nor deletes a pod
/// above one that is not Ready, so only another client can delete the rejected pod.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_a_rejected_pod_goes_and_those_that_may_bring_it_back_stay() -> Result<()>
{
    let world = World::builder("rejected-lost")
        .etcd(|etcd| {
            etcd.pod_management(PodManagement::OrderedReady)
                .readiness(Readiness::Process)
        })
        .start()
        .await?;
    let broken = world.crash("etcd-0").await?;
    let uid = rejected_after_a_reboot(&world, "etcd-2").await?;
    ensure!(
        world.etcd.pod_uid("etcd-2").await? == uid,
        "it was replaced"
    );

    // One of these members is alive. The other is dead, but not for good.
    quorum_is_lost_to(&world, "etcd-1").await?;
    for needed in ["etcd-0", "etcd-1"] {
        for by in By::BOTH {
            world.has_to_wait_by(by, needed, &[needed]).await?;
        }
    }
    let dry = DeleteParams::default().dry_run();
    world.pods().delete("etcd-2", &dry).await?;
    let post_options = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let dry = EvictParams {
        post_options,
        ..EvictParams::default()
    };
    world.pods().evict("etcd-2", &dry).await?;
    world
        .kubectl(&["delete", "pod", "etcd-2", "--force"])
        .await?
        .success()?;
    for needed in ["etcd-0", "etcd-1"] {
        world.has_to_wait_by(By::Delete, needed, &[needed]).await?;
    }

    broken.mend();
    world.replaced("etcd-2", &uid).await?;
    world.whole().await?;
    world.close().await
}

/// After a power loss. Only a new incarnation of the rejected pod can bring the quorum back, so the
/// controller has to delete the old one.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_the_controller_of_the_set_replaces_rejected_pods_until_it_is_back()
-> Result<()> {
    let world = World::new("rejected-anew").await?;
    let broken = world.crash("etcd-2").await?;
    let mut rejections = Rejections::watch(&world).await?;
    let full = faults::reject(&world.sandbox, "etcd-1")?;
    power_cycle(&world, "etcd-1").await?;
    for _ in 0..SEVERAL {
        rejections.next().await?;
        world
            .has_to_wait_by(By::Delete, "etcd-0", &["etcd-0"])
            .await?;
    }
    full.mend();
    for member in ["etcd-0", "etcd-1"] {
        world.etcd.serves(member, SOON).await?;
    }
    broken.mend();
    world.whole().await?;
    world.close().await
}

/// Restarts the pod's node without room for the pod. Returns the UID of the rejected incarnation.
async fn rejected_after_a_reboot(world: &World, pod: &str) -> Result<String> {
    let mut rejections = Rejections::watch(world).await?;
    let full = faults::reject(&world.sandbox, pod)?;
    power_cycle(world, pod).await?;
    let rejected = rejections.next().await?;
    full.mend();
    ensure!(rejected.name_any() == pod, "{}", rejected.name_any());
    rejected.uid().context("a pod without UID")
}

/// Cuts the power of a pod's node, on which no other pod runs, and restores it.
async fn power_cycle(world: &World, pod: &str) -> Result<()> {
    let node = world.agent_of(pod).await?;
    for other in world.etcd.pod_names() {
        let apart = other == pod || world.node_of(&other).await? != node.name();
        ensure!(apart, "{other} is on the same node");
    }
    node.power_off().await?;
    node.start().await
}

async fn quorum_is_lost_to(world: &World, pod: &str) -> Result<()> {
    let what = format!("{pod} is known to have lost its quorum");
    eventually(SOON, what, async || {
        let (code, message) = refusal(world.delete(pod).await)?;
        let lost = format!("quorum is lost and {pod} is alive");
        ensure!(code == 429 && message.contains(&lost), "{code}: {message}");
        Ok(())
    })
    .await
}
