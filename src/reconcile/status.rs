//! The report on one cluster: what a look has shown, and what the operations say, in one write.
//!
//! Only the leader writes, so that all reports come from one replica. The write is a
//! compare-and-swap. It is not made while this process judges the cluster, because reports must not
//! starve grants.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource as _;
use tokio::time::Instant;
use tracing::info;

use super::backups::Backups;
use super::enrol::made_here;
use super::initialisations::Initialisations;
use super::look::{Look, ReconcileError};
use super::operation::{OperationContext, Report};
use super::refills::Refills;
use super::report::{self, ReportFacts, Urgency};
use super::run::Run;
use super::volumes::{Directories, Joins};
use super::ways::Ways;
use super::{rollout, strategy, volumes};
use crate::api::{Membership, QuorumDisruptionBudget, QuorumDisruptionBudgetStatus, condition};
use crate::ledger::{LedgerError, StatusUpdate};
use crate::observe::{Intents, ObserveError, is_enrolled, opts_out, words_of_way};
use crate::quorum::Trust;
use crate::telemetry::events::{Notice, Severity};
use crate::telemetry::metrics::{ClusterNumbers, ClusterState};

/// The shortest time between two writes of numbers.
const NUMBERS: Duration = Duration::from_secs(10);
/// The time for which looks have to show a loss of data before it is recorded.
const LOSS_LASTS: Duration = Duration::from_secs(1);
/// The time until the look that confirms a loss.
const LOSS_AGAIN: Duration = Duration::from_secs(2);
/// The pause while a judgement of the cluster is under way.
const POLITE: Duration = Duration::from_millis(300);
/// The longest time without a report while operations step at each look.
const UNSHOWN: Duration = Duration::from_secs(5);
/// The most attempts to report a step while other clients write to the budget.
const ATTEMPTS: u32 = 10;

/// The reports on one cluster.
#[derive(Default)]
pub(super) struct Reports {
    /// When this replica last wrote one.
    written: Option<Instant>,
    /// When the cluster was last shown whole, whether or not there was anything to write.
    shown: Option<Instant>,
    /// Whether the last look was for the report alone.
    took_look: bool,
    ways: Ways,
    directories: Directories,
    joins: Joins,
    backups: Backups,
    refills: Refills,
    /// When a look first showed that data is lost, if the latest did, too.
    lost_since: Option<Instant>,
}

impl Reports {
    /// Whether a look that begins now is for the report alone, because operations have stepped at
    /// each look for a while. The next one is for them, however long looks and reports take.
    pub(super) fn take_look(&mut self, now: Instant) -> bool {
        let since = self.shown.map(|at| now.saturating_duration_since(at));
        self.took_look = !self.took_look && since > Some(UNSHOWN);
        self.took_look
    }

    /// The initialisations of the members' data.
    pub(super) fn initialisations(&self) -> &Initialisations {
        self.backups.initialisations()
    }

    /// Whether a write of this replica's own may have it look again soon. Each wakes the loop, and
    /// numbers that change all the time are written every [`NUMBERS`].
    pub(super) fn has_written_lately(&self, now: Instant) -> bool {
        let written = self.written.map(|at| now.saturating_duration_since(at));
        written.is_some_and(|since| since < 2 * NUMBERS)
    }

