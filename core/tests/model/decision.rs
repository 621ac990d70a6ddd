//! The shipped decision: the questions that it gets, and its answers.

use std::time::Duration;

use quorumgate_core::plan::{Desired, MaxUnavailable, Next, NonServing, Step, next_step};
use quorumgate_core::quorum::{
    Actor, Allowance, Basis, Circumstances, ClaimDeletion, DataInPods, Disruption, ExpectedVoters,
    Grace, Grants, Kind, ProcessState, Reason, Role, Scope, Snapshot, TargetPod, Teardown, Trust,
    Verdict, decide, decide_claim, decide_with_data_in_pod, decide_with_terminating_claim,
    replacement_of,
};

use crate::appearance::{Scene, pod_name, uid};
use crate::ledger::{self, Open};
use crate::memo::{Memo, remembered};
use crate::steps::Steps;

/// A question, with everything that the answer can depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    pub(crate) scene: Scene,
    pub(crate) open: Open,
    pub(crate) ledger: Ledger,
    pub(crate) target: usize,
    pub(crate) what: What,
}

/// The state of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ledger {
    Trusted,
    Untrusted,
    /// There is no ledger.
    Missing,
    /// By mutation: there is no ledger, and the cluster is taken for one that is not enrolled.
    Ignored,
}

/// The disruption that is asked for, and the asker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// A delete by a stranger.
    Delete,
    /// A delete by the gate, without a grant to a rollout.
    OwnDelete,
    /// A delete by the gate, for a rollout.
    Step,
    /// A replacement of a member, by the gate.
    Replace,
    /// The delete of the claim of a member that is replaced, by the gate.
    DeleteClaim,
    /// A defragmentation, by the gate.
    Defragment,
}

impl What {
    pub(crate) fn is_own(self) -> bool {
        match self {
            Self::Delete => false,
            Self::OwnDelete | Self::Step | Self::Replace | Self::DeleteClaim | Self::Defragment => {
                true
            }
        }
    }
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// Yes, without a grant.
    Waived,
    /// Yes, once the grant is recorded.
    Granted { basis: Basis, found: Found },
    /// No, and whether by the exception of rule 12.
    Refused { may_complete: bool, found: Found },
}

/// Further findings of the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The expected voters, with the voters seen now.
    pub(crate) expected: (u8, u8),
    /// Whether the target is known not to run.
    pub(crate) is_down: bool,
    pub(crate) is_learner: bool,
}

/// The answer of the shipped code.
pub(crate) fn rule(question: Question) -> Ruling {
    thread_local!(static MEMO: Memo<Question, Ruling> = Memo::default());
    remembered(&MEMO, question, |question| {
        let teardown = question.scene.let_go.has(question.target);
        let mut snapshot = snapshot(&question.scene, question.ledger);
        snapshot.circumstances.teardown = teardown.then_some(Teardown::ScaleIn);
        let grants = ledger::grants(&question.open);
        let verdict = judge(&snapshot, &grants, &question);
        let found = found(&snapshot, question.target);
        match verdict {
            Verdict::Allow(Allowance::Waived(_)) => Ruling::Waived,
            Verdict::Allow(Allowance::Grant(basis)) => Ruling::Granted { basis, found },
            Verdict::Wait(reason) | Verdict::Deny(reason) => Ruling::Refused {
                may_complete: matches!(reason, Reason::MayComplete(_)),
                found,
            },
        }
    })
}

/// The verdict of the shipped judge. A delete that takes the member's data along, or may, is judged
/// by that too.
fn judge(snapshot: &Snapshot, grants: &Grants, question: &Question) -> Verdict {
    let (target, pod) = (question.target, pod_name(question.target));
    let goes = question.scene.volumes[target].is_going();
    let in_pods = question.scene.in_pods;
    match question.what {
        What::Replace => {
            let disruption = replacement_of(snapshot, &pod, Actor::Gate);
            decide_with_terminating_claim(snapshot, grants, &disruption)
        }
        What::DeleteClaim => {
            let deletion = ClaimDeletion {
                claim: format!("data-{pod}"),
                members: vec![pod],
                terminating: goes,
                other_uid: false,
                collected: false,
                waiting_pod: None,
                disowned: None,
                actor: Actor::Gate,
            };
            decide_claim(snapshot, grants, &deletion)
        }
        what => {
            let disruption = disruption(target, what);
            if in_pods && !grants.permit_replacement(&pod) {
                decide_with_data_in_pod(snapshot, grants, &disruption, DataInPods::Replace)
            } else if goes || grants.permit_replacement(&pod) {
                decide_with_terminating_claim(snapshot, grants, &disruption)
            } else {
                decide(snapshot, grants, &disruption)
            }
        }
    }
}

