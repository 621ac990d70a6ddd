//! Ways to defragment all members of a cluster, with clients of each member at work: `etcdctl` for
//! one member after the other, all at once, and the gate's two ways. Each way has a cluster of its
//! own with 1 GiB of data on one control plane. They take turns.

mod clients;
mod fragments;
mod incarnations;
mod judged;
mod plane;
mod spread;
mod ways;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate_testbed::control_plane::ControlPlane;
use quorumgate_testbed::etcd_cluster::{EtcdCluster, Shape, Tls, UpdateStrategy};
use quorumgate_testbed::gate::Gate;
use quorumgate_testbed::writer::Writer;
use quorumgate_testbed::{Bed, Sandbox, eventually};
use tokio::time::{Instant, sleep_until};

use clients::Clients;
use judged::{Judged, Report};
use ways::Way;

const ROUNDS: usize = 2;
const SOON: Duration = Duration::from_secs(120);

/// The time for which clients are watched at least. The gate's own way takes about as long.
const WINDOW: Duration = Duration::from_secs(45);

/// The time for which clients are watched while nothing happens.
const UNDISTURBED: Duration = Duration::from_secs(15);

/// The time for which clients are watched after the last member.
const AFTERWARDS: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    quorumgate::install_crypto_provider();
    plane::with(async |plane| Box::pin(measure(plane)).await)
}

async fn measure(plane: &ControlPlane) -> Result<()> {
    let begun = Instant::now();
    let bed = Bed::up_with(plane.clone()).await?;
    let (plain, gated) = tokio::try_join!(sandbox(&bed, "plain"), sandbox(&bed, "gated"))?;
    let mut clusters = Vec::new();
    for way in chosen() {
        let sandbox = if way.is_gated() { &gated } else { &plain };
        clusters.push((way, cluster(sandbox, way).await?));
    }
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    let gate = Gate::builder(env!("CARGO_BIN_EXE_quorumgate"), manifests)
        .argument("--settle-time=8s")
        .argument("--feature-gates=QuorumAwareUpdatesWithOnDelete=true")
        .start(&gated)
        .await?;
    gate.in_force(SOON).await?;
    for (way, etcd) in &clusters {
        etcd.quorate(SOON).await?;
        if way.is_gated() {
            trusted(etcd).await?;
        }
    }
    let mut report = Report::default();
    for round in 0..ROUNDS {
        for (way, etcd) in &clusters {
            Box::pin(fragments::make(etcd, round == 0)).await?;
            if *way == Way::Etcdctl {
                report.undisturbed(watched(etcd, async || Ok(()), UNDISTURBED).await?);
            }
            let defragment = async || way.defragment(etcd, round).await;
            let judged = watched(etcd, defragment, WINDOW).await;
            let judged = judged.with_context(|| way.name())?;
            report.done(*way, judged);
        }
    }
    gate.close().await?;
    gated.close().await?;
    plain.close().await?;
    Ok(report.print(begun.elapsed())?)
}

/// The ways that the command line names by their clusters, or all.
fn chosen() -> Vec<Way> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let mut ways = Way::ALL.to_vec();
    ways.retain(|way| words.iter().any(|word| word == way.cluster()));
    if ways.is_empty() {
        ways = Way::ALL.to_vec();
    }
    ways
}

async fn sandbox(bed: &Bed, name: &str) -> Result<Sandbox> {
    let mut sandbox = bed.sandbox(name).await?;
    sandbox.add_nodes(3).await?;
    Ok(sandbox)
}

/// A cluster without TLS, whose members can be called by etcdctl at their addresses. It keeps few
/// entries of the log, since they are as large as the data.
async fn cluster(sandbox: &Sandbox, way: Way) -> Result<EtcdCluster> {
    let (shape, strategy) = if way.is_gated() {
        (Shape::Enrolled, UpdateStrategy::OnDelete)
    } else {
        (Shape::Foreign, UpdateStrategy::RollingUpdate)
    };
    EtcdCluster::builder(way.cluster())
        .tls(Tls::None)
        .clients_by_address()
        .claim_size("8Gi")
        .entries_kept(500)
        .shape(shape)
        .update_strategy(strategy)
        .apply(sandbox)
        .await
}

/// Waits until the gate trusts its ledger.
async fn trusted(etcd: &EtcdCluster) -> Result<()> {
    let budgets: Api<QuorumDisruptionBudget> =
        Api::namespaced(etcd.client().clone(), etcd.namespace());
    eventually(SOON, "the ledger is trusted", async || {
        let status = budgets
            .get(etcd.name())
            .await?
            .status
            .context("no status")?;
        ensure!(status.ledger.trusted, "it is not: {:?}", status.ledger);
        anyhow::Ok(())
    })
    .await
}

/// Does this to a cluster while its clients are watched, for `window` at least.
async fn watched(
    etcd: &EtcdCluster,
    what: impl AsyncFnOnce() -> Result<()>,
    window: Duration,
) -> Result<Judged> {
    let before = fragments::size(etcd).await?;
    let clients = Clients::start(etcd).await?;
    let writer = Writer::start(etcd).await?;
    let start = Instant::now();
    what().await?;
    let took = start.elapsed();
    sleep_until((start + window).max(Instant::now()) + AFTERWARDS).await;
    let gap = writer.stop().await?;
    let seen = clients.stop().await?;
    gap.assert_nothing_lost(etcd).await?;
    Ok(Judged {
        took,
        seen,
        gap: gap.longest_gap,
        freed: before - fragments::size(etcd).await?,
    })
}
