//! The DELETE of a guarded pod, which is permitted and recorded: by quorumgate for a member of a
//! real etcd cluster, whose members it asks, and for members of many clusters on paper, which
//! answer on the wire as etcd does; by OpenKruise for a pod of a `PodUnavailableBudget`, whose
//! ready pods it has counted. Both read and write through the same API server.
//!
//! OpenKruise records a pod once, so each of its calls is about another pod. It has a budget for
//! each call of a round, as a cluster with many workloads has. So have the clusters on paper: each
//! call is about another cluster. Of the real cluster the same member is asked for again and again,
//! and its permission recorded anew.
//!
//! Scheduler and controllers are stopped meanwhile, so that what exists on paper stays unchanged.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate_testbed::control_plane::ControlPlane;
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::{Sandbox, eventually};
use serde_json::Value;

use crate::caller::Caller;
use crate::deletion::deletion;
use crate::on_paper;
use crate::racers::{Racer, kruise};
use crate::round::Round;
use crate::spread::Spread;
use crate::table::Table;
use crate::turn::Serves as _;

const ROUNDS: usize = 5;
const CALLS: usize = 40;
/// The clusters on paper: one for each call of each round.
const CLUSTERS: u32 = 200;
const SOON: Duration = Duration::from_secs(120);

/// The calls of one side in one round.
struct Calls {
    round: Round,
    /// The processor time of the server for each call, in seconds.
    processor: f64,
}

/// A side of the race, with its calls of each round.
struct Side<'a> {
    what: &'static str,
    racer: &'a Racer,
    rounds: Vec<Calls>,
}

impl<'a> Side<'a> {
    fn new(what: &'static str, racer: &'a Racer) -> Self {
        let rounds = Vec::new();
        Self {
            what,
            racer,
            rounds,
        }
    }
}

/// Races all sides, one call after another on one connection each, and prints the table. The
/// control plane is of no further use afterwards: it has no controllers.
pub(crate) async fn race(
    plane: &ControlPlane,
    sandbox: &mut Sandbox,
    ours: &Racer,
    theirs: &Racer,
) -> Result<()> {
    let member = member(sandbox).await?;
    let pods = kruise::pods(sandbox, CALLS, ROUNDS).await?;
    let on_paper = on_paper::followers(plane, sandbox, CLUSTERS).await?;
    let mut real = Side::new("quorumgate, a real cluster", ours);
    let mut paper = Side::new("quorumgate, many clusters", ours);
    let mut kruise = Side::new("OpenKruise, many budgets", theirs);
    for round in 0..ROUNDS {
        let same = vec![deletion(&member, false); CALLS];
        real.rounds.push(calls(ours, &same).await?);
        for (side, pods) in [(&mut paper, &on_paper), (&mut kruise, &pods)] {
            let of_round = pods.iter().skip(round).step_by(ROUNDS);
            let of_round: Vec<Value> = of_round.map(|pod| deletion(pod, false)).collect();
            ensure!(of_round.len() == CALLS, "{} pods", of_round.len());
            side.rounds.push(calls(side.racer, &of_round).await?);
        }
    }
    kruise::recorded(sandbox, CALLS, ROUNDS).await?;
    let title = format!(
        "A guarded pod's delete, permitted and recorded, 1 connection, {ROUNDS} rounds of {CALLS} calls each in turns"
    );
    let mut table = Table::new(title);
    for ours in [&real, &paper] {
        let ratio = |number: fn(&Calls) -> f64| {
            let sides = ours.rounds.iter().zip(&kruise.rounds);
            Spread::from_numbers(sides.map(|(ours, theirs)| number(ours) / number(theirs)))
        };
        let what = ours.what;
        table = table
            .row(
                &format!("{what}: median latency, / OpenKruise"),
                ratio(|calls| calls.round.percentile(50)),
                ..=1.0,
            )
            .row(
                &format!("{what}: processor time per call, / OpenKruise"),
                ratio(|calls| calls.processor),
                ..,
            );
    }
    for Side { what, rounds, .. } in [&real, &paper, &kruise] {
        let each = |number: fn(&Calls) -> f64| Spread::from_numbers(rounds.iter().map(number));
        table = table
            .row(
                &format!("{what}: p50, ms"),
                each(|calls| 1e3 * calls.round.percentile(50)),
                ..,
            )
            .row(
                &format!("{what}: processor time per call, ms"),
                each(|calls| 1e3 * calls.processor),
                ..,
            );
    }
    Ok(table.print()?)
}

async fn calls(racer: &Racer, reviews: &[Value]) -> Result<Calls> {
    let mut caller = racer.connected().await?;
    let before = racer.processor_time()?;
    let mut took = Vec::new();
    for review in reviews {
        took.push(permitted(racer, &mut caller, review).await?);
    }
    let processor = (racer.processor_time()? - before) / f64::from(u32::try_from(took.len())?);
    let round = Round::from_calls(took);
    Ok(Calls { round, processor })
}

/// The duration of one call, whose answer has to be a permission. A member may have answered too
/// late; then it is asked for again.
async fn permitted(racer: &Racer, caller: &mut Caller, review: &Value) -> Result<Duration> {
    let mut reviews = racer.reviews(review)?;
    let start = Instant::now();
    loop {
        let sent = Instant::now();
        if racer.permits(caller, &mut reviews).await? {
            return Ok(sent.elapsed());
        }
        ensure!(start.elapsed() < SOON, "{} never permits it", racer.name);
    }
}

/// A follower of a cluster of three, whose ledger is trusted.
async fn member(sandbox: &mut Sandbox) -> Result<Value> {
    sandbox.add_nodes(3).await?;
    let etcd = EtcdCluster::builder("etcd").apply(sandbox).await?;
    etcd.quorate(SOON).await?;
    let budgets: Api<QuorumDisruptionBudget> = sandbox.api();
    eventually(SOON, "the ledger is trusted", async || {
        let status = budgets.get(etcd.name()).await?.status;
        let ledger = status.context("no status yet")?.ledger;
        ensure!(ledger.trusted, "{:?}", ledger.untrusted_because);
        anyhow::Ok(())
    })
    .await?;
    let followers = etcd.followers().await?;
    let follower = followers.first().context("no follower")?;
    Ok(serde_json::to_value(etcd.pod(follower).await?)?)
}