/// The expected voters, with the voters that are seen.
pub(crate) fn expected_of(scene: Scene) -> (u8, u8) {
    thread_local!(static MEMO: Memo<Scene, (u8, u8)> = Memo::default());
    remembered(&MEMO, scene, |scene| {
        let snapshot = snapshot(&scene, Ledger::Trusted);
        expected(&snapshot)
    })
}

/// The choices of a rollout's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Strategy {
    /// Whether outdated members that do not serve go in one cycle, as far as they may.
    pub(crate) all_at_once: bool,
    pub(crate) max_unavailable: u8,
}

/// The members that the shipped planner would take in the next cycle, in order.
pub(crate) fn steps(scene: Scene, open: Open, strategy: Strategy) -> Steps {
    thread_local!(static MEMO: Memo<(Scene, Open, Strategy), Steps> = Memo::default());
    remembered(&MEMO, (scene, open, strategy), |(scene, open, strategy)| {
        let snapshot = snapshot(&scene, Ledger::Trusted);
        let desired = Desired {
            non_serving: if strategy.all_at_once {
                NonServing::AllAtOnce
            } else {
                NonServing::OneAtATime
            },
            max_unavailable: MaxUnavailable::Members(strategy.max_unavailable.into()),
            ..Desired::by_default()
        };
        match next_step(&snapshot, &ledger::grants(&open), &desired) {
            Next::Done | Next::Wait(_) => Steps::default(),
            Next::Act(steps) => {
                let member_of = |step: &Step| {
                    let named = |n: &usize| pod_name(*n) == step.pod.name;
                    (0..scene.listed.len()).find(named).unwrap()
                };
                Steps::new(steps.iter().map(member_of))
            }
        }
    })
}

/// The snapshot that the shipped code would take.
pub(crate) fn snapshot(scene: &Scene, ledger: Ledger) -> Snapshot {
    let untrusted = Trust::Untrusted {
        remaining: Some(Duration::from_secs(1)),
    };
    let (scope, trust) = match ledger {
        Ledger::Trusted => (Scope::Enrolled, Trust::Trusted),
        Ledger::Untrusted => (Scope::Enrolled, untrusted),
        Ledger::Missing => (Scope::NoLedger, untrusted),
        Ledger::Ignored => (Scope::Foreign, untrusted),
    };
    let circumstances = Circumstances {
        scope,
        ledger: trust,
        ..Circumstances::ordinary()
    };
    Snapshot::assemble(&scene.observation(circumstances))
}

fn disruption(target: usize, what: What) -> Disruption {
    Disruption {
        target: TargetPod {
            name: pod_name(target),
            uid: uid(target, true),
        },
        kind: match what {
            What::Delete | What::OwnDelete => Kind::Delete,
            What::Step => Kind::RolloutStep,
            What::Replace | What::DeleteClaim => Kind::Replace,
            What::Defragment => Kind::Defragment,
        },
        actor: if what.is_own() {
            Actor::Gate
        } else {
            Actor::Stranger
        },
        grace: Grace::Graceful,
        precondition: Some(uid(target, true)),
    }
}

fn expected(snapshot: &Snapshot) -> (u8, u8) {
    let ExpectedVoters { voters, replicas } = snapshot.expected;
    (
        u8::try_from(voters).unwrap(),
        u8::try_from(replicas).unwrap(),
    )
}

fn found(snapshot: &Snapshot, target: usize) -> Found {
    let member = snapshot.member(&pod_name(target));
    Found {
        expected: expected(snapshot),
        is_down: member.is_some_and(|m| {
            matches!(
                m.process,
                ProcessState::Dead | ProcessState::DeadForGood | ProcessState::Starting
            )
        }),
        is_learner: member.is_some_and(|m| m.role == Role::Learner),
    }
}
