//! The one way to a yes: read the ledger, gather evidence that is younger, decide, record, answer.
//!
//! The webhooks and the rollout ask here alike, so a rollout can never take what the webhook would refuse. What could not be found out in
//! time is turned into "wait" here and nowhere else.

mod evidence;
mod hearing;
mod judging;
mod leadership;
mod looking;
mod noted;
mod paces;
mod question;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::timeout_at;

pub use judging::Judging;
pub use looking::Looking;
pub use question::{Answer, Asker, DryRun, Question, Refusal, Sighting, Yes};

use crate::api::Enforcement;
use crate::clock::Clock;
use crate::etcd::{Admin, Prober};
use crate::ledger::{Ledger, LedgerError, Page};
use crate::observe::{Ages, Observer};
use crate::quorum::{Actor, ClusterRef, OpenMove, Reason, Snapshot, rests};
use crate::telemetry::metrics::Metrics;
use hearing::Hearing;
use noted::Noted;
use paces::Paces;

/// Why a ledger is cold that does not hold every permission.
const WITHOUT_A_GRANT: &str = "a disruption passed without a grant";

/// The part of a question's time that is kept for the answer itself, so that it leaves before the deadline.
const RESERVE: Duration = Duration::from_millis(150);

/// Judges disruptions. Cheap to clone; clones share all they know.
#[derive(Clone)]
pub struct Judge {
    bench: Arc<Bench>,
    memory: Arc<Memory>,
}

/// What the judge stands on.
pub struct Bench {
    /// Reads Kubernetes, and the ledgers.
    pub observer: Arc<Observer>,
    /// Asks etcd.
    pub prober: Prober,
    /// Moves leadership.
    pub admin: Admin,
    /// What was watched outside of any one judgement.
    pub ages: Arc<dyn Fn(&ClusterRef) -> Ages + Send + Sync>,
    /// Tells the time.
    pub clock: Clock,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// How long a member may take to answer, where its budget does not say.
    pub probe_timeout: Duration,
    /// Whether refusals count for a cluster that has no budget yet.
    pub enforcement: Enforcement,
    /// Runs what outlives an answer.
    pub spawn: Box<dyn Fn(Afterwards) + Send + Sync>,
}

/// What outlives an answer: begun, and begun again where it breaks.
pub type Afterwards = Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>;

/// What the judge remembers from one question to the next. No verdict depends on it.
#[derive(Default)]
struct Memory {
    paces: Paces,
}

impl Bench {
    /// The move of leadership on the page, with what this replica saw of it.
    fn open_move(&self, page: &Page, snapshot: &Snapshot) -> Option<OpenMove> {
        self.observer.ledger().seen().open_move(page, snapshot)
    }
}

impl Judge {
    /// A judge who has heard nothing yet.
    pub fn new(bench: Bench) -> Self {
        Self {
            bench: Arc::new(bench),
            memory: Arc::default(),
        }
    }

    /// For how long leadership is still left alone in a cluster that looks like this, because it was moved a moment ago; `None` where it
    /// may be moved.
    pub fn leadership_rests(&self, page: &Page, snapshot: &Snapshot) -> Option<Duration> {
        rests(snapshot, self.bench.open_move(page, snapshot).as_ref())
    }

    async fn hear(&self, question: Question) -> Answer {
        let noted = Noted::default();
        let hearing = Hearing {
            bench: &self.bench,
            memory: &self.memory,
            question: &question,
            noted: &noted,
        };
        let answer = match timeout_at(question.deadline - RESERVE, Box::pin(hearing.hear())).await {
            Ok(answer) => answer,
            Err(_) => too_late(&noted),
        };
        // The gate's own steps are no tests of what others would meet.
        let warns = noted.only_warns() && question.asker.actor != Actor::Gate;
        let answer = if warns { answer.only_warning() } else { answer };
        if let Some(cluster) = &answer.cluster {
            let seen = self.bench.observer.ledger().seen();
            match &answer.outcome {
                Ok(Yes::Ungranted) => {
                    seen.note_ungranted(cluster);
                    self.distrust_ledger(cluster.clone());
                }
                Ok(Yes::Warned(_)) if question.dry_run == DryRun::No => {
                    seen.note_ungranted(cluster);
                    self.suspend_ledger(cluster.clone());
                }
                Ok(_) | Err(_) => {}
            }
        }
        answer
    }

    /// Turns a ledger cold after somebody was let through past it. It is said while the answer is already on its way: the override
    /// would not wait for it, and a ledger that could not be written a moment ago may take a while. This replica judges by it at once.
    fn distrust_ledger(&self, cluster: ClusterRef) {
        let ledger = self.bench.observer.ledger().clone();
        (self.bench.spawn)(Box::new(move || {
            cool(ledger.clone(), cluster.clone()).boxed()
        }));
    }

    /// Has it on record that a ledger does not hold every permission. Mostly it is there already: the leader writes it when it sees that a
    /// budget's refusals are only reported.
    fn suspend_ledger(&self, cluster: ClusterRef) {
        let ledger = self.bench.observer.ledger().clone();
        (self.bench.spawn)(Box::new(move || {
            suspend(ledger.clone(), cluster.clone()).boxed()
        }));
    }
}

impl Judging for Judge {
    fn judge(&self, question: Question) -> BoxFuture<'_, Answer> {
        self.hear(question).boxed()
    }
}

/// The answer when time has run out: wait, unless an override lets the pod go whatever the ledger says.
fn too_late(noted: &Noted) -> Answer {
    if noted.is_overridden() {
        return hearing::answer(noted, Ok(Yes::Ungranted));
    }
    let what = format!("there was no time left while {}", noted.what());
    hearing::answer(noted, Err(Refusal::Wait(Reason::Unavailable { what })))
}

/// Has a ledger cold after something passed that would have been refused.
async fn suspend(ledger: Ledger, cluster: ClusterRef) {
    let attempt = || async {
        match ledger.read(&cluster).await? {
            Some(page) if page.budget().only_warns() => {
                ledger.suspend_while_it_warns(&page).await.map(drop)
            }
            // Refusals count again: what passed a moment before may still be on its way.
            Some(page) => ledger.cool(&page, WITHOUT_A_GRANT).await.map(drop),
            None => Ok(()),
        }
    };
    if let Err(error) = Box::pin(until_written(attempt)).await {
        tracing::error!(%cluster, error = %error, "could not suspend the ledger");
    }
}

/// Turns a ledger cold after a disruption that it does not hold.
async fn cool(ledger: Ledger, cluster: ClusterRef) {
    let attempt = || async {
        match ledger.read(&cluster).await? {
            Some(page) => ledger.cool(&page, WITHOUT_A_GRANT).await.map(drop),
            None => Ok(()),
        }
    };
    if let Err(error) = until_written(attempt).await {
        tracing::error!(%cluster, error = %error, "could not turn the ledger cold");
    }
}

/// After what pause a write is tried again for the first time. It mostly failed because a judgement wrote first, which takes longer than this.
const SOON: Duration = Duration::from_millis(10);

/// Tries until it is written, or the budget is gone, or nobody can write it: what replaces it will be new, and cold. It waits for no turn at the
/// ledger: judgements that lose to it begin again with a ledger that is cold, as they should.
async fn until_written<F, W>(attempt: F) -> Result<(), LedgerError>
where
    F: FnMut() -> W,
    W: Future<Output = Result<(), LedgerError>>,
{
    let patiently = ExponentialBuilder::default()
        .with_min_delay(SOON)
        .with_jitter()
        .without_max_times();
    attempt
        .retry(patiently)
        .when(|error| !error.is_lasting())
        .await
}
