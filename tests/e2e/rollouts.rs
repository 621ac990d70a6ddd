//! Rollouts under `OnDelete`: the order, what writers notice, and what holds one.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use quorumgate::api::RolloutStatus;
use quorumgate_testbed::etcd_cluster::UpdateStrategy;
use quorumgate_testbed::eventually;
use quorumgate_testbed::writer::Writer;
use serde_json::json;

use crate::order::Order;
use crate::world::{SOON, World};

/// A rollout of three members, on a machine that does other things besides.
const ROLLOUT: Duration = Duration::from_secs(120);

/// What writers may wait for when a leader hands over and a follower restarts.
const GAP: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn followers_go_first_and_the_leader_last_and_writers_hardly_notice() -> Result<()> {
    let world = on_delete("rollout").await?;
    let leader = world.etcd.leader().await?;
    let writer = Writer::start(&world.etcd).await?;
    let order = Order::watch(&world).await?;

    let target = change_template(&world, "one").await?;
    let rollout = finished(&world, &target).await?;
    let order = order.stop();
    ensure!(order.len() == 3, "pods went in this order: {order:?}");
    ensure!(
        order.last() == Some(&leader),
        "{leader} led, and they went in this order: {order:?}"
    );
    ensure!(rollout.updated == 3 && rollout.targets == 3, "{rollout:?}");

    let report = writer.stop().await?;
    report.assert_nothing_lost(&world.etcd).await?;
    ensure!(
        report.longest_gap < GAP,
        "nothing could be written for {:?}",
        report.longest_gap
    );
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_member_is_replaced_before_any_that_serves() -> Result<()> {
    let world = on_delete("rollout-broken").await?;
    let broken_pod = world.etcd.followers().await?.pop().context("no follower")?;
    let broken = world.crash(&broken_pod).await?;
    let writer = Writer::start(&world.etcd).await?;
    let order = Order::watch(&world).await?;

    let target = change_template(&world, "one").await?;
    let told = waits_on(&world, &["updated-members"]).await?;
    ensure!(
        told.last_step.context("no step")?.pod == broken_pod,
        "another one went first"
    );
    // As long as the updated one does not serve, no other may go.
    for pod in world
        .etcd
        .pod_names()
        .iter()
        .filter(|pod| **pod != broken_pod)
    {
        ensure!(
            !has_revision(&world, pod, &target).await?,
            "{pod} went while {broken_pod} did not serve"
        );
    }
    broken.mend();

    finished(&world, &target).await?;
    let order = order.stop();
    ensure!(
        order.first() == Some(&broken_pod) && order.len() == 3,
        "{order:?}"
    );
    let report = writer.stop().await?;
    report.assert_nothing_lost(&world.etcd).await?;
    ensure!(report.longest_gap < GAP, "{:?}", report.longest_gap);
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_template_holds_at_one_member_and_a_rollback_goes_on() -> Result<()> {
    let world = on_delete("rollout-bad").await?;
    let writer = Writer::start(&world.etcd).await?;
    let good = revision(&world).await?;

    patch_template(
        &world,
        json!({"spec": {"containers": [{"name": "etcd", "image": "no.such/image:1"}]}}),
    )
    .await?;
    let told = waits_on(&world, &["updated-members"]).await?;
    let victim = told.last_step.context("no step")?.pod;
    ensure!(
        outdated(&world, &good).await? == BTreeSet::from([victim.clone()]),
        "more than one member got the bad template"
    );

    // kubernetes#67250: the StatefulSet controller would wait for the broken pod for ever.
    let image = image_of(&world, &good).await?;
    patch_template(
        &world,
        json!({"spec": {"containers": [{"name": "etcd", "image": image}]}}),
    )
    .await?;
    finished(&world, &good).await?;
    ensure!(
        outdated(&world, &good).await?.is_empty(),
        "a pod still has the bad template"
    );
    writer
        .stop()
        .await?
        .assert_nothing_lost(&world.etcd)
        .await?;
    world.whole().await?;
    world.close().await
}

/// A world whose StatefulSet waits for somebody to delete its pods.
async fn on_delete(name: &str) -> Result<World> {
    World::builder(name)
        .etcd(|etcd| etcd.update_strategy(UpdateStrategy::OnDelete))
        .feature("QuorumAwareUpdatesWithOnDelete")
        .start()
        .await
}

fn sets(world: &World) -> Api<StatefulSet> {
    world.sandbox.api()
}

/// Changes an annotation of the pod template. The revision that results.
async fn change_template(world: &World, value: &str) -> Result<String> {
    let before = revision(world).await?;
    patch_template(
        world,
        json!({"metadata": {"annotations": {"test/change": value}}}),
    )
    .await?;
    eventually(SOON, "the template has a new revision", async || {
        let now = revision(world).await?;
        ensure!(now != before, "still {now}");
        Ok(now)
    })
    .await
}

async fn patch_template(world: &World, template: serde_json::Value) -> Result<()> {
    let patch = json!({"spec": {"template": template}});
    let name = world.etcd.name();
    sets(world)
        .patch(name, &PatchParams::default(), &Patch::Strategic(&patch))
        .await?;
    Ok(())
}

/// The StatefulSet's update revision, of its present template.
async fn revision(world: &World) -> Result<String> {
    let set = sets(world).get(world.etcd.name()).await?;
    let status = set.status.context("no status")?;
    ensure!(
        status.observed_generation == set.metadata.generation,
        "not read yet"
    );
    status.update_revision.context("no update revision")
}

async fn has_revision(world: &World, pod: &str, revision: &str) -> Result<bool> {
    let pod = world.pods().get(pod).await?;
    Ok(pod
        .labels()
        .get("controller-revision-hash")
        .map(String::as_str)
        == Some(revision))
}

async fn outdated(world: &World, revision: &str) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for pod in world.etcd.pod_names() {
        if !has_revision(world, &pod, revision).await? {
            found.insert(pod);
        }
    }
    Ok(found)
}

async fn image_of(world: &World, revision: &str) -> Result<String> {
    for pod in world.etcd.pod_names() {
        if has_revision(world, &pod, revision).await? {
            let spec = world.pods().get(&pod).await?.spec.context("no spec")?;
            let mut containers = spec.containers.into_iter();
            let etcd = containers.find(|c| c.name == "etcd");
            return etcd.and_then(|c| c.image).context("no image");
        }
    }
    bail!("no pod has revision {revision}")
}

async fn rollout(world: &World) -> Result<RolloutStatus> {
    let status = world.budget().await?.status.context("no status")?;
    status
        .rollout
        .map(|told| *told)
        .context("the budget tells of no rollout")
}

/// Waits until the budget says that the rollout to this revision is complete.
async fn finished(world: &World, target: &str) -> Result<RolloutStatus> {
    eventually(
        ROLLOUT,
        format!("the rollout to {target} is complete"),
        async || {
            let told = rollout(world).await?;
            let complete = told.finished.is_some() && told.target.as_deref() == Some(target);
            ensure!(complete, "{told:?}");
            Ok(told)
        },
    )
    .await
}

/// Waits until the rollout waits for one of these.
async fn waits_on(world: &World, reasons: &[&str]) -> Result<RolloutStatus> {
    eventually(
        SOON,
        format!("the rollout waits for one of {reasons:?}"),
        async || {
            let told = rollout(world).await?;
            let reason = told
                .waiting_on
                .as_ref()
                .map(|waiting| waiting.reason.clone());
            ensure!(
                reason
                    .as_deref()
                    .is_some_and(|reason| reasons.contains(&reason)),
                "{told:?}"
            );
            Ok(told)
        },
    )
    .await
}
