//! Members of every version go one by one, the leader last, and nothing waits for them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::etcd_cluster::EtcdVersion;
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::Held;
use quorumgate_testbed::writer::Writer;
use tokio::time::timeout;

use super::{RUN, all_ran, each_ran, fragmented, hold_all, says, sizes, wish};
use crate::world::{SOON, World};

/// The longest time for a write, and for the renewal of a lease, through a member that is not
/// being defragmented.
const BOUND: Duration = Duration::from_secs(5);

/// Checks the order of the runs, what clients see meanwhile, and the data afterwards.
async fn members_go_one_by_one(version: EtcdVersion, name: &str) -> Result<()> {
    let world = fragmented(World::builder(name).etcd(|etcd| etcd.version(version))).await?;
    let writer = Writer::start(&world.etcd).await?;
    let before = sizes(&world).await?;
    let term = world.etcd.endpoint_status("etcd-0").await?.raft_term;
    let mut waiting = hold_all(&world).await?;
    wish(&world, "Auto").await?;
    let mut order = Vec::new();
    while !waiting.is_empty() {
        let (member, held) = next_to_begin(&mut waiting).await?;
        let granted = world.granted().await?;
        ensure!(granted == [member.as_str()], "{member} of {granted:?}");
        ensure!(world.etcd.leader().await? != member, "{member} leads");
        for other in world.etcd.pod_names() {
            if other != member {
                is_served(&world, &other).await?;
            }
        }
        held.release();
        order.push(member);
    }

    let runs = all_ran(&world, None).await?;
    for run in &runs {
        ensure!(run.error.is_none() && run.reason == "Reclaim", "{run:?}");
        let after = run.size_after_bytes.context("no size")?;
        ensure!(after < run.size_before_bytes / 2, "{run:?}");
    }
    let elections = world.etcd.endpoint_status("etcd-0").await?.raft_term - term;
    let last = order.last().context("no run")?;
    handed_over(&world, last, elections).await?;
    for (before, after) in before.iter().zip(sizes(&world).await?) {
        ensure!(after < *before / 2, "{before} bytes became {after}");
    }
    says(&world, "NothingDue").await?;
    each_ran(&world, 1).await?;
    world.settled().await?;
    let report = writer.stop().await?;
    report.assert_nothing_lost(&world.etcd).await?;
    all_have_the_same(&world).await?;
    world.close().await
}

/// Checks that the last member handed leadership over. With `elections` of others, the last one may
/// have followed already.
async fn handed_over(world: &World, last: &str, elections: u64) -> Result<()> {
    ensure!(elections > 0, "leadership was never moved");
    if elections > 1 {
        eprintln!(
            "{elections} elections: another one than the gate's, so who led last is not known"
        );
        return Ok(());
    }
    let status = world.budget().await?.status.context("no status")?;
    let moved = status.leader_move.context("the gate moved nothing")?;
    let id = world.etcd.member(last).await?.id;
    ensure!(
        u64::from_str_radix(&moved.from, 16)? == id,
        "{last} was last, and leadership moved from {moved:?}"
    );
    Ok(())
}

/// Waits for the next member whose defragmentation begins.
async fn next_to_begin(waiting: &mut BTreeMap<String, Held>) -> Result<(String, Held)> {
    let began = eventually(RUN, "a run has begun", async || {
        let mut began = waiting.iter().filter(|(_, held)| held.has_begun());
        began.next().map(|(pod, _)| pod.clone())
    })
    .await?;
    let held = waiting.remove(&began).context("it began a moment ago")?;
    Ok((began, held))
}

/// Checks that writes and renewals of leases pass through this member.
async fn is_served(world: &World, pod: &str) -> Result<()> {
    let dialer = world.etcd.dialer().await?;
    let mut member = dialer.dial(world.etcd.pod_ip(pod).await?, BOUND).await?;
    let served = async {
        let ttl = i64::try_from(SOON.as_secs())?;
        let lease = member.lease_grant(ttl, None).await?.id();
        member.put("through", pod, None).await?;
        member.lease_keep_alive(lease).await?;
        anyhow::Ok(())
    };
    let served = timeout(BOUND, served).await;
    served.with_context(|| format!("{pod} does not serve for {BOUND:?}"))?
}

/// Checks that all members have the same data.
pub(crate) async fn all_have_the_same(world: &World) -> Result<()> {
    let put = world.etcd.connect().await?.put("last", "one", None).await?;
    let revision = put.header().context("no header")?.revision();
    eventually(SOON, "all members have the same data", async || {
        let mut hashes = Vec::new();
        for pod in world.etcd.pod_names() {
            let mut member = world.etcd.connect_to(&pod).await?;
            let hash = member.hash_kv(revision).await?;
            hashes.push((hash.hash(), hash.compact_version()));
        }
        hashes.dedup();
        ensure!(hashes.len() == 1, "{hashes:?}");
        anyhow::Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_defragmented_once_each_the_leader_last_after_it_has_handed_over() -> Result<()>
{
    members_go_one_by_one(EtcdVersion::V3_7, "defrag-auto").await
}

/// A member of Debian's 3.4 has to have run for a minute, since a snapshot and a defragmentation at
/// the same moment may corrupt its data.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn members_of_etcd_3_4_are_defragmented_one_by_one() -> Result<()> {
    members_go_one_by_one(EtcdVersion::V3_4, "defrag-auto-3-4").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn members_of_etcd_3_5_are_defragmented_one_by_one() -> Result<()> {
    members_go_one_by_one(EtcdVersion::V3_5, "defrag-auto-3-5").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn members_of_etcd_3_6_are_defragmented_one_by_one() -> Result<()> {
    members_go_one_by_one(EtcdVersion::V3_6, "defrag-auto-3-6").await
}
