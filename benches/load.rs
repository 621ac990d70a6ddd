//! One replica in front of very many clusters whose members are on paper, but answer on the wire as etcd does: how its memory, its start, its
//! rest and its decisions grow from 1,000 to 10,000 clusters, and whether a hundred that hang slow the others. Ten clusters share a
//! namespace, as more of them mean more namespaces in life.
//!
//! Scheduler and controllers are stopped meanwhile, so that the copies stay what they are. `CLUSTERS=1000,3000` chooses other sizes.

mod caller;
mod paper_etcd;
mod paper_member;
mod plane;
mod population;
mod processor;
mod questions;
mod resident;
mod round;
mod shown;
mod spread;
mod table;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::{join, try_join_all};
use quorumgate_testbed::Bed;
use quorumgate_testbed::control_plane::{Component, ControlPlane};
use quorumgate_testbed::etcd_cluster::{EtcdCluster, Tls};
use quorumgate_testbed::gate::Gate;

use caller::Caller;
use paper_etcd::PaperEtcd;
use population::Population;
use questions::Questions;
use resident::Resident;
use round::Round;
use shown::shown;
use spread::Spread;
use table::Table;

/// Sizes, in clusters of three.
const SIZES: [u32; 3] = [1_000, 3_000, 10_000];
/// So many of them hang in the end.
const HUNG: u32 = 100;
/// Callers at one time, of the clusters that answer and of those that hang.
const CALLERS: usize = 8;

/// Until what a start put off is written: numbers are written every 10 s, and there are many.
const AFTERMATH: Duration = Duration::from_secs(60);
const REST: Duration = Duration::from_secs(20);
const ROUND: Duration = Duration::from_secs(10);
/// Growth that counts as linear: each size is measured once, and on two cores that is right to a quarter.
const LINEAR: f64 = 1.25;
const SOON: Duration = Duration::from_secs(60);
const IN_A_LONG_WHILE: Duration = Duration::from_secs(900);

fn main() -> Result<()> {
    quorumgate::install_crypto_provider();
    plane::with(measure)
}

fn sizes() -> Result<Vec<u32>> {
    match std::env::var("CLUSTERS") {
        Ok(chosen) => chosen.split(',').map(|size| Ok(size.parse()?)).collect(),
        Err(_) => Ok(SIZES.to_vec()),
    }
}

async fn measure(plane: &ControlPlane) -> Result<()> {
    let bed = Bed::up_with(plane.clone()).await?;
    let mut sandbox = bed.sandbox("load").await?;
    sandbox.add_nodes(1).await?;
    let etcd = EtcdCluster::builder("etcd")
        .tls(Tls::None)
        .apply(&sandbox)
        .await?;
    etcd.quorate(SOON).await?;
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    let gate = Gate::builder(env!("CARGO_BIN_EXE_quorumgate"), manifests)
        .replicas(1)
        .everywhere()
        .argument("--settle-time=10s")
        .start(&sandbox)
        .await?;
    gate.in_force(SOON).await?;
    for component in [Component::Scheduler, Component::ControllerManager] {
        component.process(&plane.state).stop(SOON).await?;
    }
    let paper = PaperEtcd::listen().await?;
    let mut population = Population::of(&etcd, Some(paper.port)).await?;
    let mut before: Option<Size> = None;
    for clusters in sizes()? {
        population.grow_to(clusters).await?;
        let size = Size::of(&gate, &etcd, &paper, clusters).await?;
        size.print(before.as_ref())?;
        before = Some(size);
    }
    let closed = gate.close().await;
    // Everything goes with the control plane: without its controllers no namespace would ever be gone.
    std::mem::forget(sandbox);
    closed
}

/// What was measured with so many clusters.
struct Size {
    clusters: u32,
    /// From its start until the replica is ready, seconds.
    start: f64,
    memory: Resident,
    /// Processor time per second of rest, seconds.
    rest: f64,
    decisions: Decisions,
    beside_hung: Decisions,
}

/// Decisions by one round of callers.
struct Decisions {
    per_second: f64,
    /// The share that was allowed: all may go, unless the machine is too busy for members to answer in time.
    allowed: f64,
    round: Round,
}

impl Size {
    async fn of(gate: &Gate, etcd: &EtcdCluster, paper: &PaperEtcd, clusters: u32) -> Result<Self> {
        let replica = gate.replica(0);
        shown(gate, clusters + 1, IN_A_LONG_WHILE).await?;
        replica.term().await?;
        let begun = Instant::now();
        replica.restart().await?;
        replica.ready(SOON).await?;
        let start = begun.elapsed().as_secs_f64();
        shown(gate, clusters + 1, IN_A_LONG_WHILE).await?;

        let process = replica.identity().context("the gate has ended")?;
        let process = process.pid().to_string();
        let rest = at_rest(&process).await?;
        let questions = Questions::of(etcd.client(), HUNG..clusters).await?;
        let hanging = Questions::of(etcd.client(), 0..HUNG).await?;
        decisions(gate, &questions).await?;
        let alone = decisions(gate, &questions).await?;
        paper.hang(HUNG);
        let (beside_hung, hung) = join(decisions(gate, &questions), refusals(gate, &hanging)).await;
        paper.hang(0);
        hung?;
        Ok(Self {
            clusters,
            start,
            memory: Resident::of(&process)?,
            rest,
            decisions: alone,
            beside_hung: beside_hung?,
        })
    }

