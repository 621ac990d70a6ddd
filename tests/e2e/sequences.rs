//! Events that people reported from their clusters, each from its beginning to its end: the rows of
//! "Sequences" in `docs/conformance.md`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use quorumgate_testbed::etcd_cluster::EtcdVersion;
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::Standing;
use quorumgate_testbed::writer::Writer;
use serde_json::{Value, json};

use crate::asking::{By, refusal};
use crate::bystanders;
use crate::replacement::{
    finished, gates, identities, is_whole_without, nothing_is_lost, protected, protected_with,
    recorded, replacement, request, wish, write_some,
};
use crate::teardown::{announce, no_pods};
use crate::vigil::Vigil;
use crate::world::{SOON, World};

/// The time limit for what members do that a probe ends over and over.
const PROBED: Duration = Duration::from_secs(240);

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_member_whose_claim_and_pod_were_deleted_comes_back_by_replacement() -> Result<()> {
    let world = protected("seq-both", EtcdVersion::default(), "Manual").await?;
    let writer = Writer::start(&world.etcd).await?;
    let id = world.etcd.member("etcd-2").await?.id;
    let broken = world.crash("etcd-2").await?;
    loses_claim_and_pod_and_is_replaced(&world, broken, id).await?;
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}

/// Deletes claim and pod of the dead member in etcd-2, and has the member of the next pod, which
/// waits on a new claim, replaced.
pub(crate) async fn loses_claim_and_pod_and_is_replaced(
    world: &World,
    broken: Standing,
    id: u64,
) -> Result<()> {
    let pod = world.etcd.pod_uid("etcd-2").await?;
    let claim = claims(world).get("data-etcd-2").await?.metadata.uid;
    // The member restarts again and again. While it starts nobody knows whether it will serve.
    let how = DeleteParams::default();
    eventually(SOON, "the claim of etcd-2 may go", || {
        delete_claim(world, "etcd-2", &how)
    })
    .await?;
    eventually(SOON, "etcd-2 may go", || world.delete("etcd-2")).await?;
    broken.mend();
    eventually(SOON, "the next pod waits on a new claim", || async {
        let now = claims(world).get("data-etcd-2").await?.metadata.uid;
        ensure!(now != claim, "it is the old claim");
        let now = world.etcd.pod_uid("etcd-2").await?;
        ensure!(now != pod, "it is the old pod");
        let gates = gates(world, "etcd-2").await?;
        ensure!(gates == ["quorumgate.io/identity"], "{gates:?}");
        Ok(())
    })
    .await?;
    request(world, &format!("{id:x}")).await?;
    finished(world, "etcd-2").await?;
    is_whole_without(world, id).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disruption_budget_of_one_available_permits_no_second_eviction() -> Result<()> {
    let world = World::new("seq-one").await?;
    disruption_budget(&world, 1, 2).await?;
    let uid = world.etcd.pod_uid("etcd-0").await?;
    world.lets_go(By::Eviction, "etcd-0").await?;
    world
        .has_to_wait_by(By::Eviction, "etcd-1", &["etcd-0"])
        .await?;
    let left = disruptions_allowed(&world).await?;
    ensure!(left == 1, "the PodDisruptionBudget permits {left}");
    world.replaced("etcd-0", &uid).await?;
    eventually(SOON, "etcd-1 is evicted", || world.evict("etcd-1")).await?;
    world.close().await
}

/// No node takes a pod, so members that went stay away.
#[tokio::test(flavor = "multi_thread")]
async fn drains_one_after_the_other_leave_three_of_five_whatever_the_disruption_budget()
-> Result<()> {
    let world = World::builder("seq-drains")
        .nodes(5)
        .etcd(|etcd| etcd.replicas(5))
        .start()
        .await?;
    let writer = Writer::start(&world.etcd).await?;
    let vigil = Vigil::start(&world.etcd).await?;
    for node in world.sandbox.nodes() {
        world.kubectl(&["cordon", node.name()]).await?.success()?;
    }
    for (pod, available) in [("etcd-4", 4), ("etcd-3", 3)] {
        disruption_budget(&world, available, 1).await?;
        let node = world.node_of(pod).await?;
        world.drain(&node, &[]).await?;
    }
    disruption_budget(&world, 2, 1).await?;
    let away = ["of 5 voters", "etcd-3", "etcd-4"];
    world.has_to_wait_by(By::Eviction, "etcd-2", &away).await?;
    ensure!(disruptions_allowed(&world).await? == 1, "it was evicted");
    vigil.assert_never_below(3).await?;
    for node in world.sandbox.nodes() {
        world.kubectl(&["uncordon", node.name()]).await?.success()?;
    }
    world.whole().await?;
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_a_restore_job_mounts_stay() -> Result<()> {
    let world = World::new("seq-restore").await?;
    recorded(&world).await?;
    let before = write_some(&world.etcd).await?;
    announce(&world, "hibernate").await?;
    world.etcd.scale(0).await?;
    no_pods(&world).await?;
    let jobs: Api<Job> = world.sandbox.api();
    let job: Job = serde_json::from_value(json!({
        "metadata": {"name": "restore"},
        "spec": {"template": {"metadata": {"labels": {"app": "restore"}}, "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": world.sandbox.node_selector(),
            "containers": [{
                "name": "restore", "image": "busybox",
                "command": ["sh", "-c", "test -d /restore/new.etcd && exec sleep infinity"],
                "volumeMounts": [{"name": "data", "mountPath": "/restore"}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-etcd-0"}}],
        }}},
    }))?;
    jobs.create(&PostParams::default(), &job).await?;
    bystanders::run(&world, "restore", 1).await?;
    for pod in ["etcd-0", "etcd-1", "etcd-2"] {
        let how = DeleteParams::default();
        let (code, message) = refusal(delete_claim(&world, pod, &how).await)?;
        let says =
            format!("the data of {pod} would be destroyed, and it may be the last good copy");
        ensure!(code == 429 && message.contains(&says), "{code}: {message}");
    }
    jobs.delete("restore", &DeleteParams::background()).await?;
    bystanders::run(&world, "restore", 0).await?;
    world.etcd.scale(3).await?;
    world.whole().await?;
    before.assert_nothing_lost(&world.etcd).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn nospace_with_a_liveness_probe_that_fails_is_no_death() -> Result<()> {
    let probe = liveness_probe(&json!({"path": "/health", "port": "metrics"}));
    let world = protected_with("seq-nospace", "Auto", |etcd| {
        etcd.quota_bytes(16 << 20)
            .container_field("livenessProbe", probe)
    })
    .await?;
    wish(&world, &json!({"replaceAfter": "10s"})).await?;
    let identities_before = identities(&world).await?;
    let before = write_some(&world.etcd).await?;
    world.etcd.fill_quota().await?;
    none_counts_as_dead(&world).await?;
    world
        .reported("AlarmsClear", |shown| shown.message.contains("NOSPACE"))
        .await?;
    eventually(PROBED, "the alarms are disarmed", || world.etcd.disarm()).await?;
    world.whole_within(PROBED, &world.etcd).await?;
    let now = identities(&world).await?;
    ensure!(now == identities_before, "{identities_before:?}: {now:?}");
    before.assert_nothing_lost(&world.etcd).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_without_a_certificate_restarts_members_and_none_counts_as_dead() -> Result<()> {
    let probe = liveness_probe(&json!({"path": "/health", "port": "client", "scheme": "HTTPS"}));
    let world = protected_with("seq-probe", "Auto", |etcd| {
        etcd.container_field("livenessProbe", probe)
    })
    .await?;
    wish(&world, &json!({"replaceAfter": "10s"})).await?;
    let before = identities(&world).await?;
    let writer = Writer::start(&world.etcd).await?;
    none_counts_as_dead(&world).await?;

    // The owner takes the probe away.
    let containers = json!([{"name": "etcd", "livenessProbe": null}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let sets: Api<StatefulSet> = world.sandbox.api();
    let params = PatchParams::default();
    sets.patch("etcd", &params, &Patch::Strategic(&patch))
        .await?;
    eventually(PROBED, "every pod is without the probe", || async {
        let pods = world.etcd.pods().await?;
        ensure!(pods.len() == 3, "there are {}", pods.len());
        let specs = pods.iter().filter_map(|pod| pod.spec.as_ref());
        let mut containers = specs.flat_map(|spec| &spec.containers);
        let has_it = containers.any(|container| container.liveness_probe.is_some());
        ensure!(!has_it, "one has it");
        anyhow::Ok(())
    })
    .await?;
    world.whole_within(PROBED, &world.etcd).await?;
    let now = identities(&world).await?;
    ensure!(now == before, "{before:?}, then {now:?}");
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}

/// A liveness probe that ends etcd after it has failed for 20 s.
fn liveness_probe(get: &Value) -> Value {
    json!({"httpGet": get, "periodSeconds": 1, "failureThreshold": 20})
}

/// Waits until a probe has ended every member over and over. Checks that each counts while it
/// serves, that its claim stays, and that none is replaced.
async fn none_counts_as_dead(world: &World) -> Result<()> {
    eventually(PROBED, "every member was restarted", || async {
        let mut restarts = Vec::new();
        for pod in world.etcd.pods().await? {
            let statuses = pod.status.and_then(|status| status.container_statuses);
            restarts.extend(statuses.iter().flatten().map(|status| status.restart_count));
        }
        let often = restarts.iter().filter(|count| **count >= 3).count();
        ensure!(often == 3, "restarts: {restarts:?}");
        anyhow::Ok(())
    })
    .await?;
    let dry = DeleteParams::default().dry_run();
    let pods = world.pods();
    for pod in world.etcd.pod_names() {
        eventually(PROBED, format!("{pod} may go"), || pods.delete(&pod, &dry)).await?;
        eventually(PROBED, format!("the claim of {pod} stays"), || async {
            let (code, message) = refusal(delete_claim(world, &pod, &dry).await)?;
            let says = format!("{pod} serves from the volume");
            ensure!(code == 403 && message.contains(&says), "{code}: {message}");
            Ok(())
        })
        .await?;
        let replacement = replacement(world, &pod).await?;
        ensure!(replacement.is_none(), "{replacement:?}");
    }
    let shown = world.condition("DataProtected").await?;
    ensure!(shown.reason != "CrashLoop", "{shown:?}");
    Ok(())
}

/// Makes or changes a `PodDisruptionBudget` of the owner. Waits until it permits this many
/// evictions and the gate has none of its own.
async fn disruption_budget(world: &World, available: i32, evictions: i32) -> Result<()> {
    let owners = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "owners"},
        "spec": {"minAvailable": available, "selector": {"matchLabels": {"app": "etcd"}}},
    });
    let params = PatchParams::apply("owner");
    disruption_budgets(world)
        .patch("owners", &params, &Patch::Apply(&owners))
        .await?;
    let what = format!("{evictions} evictions are permitted");
    eventually(SOON, what, || async {
        let companion = disruption_budgets(world).get_opt("quorumgate-etcd").await?;
        ensure!(companion.is_none(), "the gate's own is still there");
        let allowed = disruptions_allowed(world).await?;
        ensure!(allowed == evictions, "{allowed} are");
        Ok(())
    })
    .await
}

/// The evictions that the owner's `PodDisruptionBudget` permits, once its controller has seen it.
async fn disruptions_allowed(world: &World) -> Result<i32> {
    let owners = disruption_budgets(world).get("owners").await?;
    let status = owners.status.context("no status")?;
    ensure!(
        status.observed_generation == owners.metadata.generation,
        "its controller has not seen it"
    );
    Ok(status.disruptions_allowed)
}

fn disruption_budgets(world: &World) -> Api<PodDisruptionBudget> {
    world.sandbox.api()
}

fn claims(world: &World) -> Api<PersistentVolumeClaim> {
    world.sandbox.api()
}

/// Deletes the claim of a pod.
async fn delete_claim(world: &World, pod: &str, how: &DeleteParams) -> Result<(), kube::Error> {
    let claim = format!("data-{pod}");
    claims(world).delete(&claim, how).await.map(drop)
}
