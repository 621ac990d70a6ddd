//! The volumes of members, the data on them, and what is lost with them.
//!
//! Data is one thing here: the last acknowledged write. A majority of the voters has it, and no
//! more of them than that, until the others catch up. Whoever loses a volume loses it.
//!
//! - A volume fails under its member, or pod and claim are gone together, which nobody asked for.
//! - The StatefulSet controller creates a pod on the claim that there is, or on a new one. The
//!   shipped identity guard decides whether the pod waits. (It is not told etcd's list then.)
//! - Where the data is in the pods, each pod is the volume, and there is no claim.
//! - A member that starts without data takes part again once it has caught up. Until then it may
//!   vote, and knows nothing: it is one of those that could elect a leader without the write.

use quorumgate_core::quorum::majority;

use crate::action::Action;
use crate::mutations::Mutation;
use crate::replacement::{self, Call, Named, Replacer, Step, Volumes};
use crate::scenario::Scenario;
use crate::state::{Listed, Member, Phase, State, Volume};
use crate::truth::{self, takes_part};

/// The possible next actions of volumes and of the writer.
pub(crate) fn actions(scenario: &Scenario, state: &State, actions: &mut Vec<Action>) {
    if !scenario.replacement {
        return;
    }
    let record = state.budget.and_then(|budget| budget.record);
    let lost = state.which(|m| !m.volume.has_data());
    let lost = record.map_or(lost, |record| lost.without(usize::from(record.target)));
    if lost.count() < scenario.losses {
        for (n, member) in state.members() {
            if matches!(member.volume, Volume::Own | Volume::New) {
                actions.extend([Action::VolumeFails(n), Action::VolumeGone(n)]);
            }
        }
    }
    if !truth::is_quorate(state) {
        return;
    }
    if scenario.writes {
        let needed = majority(truth::voters(state).count());
        let enough = truth::up(state).subsets(needed);
        let holders = enough.filter(|holders| holders.count() == needed);
        actions.extend(holders.map(Action::Written));
    }
    let old = state.which(|m| m.phase == Phase::Up && m.listed != Listed::No);
    let old = old.minus(state.holders);
    actions.extend(old.iter().map(Action::Replicated));
}

/// Whether etcd can start in the member's pod. A process with the data of a removed id ends at
/// once, and so does one without data that etcd does not list.
pub(crate) fn can_start(member: Member) -> bool {
    let has_identity = match member.volume {
        Volume::Own | Volume::Going => !member.renewed,
        Volume::Blank | Volume::New => true,
        Volume::Failed | Volume::FailedGoing | Volume::None | Volume::Stale => false,
    };
    member.listed != Listed::No && has_identity
}

/// The member's etcd starts, with its data or without, or ends at once.
pub(crate) fn start(state: &mut State, n: usize) {
    let member = &mut state.members[n];
    if !can_start(*member) {
        member.phase = Phase::Crashed;
        state.touch(n);
        return;
    }
    if member.volume == Volume::Blank {
        member.volume = Volume::New;
        member.behind = true;
    }
    state.come_up(n);
}

/// The StatefulSet controller creates a pod, on the claim that there is or on a new one.
pub(crate) fn create(state: &mut State, n: usize, scenario: &Scenario) {
    let member = &mut state.members[n];
    member.phase = Phase::Starting;
    if !scenario.replacement {
        return;
    }
    if member.volume == Volume::None {
        member.volume = Volume::Blank;
    }
    let volumes = Volumes {
        of: state.members.map(|member| member.volume),
        in_pods: state.in_pods,
    };
    let is_guarded = scenario.mutation != Mutation::StartWithoutTheGuard;
    if is_guarded && replacement::must_wait(volumes, n, None) {
        state.members[n].phase = Phase::Held;
    }
}

/// The volume fails under its member.
pub(crate) fn fail(state: &mut State, n: usize) {
    let member = &mut state.members[n];
    member.volume = Volume::Failed;
    state.holders = state.holders.without(n);
    if takes_part(state.members[n]) {
        state.fail(n, Phase::Crashed);
    } else if !matches!(
        state.members[n].phase,
        Phase::Ending | Phase::Missing | Phase::Held | Phase::Starting
    ) {
        state.members[n].phase = Phase::Crashed;
    }
}

