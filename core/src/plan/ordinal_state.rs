//! The target ordinals of a StatefulSet: the pods that it should have, each with its member, its
//! state and its revision.
//!
//! A pod is *outdated* if its `controller-revision-hash` differs from the update revision.

use std::time::Duration;

use super::desired::Desired;
use super::state::{Absent, State};
use crate::quorum::evidence::Unanswered;
use crate::quorum::pod::Pod;
use crate::quorum::{GrantKind, Grants, Member, Ordinal, PodName, Role, Snapshot, TargetPod, Why};

/// A target ordinal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target<'a> {
    /// The ordinal.
    pub ordinal: Ordinal,
    /// The name of its pod, whether that exists or not.
    pub name: PodName,
    /// The pod, if it exists.
    pub pod: Option<&'a Pod>,
}

/// The most replicas for which steps are planned. etcd is run with five members and never with more
/// than some dozens. The API server accepts any number, and a mistyped one must cost neither memory
/// nor time.
pub const MOST_REPLICAS: u32 = 1000;

/// The target ordinals, the lowest first: as many as `spec.replicas`, from `first`
/// (`spec.ordinals.start`) on, but never more than [`MOST_REPLICAS`].
pub fn targets(snapshot: &Snapshot, first: Ordinal) -> impl Iterator<Item = Target<'_>> {
    (0..snapshot.replicas.min(MOST_REPLICAS)).map(move |index| {
        let ordinal = Ordinal(first.0.saturating_add(index));
        let pod = snapshot.pods.iter().find(|p| p.ordinal == Some(ordinal));
        let name = pod.map_or_else(
            || pod_name(&snapshot.cluster.name, ordinal),
            |pod| pod.name.clone(),
        );
        Target { ordinal, name, pod }
    })
}

/// The name that the StatefulSet controller gives the pod of an ordinal.
pub fn pod_name(set: &str, ordinal: Ordinal) -> PodName {
    PodName::new(format!("{set}-{}", ordinal.0))
}

/// A target ordinal, as the planner sees it.
pub(super) struct OrdinalState<'a> {
    pub(super) name: PodName,
    pub(super) ordinal: Ordinal,
    pub(super) pod: Option<&'a Pod>,
    pub(super) member: Option<&'a Member>,
    pub(super) state: State,
    pub(super) revision: Revision,
    pub(super) grant: Granted,
}

/// The revision of a target ordinal's pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Revision {
    /// The pod does not exist. The next one will have the update revision.
    NoPod,
    /// The pod has the update revision.
    Updated,
    /// The pod has another revision, and the rollout has to replace it.
    Outdated,
    /// The pod has another revision, and the partition lets it keep that.
    Kept,
}

/// Whether a member has a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Granted {
    /// The member has no grant.
    No,
    /// The grant belongs to a step of this rollout that has not been carried out. That step is
    /// finished before another begins.
    ToRollout,
    /// The grant belongs to another asker or serves another purpose. The rollout waits until it
    /// settles.
    ToAnother,
}

impl<'a> OrdinalState<'a> {
    pub(super) fn new(
        target: Target<'a>,
        snapshot: &'a Snapshot,
        grants: &'a Grants,
        desired: &'a Desired,
    ) -> Self {
        let Target { ordinal, name, pod } = target;
        let member = snapshot.member(&name);
        Self {
            ordinal,
            state: State::new(snapshot, pod, member),
            revision: Revision::new(ordinal, pod, snapshot, desired),
            grant: Granted::new(&name, pod, grants),
            pod,
            member,
            name,
        }
    }

    /// Whether the rollout may take this pod at all: the pod is outdated, is not terminating, no
    /// other asker has a grant for it, and its member is not in the middle of a defragmentation.
    pub(super) fn is_open(&self) -> bool {
        self.revision == Revision::Outdated
            && self.pod.is_some()
            && !matches!(
                self.state,
                State::Terminating | State::Failing(Why::Silent(Unanswered::Defragmenting))
            )
            && self.grant != Granted::ToAnother
    }

