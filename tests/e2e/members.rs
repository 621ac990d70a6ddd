//! The `EtcdMember`s that the gate keeps (DEP-04), with the feature `EtcdMembers` on.

pub(crate) mod sidecar;
pub(crate) mod volumes;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use quorumgate_testbed::etcd_cluster::EtcdVersion;
use quorumgate_testbed::faults::Standing;
use quorumgate_testbed::{eventually, faults};
use serde_json::json;

use crate::scale_out::{joins_as_learner, promote, scheduled};
use crate::teardown::announce;
use crate::world::{SOON, World, WorldBuilder};

/// The sub-states that the `EtcdMember` has passed, as kubectl prints them.
async fn passed(world: &World, member: &str) -> Result<Vec<String>> {
    let path = "jsonpath={.status.transitions[*].subState}";
    let output = world
        .kubectl(&["get", "etcdmember", member, "-o", path])
        .await?;
    let text = output.success()?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// The reasons of the member's transitions.
async fn reasons(world: &World, member: &str) -> Result<Vec<String>> {
    let path = "jsonpath={.status.transitions[*].reason}";
    let output = world
        .kubectl(&["get", "etcdmember", member, "-o", path])
        .await?;
    let text = output.success()?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// A field of the member's status, as kubectl prints it. Empty if it is absent.
async fn field(world: &World, member: &str, path: &str) -> Result<String> {
    let path = format!("jsonpath={{.status.{path}}}");
    let output = world
        .kubectl(&["get", "etcdmember", member, "-o", &path])
        .await?;
    output.success()
}

/// Overrides the gate for ten minutes.
async fn lift(world: &World) -> Result<()> {
    let until = Timestamp::now().checked_add(SignedDuration::from_mins(10))?;
    let lifted = format!("quorumgate.io/override-until={until}");
    let annotate = ["annotate", "qdb", "etcd", &lifted];
    world.kubectl(&annotate).await?.success().map(drop)
}

fn with_members(name: &str) -> WorldBuilder {
    World::builder(name)
        .feature("EtcdMembers")
        .component("etcd-members")
}

/// Waits until the member's last state is this one.
async fn is_now(world: &World, member: &str, state: &str) -> Result<()> {
    eventually(SOON, format!("{member} is {state}"), || async {
        let states = passed(world, member).await?;
        ensure!(states.last().context("no state")? == state, "{states:?}");
        Ok(())
    })
    .await
}

/// Checks the states of a new cluster and of one that lost its leader.
async fn states_follow_in_order(world: &World) -> Result<()> {
    let leader = world.etcd.leader().await?;
    for member in world.etcd.pod_names() {
        let leads = member == leader;
        is_now(world, &member, if leads { "Leader" } else { "Follower" }).await?;
        let states = passed(world, &member).await?;
        ensure!(states.first().context("none")? == "New", "{states:?}");
    }
    let shown = world.kubectl(&["get", "etcdmembers"]).await?.success()?;
    ensure!(
        shown.contains("STATE") && shown.matches("Started").count() == 3,
        "{shown}"
    );

    let uid = world.etcd.pod_uid(&leader).await?;
    let before = reasons(world, &leader).await?.len();
    // Where members or the API server are too slow for a verdict, it is asked again.
    eventually(SOON, format!("{leader} may go"), || world.delete(&leader)).await?;
    world.replaced(&leader, &uid).await?;
    world.whole().await?;
    is_now(world, &leader, "Follower").await?;
    let told = reasons(world, &leader).await?;
    let lost = |told: &[String]| {
        told.iter()
            .filter(|r| *r == "LostClusterLeadership")
            .count()
    };
    ensure!(lost(&told) <= 1 && told.len() > before, "{told:?}");
    let next = world.etcd.leader().await?;
    is_now(world, &next, "Leader").await?;
    let told = reasons(world, &next).await?;
    let gained = told.iter().filter(|r| *r == "GainedClusterLeadership");
    ensure!(gained.count() == 1, "{told:?}");
    Ok(())
}

/// Adds the member in `pod`, which does not start before `held` is mended. Checks that it is told
/// as a learner until it is promoted.
async fn is_told_as_learner(world: &World, pod: &str, held: Standing) -> Result<()> {
    scheduled(world, pod).await?;
    let annotations = || async {
        let path = "jsonpath={.metadata.annotations}";
        let output = world
            .kubectl(&["get", "etcdmember", pod, "-o", path])
            .await?;
        output.success()
    };
    eventually(SOON, format!("{pod} is told as learner"), || async {
        let annotations = annotations().await?;
        ensure!(annotations.contains("create-as-learner"), "{annotations}");
        Ok(())
    })
    .await?;
    joins_as_learner(world, pod, held).await?;
    is_now(world, pod, "Learner").await?;
    promote(world, pod).await?;
    is_now(world, pod, "Follower").await?;
    eventually(SOON, "the annotation is gone", || async {
        let annotations = annotations().await?;
        ensure!(!annotations.contains("create-as-learner"), "{annotations}");
        Ok(())
    })
    .await?;
    let told = reasons(world, pod).await?;
    let joined = told.starts_with(
        &[
            "ClusterScaledUp",
            "WaitingToJoinAsLearner",
            "JoinedAsLearner",
            "PromotedAsVotingMember",
        ]
        .map(str::to_owned),
    );
    ensure!(joined, "{told:?}");
    Ok(())
}

/// Hibernates the cluster and wakes it.
async fn sleeps_and_wakes(world: &World) -> Result<()> {
    announce(world, "hibernate").await?;
    world.etcd.scale(0).await?;
    eventually(SOON, "no EtcdMember is left", || async {
        let output = world.kubectl(&["get", "etcdmembers", "-o", "name"]).await?;
        let left = output.success()?;
        ensure!(left.trim().is_empty(), "{left}");
        Ok(())
    })
    .await?;
    world.etcd.scale(3).await?;
    world.whole().await?;
    let leader = world.etcd.leader().await?;
    is_now(world, &leader, "Leader").await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_states_of_a_new_cluster_follow_in_order_and_leadership_is_gained_once() -> Result<()> {
    let world = with_members("members-new").start().await?;
    states_follow_in_order(&world).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_are_added_to_one_are_told_as_learners_until_their_promotion() -> Result<()> {
    let world = with_members("members-growth")
        .etcd(|etcd| etcd.replicas(1))
        .start()
        .await?;
    is_now(&world, "etcd-0", "Leader").await?;
    let told = reasons(&world, "etcd-0").await?;
    let first = told.first().context("none")?;
    ensure!(first == "NewSingleNodeClusterCreated", "{told:?}");
    let second = faults::hold_in_container_creating(&world.sandbox, "etcd-1")?;
    let third = faults::hold_in_container_creating(&world.sandbox, "etcd-2")?;
    // The only voter has no other beside it when the first learner's pod is made anew.
    lift(&world).await?;
    world.etcd.scale(3).await?;
    is_told_as_learner(&world, "etcd-1", second).await?;
    is_told_as_learner(&world, "etcd-2", third).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn hibernation_ends_every_etcd_member_and_another_writer_ends_the_gates_writes() -> Result<()>
{
    another_writer_ends_its_writes(EtcdVersion::V3_7, "members-sleep").await
}

pub(crate) async fn another_writer_ends_its_writes(version: EtcdVersion, name: &str) -> Result<()> {
    let world = with_members(name)
        .etcd(|etcd| etcd.version(version))
        .start()
        .await?;
    sleeps_and_wakes(&world).await?;
    let leader = world.etcd.leader().await?;
    an_impossible_change_is_an_event(&world, &leader).await?;
    world
        .kubectl(&[
            "patch",
            "etcdmember",
            &leader,
            "--subresource=status",
            "--type=merge",
            "--field-manager=somebody-else",
            r#"--patch={"status":{"dbSize":1}}"#,
        ])
        .await?
        .success()?;
    world
        .told_by_event("ForeignWriter", "somebody-else")
        .await?;
    world.close().await
}

/// Records one of several members as restored from the backup, in the gate's name: no way leads
/// from there to where it is.
async fn an_impossible_change_is_an_event(world: &World, leader: &str) -> Result<()> {
    let pods = world.etcd.pod_names();
    let member = pods.iter().find(|pod| *pod != leader).context("none")?;
    is_now(world, member, "Follower").await?;
    let last = json!({"status": {"transitions": [{
        "state": "Initializing", "subState": "Restoration", "reason": "DBValidationFailed",
        "transitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let patch = format!("--patch={last}");
    world
        .kubectl(&[
            "patch",
            "etcdmember",
            member,
            "--subresource=status",
            "--type=merge",
            "--field-manager=quorumgate",
            &patch,
        ])
        .await?
        .success()?;
    world
        .told_by_event("ImpossibleTransition", "which cannot follow")
        .await
}

/// A life on an older etcd; the tests above run the newest.
async fn is_told_on(version: EtcdVersion, name: &str) -> Result<()> {
    let world = with_members(name)
        .nodes(4)
        .etcd(|etcd| etcd.version(version))
        .start()
        .await?;
    states_follow_in_order(&world).await?;
    sleeps_and_wakes(&world).await?;
    let held = faults::hold_in_container_creating(&world.sandbox, "etcd-3")?;
    world.etcd.scale(4).await?;
    is_told_as_learner(&world, "etcd-3", held).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_members_is_told_on_etcd_3_4() -> Result<()> {
    is_told_on(EtcdVersion::V3_4, "members-v3-4").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn the_life_of_members_is_told_on_etcd_3_5() -> Result<()> {
    is_told_on(EtcdVersion::V3_5, "members-v3-5").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn the_life_of_members_is_told_on_etcd_3_6() -> Result<()> {
    is_told_on(EtcdVersion::V3_6, "members-v3-6").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_adopts_the_stateful_set_adopts_its_etcd_members() -> Result<()> {
    let world = with_members("members-adopted").start().await?;
    is_now(&world, &world.etcd.leader().await?, "Leader").await?;
    let uid = world
        .kubectl(&[
            "create",
            "configmap",
            "app",
            "-o",
            "jsonpath={.metadata.uid}",
        ])
        .await?
        .success()?;
    let reference = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "app", "uid": uid.trim(), "controller": true,
    }]}});
    let patch = format!("--patch={reference}");
    world
        .kubectl(&["patch", "statefulset", "etcd", "--type=merge", &patch])
        .await?
        .success()?;
    let names = "jsonpath={.items[*].metadata.ownerReferences[*].name}";
    let list = [
        "get",
        "etcdmembers",
        "-l",
        "gardener.cloud/owned-by=app",
        "-o",
        names,
    ];
    eventually(SOON, "the EtcdMembers have the new owner", || async {
        let owners = world.kubectl(&list).await?.success()?;
        ensure!(owners.trim() == "app app app", "{owners}");
        Ok(())
    })
    .await?;
    world.close().await
}
