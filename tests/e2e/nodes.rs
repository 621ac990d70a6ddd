//! Nodes that died, and nodes that are only unreachable.

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use quorumgate_testbed::Node;
use quorumgate_testbed::eventually;
use serde_json::json;

use crate::asking::{By, refusal};
use crate::vigil::Vigil;
use crate::world::{SOON, World};

/// The user as which kube-controller-manager deletes pods of Nodes that are gone.
const POD_GC: &str = "system:serviceaccount:kube-system:pod-garbage-collector";
/// The taint that declares that nothing runs on the node any more.
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_a_lost_node_is_not_forced_away_until_the_node_is_out_of_service() -> Result<()> {
    let world = World::builder("node-lost").nodes(4).start().await?;
    let node = world.agent_of("etcd-2").await?;
    let uid = world.etcd.pod_uid("etcd-2").await?;
    node.power_off().await?;
    node.wait_ready("Unknown").await?;

    let (code, message) = refusal(world.force("etcd-2").await)?;
    ensure!(
        code == 403 && message.contains("out-of-service"),
        "{code}: {message}"
    );
    world
        .has_to_wait_by(By::Delete, "etcd-0", &["etcd-2"])
        .await?;

    out_of_service(&world, &node).await?;
    force_away(&world, "etcd-2", &uid).await?;
    world.replaced("etcd-2", &uid).await?;
    world.whole().await?;
    world.close().await
}

/// Where a Node was deleted, pod GC calls its pods failed before it deletes them. A kubelet that
/// still runs ends their containers by that alone, so the delete would come too late for a refusal.
#[tokio::test(flavor = "multi_thread")]
async fn pod_gc_calls_no_pod_failed_whose_member_is_needed() -> Result<()> {
    let world = World::builder("called-failed").start().await?;
    let collector = world.bed().client_as(POD_GC, &["system:masters"]).await?;
    let pods: Api<Pod> = Api::namespaced(collector, world.namespace());
    let params = PatchParams::default();
    let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    let call_failed = async |pod| pods.patch_status(pod, &params, &failed).await;

    let uid = world.etcd.pod_uid("etcd-2").await?;
    eventually(SOON, "etcd-2 may be called failed", || async {
        call_failed("etcd-2").await?;
        anyhow::Ok(())
    })
    .await?;
    for pod in ["etcd-0", "etcd-1"] {
        let (code, message) = refusal(call_failed(pod).await)?;
        let says = format!("{pod} is needed");
        ensure!(code == 429 && message.contains(&says), "{code}: {message}");
    }
    // A controller manager may run all its controllers under one name.
    let name = "system:kube-controller-manager";
    let all = world.bed().client_as(name, &["system:masters"]).await?;
    let pods: Api<Pod> = Api::namespaced(all, world.namespace());
    let called = pods.patch_status("etcd-0", &params, &failed).await;
    let (code, message) = refusal(called)?;
    ensure!(code == 429, "{code}: {message}");
    // The controller of the StatefulSet deletes a pod that has failed.
    world.replaced("etcd-2", &uid).await?;
    world.whole().await?;
    world.close().await
}

/// An identity provider can give an account any name. A kubelet is known by the group of nodes.
#[tokio::test(flavor = "multi_thread")]
async fn a_kubelets_name_alone_takes_no_grace_from_a_pod_that_terminates() -> Result<()> {
    let world = World::builder("node-name").nodes(4).start().await?;
    let node = world.agent_of("etcd-2").await?;
    node.power_off().await?;
    node.wait_ready("Unknown").await?;
    // The node's agent is down, so the pod terminates until it is forced away.
    world.lets_go(By::Delete, "etcd-2").await?;

    let name = format!("system:node:{}", node.name());
    let namesake = world.bed().client_as(&name, &["system:masters"]).await?;
    let pods: Api<Pod> = Api::namespaced(namesake, world.namespace());
    let now = DeleteParams::default().grace_period(0);
    let (code, message) = refusal(pods.delete("etcd-2", &now).await)?;
    ensure!(
        code == 403 && message.contains("out-of-service"),
        "{code}: {message}"
    );
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_two_dead_nodes_come_back_elsewhere_once_these_are_out_of_service() -> Result<()>
{
    let world = World::builder("nodes-lost").nodes(5).start().await?;
    let lost = [
        world.agent_of("etcd-1").await?,
        world.agent_of("etcd-2").await?,
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
async fn while_a_member_runs_on_without_its_node_object_no_other_is_taken() -> Result<()> {
    let world = World::builder("node-deleted").nodes(4).start().await?;
    let node = world.agent_of("etcd-2").await?;
    let uid = world.etcd.pod_uid("etcd-2").await?;
    let needed = ["etcd-0", "etcd-1"];
    let before = (
        world.etcd.pod_uid("etcd-0").await?,
        world.etcd.pod_uid("etcd-1").await?,
    );
    let vigil = Vigil::start(&world.etcd).await?;
    node.stop_agent().await?;
    node.delete_object().await?;

    // The old pod may go, since nothing says that it still runs. The new pod finds its data locked
    // by the old process.
    force_away(&world, "etcd-2", &uid).await?;
    for pod in needed {
        refused_in_every_way(&world, pod).await?;
    }
    eventually(SOON, "etcd-2 is created anew", || async {
        let now = world.etcd.pod_uid("etcd-2").await?;
        ensure!(now != uid, "it is still there");
        Ok(())
    })
    .await?;
    for pod in needed {
        refused_in_every_way(&world, pod).await?;
    }
    eventually(SOON, "the new etcd-2 has been started", || async {
        world.etcd.pod_ip("etcd-2").await.map(drop)
    })
    .await?;
    world.settled().await?;
    for pod in needed {
        refused_in_every_way(&world, pod).await?;
    }
    let after = (
        world.etcd.pod_uid("etcd-0").await?,
        world.etcd.pod_uid("etcd-1").await?,
    );
    ensure!(before == after, "{before:?}, then {after:?}");
    vigil.assert_never_below(2).await?;

    node.power_off().await?;
    world.whole().await?;
    world.lets_go(By::Delete, "etcd-0").await?;
    world.close().await
}

/// Forces this incarnation of a pod away. The request carries its UID, because Kubernetes' own
/// controllers may be faster, and without the UID the request would concern the next incarnation.
async fn force_away(world: &World, pod: &str, uid: &str) -> Result<()> {
    let now = DeleteParams::default().grace_period(0);
    let that_one = now.preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        ..Preconditions::default()
    });
    match world.pods().delete(pod, &that_one).await {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        answer => Ok(answer.map(drop)?),
    }
}

/// Checks that requests of all kinds for this member are refused while etcd-2 does not serve.
async fn refused_in_every_way(world: &World, pod: &str) -> Result<()> {
    for answer in [world.delete(pod).await, world.force(pod).await] {
        let (code, message) = refusal(answer)?;
        ensure!(
            code == 429 && message.contains("etcd-2"),
            "{pod}: {code}: {message}"
        );
    }
    // An eviction may be refused by the companion PodDisruptionBudget first.
    let (code, message) = refusal(world.evict(pod).await)?;
    ensure!(code == 429, "{pod}: {code}: {message}");
    Ok(())
}

pub(crate) async fn out_of_service(world: &World, node: &Node) -> Result<()> {
    let said = world
        .kubectl(&["taint", "nodes", node.name(), OUT_OF_SERVICE])
        .await?
        .success()?;
    if !said.contains("tainted") {
        bail!("{said}");
    }
    Ok(())
}
