//! The update strategy of enrolled StatefulSets: `OnDelete` while the feature is on, and the
//! owner's own after it is switched off.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Resource as _, ResourceExt as _};
use quorumgate_testbed::eventually;
use quorumgate_testbed::writer::Writer;
use serde_json::{Value, json};

use crate::order::Order;
use crate::world::{SOON, World};

const FEATURE: &str = "QuorumAwareUpdatesWithOnDelete";
const ANNOTATION: &str = "quorumgate.io/previous-update-strategy";
/// The time limit for a rollout of three members on a busy machine.
const ROLLOUT: Duration = Duration::from_secs(300);
/// The longest time without a write: one election on a busy machine.
const GAP: Duration = Duration::from_secs(4);
/// The number of writes by the operator.
const SYNCS: u32 = 20;

/// A world with one member, for tests without a rollout.
async fn small(name: &str) -> Result<World> {
    World::builder(name)
        .nodes(1)
        .etcd(|etcd| etcd.replicas(1))
        .feature(FEATURE)
        .untrusted()
        .start()
        .await
}

async fn switch(world: &mut World, on: bool) -> Result<()> {
    let argument = format!("--feature-gates={FEATURE}={on}");
    world.gate.roll_out_with(&argument).await
}

fn wish() -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2, "maxUnavailable": "30%"}})
}

/// A StatefulSet without pods.
fn set(name: &str, enrolled: bool, strategy: &Value) -> Value {
    let labels = json!({"app": name});
    let enroll = enrolled.to_string();
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "labels": {"app": name, "quorumgate.io/enroll": enroll}},
        "spec": {
            "serviceName": name, "replicas": 0, "selector": {"matchLabels": labels},
            "updateStrategy": strategy,
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "etcd", "image": "none"}]},
            },
        },
    })
}

fn sets(world: &World) -> Api<StatefulSet> {
    world.sandbox.api()
}

async fn create(world: &World, set: &Value) -> Result<StatefulSet> {
    let set = serde_json::from_value(set.clone())?;
    let created = sets(world).create(&PostParams::default(), &set).await?;
    Ok(created)
}

fn strategy(set: &StatefulSet) -> Result<Value> {
    let spec = set.spec.as_ref().context("no spec")?;
    Ok(serde_json::to_value(&spec.update_strategy)?)
}

fn is_kept(set: &StatefulSet) -> Result<()> {
    let now = strategy(set)?;
    ensure!(now == json!({"type": "OnDelete"}), "{now}");
    ensure!(
        set.annotations().contains_key(ANNOTATION),
        "nothing is remembered"
    );
    Ok(())
}

/// The owner's strategy, as the gate remembers it in an annotation.
fn remembered(set: &StatefulSet) -> Result<Value> {
    let memory = set.annotations().get(ANNOTATION).context("no memory")?;
    Ok(serde_json::from_str(memory)?)
}

/// Waits until the stored strategy is this one and the annotation is gone.
async fn given_back(world: &World, name: &str, expected: &Value) -> Result<StatefulSet> {
    eventually(
        SOON,
        format!("{name} has its own strategy back"),
        async || {
            let set = sets(world).get(name).await?;
            let now = strategy(&set)?;
            ensure!(now == *expected, "it has {now}, not {expected}");
            ensure!(
                !set.annotations().contains_key(ANNOTATION),
                "the annotation is still there"
            );
            anyhow::Ok(set)
        },
    )
    .await
}

