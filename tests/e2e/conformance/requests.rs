//! Requests without an effect: other API versions, names, preconditions, dry runs.

use anyhow::{Context as _, Result, ensure};
use http::Method;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::raw::{answered, evict, send};
use crate::asking::eviction;
use crate::world::World;

/// Fails if a member has a grant, if a pod terminates, if the audit log has a delete of a member,
/// or if the ledger was written since `seq`.
async fn no_trace(world: &World, seq: i64) -> Result<()> {
    let granted = world.granted().await?;
    ensure!(granted.is_empty(), "grants of {granted:?}");
    let now = world.last_seq().await?;
    ensure!(now == seq, "the ledger went from {seq} to {now}");
    for pod in world.etcd.pods().await? {
        let name = pod.name_any();
        ensure!(pod.metadata.deletion_timestamp.is_none(), "{name} goes");
        let conditions = pod.status.and_then(|status| status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        ensure!(
            !conditions.any(|c| c.type_ == "DisruptionTarget"),
            "{name} is told to go"
        );
    }
    Ok(())
}

fn dry() -> Value {
    json!({"dryRun": ["All"]})
}

pub(super) async fn p21_evictions_of_every_version_that_is_served_are_judged(
    world: &World,
) -> Result<()> {
    let seq = world.last_seq().await?;
    for method in [Method::GET, Method::PATCH, Method::PUT, Method::DELETE] {
        let answer = send(world, method, "etcd-0/eviction", &json!({})).await?;
        answer.is(405)?;
    }
    let mut forms = vec![eviction("etcd-0", &dry())];
    for version in [json!("policy/v1beta1"), Value::Null] {
        let mut form = eviction("etcd-0", &dry());
        if version.is_null() {
            let fields = form.as_object_mut().context("an object")?;
            fields.retain(|field, _| field != "apiVersion" && field != "kind");
        } else {
            form["apiVersion"] = version;
        }
        forms.push(form);
    }
    let broken = world.crash("etcd-2").await?;
    for form in &forms {
        let refused = evict(world, "etcd-0", form).await?;
        refused.is(429)?;
        let said = refused.body["message"].as_str().unwrap_or_default();
        ensure!(said.contains("etcd-2"), "{form}: {said}");
    }
    broken.mend();
    world.whole().await?;
    for form in &forms {
        answered(world, Method::POST, "etcd-0/eviction", form, 201).await?;
    }
    let mut unknown = eviction("etcd-0", &dry());
    unknown["apiVersion"] = json!("policy/v2");
    evict(world, "etcd-0", &unknown).await?.is(400)?;
    no_trace(world, seq).await
}

pub(super) async fn p3_a_name_that_is_not_the_urls_is_400(world: &World) -> Result<()> {
    let seq = world.last_seq().await?;
    evict(world, "etcd-0", &eviction("etcd-1", &json!({})))
        .await?
        .is(400)?;
    let mut elsewhere = eviction("etcd-0", &json!({}));
    elsewhere["metadata"]["namespace"] = json!("default");
    evict(world, "etcd-0", &elsewhere).await?.is(400)?;
    no_trace(world, seq).await
}

pub(super) async fn s4_s16_p18_preconditions_that_do_not_hold_are_409_and_take_no_grant(
    world: &World,
) -> Result<()> {
    let seq = world.last_seq().await?;
    let pod = world.etcd.pod("etcd-0").await?;
    let (uid, version) = (pod.metadata.uid, pod.metadata.resource_version);
    let another = "00000000-0000-0000-0000-000000000000";
    for (preconditions, code) in [
        (json!({"uid": uid}), 201),
        (json!({"resourceVersion": version}), 201),
        (json!({"uid": uid, "resourceVersion": version}), 201),
        (json!({"uid": another}), 409),
        (json!({"resourceVersion": "1"}), 409),
        (json!({"uid": another, "resourceVersion": version}), 409),
    ] {
        let options = json!({"dryRun": ["All"], "preconditions": preconditions});
        let asked = eviction("etcd-0", &options);
        answered(world, Method::POST, "etcd-0/eviction", &asked, code).await?;
        let code = if code == 201 { 200 } else { code };
        answered(world, Method::DELETE, "etcd-0", &options, code).await?;
    }
    // Without a dry run: the gate permits the request, and the API server refuses it. The code is
    // 429 if the companion's minimum has just changed and its controller has not seen that yet.
    let wrong = json!({"preconditions": {"uid": another}});
    let asked = eviction("etcd-0", &wrong);
    answered(world, Method::POST, "etcd-0/eviction", &asked, 409).await?;
    send(world, Method::DELETE, "etcd-0", &wrong)
        .await?
        .is(409)?;
    evict(world, "etcd-7", &eviction("etcd-7", &json!({})))
        .await?
        .is(404)?;
    send(world, Method::DELETE, "etcd-7", &json!({}))
        .await?
        .is(404)?;
    no_trace(world, seq).await
}

pub(super) async fn p16_n18_dry_runs_by_every_source_leave_no_trace(world: &World) -> Result<()> {
    let seq = world.last_seq().await?;
    let mut bare = eviction("etcd-0", &json!({}));
    bare.as_object_mut()
        .context("an object")?
        .remove("deleteOptions");
    for (part, body) in [
        ("etcd-0/eviction?dryRun=All", bare),
        ("etcd-0/eviction?dryRun=All", eviction("etcd-0", &json!({}))),
        ("etcd-0/eviction", eviction("etcd-0", &dry())),
        ("etcd-0/eviction?dryRun=All", eviction("etcd-0", &dry())),
    ] {
        answered(world, Method::POST, part, &body, 201).await?;
        no_trace(world, seq).await?;
    }
    Ok(())
}
