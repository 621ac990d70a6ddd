//! A replica of the gate: a decision from its reading of the ledger to its answer, one effect at a
//! time.

use quorumgate_core::quorum::{Basis, Teardown};

use crate::appearance::{Appearance, Look, Scene, look};
use crate::decision::{Found, Ledger, Question, Ruling, What, rule};
use crate::halves::Sight;
use crate::ledger::{self, For};
use crate::mutations::Mutation;
use crate::permission::{True, is_founded, permit};
use crate::scaling;
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{
    At, Budget, By, Driver, Expected, Force, Listed, MEMBERS, Permit, Phase, Request, State,
};
use crate::trust::{self, Webhooks};
use crate::truth;

/// The outcome of a decision.
enum Outcome {
    Refused,
    /// Yes, and nothing is taken: the pod is terminating already, or the request is for another
    /// incarnation.
    Waived,
    /// Yes, with a permission.
    Yes(Permit),
}

/// Reads the ledger for a request. Without a ledger only what needs no look may go.
pub(crate) fn read(state: &mut State, slot: usize, scenario: &Scenario) {
    let Some(request) = &mut state.requests[slot] else {
        return;
    };
    if state.budget.is_some() {
        request.at = At::Page;
        return;
    }
    let target = usize::from(request.target);
    let ledger = match scenario.mutation {
        Mutation::NoBudgetReadAsForeign => Ledger::Ignored,
        _ => Ledger::Missing,
    };
    let none = Budget::new(Expected::default(), None);
    let question = Question {
        scene: scene(state, look(state, Set::NONE), scenario, &none),
        open: none.grants,
        ledger,
        target,
        what: What::Delete,
    };
    // A pod without a budget is not judged.
    state.requests[slot] = match rule(question) {
        Ruling::Waived if !is_ending(state, target) => {
            let true_then = True::at(state, Sight::default(), scenario);
            let permit = Permit {
                recorded: false,
                ..permit(state, true_then, target, (0, 0))
            };
            Some(Request {
                at: At::Answered(permit),
                ..*request_of(state, slot)
            })
        }
        _ => None,
    };
}

fn request_of(state: &State, slot: usize) -> &Request {
    state.requests[slot].as_ref().unwrap()
}

fn is_ending(state: &State, target: usize) -> bool {
    matches!(state.members[target].phase, Phase::Ending | Phase::Missing)
}

/// Looks at the members that are not in `hidden`, and decides.
pub(crate) fn look_and_decide(state: &mut State, slot: usize, hidden: Set, scenario: &Scenario) {
    let seen = look(state, hidden);
    conclude(state, slot, seen.into(), None, scenario);
}

/// Looks at one member. Once all have been seen, decides.
pub(crate) fn look_at(state: &mut State, slot: usize, n: usize, scenario: &Scenario) {
    let now = look(state, Set::NONE);
    let Some(request) = &mut state.requests[slot] else {
        return;
    };
    let (seen, excused, mut so_far) = match request.at {
        At::Looking {
            seen,
            excused,
            look,
        } => (seen, excused, look),
        _ => (Set::NONE, Set::NONE, Look::default()),
    };
    so_far[n] = now[n];
    let seen = seen.with(n);
    if seen != Set::new(0..scenario.members()) {
        request.at = At::Looking {
            seen,
            excused,
            look: so_far,
        };
        return;
    }
    conclude(state, slot, so_far.into(), None, scenario);
    let concluded = state.requests[slot].as_mut().and_then(Request::permit);
    if let Some(permit) = concluded {
        permit.excused = excused;
    }
}

/// By mutation: decides once more on the old evidence.
pub(crate) fn decide_again(state: &mut State, slot: usize, scenario: &Scenario) {
    let Some(Request {
        at: At::Again(before),
        ..
    }) = state.requests[slot]
    else {
        return;
    };
    conclude(state, slot, before.look, Some(before), scenario);
}

/// Decides on the result of a look.
pub(crate) fn conclude(
    state: &mut State,
    slot: usize,
    seen: Sight,
    before: Option<Permit>,
    scenario: &Scenario,
) {
    let request = *request_of(state, slot);
    let outcome = judge(state, &request, seen, scenario);
    state.requests[slot] = match outcome {
        Outcome::Refused | Outcome::Waived => None,
        Outcome::Yes(permit) => {
            let permit = match before {
                // Failures since the first look count, and so does the truth at that time.
                Some(before) => Permit {
                    recorded: true,
                    ..before
                },
                None => permit,
            };
            if permit.announced && !permit.recorded {
                state.reckon_with_failure_of(usize::from(request.target));
            }
            let at = if permit.recorded {
                At::Decided(permit)
            } else {
                At::Answered(permit)
            };
            Some(Request { at, ..request })
        }
    };
}