/// The pod and the claim of a member are gone, with the data.
pub(crate) fn vanish(state: &mut State, n: usize) {
    if takes_part(state.members[n]) {
        state.fail(n, Phase::Crashed);
    }
    state.end(n);
    state.lose_claim(n);
}

/// A member catches up with the others.
pub(crate) fn replicate(state: &mut State, n: usize) {
    state.holders = state.holders.with(n);
    let was_behind = std::mem::take(&mut state.members[n].behind);
    if was_behind && state.members[n].listed == Listed::Voter {
        state.each_excuse(|excused| *excused = excused.without(n));
        state.is_back(n);
    }
}

/// The volume of a member that serves is recorded, with its id.
pub(crate) fn record(state: &mut State, n: usize) {
    // The id on record was removed for good, and the newer one takes its place.
    state.removal = state.removal.and_then(|removal| removal.after_record_of(n));
    let member = &mut state.members[n];
    member.renewed = false;
    if member.volume == Volume::New {
        member.volume = Volume::Own;
    }
}

/// Lets a member come back if it can: its pod, its process and its data.
pub(crate) fn heal(state: &mut State, n: usize, scenario: &Scenario) {
    match state.members[n].phase {
        Phase::Ending => state.end(n),
        Phase::Missing => create(state, n, scenario),
        Phase::Up | Phase::Held | Phase::Absent | Phase::Lost => {}
        Phase::Crashed if !can_start(state.members[n]) => {}
        Phase::Starting if !state.members[n].volume.is_usable() => {}
        _ => start(state, n),
    }
    let member = &state.members[n];
    let runs = member.phase == Phase::Up && member.listed != Listed::No;
    if runs && truth::is_quorate(state) && !state.holders.has(n) {
        replicate(state, n);
    }
}

/// Whether a change of the member list takes effect: a majority of the voters takes part, and has
/// everything that was acknowledged.
pub(crate) fn commits(state: &State) -> bool {
    let have = truth::up(state).and(state.holders).count();
    have >= majority(truth::voters(state).count())
}

/// Whether every quorum that can ever form knows the last acknowledged write.
pub(crate) fn keeps_the_write(state: &State) -> bool {
    let can_vote = |m: &Member| m.listed == Listed::Voter && m.volume.has_data();
    let ignorant = state.which(can_vote).minus(state.holders).count();
    ignorant < majority(truth::voters(state).count())
}

/// Whether members that started without data make no quorum by themselves.
pub(crate) fn has_one_quorum(state: &State) -> bool {
    let without_data = state.which(|m| m.listed == Listed::Voter && m.behind);
    without_data.count() < majority(truth::voters(state).count())
}

impl State {
    /// The pod of a member is gone, and with it a claim that was terminating.
    pub(crate) fn lose_pod(&mut self, n: usize) {
        self.each_record_of(n, |record| record.pod = record.pod.past());
        self.drop_call(n, Step::Release);
        if self.in_pods || self.members[n].volume.is_going() {
            self.lose_claim(n);
        }
    }

    /// The claim of a member is gone, and its data.
    pub(crate) fn lose_claim(&mut self, n: usize) {
        self.members[n].volume = Volume::None;
        self.holders = self.holders.without(n);
        self.each_record_of(n, |record| record.claim = record.claim.past());
        self.drop_call(n, Step::DeleteClaim);
    }

    /// Drops a call whose precondition, a UID, holds no more.
    fn drop_call(&mut self, n: usize, step: Step) {
        let is_for_it = |call: &Call| usize::from(call.target) == n && call.step == step;
        self.call = self.call.filter(|call| !is_for_it(call));
    }

    fn each_record_of(&mut self, n: usize, change: impl Fn(&mut replacement::Record)) {
        let written = self.budget.as_mut().and_then(|b| b.record.as_mut());
        let planned = match &mut self.replacer {
            Replacer::Planned {
                step: Step::Grant(record),
                ..
            }
            | Replacer::Decided {
                step: Step::Grant(record),
                ..
            } => Some(record),
            _ => None,
        };
        for record in written.into_iter().chain(planned) {
            if usize::from(record.target) == n {
                change(record);
            }
        }
    }
}

impl Named {
    fn past(self) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::Present | Self::Past => Self::Past,
        }
    }
}
