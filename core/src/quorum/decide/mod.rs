//! The decision: rules 1 to 17. The first rule that applies answers.
//!
//! Only rule 10 is asked after the rules that follow it. [`decide_early`] holds rules 1 to 4, which
//! need no look at any member, so that a foreign pod or a teardown never waits for etcd. [`decide`]
//! begins with them and goes on with those that need the snapshot. Each rule is a function named
//! after its number, or after what it says where it stands between two numbers.

mod early;
mod members;
mod request;
mod requests;
#[cfg(test)]
mod tests;

use super::disruption::Disruption;
use super::grants::Grants;
use super::snapshot::Snapshot;
use super::verdict::{Count, Verdict};

use request::Request;

pub use early::{decide_early, decide_without_ledger};
pub(in crate::quorum) use requests::by_override;

/// A rule. The result is `None` if the rule does not apply.
type Rule = fn(&Request<'_>) -> Option<Verdict>;

/// Rules 5 to 9, in order, which hold for every member alike. Those without a number refuse
/// restarts in place, pods that nobody would create again, pods whose successors would leave the
/// cluster, every pod while data is lost, and those that run while a member serves that was
/// emptied.
const BEFORE_MEMBERS: [Rule; 10] = [
    requests::rule_5_at_most_once,
    requests::rule_6_override,
    requests::rule_7_not_a_member,
    requests::restart_in_place,
    requests::outside_ordinals,
    requests::forces_new_cluster,
    requests::rule_8_shared_cluster,
    requests::lost_data,
    requests::refilled_member,
    requests::rule_9_untrusted_ledger,
];

/// Rules 11 to 16, in order, which look at the member or count voters. Rule 17 answers if none of
/// them applies.
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
/// assert_eq!(reason.slug(), "NoHeadroom");
/// ```
pub fn decide(snapshot: &Snapshot, grants: &Grants, disruption: &Disruption) -> Verdict {
    let name = &disruption.target.name;
    if let Some(verdict) = decide_early(&snapshot.circumstances, snapshot.pod(name), disruption) {
        return verdict;
    }
    let case = Request::new(snapshot, grants, disruption);
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
    Request::new(snapshot, grants, disruption).count(needed)
}
