//! The state of a target ordinal: the snapshot's findings in the terms of a rollout.

use crate::quorum::evidence::Unanswered;
use crate::quorum::pod::Pod;
use crate::quorum::{Condition, Member, PodName, ProcessState, Role, Snapshot, Why};

/// The state of a target ordinal. `Display` completes the sentence "etcd-main-0 …".
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum State {
    /// The pod does not exist.
    #[display("has no pod")]
    Missing,
    /// The pod is terminating.
    #[display("is terminating")]
    Terminating,
    /// The member is a voter that proved that it takes part in quorum.
    #[display("serves")]
    Serving,
    /// The member is a learner that catches up.
    #[display("is a learner that catches up")]
    Learning,
    /// The member is a learner that has made no progress for the progress deadline.
    #[display("is a learner that makes no progress")]
    Stuck,
    /// The pod is proven not to be a member. It may be about to join.
    #[display("is not a member of the cluster")]
    NotAMember,
    /// The process does not run.
    #[display("is dead")]
    Dead,
    /// The process has not started in this incarnation.
    #[display("is starting")]
    Starting,
    /// The process runs, and the member is known not to serve.
    #[display("does not serve ({_0})")]
    Failing(Why),
    /// The process may run, and nobody knows whether the member serves.
    #[display("is not known to serve ({_0})")]
    Unknown(Why),
}

/// A member that does not serve or has no pod. `Display` is a clause: "etcd-main-0 has no pod".
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{pod} {state}")]
pub struct Absent {
    /// The name of the member's pod.
    pub pod: PodName,
    /// The state of the member.
    pub state: State,
}

impl State {
    /// The state of an ordinal's pod and of the member in it.
    pub(super) fn new(snapshot: &Snapshot, pod: Option<&Pod>, member: Option<&Member>) -> Self {
        let Some(pod) = pod else {
            return Self::Missing;
        };
        if pod.terminating {
            return Self::Terminating;
        }
        if snapshot.not_members.contains(&pod.name) {
            return Self::NotAMember;
        }
        match member {
            Some(member) => Self::of_member(snapshot, member),
            None => Self::Unknown(Why::NotListed),
        }
    }

    fn of_member(snapshot: &Snapshot, member: &Member) -> Self {
        if member.serves_quorum() {
            return Self::Serving;
        }
        match member.process {
            ProcessState::Dead | ProcessState::DeadForGood => return Self::Dead,
            ProcessState::Starting => return Self::Starting,
            ProcessState::Alive | ProcessState::Elsewhere => {}
        }
        match &member.condition {
            Condition::Failing(why) => Self::Failing(why.clone()),
            Condition::Unknown(why) => Self::Unknown(why.clone()),
            Condition::Serving | Condition::Learning if snapshot.is_stuck(member) => Self::Stuck,
            Condition::Serving | Condition::Learning => Self::Learning,
        }
    }

    /// Whether the process is known not to serve yet or any more: dead or starting.
    pub(super) fn is_down(&self) -> bool {
        matches!(self, Self::Dead | Self::Starting)
    }

    /// Whether the process answered. A process that crashes again and again does not get that far.
    /// Nor does a sound one that was restarted without a quorum: etcd serves no client before it
    /// has found one.
    pub(super) fn answers(&self) -> bool {
        match self {
            Self::Missing | Self::Terminating | Self::Dead | Self::Starting => false,
            Self::Serving | Self::Learning | Self::Stuck | Self::NotAMember => true,
            Self::Failing(why) | Self::Unknown(why) => !matches!(
                why,
                Why::Unstarted
                    | Why::NoPod
                    | Why::Elsewhere
                    | Why::RefusesThoughReady
                    | Why::RefusesAsAllDo
                    | Why::Silent(
                        Unanswered::NoAddress
                            | Unanswered::Refused
                            | Unanswered::Deadline
                            | Unanswered::Mute
                            | Unanswered::NotAsked
                    )
            ),
        }
    }

    /// Whether the member has been created and has yet to become a voter.
    pub(super) fn is_joining(&self, role: Option<Role>) -> bool {
        match self {
            Self::Missing | Self::Learning | Self::Stuck | Self::NotAMember => true,
            Self::Dead | Self::Starting | Self::Failing(_) | Self::Unknown(_) => {
                role == Some(Role::Learner)
            }
            Self::Serving | Self::Terminating => false,
        }
    }
}
