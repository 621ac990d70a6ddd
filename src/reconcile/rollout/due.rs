//! Whether members that serve may go now: by the window, by the backups, and by the rollouts of
//! other clusters. Members that do not serve may go at any time.

use super::step::Input;
use crate::api::{QuorumDisruptionBudget, condition};
use crate::plan::{Because, Step, WaitingOn, progress};
use crate::reconcile::fleet::has_begun;
use crate::reconcile::operation::OperationContext;

/// Keeps the steps that are due. Returns the reason why the others are not.
pub(super) fn keep_due(
    context: &OperationContext<'_>,
    input: &Input,
    steps: &mut Vec<Step>,
) -> Option<WaitingOn> {
    let costs_nothing = |step: &Step| matches!(step.because, Because::NonServing(_));
    // Members that cannot join before a majority is updated are out until then.
    let updated = progress(&context.look.snapshot, &input.desired).map_or(0, |of| of.updated);
    let is_apart = input.desired.obstacle.is_some() && updated > 0;
    if is_apart || steps.iter().all(costs_nothing) {
        return None;
    }
    let own = not_due(context);
    if own.is_some() {
        context.run.fleet.leave(context.cluster);
    }
    let waiting = own.or_else(|| {
        let watches = &context.run.watches;
        let begun = || {
            let named = watches.budgets.map(|place, budget| {
                let cluster = place.cluster();
                let is_there = watches.stateful_sets.of_cluster(&cluster).is_some();
                (is_there && has_begun(budget)).then_some(cluster)
            });
            named.into_iter().flatten().collect()
        };
        context.run.fleet.ask(context.cluster, input.now, begun)
    });
    if waiting.is_some() {
        steps.retain(costs_nothing);
    }
    waiting
}

/// Why the cluster's own budget lets no serving member go now, if it does not.
fn not_due(context: &OperationContext<'_>) -> Option<WaitingOn> {
    let budget = context.look.page.budget();
    if let Some(spec) = &budget.spec.rollout.window {
        let window = match spec.read("spec.rollout.window") {
            Ok(window) if window.is_open(context.run.clock.now()) => None,
            Ok(window) => Some(window.to_string()),
            Err(bad) => Some(format!("never: {bad}")),
        };
        if let Some(window) = window {
            return Some(WaitingOn::OutsideWindow { window });
        }
    }
    let target = context.look.snapshot.update_revision.as_deref();
    let wants_backup = budget.spec.rollout.require_recent_backup == Some(true);
    if !wants_backup || has_taken_serving(budget, target) {
        return None;
    }
    let mut conditions = budget.status.iter().flat_map(|status| &status.conditions);
    let recent = conditions.find(|shown| shown.type_ == condition::BACKUPS_RECENT);
    let because = match recent {
        Some(recent) if recent.status == "True" => return None,
        Some(recent) => recent.message.clone(),
        None => "no Lease of etcd-backup-restore tells of one".to_owned(),
    };
    Some(WaitingOn::Backup { because })
}

/// Whether the rollout to this revision has replaced a member that served.
fn has_taken_serving(budget: &QuorumDisruptionBudget, target: Option<&str>) -> bool {
    let rollout = budget.status.as_ref().and_then(|s| s.rollout.as_deref());
    rollout.is_some_and(|rollout| rollout.took_serving && rollout.target.as_deref() == target)
}
