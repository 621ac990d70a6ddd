//! The memory to guard many clusters: the resident set of one replica before and after 1,000
//! budgets of 3 pods each, and the memory of a kept connection to a member. With so many clusters
//! a replica keeps the connections of the last minute's decisions.
//!
//! Scheduler and controllers are stopped meanwhile, so that the copies stay unchanged.

mod paper_member;
mod plane;
mod population;
mod resident;
mod shown;
mod spread;
mod table;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use quorumgate::clock::Clock;
use quorumgate::etcd::{Connections, Endpoint, Prober};
use quorumgate::ledger::Ledger;
use quorumgate::observe::{Observer, Sources};
use quorumgate::quorum::evidence::Target;
use quorumgate::quorum::{ClusterRef, PodUid};
use quorumgate_testbed::Bed;
use quorumgate_testbed::control_plane::ControlPlane;
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::gate::Gate;

use paper_member::MEMBERS;
use population::Population;
use resident::Resident;
use shown::shown;
use spread::Spread;
use table::Table;

const CLUSTERS: u32 = 1000;
const CONNECTIONS: u32 = 300;

/// The limit of the Deployment in `manifests/base`, in MiB.
const LIMIT: f64 = 512.0;

const SOON: Duration = Duration::from_secs(60);
const IN_A_WHILE: Duration = Duration::from_secs(150);

fn main() -> Result<()> {
    quorumgate::install_crypto_provider();
    plane::with(measure)
}

async fn measure(plane: &ControlPlane) -> Result<()> {
    let start = Instant::now();
    let bed = Bed::up_with(plane.clone()).await?;
    let mut sandbox = bed.sandbox("memory").await?;
    sandbox.add_nodes(1).await?;
    let etcd = EtcdCluster::builder("etcd").apply(&sandbox).await?;
    etcd.quorate(SOON).await?;
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    let gate = Gate::builder(env!("CARGO_BIN_EXE_quorumgate"), manifests)
        .replicas(1)
        .everywhere()
        .argument("--settle-time=10s")
        .start(&sandbox)
        .await?;
    gate.in_force(SOON).await?;
    shown(&gate, 1, IN_A_WHILE).await?;
    let before = settled(&gate).await?;

    let mut population = Population::prepare(plane, &etcd, None).await?;
    population.grow_to(CLUSTERS).await?;
    shown(&gate, CLUSTERS + 1, IN_A_WHILE).await?;
    let after = settled(&gate).await?;
    let connection = connection(&etcd).await?;

    let mib = |kib: f64| Spread::once(kib / 1024.0);
    let pods = f64::from(CLUSTERS * MEMBERS);
    let title = format!(
        "Memory: one replica, {CLUSTERS} budgets of {MEMBERS} pods each ({:.0} s)",
        start.elapsed().as_secs_f64()
    );
    Table::new(title)
        .row("resident set, MiB", mib(after.now), ..=LIMIT)
        .row("most until then, MiB", mib(after.most), ..=LIMIT)
        .row("resident set with one budget, MiB", mib(before.now), ..)
        .row(
            "per guarded pod, KiB",
            Spread::once((after.now - before.now) / pods),
            ..,
        )
        .row(
            "a kept connection to a member, KiB",
            Spread::once(connection),
            ..,
        )
        .print()?;
    let closed = gate.close().await;
    population::leave(sandbox);
    closed
}

/// The memory of the gate, once it hardly changes any more.
async fn settled(gate: &Gate) -> Result<Resident> {
    let process = gate.replica(0).identity().context("the gate has ended")?;
    let process = process.pid().to_string();
    let start = Instant::now();
    let mut before = Resident::read(&process)?;
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let after = Resident::read(&process)?;
        let still = (after.now - before.now).abs() < before.now / 100.0;
        if still || start.elapsed() > SOON {
            return Ok(after);
        }
        before = after;
    }
}

/// The memory in KiB that one more connection takes in a process that has some. This process has a
/// client like the gate's.
async fn connection(etcd: &EtcdCluster) -> Result<f64> {
    let clock = Clock::system();
    let connections = Connections::new(clock.clone());
    let prober = Prober::new(connections.clone(), clock.clone());
    let observer = Observer::new(Sources {
        client: etcd.client().clone(),
        ledger: Ledger::new(etcd.client().clone(), clock.clone()),
        prober: prober.clone(),
        probe_timeout: SOON,
        settle_time: SOON,
        clock: clock.clone(),
        metrics: std::sync::Arc::default(),
    });
    let cluster = ClusterRef::new(etcd.namespace(), etcd.name());
    let page = observer.ledger().read(&cluster).await?;
    let page = page.context("no budget")?;
    let world = observer.world_at_leisure(&page, None).await?;
    let member = world.endpoints().first().context("no member")?;
    // The pool keeps one connection per pod, so each connection has to be for another pod.
    let to = |number: u32| Endpoint {
        target: Target::Pod(PodUid::new(number.to_string())),
        ..member.clone()
    };
    let endpoints: Vec<Endpoint> = (0..CONNECTIONS * 2).map(to).collect();
    let (some, more) = endpoints.split_at(endpoints.len() / 2);
    prober.round(some, clock.instant() + SOON).await;
    let before = Resident::read("self")?;
    prober.round(more, clock.instant() + SOON).await;
    let after = Resident::read("self")?;
    ensure!(
        connections.count() == endpoints.len(),
        "{} of {} connections are kept",
        connections.count(),
        endpoints.len()
    );
    Ok((after.now - before.now) / f64::from(CONNECTIONS))
}
