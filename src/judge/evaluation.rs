//! The evaluation of a question: read the ledger, gather evidence that is younger, decide, record
//! by compare-and-swap.
//!
//! If anybody wrote the ledger in between, the evaluation starts again from the read. It never
//! sends an old decision again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use super::decision::{Allowed, Answer, Decision, Ground, Refused, unavailable};
use super::deps::JudgeDeps;
use super::question::{Asker, DryRun};
use crate::causes::causes;
use crate::ledger::{LedgerError, Page, Recorded, StatusUpdate};
use crate::observe::{ClusterLook, ClusterView, ObserveError};
use crate::quorum::{
    Actor, Allowance, Basis, ClusterRef, EvidenceMode, GrantKind, Grants, PodName, Reason,
    Snapshot, Verdict,
};
use crate::telemetry::metrics::Phase;
use crate::telemetry::traces::step;

/// The part of a question's time that is reserved for the answer itself.
const RESERVE: Duration = Duration::from_millis(150);

/// The evaluation of one question, with what it has found out so far. The notes outlive a loop that
/// runs out of time.
pub(super) struct Evaluation<'a> {
    pub(super) deps: &'a JudgeDeps,
    pub(super) asker: &'a Asker,
    pub(super) dry_run: DryRun,
    pub(super) deadline: Instant,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    cluster: Option<ClusterRef>,
    /// The current work: completes "there was no time left while …".
    doing: &'static str,
    /// The yes that the request gets if the ledger cannot be read or written (rules 3 and 6).
    regardless: Option<Ground>,
    /// Whether refusals of this cluster are only reported.
    only_warns: bool,
    headroom: Option<i64>,
    warnings: Vec<String>,
}

/// A read of the ledger. `None` if there is no budget.
pub(super) type LedgerRead = Result<Option<Page>, LedgerError>;

/// The facts that a decision about one member was made on.
pub(super) struct EvaluationInput {
    pub(super) page: Page,
    /// `None` if the pod, its namespace and its StatefulSet alone were read.
    pub(super) view: Option<Box<ClusterView>>,
    /// `None` if no member had to be asked.
    pub(super) snapshot: Option<Snapshot>,
}

impl EvaluationInput {
    /// The facts of a whole look at the cluster.
    pub(super) fn from_look(page: Page, look: ClusterLook) -> Self {
        Self {
            page,
            view: Some(Box::new(look.view)),
            snapshot: Some(look.snapshot),
        }
    }

    /// The facts where nothing but the ledger, the pod, its namespace and its StatefulSet was read.
    pub(super) fn from_ledger(page: Page) -> Self {
        Self {
            page,
            view: None,
            snapshot: None,
        }
    }
}

/// The part of an evaluation that depends on what is asked about.
pub(super) trait Evaluable: Send {
    /// The facts that a decision was made on.
    type Found: Send;

    /// Gathers evidence that is younger than the ledger, and decides.
    fn consider(
        &mut self,
        cluster: &ClusterRef,
        ledger: LedgerRead,
    ) -> impl Future<Output = Result<(Self::Found, Verdict), Stop>> + Send;

    /// Prepares the permission before anything is written.
    fn prepare(&mut self, _found: &mut Self::Found, _basis: Basis) -> Result<(), Stop> {
        Ok(())
    }

    /// Records the permission.
    fn record(
        &self,
        found: &Self::Found,
        basis: Basis,
    ) -> impl Future<Output = Result<Ground, Stop>> + Send;

    /// Carries out what has to happen between the record and the answer.
    fn conclude(
        &mut self,
        _found: &Self::Found,
        _ground: &Ground,
    ) -> impl Future<Output = Result<(), Stop>> + Send {
        std::future::ready(Ok(()))
    }
}

/// An end of an attempt other than a permission.
pub(super) enum Stop {
    /// The answer is known.
    Known(Result<Ground, Refused>),
    /// The facts have changed by the evaluation itself: begin again.
    Again,
    /// The time is over.
    TooLate,
    /// The Kubernetes API could not be read.
    Observe(ObserveError),
    /// The ledger could not be read or written.
    Ledger(LedgerError),
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self::Known(Err(refused))
    }
}

