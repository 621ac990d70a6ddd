//! The decision: rules 1 to 17, in order; the first that applies answers. Only rule 10 waits for the rules after it.
//!
//! [`decide_early`] holds the rules that look at no member, so that a foreign or torn-down pod never waits for etcd. [`decide`] begins with
//! them and goes on with those that need the snapshot. Each rule is a function of its own, named after its number.

mod early;
mod members;
mod requests;
#[cfg(test)]
mod tests;

use super::condition::Condition;
use super::disruption::{Actor, Disruption};
use super::evidence::Unanswered;
use super::grants::Grants;
use super::id::PodName;
use super::membership::Membership;
use super::pod::Containers;
use super::process::ProcessState;
use super::snapshot::{Member, Role, Snapshot};
use super::tolerance::{count, in_flight, majority};
use super::verdict::{Count, NotServing, Verdict};
use super::why::Why;

pub use early::{decide_early, decide_without_ledger};

/// A rule: its verdict where it applies.
type Rule = fn(&Case<'_>) -> Option<Verdict>;

/// Rules 5 to 9 in order. What restarts a member in place ends after rule 7.
const BEFORE_MEMBERS: [Rule; 6] = [
    requests::rule_5_at_most_once,
    requests::rule_6_override,
    requests::rule_7_not_a_member,
    requests::restart_in_place,
    requests::rule_8_shared_cluster,
    requests::rule_9_cold_ledger,
];

/// Rules 11 to 16 in order. Rule 17 answers what is left.
const MEMBERS: [Rule; 6] = [
    members::rule_11_learner,
    members::rule_12_costs_nothing,
    members::rule_13_quorum_lost,
    members::rule_14_small_cluster,
    members::rule_15_majority,
    members::rule_16_no_evidence,
];

/// The verdict on one disruption of a cluster in which the given grants are open.
///
/// A target that already has a grant is judged again as if it had none: its own grant is left out of every sum.
pub fn decide(snapshot: &Snapshot, grants: &Grants, disruption: &Disruption) -> Verdict {
    let name = &disruption.target.name;
    if let Some(verdict) = decide_early(&snapshot.circumstances, snapshot.pod(name), disruption) {
        return verdict;
    }
    let case = Case::of(snapshot, grants, disruption);
    if let Some(verdict) = BEFORE_MEMBERS.iter().find_map(|rule| rule(&case)) {
        return verdict;
    }
    let verdict = MEMBERS
        .iter()
        .find_map(|rule| rule(&case))
        .unwrap_or_else(|| members::rule_17_no_headroom(&case));
    match verdict {
        // Rule 10 has the last word over a yes. A no of the members' says more than "a budget allows nothing".
        Verdict::Allow(_) => requests::rule_10_disruption_budget(&case).unwrap_or(verdict),
        Verdict::Wait(_) | Verdict::Deny(_) => verdict,
    }
}

/// One question with everything that the rules look at.
struct Case<'a> {
    snapshot: &'a Snapshot,
    grants: &'a Grants,
    disruption: &'a Disruption,
    /// The member; `None` for a pod that the snapshot does not know, which counts as an unknown voter.
    member: Option<&'a Member>,
    /// Voters that count.
    voters: u32,
    /// Serving voters without this member and without every other granted one.
    others: u32,
}

impl<'a> Case<'a> {
    fn of(snapshot: &'a Snapshot, grants: &'a Grants, disruption: &'a Disruption) -> Self {
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

    fn target(&self) -> &'a PodName {
        &self.disruption.target.name
    }

    fn process(&self) -> ProcessState {
        self.member
            .map_or(ProcessState::Alive, |member| member.process)
    }

    /// Whether a member's container runs and its client port refuses: it may be in its initialisation, and may talk to its peers already.
    fn is_about_to_listen(&self, member: &Member) -> bool {
        let pod = member.pod_name().and_then(|pod| self.snapshot.pod(pod));
        let runs = pod.is_some_and(|pod| pod.containers == Containers::Running);
        runs && member.process == ProcessState::Starting
    }

    fn role(&self) -> Role {
        self.member.map_or(Role::Voter, |member| member.role)
    }

    /// A step of the gate's own, fenced by resourceVersion.
    fn is_own_step(&self) -> bool {
        self.disruption.actor == Actor::Gate
    }

    fn is_rollout_step(&self) -> bool {
        self.is_own_step() && self.disruption.kind.is_rollout_step()
    }

    /// The others that serve, or that would as soon as there is a leader to follow, or that may for all that is known: also those that are
    /// expected and were not seen.
    fn others_that_may_serve(&self) -> u32 {
        let out = self
            .other_voters()
            .filter(|other| !may_serve(other))
            .count();
        count(self.other_voters().count() - out).saturating_add(self.unseen_voters())
    }

