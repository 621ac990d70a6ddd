//! A round: operations, then the wait until all is well, then the judgement of the observations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use fastrand::Rng;
use futures::future::{join_all, try_join_all};
use quorumgate_testbed::control_plane::audit::AuditEvent;
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::writer::Writer;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::chance::Chooser;
use super::evidence;
use super::stage::{Cluster, Stage};
use super::tally::Tally;
use super::timeline::Timeline;
use super::verdict;
use super::witness::Witness;

/// The share of operations on the parts that all clusters share is one in this many.
const SHARED: usize = 10;
/// The operations that run concurrently in one sequence.
const AT_ONCE: usize = 3;
/// The longest pause between the beginnings of two operations on one cluster.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between the beginnings of two operations on the shared parts.
const SHARED_PAUSE: Duration = Duration::from_secs(4);

/// Runs one round.
pub(super) async fn play(stage: &Arc<Stage>, operations: usize, chance: &mut Rng) -> Result<Tally> {
    let begun = Instant::now();
    let audit = stage.world.bed().audit_log();
    let clusters = stage.clusters.iter();
    let watched = clusters.map(|cluster| Watched::begin(stage, cluster));
    let watched = try_join_all(watched).await?;

    join_all(sequences(stage, operations, chance)).await;
    let rest = stage.whole().await.context("something is wedged");

    let timeline = stage.take_timeline();
    let events = audit.events(stage.world.namespace())?;
    let mut tally = Tally::count(&timeline, &events);
    let mut outcome = timeline.nothing_was_left_undone().and(rest);
    for watched in watched {
        match watched.judge(&events, &timeline).await {
            Ok(seen) => tally += seen,
            Err(wrong) => outcome = Err(wrong),
        }
    }
    tally.took = begun.elapsed();
    if outcome.is_err() {
        evidence::write_timeline(stage, &timeline)?;
    }
    outcome.map_err(|error| anyhow!("{error:#}\n{timeline}"))?;
    Ok(tally)
}

/// A task for each cluster and one for the shared parts. Together they perform all operations.
fn sequences(
    stage: &Arc<Stage>,
    operations: usize,
    chance: &mut Rng,
) -> Vec<impl Future<Output = ()> + use<>> {
    let shared = operations / SHARED;
    let mut left = operations - shared;
    let mut sequences = vec![sequence(
        Arc::clone(stage),
        Chooser::of_the_shared_parts(chance.fork()),
        shared,
        SHARED_PAUSE,
    )];
    for cluster in 0..stage.clusters.len() {
        let count = left / (stage.clusters.len() - cluster);
        left -= count;
        let chooser = Chooser::of_cluster(cluster, chance.fork());
        sequences.push(sequence(Arc::clone(stage), chooser, count, PAUSE));
    }
    sequences
}

async fn sequence(stage: Arc<Stage>, mut chooser: Chooser, operations: usize, pause: Duration) {
    let mut under_way = JoinSet::new();
    for _ in 0..operations {
        while under_way.len() >= AT_ONCE {
            under_way.join_next().await;
        }
        let operation = chooser.choose(&stage);
        let stage = Arc::clone(&stage);
        under_way.spawn(async move { stage.perform(operation).await });
        sleep(pause.mul_f64(chooser.fraction())).await;
    }
    under_way.join_all().await;
}

/// A cluster with a writer and a witness.
struct Watched {
    etcd: EtcdCluster,
    writer: Writer,
    witness: Witness,
}

impl Watched {
    async fn begin(stage: &Stage, cluster: &Cluster) -> Result<Self> {
        let pods = stage.pods.pods(&cluster.etcd);
        let known = pods.clone();
        let dialer = cluster.etcd.dialer().await?;
        let statuses = cluster.etcd.statuses().await?;
        let id = statuses.first().context("no member answers")?.cluster_id;
        Ok(Self {
            writer: Writer::start_at(dialer.clone(), move || known.addresses()),
            witness: Witness::start(dialer, pods, id),
            etcd: cluster.etcd.clone(),
        })
    }

    /// Fails if a permission was wrong or an acknowledged write was lost.
    async fn judge(self, events: &[AuditEvent], timeline: &Timeline) -> Result<Tally> {
        let etcd = &self.etcd;
        let samples = self.witness.stop().await?;
        let report = self.writer.stop().await?;
        let mut tally = verdict::every_permission_was_right(etcd, &samples, events, timeline)?;
        report.assert_nothing_lost(etcd).await?;
        tally.acknowledged = report.acknowledged.len();
        tally.longest_gap = report.longest_gap;
        Ok(tally)
    }
}
