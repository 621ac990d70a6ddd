//! One reading of a cluster: the Kubernetes half and etcd's answers, both asked for after the ledger was read.

use std::pin::pin;
use std::sync::Arc;

use futures::future::{Either, select};
use tokio::time::Instant;

use super::Bench;
use super::paces::Paces;
use crate::etcd::Pace;
use crate::ledger::Page;
use crate::observe::{ObserveError, World};
use crate::quorum::evidence::{Probe, Round};
use crate::quorum::{Disruption, Grace, Kind, PodName, PodUid, TargetPod, Verdict, decide_early};
use crate::telemetry::metrics::{Metrics, Phase};

use super::Question;

/// What one reading brought.
pub(super) enum Reading {
    /// The pod is gone, or never was.
    NoPod,
    /// What surrounds the request decided; nobody had to be asked.
    Early(Box<World>, Disruption, Verdict),
    /// Everything.
    Full(Box<World>, Disruption, Round),
}

/// Reads the cluster after `page`. Members are asked where they were found the last time while the pods are still being read; those
/// answers count only where the same pods turn out to be at the same addresses.
pub(super) async fn read(
    bench: &Bench,
    paces: &Paces,
    page: &Page,
    question: &Question,
    kind: Kind,
    latest: Instant,
) -> Result<Reading, ObserveError> {
    let tempo = tempo(bench, paces, page)?;
    let likely = bench.observer.likely_endpoints(&page.cluster);
    let world = pin!(bench.observer.world(page, Some(&question.pod), kind));
    let early = pin!(ask(bench, &likely, &tempo, latest));
    let (world, early) = match select(world, early).await {
        Either::Left((world, early)) => (world?, Either::Left(early)),
        Either::Right((round, world)) => (world.await?, Either::Right(round)),
    };
    let Some(pod) = world.pod_facts(page, &question.pod) else {
        return Ok(Reading::NoPod);
    };
    let at_once = world.goes_at_once(&question.pod);
    let disruption = disruption(question, kind, &pod.uid, at_once);
    let circumstances = world.circumstances(page, Some(&question.pod));
    if let Some(verdict) = decide_early(&circumstances, Some(&pod), &disruption) {
        return Ok(Reading::Early(Box::new(world), disruption, verdict));
    }
    let round = if world.confirms(&likely) {
        match early {
            Either::Left(early) => early.await,
            Either::Right(round) => round,
        }
    } else {
        ask(bench, world.endpoints(), &tempo, latest).await
    };
    count_failures(&bench.metrics, &round);
    Ok(Reading::Full(Box::new(world), disruption, round))
}

/// Asks these endpoints, and counts those that did not answer.
pub(super) async fn ask_all(
    bench: &Bench,
    paces: &Paces,
    page: &Page,
    endpoints: &[crate::etcd::Endpoint],
    latest: Instant,
) -> Result<Round, ObserveError> {
    let tempo = tempo(bench, paces, page)?;
    let round = ask(bench, endpoints, &tempo, latest).await;
    count_failures(&bench.metrics, &round);
    Ok(round)
}

/// The pace at which the cluster answers.
fn tempo(bench: &Bench, paces: &Paces, page: &Page) -> Result<Arc<Pace>, ObserveError> {
    let members = &page.budget().spec.members;
    let base = members.probe_timeout().map_err(ObserveError::Spec)?;
    Ok(paces.of(&page.cluster, base.unwrap_or(bench.probe_timeout)))
}

async fn ask(
    bench: &Bench,
    endpoints: &[crate::etcd::Endpoint],
    pace: &Pace,
    latest: Instant,
) -> Round {
    let start = bench.clock.instant();
    let round = bench.prober.round_at_pace(endpoints, pace, latest).await;
    bench
        .metrics
        .took(Phase::Probe, bench.clock.instant() - start);
    round
}

/// The question about the incarnation that is there. What the request showed counts as what it insists on: the API server asks again
/// before it deletes another one.
///
/// An eviction shows no pod, so whether this one gets any grace (`at_once`) is only known now.
pub(super) fn disruption(
    question: &Question,
    kind: Kind,
    present: &PodUid,
    at_once: bool,
) -> Disruption {
    let unasked = question.kind.is_eviction() && at_once;

    Disruption {
        target: TargetPod {
            name: PodName::clone(&question.pod),
            uid: present.clone(),
        },
        kind,
        actor: question.asker.actor,
        grace: if unasked {
            Grace::Forced
        } else {
            question.grace
        },
        precondition: question
            .precondition
            .clone()
            .or_else(|| question.shown_uid()),
    }
}

fn count_failures(metrics: &Metrics, round: &Round) {
    let unusable = |probe: &Probe| {
        let status = probe.status.as_ref().err();
        status.or(probe.read.as_ref().err()).cloned()
    };
    for unanswered in round.probes.iter().filter_map(unusable) {
        metrics.probe_failed((&unanswered).into());
    }
}
