//! Defragmentations of real members: what would be freed is reported, runs are carried out one
//! member after the other, and those of others are respected.

mod due;
mod held;
mod nospace;
pub(crate) mod one_by_one;
mod rollout;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_client::{Client, CompactionOptions, DeleteOptions, PutOptions};
use kube::api::{Patch, PatchParams};
use quorumgate::api::DefragmentationStatus;
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::{Held, PodFaults};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::{SOON, World, WorldBuilder};

/// The time limit for the report. A cluster at rest is looked at every 15 s.
const REPORT: Duration = Duration::from_secs(180);

/// The time limit for a run of all members. Before each one, all have to serve for 10 s.
const RUN: Duration = Duration::from_secs(240);

/// The number of values that are deleted again, and the size of each in bytes, below etcd's limit
/// for a request.
const PIECES: u32 = 64;
const PIECE: usize = 1 << 20;

/// A world in which every member has free pages.
async fn fragmented(world: WorldBuilder) -> Result<World> {
    let world = world.etcd(|etcd| etcd.claim_size("8Gi")).start().await?;
    let mut etcd = patient(&world).await?;
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

/// A client of the leader that waits for large requests.
async fn patient(world: &World) -> Result<Client> {
    let leader = world.etcd.pod_ip(&world.etcd.leader().await?).await?;
    world.etcd.dialer().await?.dial(leader, SOON).await
}

/// Deletes what begins like this, and compacts.
async fn forget(world: &World, prefix: &str) -> Result<()> {
    // On a busy machine etcd itself gives up, and may have done it nevertheless.
    eventually(SOON, "it is deleted and compacted", async || {
        let mut etcd = patient(world).await?;
        let all = DeleteOptions::new().with_prefix();
        let deleted = etcd.delete(prefix, Some(all)).await?;
        let revision = deleted.header().context("no header")?.revision();
        let physical = CompactionOptions::new().with_physical();
        match etcd.compact(revision, Some(physical)).await {
            Err(error) if !error.to_string().contains("has been compacted") => Err(error.into()),
            Ok(_) | Err(_) => anyhow::Ok(()),
        }
    })
    .await
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

/// Wishes for this mode, with low thresholds.
async fn wish(world: &World, mode: &str) -> Result<()> {
    wish_within(world, mode, Duration::from_secs(300)).await
}

/// As [`wish`], with the time that a run may be expected to take.
async fn wish_within(world: &World, mode: &str, timeout: Duration) -> Result<()> {
    let wishes = json!({
        "mode": mode, "minReclaim": "32Mi", "minPercent": 30,
        "timeout": format!("{}s", timeout.as_secs()),
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
            run.completion_time.is_some() && run.request.as_deref() == request
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
    let faults = PodFaults::find(&world.sandbox, pod).await?;
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