    /// The others that run and do not listen yet, and those that may for all that is known: they refuse, and nobody says that they do not run. (Of
    /// one without a pod nobody says anything: its next pod may have been made since the pods were read.)
    fn others_about_to_listen(&self) -> (u32, u32) {
        let refusing = || self.other_voters().filter(|other| refuses(other));
        let sure = refusing().filter(|other| self.is_about_to_listen(other));
        let maybe = refusing().filter(|other| !other.process.is_down());
        (count(sure.count()), count(maybe.count()))
    }

    /// Whether the target has yet to start in a cluster that was never seen, and of which no kubelet ever called a member ready: there is no
    /// quorum to lose.
    fn never_formed(&self) -> bool {
        let unseen = !self.snapshot.formed && self.snapshot.latch.voters == 0;
        let unheard = self.snapshot.membership == Membership::Unread;
        unseen && unheard && self.process() == ProcessState::Starting
    }

    /// Whether any of the others serves, or may for all that is known.
    fn others_may_have_quorum(&self) -> bool {
        let without = |other: &Member| other.process.is_down() || other.leaderless;
        self.unseen_voters() > 0 || !self.other_voters().all(without)
    }

    /// Voters that are expected and that nobody saw.
    fn unseen_voters(&self) -> u32 {
        let present = self
            .snapshot
            .members
            .iter()
            .filter(|m| m.role == Role::Voter);
        self.voters
            .max(self.snapshot.replicas)
            .saturating_sub(count(present.count()))
    }

    /// The others that are up or may come back by themselves.
    fn others_that_may_return(&self) -> u32 {
        let lasting = self
            .other_voters()
            .filter(|other| other.process != ProcessState::DeadForGood);
        count(lasting.count()).saturating_add(self.unseen_voters())
    }

    /// The others that are on their way out by a grant.
    fn others_with_a_grant(&self) -> u32 {
        count(in_flight(self.grants, Some(self.target())).len())
    }

    /// The smallest majority that there may be. Without a list from a quorum the voters that count are a safe guess, and too many for a
    /// rule that lets members go because a majority is out of reach.
    fn smallest_majority(&self) -> u32 {
        majority(self.smallest_size())
    }

    /// Of a cluster that nobody ever saw, the size that its owner asked for is all there is to go by.
    fn smallest_size(&self) -> u32 {
        match (self.snapshot.membership, self.snapshot.latch.voters) {
            (Membership::Confirmed { .. }, _)
            | (Membership::Stale { .. } | Membership::Unread, 0) => self.voters,
            (Membership::Stale { .. } | Membership::Unread, latch) => latch,
        }
    }

    /// How many voters the smallest cluster that it may be can spare.
    fn spare_at_smallest(&self) -> u32 {
        let voters = self.smallest_size().min(self.voters);
        voters.saturating_sub(majority(voters))
    }

    /// The voters that the target leaves behind. One with a grant is among them: what it was granted for may never happen.
    fn other_voters(&self) -> impl Iterator<Item = &'a Member> {
        let target = self.target();
        let is_target =
            |member: &Member| member.pod.as_ref().is_some_and(|pod| pod.name == *target);
        self.snapshot
            .members
            .iter()
            .filter(move |member| member.role == Role::Voter && !is_target(member))
    }

    fn count(&self, needed: u32) -> Count {
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

    /// Voters seen, and learners that count as such because of their grant.
    fn known_voters(&self) -> u32 {
        let known = self.snapshot.members.iter().filter(|member| {
            member.role == Role::Voter
                || member
                    .pod_name()
                    .is_some_and(|pod| pod != self.target() && self.grants.holds(pod))
        });
        count(known.count())
    }

    fn majority(&self) -> u32 {
        majority(self.voters)
    }
}

/// Whether nothing listens at a member's client port.
fn refuses(member: &Member) -> bool {
    member.condition == Condition::Failing(Why::Silent(Unanswered::Refused))
}

/// Whether a voter serves, would as soon as there is a leader to follow, or may for all that is known.
fn may_serve(member: &Member) -> bool {
    !member.process.is_down()
        && match &member.condition {
            Condition::Serving | Condition::Learning | Condition::Unknown(_) => true,
            Condition::Failing(why) => matches!(
                why,
                Why::NoLeader | Why::OtherLeader { .. } | Why::Lagging { .. } | Why::NotReady
            ),
        }
}

fn not_serving(member: &Member) -> Option<NotServing> {
    Some(NotServing {
        member: member.name.clone(),
        process: member.process,
        why: member.condition.why().cloned().or_else(|| {
            // Only a learner can be neither serving nor amiss, and a promoted one says so.
            (!member.serves_quorum()).then_some(Why::NotPromoted)
        })?,
    })
}