async fn kept(world: &World, name: &str) -> Result<StatefulSet> {
    eventually(SOON, format!("{name} is kept at OnDelete"), async || {
        let set = sets(world).get(name).await?;
        is_kept(&set)?;
        anyhow::Ok(set)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_writes_its_strategy_back_starts_no_fight() -> Result<()> {
    let world = small("strategy-fight").await?;
    // The API server's defaults for the owner's strategy where no webhook changes it.
    let plain = strategy(&create(&world, &set("plain", false, &wish())).await?)?;
    ensure!(plain["rollingUpdate"]["partition"] == 2, "{plain}");
    // A Kubernetes without the feature for `maxUnavailable` drops the field. The gate remembers the
    // field as it was asked for.
    let mut asked_for = plain;
    asked_for["rollingUpdate"]["maxUnavailable"] = json!("30%");
    let created = create(&world, &set("kept", true, &wish())).await?;
    is_kept(&created)?;
    ensure!(remembered(&created)? == asked_for, "{created:?}");

    for sync in 0..SYNCS {
        let now = write_back(&world, sync).await?;
        is_kept(&now).with_context(|| format!("sync {sync}"))?;
        ensure!(remembered(&now)? == asked_for, "sync {sync}: {now:?}");
        ensure!(
            now.metadata.generation == created.metadata.generation,
            "sync {sync}: generation {:?}",
            now.metadata.generation
        );
    }
    for seen in history(&world, &created).await? {
        is_kept(&seen)?;
    }
    let events: Api<Event> = world.sandbox.api();
    let about =
        ListParams::default().fields("involvedObject.kind=StatefulSet,involvedObject.name=kept");
    let told = events.list(&about).await?.items;
    ensure!(told.is_empty(), "{told:?}");

    // When the owner changes its strategy, the remembered one changes too.
    let newer = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    let patch = Patch::Merge(json!({"spec": {"updateStrategy": newer}}));
    let patched = sets(&world)
        .patch("kept", &PatchParams::default(), &patch)
        .await?;
    is_kept(&patched)?;
    ensure!(
        remembered(&patched)?["rollingUpdate"]["partition"] == 1,
        "{patched:?}"
    );
    world.close().await
}

/// Writes the StatefulSet as an operator's sync does, in one of several ways that `sync` chooses.
async fn write_back(world: &World, sync: u32) -> Result<StatefulSet> {
    let sets = sets(world);
    let desired = set("kept", true, &wish());
    let operator = PatchParams::apply("operator");
    Ok(match sync % 4 {
        0 => {
            let apply = Patch::Apply(&desired);
            sets.patch("kept", &operator.force(), &apply).await?
        }
        // Server-side apply without force: a conflict would show that another manager owns the
        // field.
        1 => {
            let apply = Patch::Apply(&desired);
            sets.patch("kept", &operator, &apply).await?
        }
        2 => {
            let whole: StatefulSet = serde_json::from_value(desired)?;
            ensure!(whole.metadata.annotations.is_none());
            // The StatefulSet controller writes the status concurrently. On a conflict operators
            // read again.
            eventually(SOON, "an update without a conflict", async || {
                let mut whole = whole.clone();
                whole.meta_mut().resource_version = sets.get("kept").await?.resource_version();
                anyhow::Ok(sets.replace("kept", &PostParams::default(), &whole).await?)
            })
            .await?
        }
        _ => {
            let merge = Patch::Merge(json!({
                "metadata": {"annotations": null}, "spec": {"updateStrategy": wish()},
            }));
            sets.patch("kept", &PatchParams::default(), &merge).await?
        }
    })
}

/// Every stored version of the StatefulSet after this one.
async fn history(world: &World, since: &StatefulSet) -> Result<Vec<StatefulSet>> {
    let version = since.resource_version().context("no version")?;
    let only = WatchParams::default()
        .fields(&format!("metadata.name={}", since.name_any()))
        .timeout(2);
    let sets = sets(world);
    let events = sets.watch(&only, &version).await?.boxed();
    let seen = events.try_filter_map(|event| async move {
        Ok(match event {
            WatchEvent::Added(set) | WatchEvent::Modified(set) => Some(set),
            _ => None,
        })
    });
    Ok(seen.try_collect().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn both_switches_reach_what_exists_and_leave_an_owners_own_choice_alone() -> Result<()> {
    let mut world = small("strategy-switch").await?;
    let own = create(&world, &set("own", true, &json!({"type": "OnDelete"}))).await?;
    let plain = strategy(&create(&world, &set("plain", false, &wish())).await?)?;
    let operator = PatchParams::apply("operator");
    let desired = set("kept", true, &wish());
    let apply = Patch::Apply(&desired);
    is_kept(&sets(&world).patch("kept", &operator, &apply).await?)?;
    // The world's own StatefulSet is older than the webhooks.
    let etcd = world.etcd.name().to_owned();
    kept(&world, &etcd).await?;
    strategy_is_shown(&world, "OnDelete", "Gate").await?;

    switch(&mut world, false).await?;
    let back = given_back(&world, "kept", &plain).await?;
    given_back(&world, &etcd, &json!({"type": "RollingUpdate"})).await?;
    strategy_is_shown(&world, "RollingUpdate", "StatefulSetController").await?;
    let synced = sets(&world).patch("kept", &operator, &apply).await?;
    ensure!(
        synced.metadata.generation == back.metadata.generation,
        "what came back is not what was asked for: {synced:?}"
    );

    switch(&mut world, true).await?;
    kept(&world, "kept").await?;
    // The field was last changed by the gate, and still belongs to the operator.
    is_kept(&sets(&world).patch("kept", &operator, &apply).await?)?;
    kept(&world, &etcd).await?;
    let own_now = sets(&world).get("own").await?;
    ensure!(
        own_now.spec == own.spec
            && own_now.metadata.generation == own.metadata.generation
            && own_now.annotations().is_empty(),
        "it was written: {own_now:?}"
    );
    world.close().await
}

async fn strategy_is_shown(world: &World, strategy: &str, by: &str) -> Result<()> {
    eventually(SOON, "kubectl shows who updates", async || {
        let said = world.kubectl(&["get", "qdb", "etcd", "-o", "wide"]).await?;
        let said = said.success()?;
        let words: Vec<_> = said.split_whitespace().collect();
        ensure!(words.contains(&strategy) && words.contains(&by), "{said}");
        Ok(())
    })
    .await?;
    let enabled = format!("quorumgate_feature_enabled{{name=\"{FEATURE}\"}}");
    let expected = format!("{enabled} {}", u8::from(by == "Gate"));
    let page = world.gate.metrics(0).await?;
    ensure!(page.lines().any(|line| line == expected), "{page}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn switched_in_the_middle_of_a_rollout_nothing_is_lost_and_nothing_repeated() -> Result<()> {
    let mut world = World::builder("strategy-midway")
        .feature(FEATURE)
        .start()
        .await?;
    let etcd = world.etcd.name().to_owned();
    kept(&world, &etcd).await?;
    let writer = Writer::start(&world.etcd).await?;
    for (marker, on) in [("off", false), ("on", true)] {
        let order = Order::watch(&world).await?;
        world.etcd.change_template(marker).await?;
        eventually(ROLLOUT, "one member is updated", async || {
            let (updated, _) = revisions(&world).await?;
            ensure!(updated > 0, "none is");
            Ok(())
        })
        .await?;
        switch(&mut world, on).await?;
        eventually(
            ROLLOUT,
            "all members are updated",
            async || match revisions(&world).await? {
                (3, 3) => Ok(()),
                (updated, pods) => bail!("{updated} of {pods} are"),
            },
        )
        .await?;
        world.whole().await?;
        let mut gone = order.stop();
        gone.sort();
        ensure!(
            gone == world.etcd.pod_names(),
            "switched {marker}, these pods went: {gone:?}"
        );
    }
    let report = writer.stop().await?;
    report.assert_nothing_lost(&world.etcd).await?;
    ensure!(
        report.longest_gap < GAP,
        "nothing could be written for {:?}",
        report.longest_gap
    );
    kept(&world, &etcd).await?;
    world.close().await
}

/// The number of pods with the template's update revision, and the number of all pods.
async fn revisions(world: &World) -> Result<(usize, usize)> {
    let set = sets(world).get(world.etcd.name()).await?;
    let status = set.status.context("no status")?;
    ensure!(
        status.observed_generation == set.metadata.generation,
        "not read yet"
    );
    let target = status.update_revision.context("no revision")?;
    let pods = world.pods().list(&ListParams::default()).await?.items;
    let updated = pods.iter().filter(|pod| {
        let revision = pod.labels().get("controller-revision-hash");
        revision == Some(&target) && pod.metadata.deletion_timestamp.is_none()
    });
    Ok((updated.count(), pods.len()))
}
