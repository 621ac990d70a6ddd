//! A replica in front of very many clusters with paper members, which answer on the wire as etcd
//! does. The benchmark shows how memory, start, idle cost and decisions grow from 1,000 to 10,000
//! clusters, and whether a hundred hanging clusters slow the others. Ten clusters share a
//! namespace, since more clusters usually mean more namespaces.
//!
//! Scheduler and controllers are stopped meanwhile, so that the copies stay unchanged.
//! `CLUSTERS=1000,3000` chooses other sizes.

mod caller;
mod deletion;
mod paper_etcd;
mod paper_member;
mod plane;
mod population;
mod processor;
mod questions;
mod resident;
mod round;
mod settled;
mod shown;
mod spread;
mod table;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::{join, try_join_all};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Api;
use kube::api::{Patch, PatchParams};
use quorumgate_testbed::Bed;
use quorumgate_testbed::control_plane::ControlPlane;
use quorumgate_testbed::etcd_cluster::{EtcdCluster, Tls};
use quorumgate_testbed::gate::{Gate, Replica};
use serde_json::json;

use caller::Caller;
use paper_etcd::PaperEtcd;
use paper_member::{cluster_name, namespace_of};
use population::Population;
use questions::Questions;
use resident::Resident;
use round::Round;
use settled::settled;
use shown::shown;
use spread::Spread;
use table::Table;

/// The sizes, as numbers of clusters of three members.
const SIZES: [u32; 3] = [1_000, 3_000, 10_000];
/// The number of clusters that hang in the end.
const HUNG: u32 = 100;
/// The number of concurrent callers, for the clusters that answer and for those that hang.
const CALLERS: usize = 8;

/// The time until deferred writes of a start are done: reported numbers are written every 10 s.
const AFTERMATH: Duration = Duration::from_secs(20);
/// The length of the idle phase. The caches are scanned once a minute, and ten healthy clusters are
/// looked at each second, however many there are.
const REST: Duration = Duration::from_secs(60);
const ROUND: Duration = Duration::from_secs(10);
/// The number of changes of StatefulSets, and the time between two: changes that come closer
/// together are looked at together.
const CHANGES: u32 = 100;
const BETWEEN_CHANGES: Duration = Duration::from_millis(100);
/// The time until everything is done that the last change asks for.
const AFTER_CHANGES: Duration = Duration::from_secs(5);
/// The number of starts. A start takes seconds and happens once, so other work on the machine
/// disturbs it most.
const STARTS: usize = 5;
/// The factor up to which a number counts as unchanged: on two cores a measurement is exact to a
/// quarter.
const NO_MORE: f64 = 1.25;
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
    let paper = PaperEtcd::listen().await?;
    let mut population = Population::prepare(plane, &etcd, Some(paper.port)).await?;
    let mut before: Option<Size> = None;
    for clusters in sizes()? {
        population.grow_to(clusters).await?;
        let size = Size::measure(&gate, &etcd, &paper, clusters).await?;
        size.print(before.as_ref())?;
        before = Some(size);
    }
    let closed = gate.close().await;
    population::leave(sandbox);
    closed
}

/// The measurements with one number of clusters.
struct Size {
    clusters: u32,
    start: Start,
    /// The memory before anybody asked.
    at_rest: Resident,
    /// The memory after decisions, with the kept connections to members.
    memory: Resident,
    /// The processor time without requests, in seconds per second.
    rest: f64,
    /// The processor time for the first look at a cluster, in seconds, with its share of the start.
    first_look: f64,
    /// The processor time for a change of one StatefulSet, in seconds.
    change: f64,
    decisions: Decisions,
    /// The decisions while the same number of callers asks about a hundred other clusters.
    beside_others: Decisions,
    /// The decisions while those hundred hang.
    beside_hung: Decisions,
}

/// The time from its start until the replica is ready, in seconds.
struct Start {
    takes: Spread,
    /// The replica's own processor time.
    processor: Spread,
}

