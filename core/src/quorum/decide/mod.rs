//! The decision: rules 1 to 17. The first rule that applies answers.
//!
//! Only rule 10 is asked after the rules that follow it. [`decide_early`] holds rules 1 to 4, which
//! need no look at any member, so that a foreign pod or a teardown never waits for etcd. [`decide`]
//! begins with them and goes on with those that need the snapshot. Each rule is a function named
//! after its number.

mod early;
mod members;
mod requests;
#[cfg(test)]
mod tests;

use super::condition::Condition;
use super::disruption::{Actor, Disruption};
use super::evidence::Unanswered;
use super::expected_voters::{count, majority};
use super::grants::Grants;
use super::id::PodName;
use super::membership::Membership;
use super::pod::Containers;
use super::process::ProcessState;
use super::snapshot::{Member, Role, Snapshot};
use super::tolerance::in_flight;
use super::verdict::{Count, NotServing, Verdict};
use super::why::Why;

pub use early::{decide_early, decide_without_ledger};
pub(in crate::quorum) use requests::by_override;

/// A rule. The result is `None` if the rule does not apply.
type Rule = fn(&Request<'_>) -> Option<Verdict>;

/// Rules 5 to 9, in order. Restarts in place are refused after rule 7, and pods whose successors
/// would leave the cluster. While data is lost, all
/// stay after rule 8.
const BEFORE_MEMBERS: [Rule; 8] = [
    requests::rule_5_at_most_once,
    requests::rule_6_override,
    requests::rule_7_not_a_member,
    requests::restart_in_place,
    requests::forces_new_cluster,
    requests::rule_8_shared_cluster,
    requests::lost_data,
    requests::rule_9_untrusted_ledger,
];

/// Rules 11 to 16, in order. Rule 17 answers if none of them applies.
const MEMBERS: [Rule; 6] = [
    members::rule_11_learner,
    members::rule_12_costs_nothing,
    members::rule_13_quorum_lost,
    members::rule_14_small_cluster,
    members::rule_15_majority,
    members::rule_16_no_evidence,
];

/// Decides on one disruption of a cluster, while the given grants are open.
///
/// A target that has a grant already is judged as if it had none: its own grant is left out of
/// every sum.
///
/// ```
/// use quorumgate_core::quorum::{
///     Actor, Disruption, Grace, Grants, Kind, Permitted, Snapshot, TargetPod, Verdict, decide,
///     example,
/// };
///
/// let cluster = Snapshot::assemble(&example::healthy("etcd-main", 3));
/// let drain = Disruption {
///     target: TargetPod { name: "etcd-main-2".into(), uid: "uid-2".into() },
///     kind: Kind::Evict,
///     actor: Actor::Stranger,
///     grace: Grace::Graceful,
///     precondition: None,
/// };
/// let none = Grants::default();
/// assert!(matches!(decide(&cluster, &none, &drain), Verdict::Allow(_)));
///
/// // Another member of the three is on its way out, so this one has to stay.
/// let deletion = Permitted::Delete { uid: "uid-1".into(), rollout: false };
/// let one = none.issue(&"etcd-main-1".into(), deletion, "anna".into(), String::new());
/// let Verdict::Wait(reason) = decide(&cluster, &one, &drain) else { panic!() };
/// assert_eq!(reason.slug(), "no-headroom");
/// ```
pub fn decide(snapshot: &Snapshot, grants: &Grants, disruption: &Disruption) -> Verdict {
    let name = &disruption.target.name;
    if let Some(verdict) = decide_early(&snapshot.circumstances, snapshot.pod(name), disruption) {
        return verdict;
    }
    let case = Request::of(snapshot, grants, disruption);
    if let Some(verdict) = BEFORE_MEMBERS.iter().find_map(|rule| rule(&case)) {
        return verdict;
    }
    let verdict = MEMBERS
        .iter()
        .find_map(|rule| rule(&case))
        .unwrap_or_else(|| members::rule_17_no_headroom(&case));
    match verdict {
        // Rule 10 is asked only about a yes. A refusal by the other rules names members and
        // numbers, which says more than "a budget allows nothing".
        Verdict::Allow(_) => requests::rule_10_disruption_budget(&case).unwrap_or(verdict),
        Verdict::Wait(_) | Verdict::Deny(_) => verdict,
    }
}

/// The numbers behind a refusal of `disruption`, when `needed` voters would have to serve without
/// the target.
pub(super) fn count_for(
    snapshot: &Snapshot,
    grants: &Grants,
    disruption: &Disruption,
    needed: u32,
) -> Count {
    Request::of(snapshot, grants, disruption).count(needed)
}

/// A request, with the data that the rules look at.
struct Request<'a> {
    snapshot: &'a Snapshot,
    grants: &'a Grants,
    disruption: &'a Disruption,
    /// The member in the target pod. `None` if the snapshot does not know the pod; it counts as a
    /// voter of unknown condition then.
    member: Option<&'a Member>,
    /// The number of voters that count.
    voters: u32,
    /// The number of serving voters without the target and without every other member that has a
    /// grant.
    others: u32,
}

impl<'a> Request<'a> {
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

