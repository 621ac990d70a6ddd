//! Members and pods that do not match as usual: a successor, alarms, a failed pod, voters without
//! pods, a deleted namespace.

use anyhow::{Context as _, Result, ensure};
use etcd_client::{AlarmAction, AlarmOptions, AlarmType};
use http::Method;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;
use quorumgate_testbed::control_plane::audit::AuditLog;
use quorumgate_testbed::{eventually, faults};
use serde_json::{Value, json};

use super::finalizers::hold;
use super::raw::send;
use crate::asking::{By, refusal};
use crate::world::{SOON, World};

/// Deletes a pod in a dry run.
async fn may_go(world: &World, pod: &str) -> Result<(), kube::Error> {
    let dry = DeleteParams::default().dry_run();
    world.pods().delete(pod, &dry).await.map(drop)
}

pub(super) async fn n8_a_pod_of_the_same_name_is_judged_anew(world: &World) -> Result<()> {
    let held = faults::hold_in_container_creating(&world.sandbox, "etcd-1")?;
    let old = world.etcd.pod_uid("etcd-1").await?;
    eventually(SOON, "etcd-1 is deleted", || world.delete("etcd-1")).await?;
    let new = eventually(SOON, "etcd-1 has a successor", || async {
        let now = world.etcd.pod_uid("etcd-1").await?;
        ensure!(now != old, "it is still there");
        Ok(now)
    })
    .await?;
    // A grant of the old incarnation, open or not, permits nothing for the new one or for other
    // members.
    world
        .has_to_wait_by(By::Delete, "etcd-0", &["etcd-1"])
        .await?;
    world.settled().await?;
    world
        .has_to_wait_by(By::Delete, "etcd-0", &["etcd-1"])
        .await?;
    eventually(SOON, "the successor may go", || world.delete("etcd-1")).await?;
    let grants = world.budget().await?.status.context("no status")?.grants;
    let uids: Vec<_> = grants
        .iter()
        .flat_map(|grant| &grant.causes)
        .map(|cause| cause.uid.clone())
        .collect();
    ensure!(uids == [Some(new.clone())], "{grants:?}");
    held.mend();
    world.replaced("etcd-1", &new).await?;
    world.whole().await
}

pub(super) async fn n12_nospace_counts_and_corrupt_does_not(world: &World) -> Result<()> {
    world.etcd.fill_quota().await?;
    ensure!(
        !world.etcd.alarms().await?.is_empty(),
        "no alarm was raised"
    );
    for pod in world.etcd.pod_names() {
        eventually(SOON, format!("{pod} may go"), || may_go(world, &pod)).await?;
    }
    world.etcd.disarm().await?;

    let mut whose = AlarmOptions::new();
    whose.with_member(world.etcd.member("etcd-2").await?.id);
    let mut etcd = world.etcd.connect().await?;
    etcd.alarm(AlarmAction::Activate, AlarmType::Corrupt, Some(whose))
        .await?;
    eventually(SOON, "etcd-2 does not count", || async {
        let (code, message) = refusal(may_go(world, "etcd-0").await)?;
        ensure!(
            code == 429 && message.contains("etcd-2 (a CORRUPT alarm"),
            "{code}: {message}"
        );
        // Only this member is named, although all members report the alarm.
        ensure!(!message.contains("etcd-1"), "{message}");
        Ok(())
    })
    .await?;
    eventually(SOON, "etcd-2 may go", || may_go(world, "etcd-2")).await?;
    world.etcd.disarm().await?;
    world.whole().await
}