    /// Shows the cluster, with the reports of its operations, if anything has changed. Returns the
    /// time until the next look that this needs.
    pub(super) async fn show(
        &mut self,
        context: &OperationContext<'_>,
        reports: &[Report],
    ) -> Result<Option<Duration>, ReconcileError> {
        let OperationContext { run, look, .. } = *context;
        let now = run.clock.instant();
        self.shown = Some(now);
        let next_way = Box::pin(self.ways.after(run, look)).await;
        self.backups.read(run, look).await;
        let tolerance = look.snapshot.tolerance(&look.page.grants);
        run.metrics.clusters.numbers(
            context.cluster,
            ClusterNumbers {
                disruptions_allowed: tolerance.disruptions_allowed().into(),
                voters: tolerance.voters.into(),
                serving: tolerance.serving.into(),
            },
        );
        if run.ledger().locks().pending(context.cluster) > 0 {
            return Ok(Some(POLITE));
        }
        let next_refill = Box::pin(self.refills.look_for(run, look)).await;
        let joins = Box::pin(self.joins.read(run, look)).await;
        let mut update = self.update(run, look, now).await;
        update.membership = match &joins {
            Ok(Some(_)) => Some(Membership::Pod),
            Ok(None) if look.view.stateful_set().is_some() => Some(Membership::Gate),
            Ok(None) | Err(_) => None,
        };
        let before = look.page.status().cloned().unwrap_or_default();
        let recorded = look.page.status_after(update.clone());
        let mut after = self.after(context, &recorded, reports)?;
        if let (Some(_), Ok(by)) = (look.view.stateful_set(), joins) {
            after.joins_by = by;
        }
        let budget = look.page.budget();
        let state = ClusterState {
            backups: self.backups.times(),
            ..state(budget, &after)
        };
        run.metrics.clusters.state(context.cluster, &state);
        let urgency = if recorded == before {
            report::urgency(&before, &after)
        } else {
            Urgency::Now
        };
        let since = self.written.map(|at| now.saturating_duration_since(at));
        let rest = since.map_or(Duration::ZERO, |since| NUMBERS.saturating_sub(since));
        let deferred = (urgency == Urgency::Numbers && !rest.is_zero()).then_some(rest);
        if urgency != Urgency::None && deferred.is_none() {
            let show = |status: &mut QuorumDisruptionBudgetStatus| *status = after.clone();
            run.ledger().report(&look.page, update, show).await?;
            self.written = Some(run.clock.instant());
            publish(context, &before, &after);
        }
        let loss = self.lost_since.map(|_| LOSS_AGAIN);
        Ok([next_way, next_refill, deferred, loss]
            .into_iter()
            .flatten()
            .min())
    }