    /// Whether the member counts against `maxUnavailable`. An outdated member that the partition
    /// keeps does not: this rollout did not break it, and will not mend it.
    pub(super) fn is_out(&self) -> bool {
        let absent = match self.state {
            State::Serving => false,
            State::Missing | State::Terminating | State::Learning | State::Stuck => true,
            State::NotAMember
            | State::Dead
            | State::Starting
            | State::Failing(_)
            | State::Unknown(_) => self.revision != Revision::Kept,
        };
        absent || self.grant != Granted::No
    }

    /// Whether the pod is Ready, as Services and the StatefulSet controller see it.
    pub(super) fn is_ready(&self) -> bool {
        self.pod.is_some_and(|pod| pod.ready && !pod.terminating)
    }

    /// Whether the member should serve with the update revision and does not: its pod is updated,
    /// missing or terminating.
    pub(super) fn should_serve_updated(&self) -> bool {
        let updated = matches!(self.revision, Revision::NoPod | Revision::Updated);
        (updated && self.state != State::Serving) || self.state == State::Terminating
    }

    /// The time for which the member has served without a break, as far as its pod tells: since
    /// etcd's container started, and since the pod became Ready if it is. `None` if it tells
    /// neither.
    pub(super) fn served_for(&self) -> Option<Duration> {
        let pod = self.pod?;
        let up_for = pod.up_for.or(pod.etcd_age);
        match (up_for, pod.ready_for) {
            (Some(up_for), Some(ready)) => Some(up_for.min(ready)),
            (up_for, ready) => up_for.or(ready),
        }
    }

    pub(super) fn leads(&self) -> bool {
        self.member.is_some_and(|member| member.leader)
    }

    pub(super) fn role(&self) -> Option<Role> {
        self.member.map(|member| member.role)
    }

    /// The number of raft entries that the member is behind the leader.
    pub(super) fn lag(&self) -> u64 {
        self.member
            .and_then(|member| member.lag)
            .unwrap_or_default()
    }

    /// Whether a container other than etcd's is not ready.
    pub(super) fn has_sick_sidecar(&self) -> bool {
        self.pod.is_some_and(|pod| pod.sidecar_failing)
    }

    /// Whether etcd's container is ready and a sidecar is not, so that the sidecar alone keeps the
    /// pod from being Ready.
    pub(super) fn is_held_by_sidecar(&self) -> bool {
        self.pod
            .is_some_and(|pod| pod.etcd_ready && pod.sidecar_failing)
    }

    /// The pod as the target of a step.
    pub(super) fn target(&self) -> Option<TargetPod> {
        self.pod.map(|pod| TargetPod {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        })
    }

    pub(super) fn absent(&self) -> Absent {
        Absent {
            pod: self.name.clone(),
            state: self.state.clone(),
        }
    }

    pub(super) fn is_above(&self, desired: &Desired) -> bool {
        is_above(self.ordinal, desired)
    }
}

impl Revision {
    fn new(ordinal: Ordinal, pod: Option<&Pod>, snapshot: &Snapshot, desired: &Desired) -> Self {
        match pod {
            None => Self::NoPod,
            Some(pod) if pod.revision == snapshot.update_revision => Self::Updated,
            Some(_) if !is_above(ordinal, desired) => Self::Kept,
            Some(_) => Self::Outdated,
        }
    }
}

impl Granted {
    fn new(name: &PodName, pod: Option<&Pod>, grants: &Grants) -> Self {
        let Some(grant) = grants.get(name) else {
            return Self::No;
        };
        let of_this_step = |what: &GrantKind| match what {
            GrantKind::Delete { uid, rollout } => {
                *rollout && pod.is_some_and(|pod| pod.uid == *uid)
            }
            GrantKind::Defragment { .. } | GrantKind::Replace => false,
        };
        if grant.causes.iter().all(|cause| of_this_step(&cause.what)) {
            Self::ToRollout
        } else {
            Self::ToAnother
        }
    }
}

/// Whether the ordinal is above the partition, so that the rollout may take its pod.
fn is_above(ordinal: Ordinal, desired: &Desired) -> bool {
    let lowest = desired.first_ordinal.0.saturating_add(desired.partition);
    ordinal.0 >= lowest
}
