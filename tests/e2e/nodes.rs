//! Nodes that die, and nodes that only seem to be gone.

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::DeleteParams;
use quorumgate_testbed::Node;
use quorumgate_testbed::eventually;

use crate::world::{SOON, World, refusal};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_a_lost_node_is_not_forced_away_until_the_node_is_out_of_service() -> Result<()> {
    let world = World::builder("node-lost").nodes(4).start().await?;
    let node = node_of(&world, "etcd-2").await?;
    let uid = world.etcd.pod_uid("etcd-2").await?;
    node.power_off().await?;
    node.wait_ready("Unknown").await?;

    let (code, message) = refusal(force(&world, "etcd-2").await)?;
    ensure!(
        code == 403 && message.contains("out-of-service"),
        "{code}: {message}"
    );
    let (code, message) = refusal(world.delete("etcd-0").await)?;
    ensure!(
        code == 429 && message.contains("etcd-2"),
        "{code}: {message}"
    );

    out_of_service(&world, &node).await?;
    match force(&world, "etcd-2").await {
        // The taint manager and the garbage collector may have been faster.
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        answer => answer?,
    }
    world.replaced("etcd-2", &uid).await?;
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_two_dead_nodes_come_back_elsewhere_once_these_are_out_of_service() -> Result<()>
{
    let world = World::builder("nodes-lost").nodes(5).start().await?;
    let lost = [
        node_of(&world, "etcd-1").await?,
        node_of(&world, "etcd-2").await?,
    ];
    for node in &lost {
        node.power_off().await?;
    }
    for node in &lost {
        node.wait_ready("Unknown").await?;
    }
    let (code, message) = refusal(world.delete("etcd-0").await)?;
    ensure!(code == 429, "{code}: {message}");

    for node in &lost {
        out_of_service(&world, node).await?;
    }
    for pod in ["etcd-1", "etcd-2"] {
        eventually(SOON, format!("{pod} runs elsewhere"), || async {
            let now = world.node_of(pod).await?;
            ensure!(lost.iter().all(|node| node.name() != now), "it is on {now}");
            Ok(())
        })
        .await?;
    }
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_runs_on_without_its_node_object_is_not_replaced_at_the_cost_of_another()
-> Result<()> {
    let world = World::builder("node-deleted").nodes(4).start().await?;
    let node = node_of(&world, "etcd-2").await?;
    let uid = world.etcd.pod_uid("etcd-2").await?;
    node.stop_agent().await?;
    node.delete_object().await?;

    // Its pod may go: nothing says that it still runs. The new one finds its data locked by the old.
    force(&world, "etcd-2").await?;
    eventually(SOON, "etcd-2 is created anew", || async {
        ensure!(
            world.etcd.pod_uid("etcd-2").await? != uid,
            "it is still there"
        );
        Ok(())
    })
    .await?;
    world.settled().await?;
    for needed in ["etcd-0", "etcd-1"] {
        let (code, message) = refusal(world.delete(needed).await)?;
        ensure!(
            code == 429 && message.contains("etcd-2"),
            "{code}: {message}"
        );
    }

    node.power_off().await?;
    world.whole().await?;
    world.delete("etcd-0").await?;
    world.close().await
}

async fn node_of(world: &World, pod: &str) -> Result<Node> {
    let name = world.node_of(pod).await?;
    let node = world.sandbox.node(&name).cloned();
    node.with_context(|| format!("{name} is none of this test's nodes"))
}

async fn force(world: &World, pod: &str) -> Result<(), kube::Error> {
    let now = DeleteParams::default().grace_period(0);
    world.pods().delete(pod, &now).await.map(drop)
}

async fn out_of_service(world: &World, node: &Node) -> Result<()> {
    let taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
    let said = world
        .kubectl(&["taint", "nodes", node.name(), taint])
        .await?
        .success()?;
    if !said.contains("tainted") {
        bail!("{said}");
    }
    Ok(())
}