impl From<ObserveError> for Stop {
    fn from(error: ObserveError) -> Self {
        Self::Observe(error)
    }
}

impl From<LedgerError> for Stop {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

/// The permission in a verdict.
fn permission(verdict: Verdict) -> Result<Allowance, Refused> {
    match verdict {
        Verdict::Allow(permission) => Ok(permission),
        Verdict::Wait(reason) => Err(Refused::Wait(reason)),
        Verdict::Deny(reason) => Err(Refused::Deny(reason)),
    }
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(
        deps: &'a JudgeDeps,
        asker: &'a Asker,
        dry_run: DryRun,
        deadline: Instant,
    ) -> Self {
        Self {
            deps,
            asker,
            dry_run,
            deadline,
            notes: Mutex::default(),
        }
    }

    /// The answer, from the work that finds it. The work ends shortly before the deadline.
    pub(super) async fn answer(
        &self,
        work: impl Future<Output = Result<Ground, Stop>> + Send,
    ) -> Answer {
        let ended = timeout_at(self.deadline - RESERVE, Box::pin(work)).await;
        let decision = self.decision(ended.unwrap_or(Err(Stop::TooLate)));
        self.with(|notes| Answer {
            cluster: notes.cluster.take(),
            decision,
            headroom: notes.headroom,
            warnings: std::mem::take(&mut notes.warnings),
        })
    }

    /// Evaluates a question that names its cluster, to its end, however long that takes.
    pub(super) async fn run_about<C: Evaluable>(
        &self,
        case: &mut C,
        cluster: &ClusterRef,
    ) -> Result<Ground, Stop> {
        self.about(cluster);
        let ledger = self.read_ledger(cluster).await;
        self.run(case, cluster, ledger).await
    }

    /// Waits for the turn at the ledger, and then reads, decides and records until a decision
    /// holds. `ledger` was read before. It says whether refusals are only reported, which has to be
    /// known during the wait, because the wait may take all the time that there is.
    pub(super) async fn run<C: Evaluable>(
        &self,
        case: &mut C,
        cluster: &ClusterRef,
        ledger: LedgerRead,
    ) -> Result<Ground, Stop> {
        self.only_warns_by(&ledger);
        self.doing("other questions about the same cluster were answered");
        let turn = self.deps.ledger().locks().enter(cluster);
        let turn = turn.instrument(step!("turn at the ledger")).await;
        // After a wait the first read is out of date.
        let mut first = (!turn.has_waited()).then_some(ledger);
        loop {
            match Box::pin(self.attempt(case, cluster, first.take())).await {
                Err(Stop::Again) => {}
                Err(Stop::Ledger(error)) if error.begin_again() => {
                    self.deps.metrics.ledger_conflict();
                }
                ended => return ended,
            }
        }
    }

    async fn attempt<C: Evaluable>(
        &self,
        case: &mut C,
        cluster: &ClusterRef,
        known: Option<LedgerRead>,
    ) -> Result<Ground, Stop> {
        self.headroom(None);
        let ledger = match known {
            Some(known) => known,
            None => self.read_ledger(cluster).await,
        };
        self.only_warns_by(&ledger);
        self.doing("its objects were being read and its members asked");
        let considered = case.consider(cluster, ledger);
        let considered = considered.instrument(step!("evidence and decision"));
        let (mut found, verdict) = considered.await?;
        let basis = match permission(verdict)? {
            Allowance::Waived(waiver) => return Ok(Ground::Waived(waiver)),
            Allowance::Grant(basis) => basis,
        };
        case.prepare(&mut found, basis)?;
        if self.dry_run == DryRun::Yes {
            return Ok(Ground::DryRun(basis));
        }
        self.doing("the permission was being recorded");
        let recorded = case.record(&found, basis);
        let recorded = recorded.instrument(step!("write to the ledger"));
        let ground = self.timed(recorded).await?;
        case.conclude(&found, &ground).await?;
        Ok(ground)
    }

    /// The decision that an evaluation ends with.
    fn decision(&self, ended: Result<Ground, Stop>) -> Decision {
        let refused = match ended.or_else(|stop| self.known(stop)) {
            Ok(ground) => return Ok(Allowed::on(ground)),
            Err(refused) => refused,
        };
        let is_refusal = matches!(refused, Refused::Wait(_) | Refused::Deny(_));
        // The gate's own steps are not a test of what others would meet.
        let only_warns = self.with(|notes| notes.only_warns) && self.asker.actor != Actor::Gate;
        if is_refusal && only_warns {
            Ok(Allowed::on(Ground::Warned(refused)))
        } else {
            Err(refused)
        }
    }

    /// The result of an evaluation that ended without a permission. An error becomes "wait", except
    /// for a request that passes whatever the ledger says.
    fn known(&self, stop: Stop) -> Result<Ground, Refused> {
        let what = match &stop {
            Stop::Known(_) | Stop::Again => String::new(),
            Stop::TooLate => format!(
                "there was no time left while {}",
                self.with(|notes| notes.doing)
            ),
            Stop::Observe(error) => causes(error),
            Stop::Ledger(error) => causes(error),
        };
        match (stop, self.with(|notes| notes.regardless.take())) {
            (Stop::Known(known), _) => known,
            (_, Some(ground)) => {
                self.warn(format!("it passed unrecorded: {what}"));
                Ok(ground)
            }
            (Stop::Ledger(LedgerError::NoDefinition), None) => {
                Err(Refused::Wait(Reason::NoDefinition))
            }
            (_, None) => Err(Refused::unavailable(what)),
        }
    }

    /// Reads the ledger.
    pub(super) async fn read_ledger(&self, cluster: &ClusterRef) -> LedgerRead {
        self.doing("its budget was being read");
        let read = self.deps.ledger().read(cluster);
        self.timed(read.instrument(step!("read of the ledger")))
            .await
    }

    async fn timed<T>(&self, work: impl Future<Output = T>) -> T {
        let start = self.deps.clock.instant();
        let done = work.await;
        let took = self.deps.clock.instant() - start;
        self.deps.metrics.took(Phase::Ledger, took);
        done
    }

    /// Records the permission of all of `permitted` for `member`. `begins` says what begins after
    /// this write, and is completed by what was found out about the cluster.
    pub(super) async fn grant(
        &self,
        input: &EvaluationInput,
        member: &PodName,
        permitted: impl IntoIterator<Item = GrantKind>,
        begins: StatusUpdate,
    ) -> Result<Recorded, LedgerError> {
        let EvaluationInput {
            page,
            view,
            snapshot,
        } = input;
        let at = self.deps.clock.now().to_string();
        let asker = &self.asker.name;
        let issue = |grants: Grants, what| grants.issue(member, what, asker.clone(), at.clone());
        let grants = permitted.into_iter().fold(page.grants.clone(), issue);
        let snapshot = snapshot.as_ref();
        let update = StatusUpdate {
            tolerance: snapshot.map(|snapshot| snapshot.tolerance(&grants)),
            ..begins
        };
        let update = match view {
            Some(view) => view.complete(update, snapshot),
            None => update,
        };
        let recorded = self.deps.ledger().record(page, &grants, update).await;
        recorded.map(|(_, proof)| proof)
    }

    /// Tells the asker what was found besides the verdict about the member in `pod`: the headroom,
    /// an override that lets it go, one that does not count, and weak evidence.
    pub(super) fn log(&self, input: &EvaluationInput, pod: &PodName, verdict: &Verdict) {
        let (page, snapshot) = (&input.page, input.snapshot.as_ref());
        let headroom = |s: &Snapshot| s.tolerance(&page.grants).headroom();
        self.headroom(snapshot.map(headroom));
        let Some(view) = &input.view else {
            return;
        };
        match verdict {
            Verdict::Allow(Allowance::Grant(Basis::Override)) => {
                self.warn("it goes by an override: what its cluster can spare was not asked");
            }
            Verdict::Wait(_) | Verdict::Deny(_) => {
                for ignored in view.ignored_overrides(page, pod) {
                    self.warn(ignored);
                }
            }
            Verdict::Allow(_) => {}
        }
        if snapshot.is_some() && view.policy().evidence == EvidenceMode::Readiness {
            self.warn(
                "judged by the readiness of pods, which lags behind etcd (evidence: Readiness)",
            );
        }
    }

    /// The time until which members may be asked: three quarters of what is left. The rest is for
    /// what is read after them (nodes, budgets with the same cluster id) and for the record. Those
    /// have limits of their own ([`crate::observe`]), and [`Self::answer`] ends them all.
    pub(super) fn members_until(&self) -> Instant {
        let now = self.deps.clock.instant();
        self.deadline - self.deadline.saturating_duration_since(now) / 4
    }

    /// Notes the current work: completes "there was no time left while …".
    pub(super) fn doing(&self, what: &'static str) {
        self.with(|notes| notes.doing = what);
    }

    /// Notes the cluster in question.
    pub(super) fn about(&self, cluster: &ClusterRef) {
        self.with(|notes| notes.cluster = Some(cluster.clone()));
    }

    /// Notes the yes that the request gets if the ledger cannot be read or written.
    pub(super) fn regardless(&self, ground: Option<Ground>) {
        self.with(|notes| notes.regardless = ground);
    }

    /// Notes whether refusals are only reported, by the budget. A budget that is still to be
    /// created will have the default enforcement.
    pub(super) fn only_warns_by(&self, ledger: &LedgerRead) {
        match ledger {
            Ok(Some(page)) => self.only_warns(page.budget().only_warns()),
            Ok(None) => self.only_warns(self.deps.enforcement.only_warns()),
            Err(_) => {}
        }
    }

    /// Notes that nothing can be recorded about this cluster: it has no budget yet, or there is
    /// `error`. Returns that as a reason to wait.
    pub(super) fn about_unrecorded(
        &self,
        cluster: &ClusterRef,
        error: Option<LedgerError>,
    ) -> Reason {
        self.about(cluster);
        // A budget that is still to be created will have the default enforcement.
        self.only_warns(error.is_none() && self.deps.enforcement.only_warns());
        match error {
            None => Reason::NoLedger,
            Some(LedgerError::NoDefinition) => Reason::NoDefinition,
            Some(error) => unavailable(causes(&error)),
        }
    }

    /// The ground of a verdict where nothing can be recorded. A permission that needs a grant
    /// passes on `ungranted`.
    pub(super) fn unrecorded(&self, verdict: Verdict, ungranted: Ground) -> Result<Ground, Stop> {
        Ok(match permission(verdict)? {
            Allowance::Waived(waiver) => Ground::Waived(waiver),
            Allowance::Grant(basis) if self.dry_run == DryRun::Yes => Ground::DryRun(basis),
            Allowance::Grant(_) => ungranted,
        })
    }

    /// Notes whether refusals of this cluster are only reported.
    fn only_warns(&self, only_warns: bool) {
        self.with(|notes| notes.only_warns = only_warns);
    }

    /// Notes the headroom that was found.
    pub(super) fn headroom(&self, headroom: Option<i64>) {
        self.with(|notes| notes.headroom = headroom);
    }

    /// Notes a warning for the asker.
    pub(super) fn warn(&self, warning: impl Into<String>) {
        let warning = warning.into();
        self.with(|notes| {
            if !notes.warnings.contains(&warning) {
                notes.warnings.push(warning);
            }
        });
    }

    fn with<T>(&self, note: impl FnOnce(&mut Notes) -> T) -> T {
        note(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
