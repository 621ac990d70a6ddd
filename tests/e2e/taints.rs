//! Pods that have to leave a tainted node. The taint eviction controller does not ask again later,
//! so the gate remembers its request.

use anyhow::{Context as _, Result, ensure};
use kube::runtime::wait::await_condition;
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate_testbed::control_plane::audit::{AuditEvent, AuditLog};
use quorumgate_testbed::eventually;

use crate::world::{SOON, World};

const TAINT: &str = "testbed.quorumgate.io/maintenance=now:NoExecute";

/// The number of requests that the taint eviction controller makes, without pauses, before it gives
/// a pod up.
const ITS_TRIES: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_taint_eviction_that_was_refused_is_made_good_once_when_the_member_can_be_spared()
-> Result<()> {
    let world = World::builder("taint").nodes(4).start().await?;
    let broken = world.crash("etcd-2").await?;
    let uid = world.etcd.pod_uid("etcd-0").await?;
    let other = world.etcd.pod_uid("etcd-1").await?;
    let node = world.node_of("etcd-0").await?;
    let log = world.bed().audit_log();

    world
        .kubectl(&["taint", "nodes", &node, TAINT])
        .await?
        .success()?;
    eventually(
        SOON,
        "the taint eviction controller has given up",
        || async {
            let asked = deletes_of(&world, &log, "etcd-0")?;
            let refused = asked
                .iter()
                .filter(|event| event.response_status.code == 429)
                // The taint eviction controller uses this account.
                .filter(|event| event.user.username.ends_with(":node-controller"))
                .count();
            ensure!(refused == ITS_TRIES, "of {} {refused} were", asked.len());
            Ok(())
        },
    )
    .await?;
    let pod = world.etcd.pod("etcd-0").await?;
    ensure!(pod.metadata.deletion_timestamp.is_none(), "it goes");
    ensure!(world.granted().await?.is_empty(), "a refusal took a grant");

    let granted = |budget: Option<&QuorumDisruptionBudget>| {
        let status = budget.and_then(|budget| budget.status.as_ref());
        let mut grants = status.into_iter().flat_map(|status| &status.grants);
        grants.any(|grant| grant.member == "etcd-0")
    };
    let grant = await_condition(world.budgets(), world.etcd.name(), granted);
    let (grant, moved) = tokio::join!(tokio::time::timeout(SOON, grant), async {
        broken.mend();
        world.replaced("etcd-0", &uid).await
    });
    moved?;
    grant.context("etcd-0 went without a grant")??;
    ensure!(world.node_of("etcd-0").await? != node, "it is where it was");
    world.whole().await?;

    let accepted: Vec<_> = deletes_of(&world, &log, "etcd-0")?
        .into_iter()
        .filter(|event| event.response_status.code == 200)
        .filter(|event| !event.user.username.starts_with("system:node:"))
        .map(|event| event.user.username)
        .collect();
    let gate = format!(
        "system:serviceaccount:{}-gate:quorumgate",
        world.namespace()
    );
    ensure!(accepted == [gate], "it was deleted by {accepted:?}");
    ensure!(
        world.etcd.pod_uid("etcd-1").await? == other,
        "etcd-1 was taken as well"
    );
    world.close().await
}

fn deletes_of(world: &World, log: &AuditLog, pod: &str) -> Result<Vec<AuditEvent>> {
    let events = log.events(world.namespace())?.into_iter();
    Ok(events
        .filter(|event| event.verb == "delete")
        .filter(|event| event.object_ref.resource == "pods" && event.object_ref.name == pod)
        .collect())
}