    /// Whether etcd's container runs and its client port refuses connections. Such a member may be
    /// initialising, and may already talk to its peers.
    fn is_about_to_listen(&self, member: &Member) -> bool {
        let pod = member.pod_name().and_then(|pod| self.snapshot.pod(pod));
        let runs = pod.is_some_and(|pod| pod.containers == Containers::Running);
        runs && member.process == ProcessState::Starting
    }

    fn role(&self) -> Role {
        self.member.map_or(Role::Voter, |member| member.role)
    }

    /// Whether the gate itself asks. The gate's deletes carry a resourceVersion as a precondition.
    fn is_own_step(&self) -> bool {
        self.disruption.actor == Actor::Gate
    }

    fn is_rollout_step(&self) -> bool {
        self.is_own_step() && self.disruption.kind.is_rollout_step()
    }

    /// An upper bound on the number of other voters that serve or may serve soon: those that serve,
    /// those that know no leader, those of which nothing is known, and those that are expected and
    /// were not seen.
    fn others_that_may_serve(&self) -> u32 {
        let out = self
            .other_voters()
            .filter(|other| !may_serve(other))
            .count();
        count(self.other_voters().count() - out).saturating_add(self.unseen_voters())
    }

    /// The number of other voters that do not listen at their client port and may do so a moment
    /// later: their container runs, or their node reports nothing that rules it out. None of them
    /// is sure to listen ever.
    fn others_about_to_listen(&self) -> u32 {
        let refusing = self.other_voters().filter(|other| refuses(other));
        let may_listen =
            refusing.filter(|other| self.is_about_to_listen(other) || !other.process.is_down());
        count(may_listen.count())
    }

    /// Whether the target has yet to start in a cluster that never worked: no member was ever seen,
    /// and no kubelet ever called one ready. Such a cluster has no quorum to lose.
    fn never_formed(&self) -> bool {
        let unseen = !self.snapshot.formed && self.snapshot.expected.voters == 0;
        let unheard = self.snapshot.membership == Membership::Unread;
        unseen && unheard && self.process() == ProcessState::Starting
    }

    /// Whether the other voters may have a quorum with the target, as far as is known. They have
    /// none if all of them are known to be down or without a leader.
    fn others_may_have_quorum(&self) -> bool {
        let without = |other: &Member| other.process.is_down() || other.leaderless;
        self.unseen_voters() > 0 || !self.other_voters().all(without)
    }

    /// The number of voters that are expected and were not seen.
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

    /// The number of other voters that run or may come back by themselves.
    fn others_that_may_return(&self) -> u32 {
        let lasting = self
            .other_voters()
            .filter(|other| other.process != ProcessState::DeadForGood);
        count(lasting.count()).saturating_add(self.unseen_voters())
    }

    /// The number of other members with a grant.
    fn others_with_a_grant(&self) -> u32 {
        count(in_flight(self.grants, Some(self.target())).len())
    }

    /// The majority of the smallest size that the cluster may have. The number of voters that count
    /// is an upper bound; rule 12 lets members go because a majority is out of reach, and needs a
    /// lower one.
    fn smallest_majority(&self) -> u32 {
        majority(self.smallest_size())
    }

    /// The smallest size that the cluster may have, in voters: those of a confirmed list, but never
    /// fewer than the expected ones; without such a list the expected ones. Of a cluster that was
    /// never seen only `spec.replicas` is known.
    fn smallest_size(&self) -> u32 {
        match (self.snapshot.membership, self.snapshot.expected.voters) {
            (Membership::Confirmed { voters }, expected) => voters.max(expected),
            (Membership::Stale { .. } | Membership::Unread, 0) => self.voters,
            (Membership::Stale { .. } | Membership::Unread, expected) => expected,
        }
    }

    /// The number of voters that the cluster can spare at the smallest size that it may have.
    fn spare_at_smallest(&self) -> u32 {
        let voters = self.smallest_size().min(self.voters);
        voters.saturating_sub(majority(voters))
    }

    /// The voters other than the target. Members with a grant are among them, because the permitted
    /// disruption may never happen.
    fn other_voters(&self) -> impl Iterator<Item = &'a Member> {
        let target = self.target();
        let is_target =
            |member: &Member| member.pod.as_ref().is_some_and(|pod| pod.name == *target);
        self.snapshot
            .members
            .iter()
            .filter(move |member| member.role == Role::Voter && !is_target(member))
    }

    /// The numbers behind a refusal, when `needed` voters would have to serve without the target.
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

    /// The number of voters that were seen, including learners that count because of their grant.
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

/// Whether nothing listens at the member's client port.
fn refuses(member: &Member) -> bool {
    member.condition == Condition::Failing(Why::Silent(Unanswered::Refused))
}

/// Whether a voter serves, would serve as soon as there is a leader, or may serve for all that is
/// known.
pub(in crate::quorum) fn may_serve(member: &Member) -> bool {
    !member.process.is_down()
        && match &member.condition {
            Condition::Serving | Condition::Learning | Condition::Unknown(_) => true,
            Condition::Failing(why) => matches!(
                why,
                Why::NoLeader
                    | Why::OtherLeader { .. }
                    | Why::Lagging { .. }
                    | Why::NotReady
                    | Why::Silent(Unanswered::Defragmenting)
            ),
        }
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
