//! A pod that lost its owner by a change of its labels still runs the same member.

use std::time::Duration;

use anyhow::{Result, ensure};
use quorumgate_testbed::etcd_cluster::Tls;
use quorumgate_testbed::eventually;
use quorumgate_testbed::writer::Writer;
use serde_json::json;
use tokio::try_join;

use crate::asking::By;
use crate::world::{SOON, World};

/// The patches that take a pod away from its StatefulSet: without the label that the set selects
/// by, without its owner reference, without all labels.
const LOST: [(&str, &str); 3] = [
    ("label", r#"{"metadata": {"labels": {"app": null}}}"#),
    ("owner", r#"{"metadata": {"ownerReferences": null}}"#),
    ("labels", r#"{"metadata": {"labels": null}}"#),
];

/// The longest time without a write. Two voters always serve, so a write waits for one election at
/// most.
const LONGEST_GAP: Duration = Duration::from_secs(4);

/// Starts a cluster whose members advertise their IP addresses, and end eight seconds after the
/// delete. So a terminating member answers at its client URL, whatever happens to its pod's labels.
async fn by_address(name: &str) -> Result<World> {
    let pre_stop = json!({"preStop": {"exec": {"command": ["sleep", "8"]}}});
    World::builder(name)
        .etcd(|etcd| {
            etcd.tls(Tls::None)
                .clients_by_address()
                .grace_period(Duration::from_secs(20))
                .container_field("lifecycle", pre_stop)
        })
        .start()
        .await
}

/// Takes a pod away from its StatefulSet, and waits until the gate has reported the result.
async fn lose(world: &World, pod: &str, patch: &str) -> Result<()> {
    let args = ["patch", "pod", pod, "--type=merge", "--patch", patch];
    world.kubectl(&args).await?.success()?;
    let before = world.budget().await?.metadata.generation;
    let timeout = format!("{}ms", 400 + before.unwrap_or_default());
    let spec = json!({"spec": {"members": {"probeTimeout": timeout}}}).to_string();
    let args = ["patch", "qdb", "etcd", "--type=merge", "--patch", &spec];
    world.kubectl(&args).await?.success()?;
    eventually(SOON, "the gate has looked at the new spec", || async {
        let seen = world.budget().await?.status;
        let seen = seen.and_then(|status| status.observed_generation);
        ensure!(seen > before, "{seen:?}");
        anyhow::Ok(())
    })
    .await
}

async fn two_in_a_row(name: &str, by: By) -> Result<()> {
    let world = by_address(name).await?;
    for (lost, patch) in LOST {
        lose(&world, "etcd-0", patch).await?;
        let uid = world.etcd.pod_uid("etcd-0").await?;
        world.lets_go(by, "etcd-0").await?;
        world.has_to_wait("etcd-1", &["etcd-0"]).await?;
        world.has_to_wait("etcd-2", &["etcd-0"]).await?;
        eventually(SOON, format!("etcd-0 is gone ({lost})"), || async {
            let now = world.pods().get_opt("etcd-0").await?;
            let now = now.and_then(|pod| pod.metadata.uid);
            ensure!(now.as_ref() != Some(&uid), "it is still there");
            Ok(())
        })
        .await?;
        create_again(&world, &uid).await?;
        world.whole().await?;
    }
    world.close().await
}

/// Triggers the StatefulSet controller, and waits for a new pod. The controller has tried in vain
/// to create a pod of this name, with growing pauses, and gets no event for the end of a pod that
/// it does not own.
async fn create_again(world: &World, uid: &str) -> Result<()> {
    let now = format!("testbed.quorumgate.io/look={uid}");
    let look_again = ["annotate", "--overwrite", "statefulset", "etcd", &now];
    world.kubectl(&look_again).await?.success()?;
    world.replaced("etcd-0", uid).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_deletes_after_one_member_lost_its_set_leave_the_majority() -> Result<()> {
    two_in_a_row("relabelled-deletes", By::Delete).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_evictions_after_one_member_lost_its_set_leave_the_majority() -> Result<()> {
    two_in_a_row("relabelled-evictions", By::Eviction).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_beside_a_rollout_after_one_member_lost_its_set_leaves_the_majority() -> Result<()>
{
    let world = by_address("relabelled-drain").await?;
    lose(&world, "etcd-0", LOST[2].1).await?;
    let node = world.node_of("etcd-0").await?;
    let uid = world.etcd.pod_uid("etcd-0").await?;
    let writer = Writer::start(&world.etcd).await?;
    world.etcd.change_template("two").await?;
    let drained = world.drain(&node, &["--force"]);
    let created = async {
        eventually(SOON, "etcd-0 is gone", || async {
            let now = world.pods().get_opt("etcd-0").await?;
            let now = now.and_then(|pod| pod.metadata.uid);
            ensure!(now.as_ref() != Some(&uid), "it is still there");
            Ok(())
        })
        .await?;
        world.kubectl(&["uncordon", &node]).await?.success()?;
        create_again(&world, &uid).await
    };
    try_join!(drained, created)?;
    world.whole().await?;
    let report = writer.stop().await?;
    report.assert_nothing_lost(&world.etcd).await?;
    ensure!(
        report.longest_gap < LONGEST_GAP,
        "nothing could be written for {:?}",
        report.longest_gap
    );
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_the_label_that_its_set_selects_is_gated_as_before() -> Result<()> {
    stays_gated("relabelled", &["app-"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_any_label_of_its_set_is_gated_as_before() -> Result<()> {
    stays_gated(
        "unlabelled",
        &["app-", "statefulset.kubernetes.io/pod-name-"],
    )
    .await
}

async fn stays_gated(name: &str, labels: &[&str]) -> Result<()> {
    let world = World::new(name).await?;
    let mut relabel = vec!["label", "pod", "etcd-0"];
    relabel.extend(labels);
    world.kubectl(&relabel).await?.success()?;
    eventually(SOON, "its StatefulSet has let go of etcd-0", || async {
        let owners = world.etcd.pod("etcd-0").await?.metadata.owner_references;
        ensure!(owners.is_none(), "{owners:?}");
        Ok(())
    })
    .await?;

    let broken = world.crash("etcd-2").await?;
    world.has_to_wait("etcd-0", &["etcd-0", "etcd-2"]).await?;
    broken.mend();
    world.etcd.serves("etcd-2", SOON).await?;
    eventually(SOON, "etcd-2 is Ready", || async {
        ensure!(world.etcd.is_ready("etcd-2").await?, "not yet");
        anyhow::Ok(())
    })
    .await?;

    let uid = world.etcd.pod_uid("etcd-0").await?;
    world.lets_go(By::Delete, "etcd-0").await?;
    world.has_to_wait("etcd-1", &["etcd-0"]).await?;
    eventually(SOON, "etcd-0 is gone", || async {
        let now = world.pods().get_opt("etcd-0").await?;
        let now = now.and_then(|pod| pod.metadata.uid);
        ensure!(now.as_ref() != Some(&uid), "it is still there");
        Ok(())
    })
    .await?;
    // The StatefulSet controller has tried in vain to create a pod of this name, with growing
    // pauses, and gets no event for the end of a pod that it does not own.
    let look_again = [
        "annotate",
        "statefulset",
        "etcd",
        "testbed.quorumgate.io/look=again",
    ];
    world.kubectl(&look_again).await?.success()?;
    world.replaced("etcd-0", &uid).await?;
    world.whole().await?;
    world.close().await
}