    /// Shows the step that was just made. The judge has written its grant since the look, and
    /// others may write meanwhile. A later look would not show the step, so this is tried again.
    pub(super) async fn show_step(
        &mut self,
        context: &OperationContext<'_>,
        reports: &[Report],
    ) -> Result<(), ReconcileError> {
        let ledger = context.run.ledger();
        let mut attempts = 0..ATTEMPTS;
        while let (false, Some(page)) = (reports.is_empty(), ledger.read(context.cluster).await?) {
            let before = page.status().cloned().unwrap_or_default();
            let mut after = before.clone();
            for report in reports {
                report(&mut after);
            }
            match ledger
                .write_status(&page, |status| *status = after.clone())
                .await
            {
                Err(LedgerError::Conflict) if attempts.next().is_some() => {}
                written => {
                    if written?.is_some() {
                        publish(context, &before, &after);
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    /// The findings of a look, for the record.
    async fn update(&mut self, run: &Run, look: &Look, now: Instant) -> StatusUpdate {
        let lost = look.snapshot.went_back;
        self.lost_since = lost.map(|_| self.lost_since.unwrap_or(now));
        let lasts = self
            .lost_since
            .is_some_and(|since| now.saturating_duration_since(since) >= LOSS_LASTS);
        let (budget, set) = (look.page.budget(), look.view.stateful_set());
        let volumes = volumes::recorded(run, look).await;
        for (pod, id) in volumes.iter().flat_map(|(_, moved)| moved) {
            self.refills.note(run, look, pod, *id, "on another volume");
        }
        StatusUpdate {
            announced: Some(Intents::of_stored(&budget.metadata).into_announced()),
            no_bootstrap: !run.observer.announces_bootstrap(budget, set),
            lost: lost
                .filter(|lost| lasts || lost.is_plain())
                .map(|lost| (lost, run.clock.now())),
            volumes: volumes.map(|(records, _)| records),
            refilled: self.refills.due(look),
            directories: self.directories.read(run, look).await,
            ..look.view.status_update(Some(&look.snapshot))
        }
    }

    /// The status after this look. `recorded` is the status with what the look adds to the record.
    fn after(
        &self,
        context: &OperationContext<'_>,
        recorded: &QuorumDisruptionBudgetStatus,
        reports: &[Report],
    ) -> Result<QuorumDisruptionBudgetStatus, ReconcileError> {
        let OperationContext { run, look, .. } = *context;
        let (budget, set) = (look.page.budget(), look.view.stateful_set());
        let generation = budget.metadata.generation;
        let now = Time(run.clock.now());
        let mut after = recorded.clone();
        // The summary of the conditions comes last.
        for report in reports {
            report(&mut after);
        }
        let max_age = budget.spec.max_age_of_backups();
        let max_age = max_age.map_err(ObserveError::Spec)?;
        self.backups.show(
            context.cluster,
            &mut after.conditions,
            max_age,
            generation,
            &now,
        );
        let has_user = budget.spec.members.auth.is_some();
        ReportFacts {
            snapshot: &look.snapshot,
            round: &look.round,
            grants: &look.page.grants,
            trust: if budget.only_warns() {
                Trust::Untrusted { remaining: None }
            } else {
                look.view.trust()
            },
            untrusted_because: recorded.ledger.untrusted_because.as_deref(),
            force: &run.force(&context.cluster.namespace),
            way: look.view.way(),
            told: &words_of_way(look.view.way(), &budget.spec.members),
            advice: self.ways.advice(),
            without_user: (!has_user).then_some(context.cluster),
            labelled: labelled(budget, set),
            places: &volumes::places(look),
            same_etcd: &run.same_etcd(&look.page),
            applied: &self.refills.applied(run, look),
            initial_states: &volumes::initial_states(run, look).unwrap_or_default(),
            troubles: &look.view.troubles(),
            generation,
            now: &now,
        }
        .show(&mut after);
        if let Some(way) = self.ways.to_record(recorded.way.as_deref()) {
            after.way = Some(Box::new(way));
        }
        after.update_strategy = set.map(|set| strategy::shown(set, run.settings.features));
        Ok(after)
    }
}

/// Whether the StatefulSet has the label that enrols it. `None` where the label does not matter:
/// the StatefulSet is gone or opts out, or somebody else wrote the budget.
fn labelled(budget: &QuorumDisruptionBudget, set: Option<&StatefulSet>) -> Option<bool> {
    let set = set.filter(|set| made_here(budget) && !opts_out(set))?;
    Some(is_enrolled(set))
}

/// Publishes the changes between two reports.
fn publish(
    context: &OperationContext<'_>,
    before: &QuorumDisruptionBudgetStatus,
    after: &QuorumDisruptionBudgetStatus,
) {
    let OperationContext { run, look, .. } = *context;
    let (cluster, regarding) = (context.cluster, look.page.budget().object_ref(&()));
    for turned in report::turned(&before.conditions, &after.conditions) {
        let known = before.conditions.iter().any(|c| c.type_ == turned.type_);
        let good = turned.status == "True";
        if !known && good {
            continue;
        }
        // Said with the Events of the rollout below.
        if turned.type_ == condition::PROGRESSING {
            continue;
        }
        info!(
            %cluster, condition = turned.type_, status = turned.status,
            reason = turned.reason, message = turned.message, "condition"
        );
        // Operations say by Events of their own what they do. The first pods of every cluster start
        // with `initial-cluster-state=new`.
        if report::is_of_operation(turned) || turned.type_ == condition::INITIAL_STATE_SET {
            continue;
        }
        run.events.notify(Notice {
            regarding: regarding.clone(),
            severity: if good {
                Severity::Normal
            } else {
                Severity::Warning
            },
            reason: format!("{}{}", turned.type_, turned.status),
            action: "Observe",
            note: format!("{}: {}", turned.reason, turned.message),
        });
    }
    rollout::announce(run, cluster, &regarding, before, after);
}

/// The facts that the metrics show of a budget besides the numbers of its cluster.
fn state<'a>(
    budget: &QuorumDisruptionBudget,
    status: &'a QuorumDisruptionBudgetStatus,
) -> ClusterState<'a> {
    let causes = status.grants.iter().flat_map(|grant| &grant.causes);
    let conditions = status.conditions.iter();
    let conditions = conditions.map(|c| [&c.type_, &c.status, &c.reason].map(String::as_str));
    ClusterState {
        enforced: !budget.only_warns(),
        open_grants: i64::try_from(status.grants.len()).unwrap_or(i64::MAX),
        oldest_grant: causes.filter_map(|cause| cause.time.parse().ok()).min(),
        conditions: conditions.collect(),
        backups: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_looks_one_is_for_the_operations_however_long_reports_take() {
        let start = Instant::now();
        let mut reports = Reports::default();
        assert!(!reports.take_look(start), "nothing was ever shown");
        reports.shown = Some(start);
        assert!(!reports.take_look(start + UNSHOWN));
        let late = start + 2 * UNSHOWN;
        let looks = [(); 4].map(|()| reports.take_look(late));
        assert_eq!(looks, [true, false, true, false]);
    }
}