/// Another member is down, so that no serving member may go. The phase `Failed` proves nothing
/// while containers run.
pub(super) async fn n21_a_failed_pod_is_replaced_at_once(world: &World) -> Result<()> {
    let log = world.bed().audit_log();
    let uid = world.etcd.pod_uid("etcd-1").await?;
    let broken = world.crash("etcd-2").await?;
    // A running kubelet would correct the status.
    let node = world.agent_of("etcd-1").await?;
    node.freeze()?;
    report(world, "etcd-1", json!({"phase": "Failed"})).await?;
    eventually(SOON, "its controller was told to wait", || async {
        let answers = deletes_by_its_controller(world, &log, "etcd-1")?;
        ensure!(answers.contains(&429), "it was answered {answers:?}");
        Ok(())
    })
    .await?;
    ensure!(
        world.etcd.pod_uid("etcd-1").await? == uid,
        "it was replaced"
    );

    let ended = json!({"running": null, "terminated": {"exitCode": 1}});
    let containers = json!([{"name": "etcd", "ready": false, "state": ended}]);
    report(world, "etcd-1", json!({"containerStatuses": containers})).await?;
    eventually(SOON, "its controller has deleted it", || async {
        let answers = deletes_by_its_controller(world, &log, "etcd-1")?;
        ensure!(answers.last() == Some(&200), "it was answered {answers:?}");
        Ok(())
    })
    .await?;
    ensure!(world.granted().await?.is_empty(), "it took a grant");
    node.thaw()?;
    broken.mend();
    world.replaced("etcd-1", &uid).await?;
    world.whole().await
}

/// Changes the status of a pod, as its kubelet does.
async fn report(world: &World, pod: &str, status: Value) -> Result<()> {
    let change = json!({"status": status});
    send(world, Method::PATCH, &format!("{pod}/status"), &change)
        .await?
        .is(200)
}

/// The codes of the answers to the StatefulSet controller's deletes of this pod.
fn deletes_by_its_controller(world: &World, log: &AuditLog, pod: &str) -> Result<Vec<u16>> {
    let events = log.events(world.namespace())?.into_iter();
    let deletes = events.filter(|event| {
        event.verb == "delete"
            && event.object_ref.resource == "pods"
            && event.object_ref.name == pod
            && event.user.username.ends_with(":statefulset-controller")
    });
    Ok(deletes.map(|event| event.response_status.code).collect())
}

pub(super) async fn n9_a_voter_that_never_started_counts_and_a_removed_one_does_not(
    world: &World,
) -> Result<()> {
    eventually(SOON, "etcd-0 may go", || may_go(world, "etcd-0")).await?;
    // Of four voters three are needed, and the fourth never started.
    world.etcd.add_voter("etcd-3").await?;
    let (code, message) = refusal(may_go(world, "etcd-0").await)?;
    ensure!(
        code == 429 && message.contains("of 4 voters"),
        "{code}: {message}"
    );
    world.etcd.remove("etcd-3").await?;
    eventually(SOON, "etcd-0 may go again", || may_go(world, "etcd-0")).await?;

    // The pod of the removed member remains, and runs no member.
    world.etcd.remove("etcd-2").await?;
    eventually(SOON, "the pod of no member may go", || async {
        may_go(world, "etcd-2").await?;
        let (code, message) = refusal(may_go(world, "etcd-0").await)?;
        ensure!(
            code == 429 && message.contains("counted before"),
            "{code}: {message}"
        );
        anyhow::Ok(())
    })
    .await
}

pub(super) async fn p24_in_a_namespace_that_goes_a_drain_waits_for_its_pods(
    world: &World,
) -> Result<()> {
    let log = world.bed().audit_log();
    hold(world, "etcd-0", &["example.com/hold"]).await?;
    let node = world.node_of("etcd-0").await?;
    let namespaces: Api<Namespace> = Api::all(world.sandbox.client());
    namespaces
        .delete(world.namespace(), &DeleteParams::default())
        .await?;
    let (code, message) = refusal(world.evict("etcd-0").await)?;
    ensure!(
        code == 403 && message.contains("being terminated"),
        "{code}: {message}"
    );

    let (drained, released) = tokio::join!(world.drain(&node, &["--force"]), async {
        eventually(SOON, "the drain has been refused", || async {
            let events = log.events(world.namespace())?;
            let refused = events.iter().filter(|event| {
                event.object_ref.subresource == "eviction" && event.response_status.code == 403
            });
            ensure!(refused.count() > 1, "not yet");
            anyhow::Ok(())
        })
        .await?;
        // A finalizer cannot be added to a terminating pod, but it can be removed.
        hold(world, "etcd-0", &[]).await
    });
    released?;
    drained?;
    eventually(SOON, "the namespace is gone", || async {
        let left = namespaces.get_opt(world.namespace()).await?;
        ensure!(left.is_none(), "it is still there");
        Ok(())
    })
    .await
}
