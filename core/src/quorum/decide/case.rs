//! A request with all that the rules look at, and the numbers that they reckon with.

use crate::quorum::condition::Condition;
use crate::quorum::disruption::{Actor, Disruption};
use crate::quorum::evidence::Unanswered;
use crate::quorum::expected_voters::{count, majority};
use crate::quorum::grants::Grants;
use crate::quorum::id::PodName;
use crate::quorum::membership::Membership;
use crate::quorum::pod::Containers;
use crate::quorum::process::ProcessState;
use crate::quorum::snapshot::{Member, Role, Snapshot};
use crate::quorum::tolerance::in_flight;
use crate::quorum::verdict::{Count, NotServing};
use crate::quorum::why::Why;

/// A request, with the data that the rules look at.
pub(super) struct Case<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) grants: &'a Grants,
    pub(super) disruption: &'a Disruption,
    /// The member in the target pod. `None` if the snapshot does not know the pod; it counts as a
    /// voter of unknown condition then.
    pub(super) member: Option<&'a Member>,
    /// The number of voters that count.
    pub(super) voters: u32,
    /// The number of serving voters without the target and without every other member that has a
    /// grant.
    pub(super) others: u32,
}

impl<'a> Case<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        grants: &'a Grants,
        disruption: &'a Disruption,
    ) -> Self {
        let target = &disruption.target.name;
        Self {
            snapshot,
            grants,
            disruption,
            member: snapshot.member(target),
            voters: snapshot.voters(grants, Some(target)),
            others: snapshot.serving(grants, Some(target)),
        }
    }

    pub(super) fn target(&self) -> &'a PodName {
        &self.disruption.target.name
    }

    pub(super) fn process(&self) -> ProcessState {
        self.member
            .map_or(ProcessState::Alive, |member| member.process)
    }

    /// Whether etcd's container runs and its client port refuses connections. Such a member may be
    /// initialising, and may already talk to its peers.
    pub(super) fn is_about_to_listen(&self, member: &Member) -> bool {
        let pod = member.pod_name().and_then(|pod| self.snapshot.pod(pod));
        let runs = pod.is_some_and(|pod| pod.containers == Containers::Running);
        runs && member.process == ProcessState::Starting
    }

    pub(super) fn role(&self) -> Role {
        self.member.map_or(Role::Voter, |member| member.role)
    }

    /// Whether the gate itself asks. The gate's deletes carry a resourceVersion as a precondition.
    pub(super) fn is_own_step(&self) -> bool {
        self.disruption.actor == Actor::Gate
    }

    pub(super) fn is_rollout_step(&self) -> bool {
        self.is_own_step() && self.disruption.kind.is_rollout_step()
    }

    /// An upper bound on the number of other voters that serve or may serve soon: those that serve,
    /// those that know no leader, those of which nothing is known, and those that are expected and
    /// were not seen.
    pub(super) fn others_that_may_serve(&self) -> u32 {
        let out = self
            .other_voters()
            .filter(|other| !other.may_serve())
            .count();
        count(self.other_voters().count() - out).saturating_add(self.unseen_voters())
    }

    /// The number of other voters that do not listen at their client port and may do so a moment
    /// later: their container runs, or their node reports nothing that rules it out. None of them
    /// is sure to listen ever.
    pub(super) fn others_about_to_listen(&self) -> u32 {
        let refusing = self.other_voters().filter(|other| refuses(other));
        let may_listen =
            refusing.filter(|other| self.is_about_to_listen(other) || !other.process.is_down());
        count(may_listen.count())
    }

    /// Whether the target has yet to start in a cluster that never worked: no member was ever seen,
    /// and no kubelet ever called one ready. Such a cluster has no quorum to lose.
    pub(super) fn never_formed(&self) -> bool {
        let unseen = !self.snapshot.formed && self.snapshot.expected.voters == 0;
        let unheard = self.snapshot.membership == Membership::Unread;
        unseen && unheard && self.process() == ProcessState::Starting
    }

    /// Whether the other voters may have a quorum with the target, as far as is known. They have
    /// none if all of them are known to be down or without a leader.
    pub(super) fn others_may_have_quorum(&self) -> bool {
        let without = |other: &Member| other.process.is_down() || other.leaderless;
        self.unseen_voters() > 0 || !self.other_voters().all(without)
    }

    /// The number of voters that are expected and were not seen.
    pub(super) fn unseen_voters(&self) -> u32 {
        let present = self
            .snapshot
            .members
            .iter()
            .filter(|m| m.role == Role::Voter);
        self.voters
            .max(self.snapshot.replicas)
            .saturating_sub(count(present.count()))
    }

    /// The number of other voters that run or may come back by themselves.
    pub(super) fn others_that_may_return(&self) -> u32 {
        let lasting = self
            .other_voters()
            .filter(|other| other.process != ProcessState::DeadForGood);
        count(lasting.count()).saturating_add(self.unseen_voters())
    }

    /// The number of other members with a grant.
    pub(super) fn others_with_a_grant(&self) -> u32 {
        count(in_flight(self.grants, Some(self.target())).len())
    }

    /// The majority of the smallest size that the cluster may have. The number of voters that count
    /// is an upper bound; rule 12 lets members go because a majority is out of reach, and needs a
    /// lower one.
    pub(super) fn smallest_majority(&self) -> u32 {
        majority(self.smallest_size())
    }

    /// The smallest size that the cluster may have, in voters: those of a confirmed list, but never
    /// fewer than the expected ones; without such a list the expected ones. Of a cluster that was
    /// never seen only `spec.replicas` is known.
    pub(super) fn smallest_size(&self) -> u32 {
        match (self.snapshot.membership, self.snapshot.expected.voters) {
            (Membership::Confirmed { voters }, expected) => voters.max(expected),
            (Membership::Stale { .. } | Membership::Unread, 0) => self.voters,
            (Membership::Stale { .. } | Membership::Unread, expected) => expected,
        }
    }

    /// The number of voters that the cluster can spare at the smallest size that it may have.
    pub(super) fn spare_at_smallest(&self) -> u32 {
        let voters = self.smallest_size().min(self.voters);
        voters.saturating_sub(majority(voters))
    }

    /// The voters other than the target. Members with a grant are among them, because the permitted
    /// disruption may never happen.
    pub(super) fn other_voters(&self) -> impl Iterator<Item = &'a Member> {
        let target = self.target();
        let is_target =
            |member: &Member| member.pod.as_ref().is_some_and(|pod| pod.name == *target);
        self.snapshot
            .members
            .iter()
            .filter(move |member| member.role == Role::Voter && !is_target(member))
    }

    /// The numbers behind a refusal, when `needed` voters would have to serve without the target.
    pub(super) fn count(&self, needed: u32) -> Count {
        let own = self.member.is_some_and(Member::serves_quorum);
        Count {
            target: self.target().to_string(),
            voters: self.voters,
            serving: self.others + u32::from(own),
            left: self.others,
            needed,
            missing: self.voters.saturating_sub(self.known_voters()),
            in_flight: in_flight(self.grants, Some(self.target())),
            not_serving: self
                .snapshot
                .members
                .iter()
                .filter(|member| member.role == Role::Voter)
                .filter_map(not_serving)
                .collect(),
        }
    }

    /// The number of voters that were seen, including learners that count because of their grant.
    pub(super) fn known_voters(&self) -> u32 {
        let known = self.snapshot.members.iter().filter(|member| {
            member.role == Role::Voter
                || member
                    .pod_name()
                    .is_some_and(|pod| pod != self.target() && self.grants.holds(pod))
        });
        count(known.count())
    }

    pub(super) fn majority(&self) -> u32 {
        majority(self.voters)
    }

    /// The number of members that have to serve without the target.
    pub(super) fn needed(&self) -> u32 {
        self.snapshot.needed(self.voters)
    }
}

/// Whether nothing listens at the member's client port.
pub(super) fn refuses(member: &Member) -> bool {
    member.condition == Condition::Failing(Why::Silent(Unanswered::Refused))
}

fn not_serving(member: &Member) -> Option<NotServing> {
    Some(NotServing {
        member: member.name.clone(),
        process: member.process,
        why: member.condition.why().cloned().or_else(|| {
            // A voter that is neither Serving nor amiss is Learning: it has been promoted and does
            // not know it yet.
            (!member.serves_quorum()).then_some(Why::NotPromoted)
        })?,
    })
}