fn judge(state: &State, request: &Request, seen: Sight, scenario: &Scenario) -> Outcome {
    let Some(budget) = &state.budget else {
        return Outcome::Refused;
    };
    let target = usize::from(request.target);
    if !request.stands {
        return Outcome::Waived;
    }
    let own = budget.grants[target];
    let what = match request.by {
        By::Stranger => What::Delete,
        By::Driver => What::Step,
        By::Step { .. } if own.delete.is_some_and(|cause| cause.rollout) => What::Step,
        By::Step { .. } => What::OwnDelete,
    };
    let mut known = *budget;
    if scenario.mutation == Mutation::ShrinkTheExpectedVoters {
        known.expected.voters = u8::try_from(truth::voters(state).count()).unwrap();
    }
    let question = Question {
        scene: scene(state, doctored(seen, scenario.mutation), scenario, &known),
        open: budget.grants,
        ledger: worth(state, budget, scenario),
        target,
        what,
    };
    let (basis, found, recorded) = match (rule(question), scenario.mutation) {
        (Ruling::Granted { basis, found }, mutation) => (
            Some(basis),
            found,
            is_recorded(mutation, found, own.is_open()),
        ),
        (
            Ruling::Refused {
                may_complete: true,
                found,
            },
            Mutation::Rule12WithoutItsException,
        ) => (Some(Basis::CostsNothing), found, true),
        (Ruling::Refused { found, .. }, Mutation::OwnGrantAlwaysPasses) if own.is_open() => {
            (None, found, true)
        }
        (Ruling::Refused { found, .. }, Mutation::StepsByMaxUnavailableAlone)
            if request.by != By::Stranger =>
        {
            (None, found, true)
        }
        (Ruling::Refused { .. }, _) => return Outcome::Refused,
        (Ruling::Waived, _) => return Outcome::Waived,
    };
    let true_then = True::at(state, seen, scenario);
    let permit = permit(state, true_then, target, found.expected);
    let founded = basis
        .is_some_and(|basis| is_founded(state, true_then, basis, target, what, scenario, &permit));
    let lets_go = basis == Some(Basis::Teardown(Teardown::ScaleIn));
    let kept = scenario.mutation == Mutation::EvidenceAcrossAResourceVersion;
    Outcome::Yes(Permit {
        founded,
        recorded: recorded && !(lets_go && scenario.mutation == Mutation::ScaleInWithoutAGrant),
        announced: lets_go,
        harmless: permit.harmless || basis == Some(Basis::Repair),
        look: if kept { seen } else { Sight::default() },
        ..permit
    })
}

/// The state of the ledger for a replica that has read it and looks now.
pub(crate) fn worth(state: &State, budget: &Budget, scenario: &Scenario) -> Ledger {
    let mutation = scenario.mutation;
    let trusted = budget.trust.is_trusted(trust::Sight {
        webhooks: match state.force {
            _ if mutation == Mutation::TrustWhatIsWrittenOfForce => Some(Webhooks::Recorded),
            Force::Unconfigured => None,
            Force::In | Force::Unlabelled => Some(budget.trust.standing()),
        },
        outage_ago: state
            .outage_ago
            .filter(|_| mutation != Mutation::OutagesUnknownUntilWritten),
        settle_time: scenario.settle_time,
    });
    if trusted {
        Ledger::Trusted
    } else {
        Ledger::Untrusted
    }
}

fn is_recorded(mutation: Mutation, found: Found, has_grant: bool) -> bool {
    match mutation {
        Mutation::RepeatedYesWithoutAWrite => !has_grant,
        Mutation::NoGrantForNonServing => !found.is_down,
        Mutation::LearnerWithoutAGrant => !found.is_learner,
        _ => true,
    }
}

