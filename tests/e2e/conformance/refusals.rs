//! Refusals while a member is down: their form, their receivers, and the requests that are not
//! refused.

use anyhow::{Context as _, Result, ensure};
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use quorumgate_testbed::etcd_cluster::{EtcdCluster, Shape, Storage};
use quorumgate_testbed::eventually;
use serde_json::json;

use super::raw::{evict, send};
use crate::asking::{eviction, refusal};
use crate::other_hook::{self, OtherHook};
use crate::world::{SOON, World};

pub(super) async fn n22_no_refusal_says_when_to_retry(world: &World) -> Result<()> {
    let image = json!({"spec": {"containers": [{"name": "etcd", "image": "etcd:3.6.16"}]}});
    for (answer, code) in [
        (
            send(world, Method::DELETE, "etcd-0", &json!({})).await?,
            429,
        ),
        (
            evict(world, "etcd-0", &eviction("etcd-0", &json!({}))).await?,
            429,
        ),
        (send(world, Method::PATCH, "etcd-0", &image).await?, 403),
    ] {
        answer.is(code)?;
        ensure!(!answer.headers.contains_key("retry-after"), "{answer:?}");
        let details = &answer.body["details"];
        ensure!(details.get("retryAfterSeconds").is_none(), "{details}");
        ensure!(details["causes"].is_array(), "{answer:?}");
    }
    Ok(())
}

pub(super) async fn d6_the_operator_is_judged_like_anybody(world: &World) -> Result<()> {
    for user in [
        "system:serviceaccount:garden:etcd-druid",
        "system:serviceaccount:kube-system:statefulset-controller",
    ] {
        let operator = world.bed().client_as(user, &["system:masters"]).await?;
        let pods: Api<Pod> = Api::namespaced(operator, world.namespace());
        let (code, message) = refusal(pods.delete("etcd-0", &DeleteParams::default()).await)?;
        ensure!(
            code == 429 && message.contains("etcd-2"),
            "{user}: {code}: {message}"
        );
    }
    Ok(())
}

pub(super) async fn d3_d4_a_set_that_is_not_enrolled_is_scaled_and_deleted_freely(
    world: &World,
) -> Result<()> {
    let seq = world.last_seq().await?;
    let other = EtcdCluster::builder("other")
        .replicas(2)
        .shape(Shape::Foreign)
        .storage(Storage::EmptyDir)
        .apply(&world.sandbox)
        .await?;
    let (code, message) = refusal(world.etcd.scale(2).await)?;
    ensure!(code == 403, "the enrolled one: {code}: {message}");
    other.scale(1).await?;
    other
        .stateful_set_api()
        .delete("other", &DeleteParams::background())
        .await?;
    let budget = world.budgets().get_opt("other").await?;
    ensure!(budget.is_none(), "a budget was made for it");
    ensure!(world.last_seq().await? == seq, "the ledger was written");
    Ok(())
}

/// The API server asks both webhooks at once, and passes on the first refusal.
pub(super) async fn n17_of_two_refusals_either_may_be_heard(world: &World) -> Result<()> {
    let seq = world.last_seq().await?;
    let asker = world.bed().client_as("asker", &["system:masters"]).await?;
    let asker: Api<Pod> = Api::namespaced(asker, world.namespace());
    let hook = OtherHook::create(world, "request.userInfo.username == 'asker'").await?;
    eventually(SOON, "the other webhook is in force", || async {
        // The gate would permit this request.
        let (_, message) = refusal(
            asker
                .delete("etcd-2", &DeleteParams::default().dry_run())
                .await,
        )?;
        ensure!(message.contains(other_hook::NAME), "{message}");
        Ok(())
    })
    .await?;
    for _ in 0..5 {
        let (code, message) = refusal(asker.delete("etcd-0", &DeleteParams::default()).await)?;
        let ours = code == 429 && message.contains("etcd-2");
        let others = code == 500 && message.contains(other_hook::NAME);
        ensure!(ours || others, "{code}: {message}");
    }
    hook.remove().await?;
    ensure!(world.granted().await?.is_empty(), "a refusal took a grant");
    ensure!(world.last_seq().await? == seq, "the ledger was written");
    Ok(())
}

pub(super) async fn p26_a_drain_that_has_to_wait_ends_at_its_timeout_and_says_why(
    world: &World,
) -> Result<()> {
    let node = world.node_of("etcd-0").await?;
    let uid = world.etcd.pod_uid("etcd-0").await?;
    let drain = [
        "drain",
        &node,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        "--timeout=6s",
    ];
    let drained = world.kubectl(&drain).await?;
    ensure!(!drained.succeeded(), "it took a member that is needed");
    for part in ["etcd-2", "will retry after 5s"] {
        ensure!(drained.stderr.contains(part), "{}", drained.stderr);
    }
    world.kubectl(&["uncordon", &node]).await?.success()?;
    let now = world
        .etcd
        .pod_uid("etcd-0")
        .await
        .context("etcd-0 is gone")?;
    ensure!(now == uid, "etcd-0 was replaced");
    Ok(())
}
