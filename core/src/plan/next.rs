//! The order of a rollout, step by step.

use super::desired::Desired;
use super::ordinal_state::MOST_REPLICAS;
use super::rollout_state::RolloutState;
use super::step::Step;
use super::waiting::WaitingOn;
use crate::quorum::{Grants, Scope, Snapshot};

/// The next thing that a rollout does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Nothing is left: every pod above the partition has the update revision.
    Done,
    /// The rollout carries out these steps. After them the cluster is observed again.
    Act(Steps),
    /// The rollout waits.
    Wait(WaitingOn),
}

/// The steps of one cycle: a single one, or several members that do not serve. Each is decided on
/// again, so a later one may be refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps {
    steps: Vec<Step>,
}

impl Steps {
    /// A single step.
    pub(super) fn one(step: Step) -> Self {
        Self { steps: vec![step] }
    }

    /// Several steps; `None` if there are none.
    pub(super) fn new(steps: Vec<Step>) -> Option<Self> {
        (!steps.is_empty()).then_some(Self { steps })
    }

    /// The steps, at least one.
    pub fn iter(&self) -> std::slice::Iter<'_, Step> {
        self.steps.iter()
    }
}

impl IntoIterator for Steps {
    type Item = Step;
    type IntoIter = std::vec::IntoIter<Step>;

    fn into_iter(self) -> Self::IntoIter {
        self.steps.into_iter()
    }
}

impl<'a> IntoIterator for &'a Steps {
    type Item = &'a Step;
    type IntoIter = std::slice::Iter<'a, Step>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The next step of a rollout under `OnDelete`, while the given grants are open.
///
/// Equal arguments give equal results, and no result depends on an earlier one.
///
/// ```
/// use quorumgate_core::plan::{Desired, Next, next_step};
/// use quorumgate_core::quorum::{Grants, Snapshot, example};
///
/// let mut observation = example::healthy("etcd-main", 3);
/// observation.update_revision = Some("new".into());
/// for pod in &mut observation.pods {
///     pod.revision = Some("old".into());
/// }
/// let cluster = Snapshot::assemble(&observation);
/// let Next::Act(steps) = next_step(&cluster, &Grants::default(), &Desired::by_default()) else {
///     panic!("a healthy cluster has nothing to wait for")
/// };
/// // The member in etcd-main-0 leads, so a follower goes first.
/// let first = steps.iter().next().unwrap();
/// assert_eq!(first.to_string(), "delete etcd-main-2: it is an outdated follower");
/// ```
pub fn next_step(snapshot: &Snapshot, grants: &Grants, desired: &Desired) -> Next {
    let rollout_state = RolloutState::new(snapshot, grants, desired);
    let first = ORDER.iter().find_map(|answer| answer(&rollout_state));
    first.unwrap_or_else(|| Next::Wait(rollout_state.waiting()))
}

/// The questions in the order in which they are asked. The first that has an answer decides.
const ORDER: [fn(&RolloutState<'_>) -> Option<Next>; 8] = [
    |rollout_state| rollout_state.not_begun().map(Next::Wait),
    // Step 1.
    |rollout_state| rollout_state.is_done().then_some(Next::Done),
    |rollout_state| rollout_state.suspended().map(Next::Wait),
    |rollout_state| rollout_state.held_by_preflight().map(Next::Wait),
    // A change that keeps old and new members apart.
    |rollout_state| Some(rollout_state.proceed_without_quorum(rollout_state.obstacle()?)),
    // Step 2.
    |rollout_state| rollout_state.replace_non_serving(),
    // Step 3, but for the members that are out: `take_serving` counts them.
    |rollout_state| rollout_state.held().map(Next::Wait),
    // Step 4.
    |rollout_state| rollout_state.take_serving(),
];

impl RolloutState<'_> {
    /// The reason why no step can be planned yet, or can be planned any more.
    pub(super) fn not_begun(&self) -> Option<WaitingOn> {
        let circumstances = &self.snapshot.circumstances;
        if circumstances.scope != Scope::Enrolled {
            return Some(WaitingOn::Enrolment);
        }
        // With 0 replicas the rollout is done, so there is nothing to wait for.
        if let Some(teardown) = circumstances.teardown
            && self.snapshot.replicas > 0
        {
            return Some(WaitingOn::Teardown(teardown));
        }
        let replicas = self.snapshot.replicas;
        if replicas > MOST_REPLICAS {
            let most = MOST_REPLICAS;
            return Some(WaitingOn::TooManyReplicas { replicas, most });
        }
        if !self.desired.generation.is_observed() {
            return Some(WaitingOn::Observation(self.desired.generation));
        }
        self.snapshot
            .update_revision
            .is_none()
            .then_some(WaitingOn::Revision)
    }

    /// The faults of the template, unless a person lets exactly this revision go on with them.
    pub(super) fn held_by_preflight(&self) -> Option<WaitingOn> {
        let revision = self.snapshot.update_revision.clone().unwrap_or_default();
        let findings = self.desired.findings.clone();
        let is_accepted = self.desired.accepted_findings.as_ref() == Some(&revision);
        let holds = !findings.is_empty() && !is_accepted;
        holds.then_some(WaitingOn::Preflight { findings, revision })
    }

    /// Step 1: whether every pod above the partition exists, is not terminating, and has the update
    /// revision.
    pub(super) fn is_done(&self) -> bool {
        let progress = self.progress();
        progress.updated == progress.targets
    }

    /// The reason why no new step may begin although there is something to do.
    pub(super) fn suspended(&self) -> Option<WaitingOn> {
        self.desired.paused.then(|| {
            let progress = self.progress();
            WaitingOn::Paused(progress)
        })
    }
}
