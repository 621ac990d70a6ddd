//! The gate's budget as users see it, PodDisruptionBudgets of others, and grants whose disruption
//! never comes.

use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::PodFaults;
use serde_json::{Value, json};

use crate::asking::{By, refusal};
use crate::other_hook::{self, OtherHook};
use crate::world::{SETTLE_TIME, SOON, World};

const COMPANION: &str = "quorumgate-etcd";

#[tokio::test(flavor = "multi_thread")]
async fn the_companion_budget_says_what_must_stay() -> Result<()> {
    let world = World::new("companion").await?;
    let pdbs = pdbs(&world);
    let made = eventually(SOON, "the companion is made", || pdbs.get(COMPANION)).await?;
    let spec = made.spec.context("no spec")?;
    ensure!(
        spec.min_available == Some(IntOrString::Int(2)),
        "{:?}",
        spec.min_available
    );
    ensure!(
        spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
        "{:?}",
        spec.unhealthy_pod_eviction_policy
    );
    ensure!(spec.max_unavailable.is_none());
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_that_another_budget_refuses_takes_no_grant() -> Result<()> {
    let world = World::new("other-pdb").await?;
    let pdbs = pdbs(&world);
    eventually(SOON, "the companion is made", || pdbs.get(COMPANION)).await?;
    let strict: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "strict"},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "etcd"}}},
    }))?;
    pdbs.create(&PostParams::default(), &strict).await?;
    eventually(SOON, "the companion steps aside", || async {
        let companion = pdbs.get_opt(COMPANION).await?;
        ensure!(companion.is_none(), "it is still there");
        let status = pdbs.get("strict").await?.status;
        let healthy = status.map(|status| status.current_healthy);
        ensure!(healthy == Some(3), "{healthy:?} pods are healthy");
        anyhow::Ok(())
    })
    .await?;

    let before = world.last_seq().await?;
    world
        .has_to_wait_by(By::Eviction, "etcd-0", &["PodDisruptionBudget strict"])
        .await?;
    ensure!(world.granted().await?.is_empty(), "a grant was taken");
    ensure!(before == world.last_seq().await?, "the ledger was written");

    pdbs.delete("strict", &DeleteParams::default()).await?;
    eventually(SOON, "the companion is back", || pdbs.get(COMPANION)).await?;
    eventually(SOON, "etcd-0 may be evicted", || world.evict("etcd-0")).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_request_fails_later_settles_by_itself() -> Result<()> {
    let world = World::new("wrong-version").await?;
    let uid = world.etcd.pod_uid("etcd-0").await?;
    // The API server compares the resourceVersion of a delete before it asks webhooks, and that of
    // an eviction afterwards.
    let stale: Eviction = serde_json::from_value(json!({
        "metadata": {"name": "etcd-0"},
        "deleteOptions": {"preconditions": {"resourceVersion": "1"}},
    }))?;
    let post = PostParams::default();
    let answer: Result<Value, _> = world
        .pods()
        .create_subresource("eviction", "etcd-0", &post, &stale)
        .await;
    let (code, message) = refusal(answer)?;
    ensure!(code == 409, "{code}: {message}");
    holds_until_settled(&world, &uid).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_request_another_webhook_refuses_settles_by_itself() -> Result<()> {
    let world = World::new("other-hook").await?;
    let uid = world.etcd.pod_uid("etcd-0").await?;
    let asker = world.bed().client_as("asker", &["system:masters"]).await?;
    let asker: Api<Pod> = Api::namespaced(asker, world.namespace());
    let hook = OtherHook::create(&world, "request.userInfo.username == 'asker'").await?;
    eventually(SOON, "the other webhook is in force", || async {
        let dry = DeleteParams::default().dry_run();
        let (_, message) = refusal(asker.delete("etcd-0", &dry).await)?;
        ensure!(message.contains(other_hook::NAME), "{message}");
        Ok(())
    })
    .await?;

    let (_, message) = refusal(asker.delete("etcd-0", &DeleteParams::default()).await)?;
    ensure!(message.contains(other_hook::NAME), "{message}");
    holds_until_settled(&world, &uid).await?;
    hook.remove().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_deleted_with_its_open_grant_comes_back_untrusted() -> Result<()> {
    let world = World::new("budget-gone").await?;
    let followers = world.etcd.followers().await?;
    let [leaving, staying, ..] = followers.as_slice() else {
        bail!("{} followers", followers.len());
    };
    let uid = world.etcd.pod_uid(leaving).await?;
    // A frozen member does not handle SIGTERM. So its pod terminates until its grace period is
    // over, or until it is thawed.
    let frozen = PodFaults::find(&world.sandbox, leaving).await?.freeze()?;
    world.lets_go(By::Delete, leaving).await?;
    let granted = world.granted().await?;
    ensure!(granted == [leaving.clone()], "grants: {granted:?}");

    let old = world.budget().await?.metadata.uid;
    let begun = Instant::now();
    world
        .budgets()
        .delete(world.etcd.name(), &DeleteParams::default())
        .await?;
    eventually(SOON, "the new budget is not trusted", || async {
        let (code, message) = match refusal(world.delete(staying).await) {
            Ok(refused) => refused,
            Err(error) => return Some(Err(error)),
        };
        if code != 429 {
            return Some(Err(anyhow!("{code}: {message}")));
        }
        message.contains("the budget is new").then_some(Ok(()))
    })
    .await??;
    let new = world.budget().await?;
    ensure!(new.metadata.uid != old, "it is the old budget");
    let trusted = new.status.is_some_and(|status| status.ledger.trusted);
    ensure!(!trusted, "the new ledger is trusted");

    frozen.thaw();
    world.replaced(leaving, &uid).await?;
    eventually(SOON, "a member may go again", || world.delete(staying)).await?;
    let waited = begun.elapsed();
    ensure!(
        waited >= SETTLE_TIME,
        "a delete passed {waited:?} after the budget was deleted"
    );
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_prints_the_budget_with_its_numbers() -> Result<()> {
    let world = World::new("columns").await?;
    world.whole().await?;
    let leader = world.etcd.leader().await?;
    eventually(SOON, "kubectl prints the numbers", || async {
        let said = world.kubectl(&["get", "qdb"]).await?.success()?;
        let mut lines = said.lines().map(|line| line.split_whitespace());
        let header: Vec<_> = lines.next().context("nothing printed")?.collect();
        let columns = [
            "NAME",
            "READY",
            "ENFORCEMENT",
            "VOTERS",
            "SERVING",
            "MAJORITY",
            "ALLOWED",
            "LEADER",
            "UPDATED",
            "ROLLOUT",
            "AGE",
        ];
        ensure!(header == columns, "{said}");
        let row: Vec<_> = lines.next().context("no budget printed")?.collect();
        let leader = leader.as_str();
        let expected = ["etcd", "True", "Enforce", "3", "3", "2", "1", leader, "3"];
        ensure!(
            // The column of the rollout's waits is empty, since no rollout is under way.
            row.len() == columns.len() - 1 && row.starts_with(&expected),
            "{said}"
        );
        Ok(())
    })
    .await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_that_make_no_sense_are_refused_by_their_schema() -> Result<()> {
    let world = World::builder("bad-budgets")
        .nodes(1)
        .etcd(|etcd| etcd.replicas(1))
        .untrusted()
        .start()
        .await?;
    let spec = |more: Value| {
        let mut spec = json!({"statefulSetName": "other"});
        if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
            spec.extend(more.clone());
        }
        spec
    };
    let amount = "must be a number of members from 1, or a percentage from 1% to 100%";
    let cases = [
        (
            spec(json!({"statefulSetName": "another"})),
            "metadata.name must equal spec.statefulSetName",
        ),
        (spec(json!({"maxUnavailable": 0})), amount),
        (spec(json!({"maxUnavailable": "0%"})), amount),
        (spec(json!({"maxUnavailable": "101%"})), amount),
        (
            spec(json!({"members": {"probeTimeout": "2s"}})),
            "spec.members.probeTimeout must be a duration like 500ms, 90s or 1h30m, from 50ms to 1500ms",
        ),
        (
            spec(json!({"rollout": {"quorumLossGracePeriod": "soon"}})),
            "spec.rollout.quorumLossGracePeriod must be a duration",
        ),
        (
            spec(json!({"policy": {"twoMembers": "Sometimes"}})),
            "Unsupported value",
        ),
        (spec(json!({"partition": -1})), "greater than or equal to 0"),
    ];
    for (spec, why) in cases {
        let said = create(&world, &spec).await?;
        ensure!(!said.succeeded(), "{spec} was accepted");
        ensure!(said.stderr.contains(why), "{spec}: {}", said.stderr);
    }
    create(&world, &spec(json!({"maxUnavailable": "100%"})))
        .await?
        .success()?;
    let budgets = world.budgets();
    let name = world.etcd.name();
    eventually(SOON, "its budget is made", || budgets.get(name)).await?;
    let rename = r#"{"spec": {"statefulSetName": "another"}}"#;
    let said = world
        .kubectl(&["patch", "qdb", "etcd", "--type=merge", "--patch", rename])
        .await?;
    ensure!(
        said.stderr
            .contains("metadata.name must equal spec.statefulSetName"),
        "{}",
        said.stderr
    );
    world.close().await
}

/// Creates a budget called `other` in a dry run.
async fn create(world: &World, spec: &Value) -> Result<quorumgate_testbed::kubectl::Output> {
    let budget = json!({
        "apiVersion": "quorumgate.io/v1alpha1",
        "kind": "QuorumDisruptionBudget",
        "metadata": {"name": "other", "namespace": world.namespace()},
        "spec": spec,
    });
    world
        .bed()
        .kubectl(["create", "--dry-run=server", "-f", "-"])
        .stdin(budget.to_string())
        .await
}

/// Checks that the open grant of `etcd-0` counts until it is settled, although its pod is
/// unchanged.
async fn holds_until_settled(world: &World, uid: &str) -> Result<()> {
    let granted = world.granted().await?;
    ensure!(granted == ["etcd-0"], "grants: {granted:?}");
    world
        .has_to_wait_by(By::Delete, "etcd-1", &["already permitted: etcd-0"])
        .await?;
    world.settled().await?;
    ensure!(
        world.etcd.pod_uid("etcd-0").await? == uid,
        "etcd-0 is another pod"
    );
    world.lets_go(By::Delete, "etcd-1").await?;
    Ok(())
}

fn pdbs(world: &World) -> Api<PodDisruptionBudget> {
    world.sandbox.api()
}