    fn print(&self, before: Option<&Self>) -> Result<()> {
        let once = Spread::once;
        let mut table = Table::new(format!(
            "Load: one replica, {} budgets, {} pods whose members answer on the wire",
            self.clusters,
            self.clusters * paper_member::MEMBERS
        ))
        .row("from its start until it is ready, s", once(self.start), ..)
        .row("resident set, MiB", once(self.memory.now / 1024.0), ..)
        .row("most until then, MiB", once(self.memory.most / 1024.0), ..)
        .row(
            "processor time at rest, % of one core",
            once(100.0 * self.rest),
            ..,
        )
        .row("decisions per second", once(self.decisions.per_second), ..)
        .row("allowed of them", once(self.decisions.allowed), 0.99..)
        .row(
            "and while a hundred clusters hang",
            once(self.beside_hung.allowed),
            0.99..,
        )
        .row(
            "their p99, ms",
            once(1e3 * self.decisions.round.percentile(99)),
            ..,
        )
        .row(
            "decisions per second while a hundred clusters hang and are asked about, / without",
            once(self.beside_hung.per_second / self.decisions.per_second),
            0.5..,
        )
        .row(
            "their p99, / without",
            once(self.beside_hung.round.percentile(99) / self.decisions.round.percentile(99)),
            ..=2.0,
        );
        if let Some(before) = before {
            let clusters = f64::from(self.clusters) / f64::from(before.clusters);
            let growth = |now: f64, then: f64| once(now / then / clusters);
            table = table
                .row(
                    "growth of memory, / that of clusters",
                    growth(self.memory.now, before.memory.now),
                    ..=LINEAR,
                )
                .row(
                    "growth of the start, / that of clusters",
                    growth(self.start, before.start),
                    ..=LINEAR,
                )
                .row(
                    "growth of rest, / that of clusters",
                    growth(self.rest, before.rest),
                    ..=LINEAR,
                )
                .row(
                    "growth of a decision, / that of clusters",
                    growth(before.decisions.per_second, self.decisions.per_second),
                    ..=LINEAR,
                );
        }
        Ok(table.print()?)
    }
}

/// Seconds of processor time that the process takes per second when nobody asks it anything.
async fn at_rest(process: &str) -> Result<f64> {
    tokio::time::sleep(AFTERMATH).await;
    let before = processor::time(process, |_| true)?;
    let start = Instant::now();
    tokio::time::sleep(REST).await;
    Ok((processor::time(process, |_| true)? - before) / start.elapsed().as_secs_f64())
}

/// Asks about one pod after another, all of which may go.
async fn decisions(gate: &Gate, questions: &Questions) -> Result<Decisions> {
    let start = Instant::now();
    let asking = (0..CALLERS).map(|first| async move {
        let mut caller = caller(gate).await?;
        let (mut calls, mut allowed) = (Vec::new(), 0_u32);
        for question in questions.from(first) {
            if start.elapsed() > ROUND {
                break;
            }
            let sent = Instant::now();
            let answer = caller.call(question).await?;
            calls.push(sent.elapsed());
            allowed += u32::from(is_allowed(answer));
        }
        anyhow::Ok((calls, allowed))
    });
    let asked = try_join_all(asking).await?;
    let (calls, allowed): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    let calls = calls.concat();
    let count = f64::from(u32::try_from(calls.len())?);
    Ok(Decisions {
        per_second: count / start.elapsed().as_secs_f64(),
        allowed: f64::from(allowed.iter().sum::<u32>()) / count,
        round: Round::of(calls),
    })
}

/// Asks about pods of clusters that hang, as often as they answer.
async fn refusals(gate: &Gate, questions: &Questions) -> Result<()> {
    let start = Instant::now();
    let asking = (0..CALLERS).map(|first| async move {
        let mut caller = caller(gate).await?;
        for question in questions.from(first) {
            if start.elapsed() > ROUND {
                break;
            }
            let answer = caller.call(question).await?;
            ensure!(!is_allowed(answer), "it was allowed");
        }
        anyhow::Ok(())
    });
    try_join_all(asking).await.map(drop)
}

async fn caller(gate: &Gate) -> Result<Caller> {
    Caller::connect(gate.replica(0).address(), gate.ca_certificate()).await
}

fn is_allowed(answer: &[u8]) -> bool {
    let allowed = br#""allowed":true"#;
    answer.windows(allowed.len()).any(|part| part == allowed)
}
