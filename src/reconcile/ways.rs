//! When the ways to ask a cluster's members are tried, and which one is recorded.
//!
//! They are tried where no member answers by the way in use, at enrolment and later, in the
//! background and by the leader alone. A way by which some member answers stays.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use kube::ResourceExt as _;
use tokio::time::Instant;
use tracing::info;

use super::look::Look;
use super::run::Run;
use crate::api::Way;
use crate::observe::{Trial, advice};
use crate::quorum::EvidenceMode;
use crate::quorum::evidence::{Probe, Unanswered};

/// The pause after the first trial that found nothing. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// The longest pause. A change of a pod, of the template or of the budget ends it.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The trials of one cluster.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// The way that is due to be recorded.
    answered: Option<Way>,
    /// Advice, where no way was found.
    advice: Option<String>,
    last: Option<Last>,
}

/// The last trial.
#[derive(Debug, Clone, Copy)]
struct Last {
    /// A fingerprint of everything that the trial depended on.
    of: u64,
    ended: Instant,
    pause: Duration,
}

impl Ways {
    /// Advice, where no way was found.
    pub(super) fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// The way to record, if it is another than the recorded one.
    pub(super) fn to_record(&self, recorded: Option<&Way>) -> Option<Way> {
        self.answered.clone().filter(|way| Some(way) != recorded)
    }

    /// Takes in a look. Tries the ways if nobody answered. Returns the time until the next look is
    /// worth it.
    pub(super) async fn after(&mut self, run: &Run, look: &Look) -> Option<Duration> {
        if look.snapshot.policy.evidence == EvidenceMode::Readiness {
            *self = Self::default();
            return None;
        }
        if look.round.probes.iter().any(has_answered) {
            *self = Self {
                answered: Some(look.view.way().clone()),
                ..Self::default()
            };
            return None;
        }
        let of = depends_on(look);
        let now = run.clock.instant();
        let before = self.last.filter(|last| last.of == of);
        if let Some(last) = before {
            let due = last.ended + last.pause;
            if now < due {
                return Some(due.saturating_duration_since(now));
            }
        }
        let trial = run.observer.try_ways(&look.page, &look.view).await?;
        let pause = before.map_or(FIRST_PAUSE, |last| last.pause * 2);
        self.last = Some(Last {
            of,
            ended: run.clock.instant(),
            pause: pause.min(LONGEST_PAUSE),
        });
        self.take(look, trial)
    }

    fn take(&mut self, look: &Look, trial: Trial) -> Option<Duration> {
        let cluster = &look.page.cluster;
        let why = trial.failed.map(|failed| advice(cluster, &failed));
        // Whatever a way says then, nothing listens.
        self.advice = ends_everywhere(look).or(why);
        let found = trial.found?;
        if found == *look.view.way() {
            // It answers a trial and no look, so another look at once would find no more.
            return None;
        }
        info!(%cluster, tried = trial.tried, source = found.source, "way to the members found");
        self.answered = Some(found);
        self.last = None;
        Some(Duration::ZERO)
    }
}

/// The advice where etcd ends over and over in every pod. No setting of a way helps against that.
fn ends_everywhere(look: &Look) -> Option<String> {
    let exits = look.view.crash_loops();
    let pods = look.view.pods();
    let all = !pods.is_empty() && exits.len() == pods.len();
    let first = pods.first().filter(|_| all)?.name_any();
    let namespace = &look.page.cluster.namespace;
    Some(format!(
        "etcd ends over and over in every pod; its log says why: kubectl -n {namespace} logs {first} --previous. If every \
         member has lost its data, announce a new cluster by quorumgate.io/intent: bootstrap"
    ))
}

/// Whether the way led to a member: it answered, or etcd refused an answer.
fn has_answered(probe: &Probe) -> bool {
    match &probe.status {
        Ok(_) => true,
        Err(why) => matches!(why, Unanswered::Denied(_)),
    }
}

/// A fingerprint of everything that a trial depends on, as far as a look shows it.
fn depends_on(look: &Look) -> u64 {
    let mut hasher = DefaultHasher::new();
    for pod in look.view.pods() {
        pod.uid().hash(&mut hasher);
        let status = pod.status.as_ref();
        status
            .and_then(|status| status.pod_ip.as_ref())
            .hash(&mut hasher);
        let containers = status.and_then(|status| status.container_statuses.as_ref());
        for container in containers.into_iter().flatten() {
            let started = container
                .state
                .as_ref()
                .and_then(|state| state.running.as_ref());
            container.restart_count.hash(&mut hasher);
            started.is_some().hash(&mut hasher);
        }
    }
    let set = look.view.stateful_set();
    set.and_then(|set| set.metadata.generation)
        .hash(&mut hasher);
    let budget = look.page.budget();
    budget.metadata.generation.hash(&mut hasher);
    hasher.finish()
}
