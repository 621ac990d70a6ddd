//! Defragmentations of real members: what would be freed is reported, runs are carried out one
//! member after the other, and those of others are respected.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_client::{CompactionOptions, DeleteOptions, PutOptions};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use quorumgate::api::DefragmentationStatus;
use quorumgate_testbed::etcd_cluster::EtcdClusterBuilder;
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::{Held, PodFaults};
use quorumgate_testbed::writer::Writer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::asking::By;
use crate::rollouts::kills::driver;
use crate::world::{SETTLE_TIME, SOON, World};

/// The time limit for the report. A cluster at rest is looked at once a minute.
const REPORT: Duration = Duration::from_secs(180);

/// The time limit for a run of all members. Before each one, all have to serve for 10 s.
const RUN: Duration = Duration::from_secs(120);

/// The number of values that are deleted again, and the size of each in bytes, below etcd's limit
/// for a request.
const PIECES: u32 = 64;
const PIECE: usize = 1 << 20;

/// The number of little values that can be deleted one by one while nothing can be written.
const DELETES: u32 = 200;

/// The shortest time that a defragmentation may be expected to take.
const TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn what_a_defragmentation_would_free_is_reported_and_nothing_is_done() -> Result<()> {
    let world = fragmented("defrag-report", |etcd| etcd).await?;
    let sizes = sizes(&world).await?;
    wish(&world, "Report").await?;
    eventually(REPORT, "it is reported what can be freed", || async {
        let condition = world.condition("Defragmented").await?;
        ensure!(
            condition.reason == "ReportOnly" && condition.message.contains("can be freed"),
            "{condition:?}"
        );
        Ok(())
    })
    .await?;
    for (before, after) in sizes.iter().zip(self::sizes(&world).await?) {
        ensure!(after >= *before, "{before} bytes became {after}");
    }
    ensure!(world.granted().await?.is_empty(), "something was permitted");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_defragmented_once_each_the_leader_last_after_it_has_handed_over() -> Result<()>
{
    let world = fragmented("defrag-auto", |etcd| etcd).await?;
    let writer = Writer::start(&world.etcd).await?;
    let leader = world.etcd.leader().await?;
    let before = sizes(&world).await?;
    wish(&world, "Auto").await?;
    let mut runs = all_ran(&world, None).await?;
    runs.sort_by_key(|run| run.started.0);
    let last = runs.last().context("no run")?;
    ensure!(last.member == leader, "{leader} led, and {last:?} was last");
    for run in &runs {
        ensure!(run.error.is_none() && run.reason == "reclaim", "{run:?}");
        let after = run.size_after.context("no size")?;
        ensure!(after < run.size_before / 2, "{run:?}");
    }
    let heir = world.etcd.leader().await?;
    ensure!(heir != leader, "{leader} leads as before");
    for (before, after) in before.iter().zip(sizes(&world).await?) {
        ensure!(after < *before / 2, "{before} bytes became {after}");
    }
    says(&world, "NothingDue").await?;
    each_ran(&world, 1).await?;
    world.settled().await?;
    let report = writer.stop().await?;
    report.assert_nothing_lost(&world.etcd).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_value_of_the_annotation_asks_for_one_run() -> Result<()> {
    let world = fragmented("defrag-asked", |etcd| etcd.replicas(1)).await?;
    wish(&world, "Report").await?;
    says(&world, "ReportOnly").await?;
    each_ran(&world, 0).await?;
    request(&world, "monday").await?;
    all_ran(&world, Some("monday")).await?;
    says(&world, "NothingDue").await?;
    each_ran(&world, 1).await?;
    // Other processes ask for nothing more by a value that was served.
    for replica in world.gate.replicas() {
        replica.restart().await?;
    }
    world.gate.in_force(SOON).await?;
    request(&world, "tuesday").await?;
    all_ran(&world, Some("tuesday")).await?;
    each_ran(&world, 2).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_member_is_defragmented_no_other_one_may_go() -> Result<()> {
    let world = fragmented("defrag-delete", |etcd| etcd).await?;
    let all = hold_all(&world).await?;
    wish(&world, "Auto").await?;
    let (member, held) = first_to_begin(all).await?;
    let others = world.etcd.pod_names().into_iter();
    let others: Vec<_> = others.filter(|other| *other != member).collect();
    for other in &others {
        world.has_to_wait(other, &[member.as_str()]).await?;
    }
    ensure!(
        world.granted().await? == [member.as_str()],
        "the grant holds"
    );
    held.release();
    let runs = eventually(RUN, "the run is over", || async {
        let runs = runs(&world).await?;
        let run = runs.get(&member).context("no record")?;
        ensure!(run.finished.is_some(), "{run:?}");
        Ok(runs)
    })
    .await?;
    ensure!(runs[&member].error.is_none(), "{runs:?}");
    ensure!(count(&world, &member).await? == 1, "it ran more than once");
    wish(&world, "Off").await?;
    world.settled().await?;
    let other = others.first().context("no other member")?;
    world.lets_go(By::Delete, other).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_gate_is_killed_is_waited_out_and_is_not_repeated() -> Result<()> {
    let world = fragmented("defrag-killed", |etcd| etcd).await?;
    let all = hold_all(&world).await?;
    wish(&world, "Auto").await?;
    let gate = driver(&world).await?;
    let (member, held) = first_to_begin(all).await?;
    world.gate.replica(gate).kill().await?;
    let mut other = world.etcd.pod_names().into_iter();
    let other = other.rfind(|other| *other != member);
    let other = other.context("no other member")?;
    world.has_to_wait(&other, &[&member]).await?;
    held.release();
    world.etcd.serves(&member, SOON).await?;
    // Nobody saw the end of the run.
    let (run, ended) = eventually(RUN, "the grant has ended by its age", || async {
        let mut runs = runs(&world).await?;
        let run = runs.remove(&member).context("no record")?;
        ensure!(run.size_after.is_some(), "{run:?}");
        Ok((run, Timestamp::now()))
    })
    .await?;
    ensure!(run.finished.is_none(), "nobody saw its end: {run:?}");
    let waited = Duration::try_from(ended.duration_since(run.started.0))?;
    ensure!(
        waited >= TIMEOUT + SETTLE_TIME,
        "the grant was waited out for {waited:?}"
    );
    ensure!(count(&world, &member).await? == 1, "the call was repeated");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_liveness_probe_is_a_reason_to_leave_the_member_alone() -> Result<()> {
    let probe = |failures: u32| {
        json!({
            "tcpSocket": {"port": "metrics"},
            "periodSeconds": 1, "timeoutSeconds": 2, "failureThreshold": failures,
        })
    };
    let with_probe = |etcd: EtcdClusterBuilder| {
        etcd.container_field("startupProbe", probe(60))
            .container_field("livenessProbe", probe(1))
    };
    let world = fragmented("defrag-liveness", with_probe).await?;
    wish(&world, "Auto").await?;
    says(&world, "LivenessTooShort").await?;
    let condition = world.condition("Defragmented").await?;
    ensure!(condition.message.contains("bears 2 s"), "{condition:?}");
    each_ran(&world, 0).await?;
    ensure!(world.last_seq().await? == 0, "something was permitted");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn nospace_is_mended_where_there_is_something_to_free() -> Result<()> {
    let quota = 96 << 20;
    let small = |etcd: EtcdClusterBuilder| etcd.claim_size("8Gi").quota_bytes(quota);
    let world = World::builder("defrag-nospace").etcd(small).start().await?;
    let mut etcd = world.etcd.connect().await?;
    for key in 0..DELETES {
        etcd.put(format!("little/{key}"), "some", None).await?;
    }
    let full = async {
        for piece in 0..200 {
            let put = etcd.put(format!("piece/{piece}"), vec![7_u8; PIECE], None);
            if let Err(error) = put.await {
                return Ok(error.to_string());
            }
        }
        anyhow::bail!("the quota does not hold")
    };
    let why = full.await?;
    ensure!(why.contains("database space exceeded"), "{why}");
    forget(&world, "piece/").await?;
    // Nothing can be written, and deletes are committed too.
    let deletes = Cell::new(0..DELETES);
    what_can_be_freed_is_counted(&world, async || {
        let mut left = deletes.take();
        let key = left.next().context("all are deleted")?;
        deletes.set(left);
        let mut etcd = world.etcd.connect().await?;
        etcd.delete(format!("little/{key}"), None).await?;
        Ok(())
    })
    .await?;
    wish(&world, "Auto").await?;
    eventually(RUN, "writes pass again", || async {
        let mut etcd = world.etcd.connect().await?;
        etcd.put("after", "all", None).await?;
        anyhow::Ok(())
    })
    .await?;
    for status in world.etcd.statuses().await? {
        ensure!(status.errors.is_empty(), "{status:?}");
        ensure!(status.db_size < 90 << 20, "{status:?}");
    }
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_defragmentation_by_another_client_is_seen_and_keeps_the_others_in_place() -> Result<()> {
    let world = World::new("defrag-foreign").await?;
    let member = world.etcd.followers().await?.remove(0);
    let held = hold(&world, &member).await?;
    let client = world.etcd.dialer().await?;
    let client = client.dial(world.etcd.pod_ip(&member).await?, SOON).await?;
    let mut client = client.maintenance_client();
    let foreign = tokio::spawn(async move { client.defragment().await });
    eventually(SOON, "it has begun", async || held.has_begun()).await?;
    let mut other = world.etcd.pod_names().into_iter();
    let other = other.rfind(|other| *other != member);
    let other = other.context("no other member")?;
    let seen = format!("{member} (it is defragmenting its database)");
    world.has_to_wait(&other, &[&seen]).await?;
    ensure!(world.granted().await?.is_empty(), "something was permitted");
    held.release();
    foreign.await??;
    world.etcd.serves(&member, SOON).await?;
    ensure!(count(&world, &member).await? == 1, "it ran more than once");
    world.lets_go(By::Delete, &other).await?;
    world.close().await
}

/// A world in which every member has free pages.
async fn fragmented(
    name: &str,
    choose: impl FnOnce(EtcdClusterBuilder) -> EtcdClusterBuilder,
) -> Result<World> {
    let world = World::builder(name)
        .etcd(|etcd| choose(etcd.claim_size("8Gi")))
        .start()
        .await?;
    let mut etcd = world.etcd.connect().await?;
    for piece in 0..PIECES {
        let key = format!("fragment/{piece}");
        etcd.put(key, vec![7_u8; PIECE], None::<PutOptions>).await?;
    }
    forget(&world, "fragment/").await?;
    what_can_be_freed_is_counted(&world, async || {
        let mut etcd = world.etcd.connect().await?;
        etcd.put("little", "some", None::<PutOptions>).await?;
        Ok(())
    })
    .await?;
    Ok(world)
}

/// Waits until every member counts what can be freed. A member counts the pages that a commit has
/// freed from a later commit on, so `commit` brings another one about.
async fn what_can_be_freed_is_counted(
    world: &World,
    commit: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    eventually(SOON, "every member counts what can be freed", async || {
        commit().await?;
        for pod in world.etcd.pod_names() {
            let mut member = world.etcd.connect_to(&pod).await?;
            let status = member.status().await?;
            let (size, in_use) = (status.db_size(), status.raft_used_db_size());
            ensure!(in_use < size / 2, "{pod} has {size} bytes, {in_use} in use");
        }
        Ok(())
    })
    .await
}

/// Deletes what begins like this, and compacts.
async fn forget(world: &World, prefix: &str) -> Result<()> {
    let mut etcd = world.etcd.connect().await?;
    let all = DeleteOptions::new().with_prefix();
    let deleted = etcd.delete(prefix, Some(all)).await?;
    let revision = deleted.header().context("no header")?.revision();
    let physical = CompactionOptions::new().with_physical();
    etcd.compact(revision, Some(physical)).await?;
    Ok(())
}

async fn sizes(world: &World) -> Result<Vec<i64>> {
    let mut sizes = Vec::new();
    for pod in world.etcd.pod_names() {
        sizes.push(world.etcd.endpoint_status(&pod).await?.db_size);
    }
    Ok(sizes)
}

async fn patch(world: &World, patch: &Value) -> Result<()> {
    let params = PatchParams::default();
    let budgets = world.budgets();
    budgets.patch("etcd", &params, &Patch::Merge(patch)).await?;
    Ok(())
}

async fn wish(world: &World, mode: &str) -> Result<()> {
    let wishes = json!({
        "mode": mode, "minReclaim": "32Mi", "minPercent": 30,
        "timeout": format!("{}s", TIMEOUT.as_secs()),
    });
    patch(world, &json!({"spec": {"defragmentation": wishes}})).await
}

async fn request(world: &World, value: &str) -> Result<()> {
    let annotations = json!({"quorumgate.io/defragment": value});
    patch(world, &json!({"metadata": {"annotations": annotations}})).await
}

/// Waits until the condition says this of the present generation of the budget.
async fn says(world: &World, reason: &str) -> Result<()> {
    eventually(REPORT, format!("Defragmented says {reason}"), || async {
        let condition = world.condition("Defragmented").await?;
        ensure!(condition.reason == reason, "{condition:?}");
        Ok(())
    })
    .await
}

/// The latest runs on record, by member.
async fn runs(world: &World) -> Result<BTreeMap<String, DefragmentationStatus>> {
    let status = world.budget().await?.status.unwrap_or_default();
    let runs = status.defragmentations.into_iter();
    Ok(runs.map(|run| (run.member.clone(), run)).collect())
}

/// Waits until every member has a run on record that is over, and that served this request.
async fn all_ran(world: &World, request: Option<&str>) -> Result<Vec<DefragmentationStatus>> {
    eventually(RUN, "every member was defragmented", || async {
        let runs: Vec<_> = runs(world).await?.into_values().collect();
        ensure!(runs.len() == world.etcd.pod_names().len(), "{runs:?}");
        let is_over = |run: &DefragmentationStatus| {
            run.finished.is_some() && run.request.as_deref() == request
        };
        ensure!(runs.iter().all(is_over), "{runs:?}");
        Ok(runs)
    })
    .await
}

/// Checks that every member was defragmented so many times since it started.
async fn each_ran(world: &World, times: u32) -> Result<()> {
    for pod in world.etcd.pod_names() {
        let counted = count(world, &pod).await?;
        ensure!(counted == times, "{pod} ran {counted} times");
    }
    Ok(())
}

/// How many times a member was defragmented since it started, by its own count.
async fn count(world: &World, pod: &str) -> Result<u32> {
    let address = (world.etcd.pod_ip(pod).await?, 2381);
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    let metric = "etcd_disk_backend_defrag_duration_seconds_count ";
    let value = page.lines().find_map(|line| line.strip_prefix(metric));
    Ok(value.context("no such metric")?.trim().parse()?)
}

/// Holds the next defragmentation of this member.
async fn hold(world: &World, pod: &str) -> Result<Held> {
    let faults = PodFaults::of(&world.sandbox, pod).await?;
    faults.hold_defragmentation()
}

/// Holds the next defragmentation of each member.
async fn hold_all(world: &World) -> Result<BTreeMap<String, Held>> {
    let mut all = BTreeMap::new();
    for pod in world.etcd.pod_names() {
        let held = hold(world, &pod).await?;
        all.insert(pod, held);
    }
    Ok(all)
}

/// Waits for the first defragmentation. Those of the others are not held any more.
async fn first_to_begin(mut all: BTreeMap<String, Held>) -> Result<(String, Held)> {
    let began = eventually(RUN, "a run has begun", async || {
        let mut began = all.iter().filter(|(_, held)| held.has_begun());
        began.next().map(|(pod, _)| pod.clone())
    })
    .await?;
    let held = all.remove(&began).context("it began a moment ago")?;
    Ok((began, held))
}
