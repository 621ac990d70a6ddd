//! Faults of the gate, of its certificate and of the API server, and their effect on all other
//! requests.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::EvictParams;
use kube::runtime::wait::await_condition;
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate_testbed::eventually;

use crate::asking::{By, refusal};
use crate::bystanders;
use crate::load::Load;
use crate::world::{SOON, World};

#[tokio::test(flavor = "multi_thread")]
async fn the_grant_of_a_replica_that_was_killed_settles_and_the_other_replica_answers() -> Result<()>
{
    let world = World::new("killed").await?;
    // The test asks for the leader. The gate moves leadership between the grant and the answer,
    // which leaves time to kill the replica. All checks below also hold if the answer comes before
    // the kill.
    let pod = world.etcd.leader().await?;
    let other = world.etcd.followers().await?.pop().context("no follower")?;
    world.gate.balancer().pin(0);
    let granted = |budget: Option<&QuorumDisruptionBudget>| {
        let status = budget.and_then(|budget| budget.status.as_ref());
        status.is_some_and(|status| !status.grants.is_empty())
    };
    let killed_once_granted = async {
        let granted = await_condition(world.budgets(), world.etcd.name(), granted);
        let granted = tokio::time::timeout(SOON, granted).await;
        granted.context("no grant")??;
        world.gate.replica(0).kill().await?;
        world.gate.balancer().unpin();
        anyhow::Ok(())
    };
    let delete = world.judged(By::Delete, &pod, |_| false);
    let (answer, killed) = tokio::join!(delete, killed_once_granted);
    killed.with_context(|| format!("the delete was answered with {answer:?}"))?;

    // It is not known whether the request was carried out, so its grant counts.
    // The API server may still hold a connection to the replica that was killed, and fails a call
    // over it.
    let what = format!("{other} waits; the first was answered with {answer:?}");
    let first = [pod.as_str()];
    eventually(SOON, what, || {
        world.has_to_wait_by(By::Delete, &other, &first)
    })
    .await?;
    world.whole().await?;
    world.lets_go(By::Delete, &other).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_serving_certificate_is_replaced_twice_without_one_failed_call() -> Result<()> {
    let world = World::new("rotation").await?;
    let load = Load::start(&world, 2);
    for rotation in 1..=2 {
        world.gate.rotate_certificate()?;
        for replica in 0..2 {
            let what = format!("replica {replica} has taken certificate {rotation}");
            eventually(SOON, what, || async {
                let log = world.gate.log(replica)?;
                let taken = log.matches("serving certificate replaced").count();
                ensure!(taken >= rotation, "it has taken {taken}");
                anyhow::Ok(())
            })
            .await?;
        }
        // The burst has more concurrent calls than there are connections, so that some connections
        // have to be opened with the new certificate. The calls ask for pods that do not exist,
        // because judgements about one cluster are made one after another.
        let before: u64 = world.gate.balancer().connections().iter().sum();
        let burst = (0..16 * rotation).map(|_| evict_nobody(world.pods()));
        futures::future::try_join_all(burst).await?;
        let after: u64 = world.gate.balancer().connections().iter().sum();
        ensure!(
            after > before,
            "no connection was opened with the new certificate"
        );
    }
    let calls = load.stop().await?;
    ensure!(calls > 10, "{calls} calls are no load");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_gate_whatever_is_none_of_its_business_goes_on() -> Result<()> {
    let world = World::new("gate-down").await?;
    bystanders::deployment(&world, "foreign", 2).await?;
    let foreign = bystanders::run(&world, "foreign", 2).await?;

    // A member is permitted to go, and all replicas of the gate end before it is gone.
    let uid = world.etcd.pod_uid("etcd-0").await?;
    let node = world.agent_of("etcd-0").await?;
    node.freeze()?;
    world.lets_go(By::Delete, "etcd-0").await?;
    for replica in world.gate.replicas() {
        replica.kill().await?;
    }

    // Pods that terminate can be deleted again, and they go. Their successors are created.
    world.delete("etcd-0").await?;
    node.thaw()?;
    world.replaced("etcd-0", &uid).await?;

    // Pods of others can be deleted, evicted and created.
    for (by, pod) in By::BOTH.into_iter().zip(&foreign) {
        world.ask(by, pod).await?;
    }
    let now = bystanders::run(&world, "foreign", 2).await?;
    ensure!(now.is_disjoint(&foreign), "{now:?} of {foreign:?} are left");

    // Members stay, since a gate that does not answer has permitted nothing.
    for by in By::BOTH {
        let (code, message) = refusal(world.ask(by, "etcd-1").await)?;
        ensure!(
            code == 500 && message.contains("webhook"),
            "{code}: {message}"
        );
    }

    world.delete_namespace().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_of_the_api_server_the_gate_judges_as_before() -> Result<()> {
    // The restarted control plane is this test's own: other tests would notice a restart of the
    // shared one.
    World::builder("restarted")
        .on_a_plane_of_its_own(judges_as_before_a_restart)
        .await
}

async fn judges_as_before_a_restart(world: World) -> Result<()> {
    let uid = world.etcd.pod_uid("etcd-0").await?;
    world.lets_go(By::Delete, "etcd-0").await?;
    world.bed().restart_api_server().await?;
    world.gate.in_force(SOON).await?;
    world.replaced("etcd-0", &uid).await?;
    world.whole().await?;

    let (first, second) = tokio::join!(world.delete("etcd-1"), world.delete("etcd-2"));
    let refused: Vec<_> = [first, second]
        .into_iter()
        .filter_map(|answer| refusal(answer).ok())
        .collect();
    ensure!(
        matches!(refused.as_slice(), [(429, _)]),
        "of two were refused: {refused:?}"
    );
    world.close().await
}

/// Evicts a pod that does not exist, which the gate itself answers with "not found".
async fn evict_nobody(pods: Api<Pod>) -> Result<()> {
    // No StatefulSet gives such a name, so the gate reads the pod, and says that there is none.
    let (code, message) = refusal(pods.evict("nobody-00", &EvictParams::default()).await)?;
    ensure!(
        code == 404 && message.contains("webhook"),
        "{code}: {message}"
    );
    Ok(())
}
