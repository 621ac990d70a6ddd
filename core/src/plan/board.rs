//! The planner's view of a rollout: every target ordinal with its pod, its member, its state and
//! its revision.
//!
//! A *target ordinal* is an ordinal that the StatefulSet should have a pod for. A pod is *outdated*
//! if its `controller-revision-hash` differs from the update revision.

use crate::quorum::pod::Pod;
use crate::quorum::{Grants, Member, Ordinal, Permitted, PodName, Role, Snapshot, TargetPod};

use super::absence::{Absent, Unavailability};
use super::desired::Desired;
use super::state::State;
use super::targets::{Target, targets};

/// The data from which the next step is chosen.
pub(super) struct Board<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) grants: &'a Grants,
    pub(super) desired: &'a Desired,
    /// The target ordinals, the lowest first.
    pub(super) slots: Vec<Slot<'a>>,
}

/// A target ordinal.
pub(super) struct Slot<'a> {
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

/// The progress of a rollout, in pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The number of pods above the partition that have the update revision and are not
    /// terminating.
    pub updated: u32,
    /// The number of pods that there should be above the partition.
    pub targets: u32,
}

/// The progress of a rollout. `None` if there is no update revision.
pub fn progress(snapshot: &Snapshot, desired: &Desired) -> Option<Progress> {
    snapshot.update_revision.as_ref()?;
    let grants = Grants::default();
    Some(Board::of(snapshot, &grants, desired).progress())
}

impl<'a> Board<'a> {
    pub(super) fn of(snapshot: &'a Snapshot, grants: &'a Grants, desired: &'a Desired) -> Self {
        let slots = targets(snapshot, desired.first_ordinal)
            .map(|target| Slot::of(target, snapshot, grants, desired))
            .collect();
        Self {
            snapshot,
            grants,
            desired,
            slots,
        }
    }

    pub(super) fn progress(&self) -> Progress {
        let partition = self.desired.partition;
        let updated = self
            .slots
            .iter()
            .filter(|slot| slot.revision == Revision::Updated && slot.state != State::Terminating)
            .filter(|slot| slot.is_above(self.desired));
        Progress {
            updated: count(updated.count()),
            targets: self.snapshot.replicas.saturating_sub(partition),
        }
    }

    /// The number of unavailable members and its limit. `aside`, the next one to go, is not
    /// counted. Pods beyond the target ordinals are counted if they have a grant.
    pub(super) fn out(&self, aside: Option<&PodName>) -> Unavailability {
        let here = self
            .slots
            .iter()
            .filter(|slot| Some(&slot.name) != aside && slot.is_out());
        let elsewhere = self
            .grants
            .iter()
            .filter(|(pod, _)| self.slots.iter().all(|slot| slot.name != **pod));
        let limit = self
            .desired
            .max_unavailable
            .limit(self.snapshot.replicas, self.desired.partition);
        Unavailability {
            out: count(here.count() + elsewhere.count()),
            limit,
        }
    }

    /// The updated members that serve and whose pods are not Ready. Clients that use a Service do
    /// not reach them.
    pub(super) fn unready(&self) -> Vec<&Slot<'a>> {
        self.slots
            .iter()
            .filter(|slot| slot.revision == Revision::Updated && slot.grant == Granted::No)
            .filter(|slot| slot.state == State::Serving && !slot.is_ready())
            .collect()
    }

    /// The target ordinals that satisfy `wanted`.
    pub(super) fn in_state(&self, wanted: impl Fn(&Slot<'a>) -> bool) -> Vec<Absent> {
        self.slots
            .iter()
            .filter(|slot| wanted(slot))
            .map(Slot::absent)
            .collect()
    }
}

impl<'a> Slot<'a> {
    fn of(
        target: Target<'a>,
        snapshot: &'a Snapshot,
        grants: &'a Grants,
        desired: &'a Desired,
    ) -> Self {
        let Target { ordinal, name, pod } = target;
        let member = snapshot.member(&name);
        Self {
            ordinal,
            state: State::of(snapshot, pod, member),
            revision: Revision::of(ordinal, pod, snapshot, desired),
            grant: Granted::of(&name, pod, grants),
            pod,
            member,
            name,
        }
    }

    /// Whether the rollout may take this pod at all: the pod is outdated, is not terminating, and
    /// no other asker has a grant for it.
    pub(super) fn is_open(&self) -> bool {
        self.revision == Revision::Outdated
            && self.pod.is_some()
            && self.state != State::Terminating
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

    fn is_above(&self, desired: &Desired) -> bool {
        is_above(self.ordinal, desired)
    }
}

impl Revision {
    fn of(ordinal: Ordinal, pod: Option<&Pod>, snapshot: &Snapshot, desired: &Desired) -> Self {
        match pod {
            None => Self::NoPod,
            Some(pod) if pod.revision == snapshot.update_revision => Self::Updated,
            Some(_) if !is_above(ordinal, desired) => Self::Kept,
            Some(_) => Self::Outdated,
        }
    }
}

impl Granted {
    fn of(name: &PodName, pod: Option<&Pod>, grants: &Grants) -> Self {
        let Some(grant) = grants.of(name) else {
            return Self::No;
        };
        let of_this_step = |what: &Permitted| match what {
            Permitted::Delete { uid, rollout } => {
                *rollout && pod.is_some_and(|pod| pod.uid == *uid)
            }
            Permitted::Defragment { .. } | Permitted::Replace => false,
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

pub(super) fn count(members: usize) -> u32 {
    u32::try_from(members).unwrap_or(u32::MAX)
}
