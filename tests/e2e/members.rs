//! The `EtcdMember`s that the gate keeps (DEP-04), with the feature `EtcdMembers` on.

mod sidecar;

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::{eventually, faults};
use serde_json::json;

use crate::asking::By;
use crate::scale_out::{joins_as_learner, promote, scheduled};
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
    let output = world.kubectl(&["get", "etcdmember", member, "-o", &path]);
    output.await?.success()
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

#[tokio::test(flavor = "multi_thread")]
async fn the_states_of_a_new_cluster_follow_in_order_and_leadership_is_gained_once() -> Result<()> {
    let world = with_members("members-new").start().await?;
    let leader = world.etcd.leader().await?;
    for member in world.etcd.pod_names() {
        let leads = member == leader;
        is_now(&world, &member, if leads { "Leader" } else { "Follower" }).await?;
        let states = passed(&world, &member).await?;
        ensure!(states.first().context("none")? == "New", "{states:?}");
    }
    let shown = world.kubectl(&["get", "etcdmembers"]).await?.success()?;
    ensure!(
        shown.contains("STATE") && shown.matches("Started").count() == 3,
        "{shown}"
    );

    let uid = world.etcd.pod_uid(&leader).await?;
    let before = reasons(&world, &leader).await?.len();
    world.lets_go(By::Delete, &leader).await?;
    world.replaced(&leader, &uid).await?;
    world.whole().await?;
    is_now(&world, &leader, "Follower").await?;
    let told = reasons(&world, &leader).await?;
    let lost = |told: &[String]| {
        told.iter()
            .filter(|r| *r == "LostClusterLeadership")
            .count()
    };
    ensure!(lost(&told) <= 1 && told.len() > before, "{told:?}");
    let next = world.etcd.leader().await?;
    is_now(&world, &next, "Leader").await?;
    let told = reasons(&world, &next).await?;
    let gained = told.iter().filter(|r| *r == "GainedClusterLeadership");
    ensure!(gained.count() == 1, "{told:?}");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_added_is_told_as_learner_until_its_promotion() -> Result<()> {
    let world = with_members("members-growth").nodes(4).start().await?;
    let held = faults::hold_in_container_creating(&world.sandbox, "etcd-3")?;
    world.etcd.scale(4).await?;
    scheduled(&world, "etcd-3").await?;
    let annotations = || async {
        let path = "jsonpath={.metadata.annotations}";
        let output = world
            .kubectl(&["get", "etcdmember", "etcd-3", "-o", path])
            .await?;
        output.success()
    };
    eventually(SOON, "the new member is told as learner", || async {
        let annotations = annotations().await?;
        ensure!(annotations.contains("create-as-learner"), "{annotations}");
        Ok(())
    })
    .await?;
    joins_as_learner(&world, "etcd-3", held).await?;
    is_now(&world, "etcd-3", "Learner").await?;
    promote(&world, "etcd-3").await?;
    is_now(&world, "etcd-3", "Follower").await?;
    eventually(SOON, "the annotation is gone", || async {
        let annotations = annotations().await?;
        ensure!(!annotations.contains("create-as-learner"), "{annotations}");
        Ok(())
    })
    .await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn hibernation_ends_every_etcd_member_and_another_writer_ends_the_gates_writes() -> Result<()>
{
    let world = with_members("members-sleep").start().await?;
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
    is_now(&world, &leader, "Leader").await?;

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
    eventually(SOON, "the gate says that it stopped", || async {
        let output = world
            .kubectl(&["get", "events", "--field-selector", "reason=ForeignWriter"])
            .await?;
        let events = output.success()?;
        ensure!(events.contains("somebody-else"), "{events}");
        Ok(())
    })
    .await?;
    world.close().await
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
