//! The DELETE of a guarded pod, which is permitted and recorded: by quorumgate for a member of a
//! real etcd cluster, whose members it asks; by OpenKruise for a pod of a `PodUnavailableBudget`,
//! whose ready pods it has counted. Both read and write through the same API server.
//!
//! OpenKruise records a pod once, so each of its calls is about another pod. It has a budget for
//! each call of a round, as a cluster with many workloads has. quorumgate records a permission anew
//! at each call about the same pod.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::{Sandbox, eventually};
use serde_json::Value;

use crate::caller::Caller;
use crate::deletion::deletion;
use crate::kruise;
use crate::racers::{self, Racer};
use crate::round::Round;
use crate::spread::Spread;
use crate::table::Table;
use crate::turn::Serves as _;

const ROUNDS: usize = 5;
const CALLS: usize = 40;
const SOON: Duration = Duration::from_secs(120);

/// The calls of one side in one round.
struct Calls {
    round: Round,
    /// The processor time of the server for each call, in seconds.
    processor: f64,
}

/// Races both, one call after another on one connection each, and prints the table.
pub(crate) async fn race(sandbox: &mut Sandbox, ours: &Racer, theirs: &Racer) -> Result<()> {
    let member = member(sandbox).await?;
    let pods = budgeted_pods(sandbox).await?;
    let (mut our_rounds, mut their_rounds) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let of_round = pods.iter().skip(round).step_by(ROUNDS);
        let of_round: Vec<Value> = of_round.map(|pod| deletion(pod, false)).collect();
        ensure!(of_round.len() == CALLS, "{} pods", of_round.len());
        let same = vec![deletion(&member, false); CALLS];
        our_rounds.push(calls(ours, &same).await?);
        their_rounds.push(calls(theirs, &of_round).await?);
    }
    recorded(sandbox).await?;
    let ratio = |number: fn(&Calls) -> f64| {
        let sides = our_rounds.iter().zip(&their_rounds);
        Spread::of(sides.map(|(ours, theirs)| number(ours) / number(theirs)))
    };
    let title = format!(
        "A guarded pod's delete, permitted and recorded, 1 connection, {ROUNDS} rounds of {CALLS} calls each in turns"
    );
    let mut table = Table::new(title)
        .row(
            "median latency, / OpenKruise",
            ratio(|calls| calls.round.percentile(50)),
            ..,
        )
        .row(
            "processor time per call, / OpenKruise",
            ratio(|calls| calls.processor),
            ..,
        );
    for (racer, rounds) in [(ours, &our_rounds), (theirs, &their_rounds)] {
        let each = |number: fn(&Calls) -> f64| Spread::of(rounds.iter().map(number));
        let name = racer.name;
        table = table
            .row(
                &format!("{name}: p50, ms"),
                each(|calls| 1e3 * calls.round.percentile(50)),
                ..,
            )
            .row(
                &format!("{name}: processor time per call, ms"),
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
    let round = Round::of(took);
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

/// Ready pods, each budget's one after another: a budget for each call of a round, with a pod for
/// each round, and one more, which may not go.
async fn budgeted_pods(sandbox: &Sandbox) -> Result<Vec<Value>> {
    let namespace = sandbox.namespace();
    let names = (0..CALLS).flat_map(|budget| {
        (0..=ROUNDS).map(move |pod| (format!("kept-{budget}"), format!("kept-{budget}-{pod}")))
    });
    let names: Vec<(String, String)> = names.collect();
    let each = names.iter().step_by(ROUNDS + 1);
    let objects: Vec<Value> = each
        .map(|(budget, _)| kruise::budget(namespace, budget, ROUNDS))
        .collect();
    racers::apply_all(sandbox.bed(), &objects).await?;
    let mut pods = Vec::new();
    for (number, (budget, pod)) in names.iter().enumerate() {
        let pod = kruise::ready_pod(sandbox.bed(), namespace, (budget, pod)).await?;
        if number % (ROUNDS + 1) != ROUNDS {
            pods.push(serde_json::to_value(pod)?);
        }
    }
    budgets(sandbox, "/status/unavailableAllowed", |allowed| {
        allowed.as_u64() == u64::try_from(ROUNDS).ok()
    })
    .await?;
    Ok(pods)
}

/// Whether OpenKruise has recorded every permission.
async fn recorded(sandbox: &Sandbox) -> Result<()> {
    budgets(sandbox, "/status/disruptedPods", |pods| {
        pods.as_object().is_some_and(|pods| pods.len() == ROUNDS)
    })
    .await
}

/// Waits until all of OpenKruise's budgets have this in their status.
async fn budgets(sandbox: &Sandbox, field: &str, holds: impl Fn(&Value) -> bool) -> Result<()> {
    let list = ["get", "podunavailablebudgets", "--output=json"];
    let of_namespace = ["--namespace", sandbox.namespace()];
    eventually(SOON, format!("every budget has its {field}"), async || {
        let listed = sandbox.bed().kubectl(list.iter().chain(&of_namespace));
        let listed: Value = serde_json::from_str(&listed.await?.success()?)?;
        let listed = listed.pointer("/items").and_then(Value::as_array);
        let listed = listed.context("no list")?;
        ensure!(listed.len() == CALLS, "{} budgets", listed.len());
        let missing = listed
            .iter()
            .find(|budget| !budget.pointer(field).is_some_and(&holds));
        ensure!(missing.is_none(), "{missing:?}");
        anyhow::Ok(())
    })
    .await
}
