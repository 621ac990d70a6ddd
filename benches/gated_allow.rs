//! The cost of a permission. The gate's side posts the DELETE of a member's pod over TLS to the
//! shipped webhooks. The other side makes the round trips that no gate can avoid, with clients of
//! the same kind: the budget is read, the pods are while every member is asked, the status is
//! written.
//!
//! Both use a real API server and three real etcd members. The requests concern the same pod: each
//! permission is judged and recorded anew, and nothing is deleted. The sides take turns, call by
//! call.

mod by_hand;
mod caller;
mod counted;
mod deletion;
mod gate;
mod plane;
mod round;
mod spread;
mod table;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::{conditions, wait::await_condition};
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _};
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate::quorum::{ClusterRef, TrustEvent};
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::{Bed, Sandbox};
use serde_json::Value;

use by_hand::{ByHand, Phases};
use caller::{Caller, post};
use counted::Counted;
use deletion::deletion;
use gate::{Gate, Tls};
use round::Round;
use spread::Spread;
use table::Table;

const SOON: Duration = Duration::from_secs(60);
const ROUNDS: usize = 15;
const CALLS: usize = 40;

fn main() -> Result<()> {
    quorumgate::install_crypto_provider();
    let directory = tempfile::tempdir()?;
    let _log = gate::log_to(&directory)?;
    plane::with(async |plane| {
        let bed = Bed::up_with(plane.clone()).await?;
        let mut sandbox = bed.sandbox("gated-allow").await?;
        Box::pin(measure(&mut sandbox, &Tls::new(&directory)?)).await?;
        sandbox.close().await
    })
}

async fn measure(sandbox: &mut Sandbox, tls: &Tls) -> Result<()> {
    define_budgets(&sandbox.client()).await?;
    sandbox.add_nodes(3).await?;
    let etcd = EtcdCluster::builder("etcd").apply(sandbox).await?;
    etcd.quorate(SOON).await?;

    let counted = Counted::connect(&sandbox.bed().admin_kubeconfig()).await?;
    let client = counted.client();
    let gate = Gate::over(&client);
    let cluster = ClusterRef::new(sandbox.namespace(), etcd.name());
    let page = gate.observer.ledger().create(&cluster).await?;
    let watched = [TrustEvent::Watched];
    gate.observer.ledger().note_trust(&page, &watched).await?;
    let followers = etcd.followers().await?;
    let request = review(&etcd, followers.first().context("no follower")?).await?;
    let mut caller = Caller::connect(gate.listen(tls).await?, &tls.authority).await?;
    let start = Instant::now();
    while !allowed(&mut caller, &request).await? {
        ensure!(start.elapsed() < SOON, "the gate never permits anything");
    }
    let by_hand = ByHand::new(&client, &gate, &cluster)?;

    let mut turns = Turns::default();
    for _ in 0..ROUNDS {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        while ours.len() < CALLS {
            counted.restart();
            let start = Instant::now();
            let allowed = allowed(&mut caller, &request).await?;
            let took = start.elapsed();
            turns.requests.0 = counted.requests();

            counted.restart();
            let by_hand = by_hand.round_trips().await?;
            turns.requests.1 = counted.requests();
            match by_hand.filter(|_| allowed) {
                Some(phases) => {
                    ours.push(took);
                    theirs.push(phases);
                }
                None => turns.left_out += 1,
            }
            ensure!(
                turns.left_out <= CALLS,
                "the members are too slow to measure anything"
            );
        }
        turns.rounds.push((Round::from_calls(ours), theirs));
    }
    report(&turns)
}

/// The measurements of both sides.
#[derive(Default)]
struct Turns {
    rounds: Vec<(Round, Vec<Phases>)>,
    /// The calls to the API server in the last turn of each side.
    requests: (u32, u32),
    /// The number of turns without a result because a member did not answer in time, on either
    /// side.
    left_out: usize,
}

fn report(turns: &Turns) -> Result<()> {
    let rounds = &turns.rounds;
    let (ours, theirs) = turns.requests;
    let by_hand = |phase: fn(&Phases) -> Duration| {
        let rounds = rounds.iter().map(|(_, calls)| calls.iter().map(phase));
        rounds
            .map(|calls| Round::from_calls(calls.collect()))
            .collect()
    };
    let whole: Vec<Round> = by_hand(|phases| phases.whole);
    let ratio = |percent: usize| {
        let sides = rounds.iter().zip(&whole);
        Spread::from_numbers(
            sides.map(|((gate, _), hand)| gate.percentile(percent) / hand.percentile(percent)),
        )
    };
    let medians = |rounds: Vec<Round>| {
        Spread::from_numbers(rounds.iter().map(|round| 1e3 * round.percentile(50)))
    };
    let gate = Spread::from_numbers(rounds.iter().map(|(gate, _)| 1e3 * gate.percentile(50)));
    let title = format!(
        "Gated allow: the gate against the same round trips by hand, {ROUNDS} rounds of {CALLS} calls each in turns, {} left out because a member was slow",
        turns.left_out
    );
    Table::new(title)
        .row("median latency, gate / by hand", ratio(50), ..=1.5)
        .row("p90 latency, gate / by hand", ratio(90), ..)
        .row("gate: median, ms", gate, ..)
        .row(
            "by hand: median, ms",
            medians(by_hand(|phases| phases.whole)),
            ..,
        )
        .row(
            "by hand: reading the budget, ms",
            medians(by_hand(|phases| phases.read)),
            ..,
        )
        .row(
            "by hand: reading the pods, ms",
            medians(by_hand(|phases| phases.pods)),
            ..,
        )
        .row(
            "by hand: asking the members, ms",
            medians(by_hand(|phases| phases.probes)),
            ..,
        )
        .row(
            "by hand: putting the status, ms",
            medians(by_hand(|phases| phases.put)),
            ..,
        )
        .row(
            "gate: requests to the API server",
            Spread::once(ours.into()),
            ..,
        )
        .row(
            "by hand: requests to the API server",
            Spread::once(theirs.into()),
            ..,
        )
        .print()?;
    Ok(())
}

/// Whether the gate gave the permission. A refusal because of a slow member is no failure.
async fn allowed(caller: &mut Caller, request: &[u8]) -> Result<bool> {
    let answer: Value = serde_json::from_slice(caller.call(request).await?)?;
    let reason = answer.pointer("/response/auditAnnotations/reason");
    match reason.and_then(Value::as_str) {
        Some("Majority") => Ok(true),
        Some("NoHeadroom" | "NoEvidence") => Ok(false),
        _ => bail!("this measures permissions, and it was answered {answer}"),
    }
}

/// The review of this pod's DELETE.
async fn review(etcd: &EtcdCluster, pod: &str) -> Result<Vec<u8>> {
    let review = deletion(&serde_json::to_value(etcd.pod(pod).await?)?, false);
    Ok(post("/validate/pods", &serde_json::to_vec(&review)?))
}

async fn define_budgets(client: &Client) -> Result<()> {
    let definition = QuorumDisruptionBudget::crd();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition.name_any();
    let parameters = PatchParams::apply("testbed").force();
    definitions
        .patch(&name, &parameters, &Patch::Apply(&definition))
        .await?;
    let established = await_condition(definitions, &name, conditions::is_crd_established());
    tokio::time::timeout(SOON, established).await??;
    Ok(())
}
