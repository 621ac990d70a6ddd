//! A rollout and its cost.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::faults::Cut;
use quorumgate_testbed::writer::Writer;
use serde_json::Value;

use crate::arena::Arena;
use crate::broken::{BROKEN, Broken};
use crate::condition::Condition;
use crate::incarnations::Watch;
use crate::majority::Majority;
use crate::promptness::{Delay, Promptness};

const SOON: Duration = Duration::from_secs(120);

/// The cost of a rollout.
#[derive(Debug)]
pub(crate) struct Rolled {
    /// The time from the change of the template until all members are updated, Ready and serving.
    pub(crate) time: Duration,
    /// The number of writes that a member did not acknowledge within 300 ms. Each was tried with
    /// the next member at once.
    pub(crate) failed: usize,
    /// The longest time without an acknowledged write.
    pub(crate) gap: Duration,
    /// The increase of the raft term.
    pub(crate) elections: u64,
    /// The time for which fewer members than a majority answered.
    pub(crate) without_majority: Duration,
    /// The delay of each step but the first. Measured for the gate's rollouts of healthy clusters.
    pub(crate) delays: Vec<Delay>,
}

impl Rolled {
    /// Changes the template of members in this condition, and waits until the rollout is complete.
    pub(crate) async fn out(
        arena: &mut Arena,
        strategy: &Value,
        condition: Condition,
        round: usize,
    ) -> Result<Self> {
        let leader = condition.leader(round);
        let prepared = arena.prepare(condition.readiness(), strategy, &leader);
        prepared.await?;
        let broken = condition.bring_about(&arena.sandbox, &arena.etcd).await?;
        let uid = match &broken {
            Some(_) => Some(arena.etcd.pod_uid(BROKEN).await?),
            None => None,
        };
        let revision = arena.revision().await?;
        let term = term(&arena.etcd).await?;
        let majority = Majority::watch(&arena.etcd, &arena.watch).await?;
        // With a broken member, steps wait for other things too than the step before.
        let promptness = match condition {
            Condition::Healthy if arena.is_gated() => {
                Some(Promptness::watch(&arena.etcd, &arena.watch).await?)
            }
            Condition::Healthy | Condition::Crashing | Condition::CutOff => None,
        };
        let writer = Writer::start(&arena.etcd).await?;

        let start = Instant::now();
        arena.change().await?;
        let replaced = replaced(&arena.watch, broken.zip(uid.as_deref()));
        let ((), cut) = tokio::try_join!(arena.updated(&revision), replaced)?;
        let time = start.elapsed();
        arena.rolled_out();

        let without_majority = majority.lost_since(start, uid.as_deref()).await?;
        let delays = match promptness {
            Some(promptness) => promptness.delays().await?,
            None => Vec::new(),
        };
        let report = writer.stop().await?;
        drop(cut);
        report.assert_nothing_lost(&arena.etcd).await?;
        Ok(Self {
            time,
            failed: report.failures.len(),
            gap: report.longest_gap,
            elections: self::term(&arena.etcd).await? - term,
            without_majority,
            delays,
        })
    }
}

/// Waits until the broken incarnation goes, and lets the next one start.
async fn replaced(watch: &Watch, broken: Option<(Broken, &str)>) -> Result<Option<Cut>> {
    let Some((broken, uid)) = broken else {
        return Ok(None);
    };
    watch
        .until("the broken one goes", SOON, |pods| {
            pods.values().all(|pod| pod.uid != uid || pod.terminating)
        })
        .await?;
    Ok(broken.replaced())
}

async fn term(etcd: &EtcdCluster) -> Result<u64> {
    let statuses = etcd.statuses().await?;
    let terms = statuses.iter().map(|status| status.raft_term);
    terms.max().context("no member answers")
}
