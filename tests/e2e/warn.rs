//! Enforcement `Warn`, where refusals are only reported, and clusters that opt out.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use quorumgate::api::Enforcement;
use quorumgate_testbed::etcd_cluster::{EtcdCluster, Shape};
use quorumgate_testbed::eventually;
use serde_json::json;

use crate::asking::By;
use crate::world::{SOON, World};

async fn enforce(world: &World, how: &str) -> Result<()> {
    let patch = json!({"spec": {"enforcement": how}});
    let budgets = world.budgets();
    budgets
        .patch("etcd", &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_cluster_that_begins_in_warn_is_told_what_would_be_refused_and_then_refused()
-> Result<()> {
    let world = World::builder("warn")
        .argument("--default-enforcement=Warn")
        .untrusted()
        .start()
        .await?;
    let budget = world.budget().await?;
    ensure!(
        budget.spec.enforcement == Enforcement::Warn,
        "{:?}",
        budget.spec
    );
    world.whole().await?;
    let broken = world.crash("etcd-2").await?;
    let said = eventually(SOON, "a delete passes with a warning", || async {
        let delete = ["delete", "pod", "etcd-0", "--dry-run=server"];
        let output = world.kubectl(&delete).await?;
        ensure!(output.succeeded(), "{}", output.stderr);
        ensure!(output.stderr.contains("2 are needed"), "{}", output.stderr);
        Ok(output.stderr)
    })
    .await?;
    for part in ["Warning:", "enforcement: Warn", "etcd-2"] {
        ensure!(said.contains(part), "no {part:?} in {said}");
    }
    let uid = world.etcd.pod_uid("etcd-0").await?;
    world.delete("etcd-0").await?;
    let events: Api<Event> = world.sandbox.api();
    eventually(SOON, "it is told by an Event and by metrics", || async {
        let found = events.list(&ListParams::default()).await?;
        let mut notes = found.items.iter().filter_map(|event| event.note.as_deref());
        ensure!(
            notes.any(|note| note.contains("otherwise refused")),
            "no Event"
        );
        let mut counted = String::new();
        for replica in 0..world.gate.replicas().len() {
            counted += &world.gate.metrics(replica).await?;
        }
        let mut lines = counted.lines();
        let is_it = |line: &str| line.contains("verdict=\"warn\"") && line.contains("reason=\"");
        ensure!(lines.any(is_it), "no metric");
        Ok(())
    })
    .await?;
    let suspended = |trusted: &Condition| {
        trusted.status == "False" && trusted.message.contains("enforcement: Warn")
    };
    world.reported("LedgerTrusted", suspended).await?;

    broken.mend();
    world.replaced("etcd-0", &uid).await?;
    world.whole().await?;
    enforce(&world, "Enforce").await?;
    world.trusted().await?;
    let _broken = world.crash("etcd-2").await?;
    world.has_to_wait("etcd-0", &["2 are needed"]).await?;
    world.close().await
}

/// The delete of a budget asks for no `Warn`.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_budget_comes_back_with_the_enforcement_that_it_had() -> Result<()> {
    let world = World::builder("enforced-again")
        .argument("--default-enforcement=Warn")
        .untrusted()
        .start()
        .await?;
    enforce(&world, "Enforce").await?;
    let (params, name) = (DeleteParams::default(), world.etcd.name());
    for expected in [Enforcement::Enforce, Enforcement::Warn] {
        eventually(SOON, "the gate has seen the budget as it is", || async {
            let budget = world.budget().await?;
            let seen = budget.status.and_then(|status| status.observed_generation);
            ensure!(seen == budget.metadata.generation, "{seen:?}");
            anyhow::Ok(())
        })
        .await?;
        let old = world.budget().await?.metadata.uid;
        world.budgets().delete(name, &params).await?;
        eventually(SOON, "there is a budget as it was", || async {
            let new = world.budget().await?;
            ensure!(new.metadata.uid != old, "it is the old one");
            let enforcement = new.spec.enforcement;
            ensure!(enforcement == expected, "{enforcement:?}");
            anyhow::Ok(())
        })
        .await?;
        enforce(&world, "Warn").await?;
    }
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn when_refusals_count_again_the_ledger_is_untrusted_at_first() -> Result<()> {
    let world = World::new("warn-untrusted").await?;
    enforce(&world, "Warn").await?;
    eventually(SOON, "the ledger is suspended", || async {
        let status = world.budget().await?.status.context("no status")?;
        ensure!(
            status.ledger.suspended && !status.ledger.trusted,
            "{:?}",
            status.ledger
        );
        Ok(())
    })
    .await?;
    let pdbs: Api<PodDisruptionBudget> = world.sandbox.api();
    eventually(SOON, "the companion refuses nothing either", || async {
        let left = pdbs.get_opt("quorumgate-etcd").await?;
        ensure!(left.is_none(), "it is there");
        Ok(())
    })
    .await?;
    // The gate records a permission as ever, and the next request would be refused.
    world.lets_go(By::Delete, "etcd-0").await?;
    world.evict("etcd-1").await.context("an eviction in Warn")?;
    enforce(&world, "Enforce").await?;
    world.has_to_wait("etcd-2", &[]).await?;
    let because = |trusted: &Condition| trusted.message.contains("enforcement: Warn");
    world.reported("LedgerTrusted", because).await?;
    world.trusted().await?;
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_druid_cluster_opts_out_by_a_label_and_in_again() -> Result<()> {
    let world = World::new("opt-out").await?;
    let druid = EtcdCluster::builder("other").shape(Shape::Druid);
    let druid = druid.apply(&world.sandbox).await?;
    druid.quorate(SOON).await?;
    world.trusted_of(&druid).await?;
    let sets: Api<StatefulSet> = world.sandbox.api();
    let label = async |value: &str| {
        let patch = json!({"metadata": {"labels": {"quorumgate.io/enroll": value}}});
        let params = PatchParams::default();
        sets.patch("other", &params, &Patch::Merge(patch)).await
    };
    label("false").await?;
    eventually(SOON, "its budget is gone", || async {
        let left = world.budgets().get_opt("other").await?;
        ensure!(left.is_none(), "it is there");
        Ok(())
    })
    .await?;
    // The other cluster keeps the namespace's label for the webhooks, so the gate is asked, and
    // permits everything.
    world.delete("other-0").await?;
    world.delete("other-1").await?;
    world.delete("other-2").await?;
    druid.quorate(SOON).await?;
    label("true").await?;
    world.trusted_of(&druid).await?;
    world.close().await
}