/// The appearances as the mutated code would take them.
pub(crate) fn doctored(seen: impl Into<Sight>, mutation: Mutation) -> Sight {
    let mut seen = seen.into();
    for appearance in seen.pods.iter_mut().chain(&mut seen.answers) {
        *appearance = match (mutation, *appearance) {
            (Mutation::CountUnknownAsServing, Appearance::Silent)
            | (Mutation::CountTerminatingAsServing, Appearance::Ending)
            | (Mutation::OneIdOnTwoPods, Appearance::Impersonated) => Appearance::Answers,
            (Mutation::QuorumLostByTimeouts, Appearance::Silent) => Appearance::Leaderless,
            (Mutation::TakeSilenceForMute, Appearance::Silent) => Appearance::Mute,
            (Mutation::CountServingAsUnknown, Appearance::Answers) => Appearance::Silent,
            (_, appearance) => appearance,
        };
    }
    seen
}

pub(crate) fn scene(
    state: &State,
    seen: impl Into<Sight>,
    scenario: &Scenario,
    budget: &Budget,
) -> Scene {
    let mut seen = seen.into();
    if scenario.mute {
        for appearance in seen.pods.iter_mut().chain(&mut seen.answers) {
            if *appearance == Appearance::Leaderless {
                *appearance = Appearance::Mute;
            }
        }
    }
    let mut listed = [Listed::No; MEMBERS];
    for (n, member) in state.members() {
        listed[n] = member.listed;
    }
    Scene {
        sight: seen,
        listed,
        outdated: state.which(|member| member.outdated),
        unstarted: state.unstarted,
        volumes: state.members.map(|member| member.volume),
        in_pods: state.in_pods,
        renewed: state.which(|member| member.renewed),
        behind: state.which(|member| member.behind),
        handed_over: budget.record.map(|record| record.target),
        replicas: state.replicas,
        expected: budget.expected,
        young: budget.expected.is_young(state.replicas)
            && scenario.mutation != Mutation::NoGraceAfterAScaleOut,
        let_go: scaling::let_go(state, budget),
        is_rejected: state.is_rejected,
        believes_refusals: scenario.mutation == Mutation::BelieveRefusals,
        nameless: scenario.mutation == Mutation::CountWhatLingersAsServing,
    }
}

/// Writes the grant. The write is accepted, because the replica's reading is up to date.
pub(crate) fn record(state: &mut State, slot: usize, scenario: &Scenario) {
    let Some(request) = state.requests[slot] else {
        return;
    };
    let (At::Decided(permit), Some(budget)) = (request.at, state.budget) else {
        return;
    };
    let rollout = match request.by {
        By::Stranger => false,
        By::Driver => true,
        By::Step { .. } => {
            let own = budget.grants[usize::from(request.target)].delete;
            own.is_some_and(|cause| cause.rollout)
        }
    };
    let what = For::Delete {
        stands: request.stands,
        rollout,
    };
    let (grants, is_fence) = ledger::issued(budget.grants, usize::from(request.target), what);
    let target = usize::from(request.target);
    let grants = if state.members[target].volume.is_going() {
        // The data goes with the pod.
        ledger::issued(grants, target, For::Replace).0
    } else {
        without_replacement_of_newer(&budget, grants, &request, scenario)
    };
    state.unfounded |= !permit.founded;
    state.requests[slot] = Some(match request.by {
        // The driver has its grant. Its delete is asked for like every other one.
        By::Driver => Request {
            by: By::Step { untouched: true },
            at: At::Called,
            age: 0,
            ..request
        },
        By::Stranger | By::Step { .. } => Request {
            at: At::Answered(permit),
            ..request
        },
    });
    // The driver chose before this permission was given, so it has to choose anew.
    for other in &mut state.requests {
        *other = other.filter(|other| other.by != By::Driver);
    }
    let is_own = request.by != By::Stranger;
    if !(is_own && matches!(state.driver, Driver::Cycle(_))) {
        state.driver = Driver::Idle;
    }
    let written = Budget {
        grants,
        expected: budget.expected.after(permit.expected),
        ..budget
    };
    if permit.announced {
        state.reckon_with_failure_of(usize::from(request.target));
    }
    state.put(written, is_fence, scenario.mutation);
}

/// By mutation: the delete of another incarnation takes the place of a replacement too.
fn without_replacement_of_newer(
    before: &Budget,
    mut grants: ledger::Open,
    request: &Request,
    scenario: &Scenario,
) -> ledger::Open {
    let target = usize::from(request.target);
    let newer = before.grants[target]
        .delete
        .is_none_or(|cause| !cause.stands);
    if scenario.mutation == Mutation::ReplaceDroppedByANewerUid && newer {
        grants[target].replace = None;
    }
    grants
}