/// The decisions of one round of callers.
struct Decisions {
    per_second: f64,
    /// The permitted share. All requests may be permitted where members answer, unless the machine
    /// is too busy for an answer in time.
    allowed: f64,
    round: Round,
}

impl Decisions {
    /// The 99th percentile in seconds.
    fn p99(&self) -> f64 {
        self.round.percentile(99)
    }
}

impl Size {
    async fn measure(
        gate: &Gate,
        etcd: &EtcdCluster,
        paper: &PaperEtcd,
        clusters: u32,
    ) -> Result<Self> {
        let replica = gate.replica(0);
        settled(etcd.client(), IN_A_LONG_WHILE).await?;
        let start = Start::measure(replica).await?;
        shown(gate, clusters + 1, IN_A_LONG_WHILE).await?;

        let process = process_of(replica)?;
        tokio::time::sleep(AFTERMATH).await;
        let first_look = processor::time(&process, |_| true)? / f64::from(clusters);
        let changes = Changes::measure(etcd, &process, clusters).await?;
        let rest = rest(&process).await?;
        let at_rest = Resident::read(&process)?;
        let questions = Questions::prepare(etcd.client(), HUNG..clusters).await?;
        let hanging = Questions::prepare(etcd.client(), 0..HUNG).await?;
        decisions(gate, &questions).await?;
        let alone = decisions(gate, &questions).await?;
        let (beside_others, others) =
            join(decisions(gate, &questions), decisions(gate, &hanging)).await;
        others?;
        paper.hung.store(HUNG, Ordering::Relaxed);
        let (beside_hung, hung) =
            join(decisions(gate, &questions), decisions(gate, &hanging)).await;
        paper.hung.store(0, Ordering::Relaxed);
        ensure!(hung?.allowed <= 0.0, "a pod whose cluster hangs may go");
        Ok(Self {
            clusters,
            start,
            at_rest,
            memory: Resident::read(&process)?,
            rest,
            first_look,
            change: changes.each_beyond(rest),
            decisions: alone,
            beside_others: beside_others?,
            beside_hung: beside_hung?,
        })
    }

    /// The memory at rest for each pod, in KiB.
    fn per_pod(&self) -> f64 {
        self.at_rest.now / f64::from(self.clusters * paper_member::MEMBERS)
    }

    fn print(&self, before: Option<&Self>) -> Result<()> {
        let once = Spread::once;
        let mut table = Table::new(format!(
            "Load: one replica, {} budgets, {} pods whose members answer on the wire",
            self.clusters,
            self.clusters * paper_member::MEMBERS
        ))
        .row("from its start until it is ready, s", self.start.takes, ..)
        .row("its processor time until then, s", self.start.processor, ..)
        .row(
            "resident set at rest, MiB",
            once(self.at_rest.now / 1024.0),
            ..,
        )
        .row("of it per pod, KiB", once(self.per_pod()), ..)
        .row(
            "resident set after decisions, MiB",
            once(self.memory.now / 1024.0),
            ..,
        )
        .row("most until then, MiB", once(self.memory.most / 1024.0), ..)
        .row(
            "processor time at rest, % of one core",
            once(100.0 * self.rest),
            ..,
        )
        .row(
            "processor time for the first look at a cluster, ms",
            once(1e3 * self.first_look),
            ..,
        )
        .row(
            "processor time for a change of one StatefulSet, ms",
            once(1e3 * self.change),
            ..,
        )
        .row("decisions per second", once(self.decisions.per_second), ..)
        .row("allowed of them", once(self.decisions.allowed), 0.99..)
        .row("their p99, ms", once(1e3 * self.decisions.p99()), ..)
        .row(
            "allowed while a hundred other clusters hang and are asked about",
            once(self.beside_hung.allowed),
            0.99..,
        )
        .row(
            "decisions per second then, / while these hundred answer",
            once(self.beside_hung.per_second / self.beside_others.per_second),
            0.8..,
        )
        .row(
            "their p99, / while these hundred answer",
            once(self.beside_hung.p99() / self.beside_others.p99()),
            ..=NO_MORE,
        );
        if let Some(before) = before {
            let clusters = f64::from(self.clusters) / f64::from(before.clusters);
            let growth = |now: f64, then: f64| once(now / then / clusters);
            table = table
                .row(
                    "growth of memory, / that of clusters",
                    growth(self.at_rest.now, before.at_rest.now),
                    ..=NO_MORE,
                )
                .row(
                    "growth of the start, / that of clusters",
                    growth(self.start.takes.median, before.start.takes.median),
                    ..=NO_MORE,
                )
                .row(
                    "growth of its processor time, / that of clusters",
                    growth(self.start.processor.median, before.start.processor.median),
                    ..=NO_MORE,
                )
                .row(
                    "growth of processor time at rest",
                    once(self.rest / before.rest),
                    ..=NO_MORE,
                )
                .row(
                    "growth of a change",
                    once(self.change / before.change),
                    ..=NO_MORE,
                )
                .row(
                    "growth of a decision, / that of clusters",
                    growth(before.decisions.per_second, self.decisions.per_second),
                    ..=NO_MORE,
                );
        }
        Ok(table.print()?)
    }
}

