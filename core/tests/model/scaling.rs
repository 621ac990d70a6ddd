//! The owner that scales. It lets the StatefulSet grow and adds the new member, or removes a member
//! and lets the StatefulSet shrink.
//!
//! The new member is added as a learner, which is promoted later, or at once as a voter before it
//! runs. The latter happens only within the grace of a scale-out and where etcd accepts it (all
//! voters are connected). An owner adds its members in one way for one scale-out. A permission
//! given while a voter may be added has to leave room for it. A permission from before the
//! scale-out could not know of it, so the new voter is excused for that one as if it had failed
//! since.
//!
//! A scale-in is asked of the shipped webhook for StatefulSets. It passes where etcd lists none of
//! the leaving members, or where it was announced. An announced one takes a member that counts,
//! whatever the others do, because the owner wants that. So it counts as a failure from the moment
//! at which its pod is let go, and every later permission has to know of it.

use quorumgate_core::quorum::stateful_set::{
    self, Change, Ordinals, Owner, StatefulSetInput, TeardownPolicy, decide, scale_in_lets_go,
};
use quorumgate_core::quorum::{Allowance, Intent, Ordinal, Scope, Serving, Verdict};

use crate::action::Action;
use crate::appearance::{Scene, look};
use crate::decision::{Ledger, snapshot};
use crate::memo::{Memo, remembered};
use crate::mutations::Mutation;
use crate::possible::is_going;
use crate::replica::{doctored, scene};
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{Budget, Listed, MEMBERS, Phase, ScaleIn, State};
use crate::truth;

/// The possible next actions of the owner.
pub(crate) fn actions(scenario: &Scenario, state: &State, actions: &mut Vec<Action>) {
    let Some(n) = scenario.spare() else { return };
    if state.scales_in {
        // The owner waits for the answer.
        actions.extend([Action::ScaledIn, Action::ScaleInLost]);
        return;
    }
    let member = &state.members[n];
    let asks_for_it = usize::from(state.replicas) > n;
    let is_listed = member.listed != Listed::No;
    if !asks_for_it {
        if !is_listed {
            actions.extend([Listed::Learner, Listed::Voter].map(Action::ScaleOut));
        }
    } else if is_listed {
        actions.extend([true, false].map(|announced| Action::ScaleIn { announced }));
    } else {
        actions.push(Action::ScaleIn { announced: false });
        let is_new = matches!(member.phase, Phase::Missing | Phase::Starting);
        if is_new && !is_going(state, n) && adds(state) {
            actions.push(Action::Added(n));
        }
    }
    if is_listed && removes(state, n) {
        actions.push(Action::MemberRemoved(n));
    }
}

/// Whether the owner adds its new member now. A voter is added within the grace or not at all, and
/// etcd accepts it only while all voters are connected.
fn adds(state: &State) -> bool {
    let connected = truth::up(state) == truth::voters(state);
    let young = |budget: &Budget| budget.expected.is_young(state.replicas);
    let in_grace = state.budget.as_ref().is_some_and(young);
    truth::is_quorate(state) && (state.joins_as == Listed::Learner || (connected && in_grace))
}

/// Whether etcd lets the owner remove this member: the others that are up still make a majority.
fn removes(state: &State, n: usize) -> bool {
    let voters = truth::voters(state).without(n).count();
    truth::is_quorate(state)
        && truth::up(state).without(n).count() >= quorumgate_core::quorum::majority(voters)
}

/// The StatefulSet grows.
pub(crate) fn scale_out(state: &mut State, joins_as: Listed) {
    state.joins_as = joins_as;
    let n = usize::from(state.replicas);
    state.replicas += 1;
    state.scales_in = false;
    // If the member becomes a voter that does not run, no earlier look could know of it.
    state.each_excuse(|excused| *excused = excused.with(n));
}

/// A member is added to etcd.
pub(crate) fn add(state: &mut State, n: usize) {
    state.members[n].listed = state.joins_as;
    state.unstarted = state.unstarted.with(n);
}

/// Removes a member from etcd, and ends its process.
pub(crate) fn remove(state: &mut State, n: usize) {
    let member = &mut state.members[n];
    member.listed = Listed::No;
    state.unstarted = state.unstarted.without(n);
    let member = &mut state.members[n];
    if matches!(member.phase, Phase::Up | Phase::Booting) {
        state.fail(n, Phase::Crashed);
    }
}

/// The owner asks to scale in. An admitted scale-in is on record before the answer is out.
pub(crate) fn ask_to_scale_in(state: &mut State, announced: bool, scenario: &Scenario) {
    let Some(budget) = state.budget else { return };
    let (from, to) = (state.replicas, state.replicas - 1);
    let seen = doctored(look(state, Set::NONE), scenario.mutation);
    let scene = scene(state, seen, scenario, &budget);
    let every = scenario.mutation == Mutation::AdmitEveryScaleIn;
    if !is_admitted(scene, from, to, announced) && !every {
        return;
    }
    state.scales_in = true;
    let admitted = ScaleIn {
        from: budget.scale_in.map_or(from, |before| before.from.max(from)),
        to,
        founded: announced || state.members[usize::from(to)].listed == Listed::No,
    };
    let written = Budget {
        scale_in: Some(admitted),
        ..budget
    };
    state.put(written, true, scenario.mutation);
}

/// The API server stores an admitted scale-in.
pub(crate) fn scale_in(state: &mut State) {
    state.replicas -= 1;
    state.scales_in = false;
    state.joins_as = Listed::No;
}

fn is_admitted(scene: Scene, from: u8, to: u8, announced: bool) -> bool {
    thread_local!(static MEMO: Memo<(Scene, u8, u8, bool), bool> = Memo::default());
    remembered(
        &MEMO,
        (scene, from, to, announced),
        |(scene, from, to, announced)| {
            let ordinals = |count: u8| Ordinals {
                start: Some(0),
                count: count.into(),
            };
            let (from, to) = (ordinals(from), ordinals(to));
            let snapshot = snapshot(&scene, Ledger::Trusted);
            let input = StatefulSetInput {
                set: snapshot.cluster.clone(),
                scope: Scope::Enrolled,
                teardown: None,
                collected: false,
                overridden: false,
                ignored: None,
                intent: announced.then_some(Intent::ScaleIn),
                owner: Owner::None,
                teardown_policy: TeardownPolicy::Announce,
                takes_data: None,
                listed: stateful_set::Listed::among(&from.leaving(to, 0), &snapshot),
                serving: Some(Serving::from_snapshot(&snapshot)),
            };
            matches!(
                decide(&Change::Resize { from, to }, &input),
                Verdict::Allow(Allowance::Grant(_))
            )
        },
    )
}

/// The members whose pods a scale-in on record lets go.
pub(crate) fn let_go(state: &State, budget: &Budget) -> Set {
    let Some(ScaleIn { from, to, .. }) = budget.scale_in else {
        return Set::NONE;
    };
    let taken = u32::from(to)..u32::from(from);
    let kept = Ordinals {
        start: None,
        count: state.replicas.into(),
    };
    let lets_go = |n: &usize| {
        let ordinal = Ordinal(u32::try_from(*n).unwrap());
        scale_in_lets_go(std::slice::from_ref(&taken), ordinal, kept)
    };
    Set::new((0..MEMBERS).filter(lets_go))
}