impl Start {
    async fn measure(replica: &Replica) -> Result<Self> {
        let (mut takes, mut processor) = (Vec::new(), Vec::new());
        for _ in 0..STARTS {
            replica.term().await?;
            let begun = Instant::now();
            replica.restart().await?;
            takes.push(begun.elapsed().as_secs_f64());
            processor.push(processor::time(&process_of(replica)?, |_| true)?);
        }
        Ok(Self {
            takes: Spread::from_numbers(takes),
            processor: Spread::from_numbers(processor),
        })
    }
}

fn process_of(replica: &Replica) -> Result<String> {
    let process = replica.identity().context("the gate has ended")?;
    Ok(process.pid().to_string())
}

/// The processor time of a process without requests, per second. It has looked at every cluster.
async fn rest(process: &str) -> Result<f64> {
    let before = processor::time(process, |_| true)?;
    let start = Instant::now();
    tokio::time::sleep(REST).await;
    Ok((processor::time(process, |_| true)? - before) / start.elapsed().as_secs_f64())
}

/// Changes of one StatefulSet after another by an annotation. A change asks for a look at the
/// cluster, and may concern enrolment and the update strategy of any.
struct Changes {
    /// The processor time of the process meanwhile, in seconds.
    processor: f64,
    /// The duration in seconds.
    took: f64,
}

impl Changes {
    async fn measure(etcd: &EtcdCluster, process: &str, clusters: u32) -> Result<Self> {
        let before = processor::time(process, |_| true)?;
        let start = Instant::now();
        let mut ticks = tokio::time::interval(BETWEEN_CHANGES);
        for number in 0..CHANGES {
            ticks.tick().await;
            let cluster = number * clusters / CHANGES;
            let sets: Api<StatefulSet> =
                Api::namespaced(etcd.client().clone(), &namespace_of(cluster));
            let change = json!({"metadata": {"annotations": {"example.com/changed": "once"}}});
            sets.patch(
                &cluster_name(cluster),
                &PatchParams::default(),
                &Patch::Merge(&change),
            )
            .await?;
        }
        tokio::time::sleep(AFTER_CHANGES).await;
        Ok(Self {
            processor: processor::time(process, |_| true)? - before,
            took: start.elapsed().as_secs_f64(),
        })
    }

    /// The cost of a change beyond what the process takes anyway, in seconds.
    fn each_beyond(&self, rest: f64) -> f64 {
        (self.processor - rest * self.took) / f64::from(CHANGES)
    }
}

/// Asks about one pod after another.
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
        round: Round::from_calls(calls),
    })
}

async fn caller(gate: &Gate) -> Result<Caller> {
    Caller::connect(gate.replica(0).address(), gate.ca_certificate()).await
}

fn is_allowed(answer: &[u8]) -> bool {
    let allowed = br#""allowed":true"#;
    answer.windows(allowed.len()).any(|part| part == allowed)
}
