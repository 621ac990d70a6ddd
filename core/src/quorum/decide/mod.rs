//! The decision: rules 1 to 17. The first rule that applies answers.
//!
//! Only rule 10 is asked after the rules that follow it. [`decide_early`] holds rules 1 to 4, which
//! need no look at any member, so that a foreign pod or a teardown never waits for etcd. [`decide`]
//! begins with them and goes on with those that need the snapshot. Each rule is a function named
//! after its number, or after what it says where it stands between two numbers.

mod case;
mod early;
mod general;
mod members;
#[cfg(test)]
mod tests;

use super::disruption::Disruption;
use super::grants::Grants;
use super::snapshot::Snapshot;
use super::verdict::{Count, Verdict};

use case::Case;

pub use early::{decide_early, decide_without_ledger};
pub(in crate::quorum) use general::by_override;

/// A rule. The result is `None` if the rule does not apply.
type Rule = fn(&Case<'_>) -> Option<Verdict>;

/// Rules 5 to 9, in order, which hold for every member alike. Those without a number refuse
/// restarts in place, pods that nobody would create again, pods whose successors would leave the
/// cluster, every pod while data is lost, and those that run while a member serves that was
/// emptied. One lets the member go that starts alone after a loss of quorum.
const BEFORE_MEMBERS: [Rule; 11] = [
    general::rule_5_at_most_once,
    general::rule_6_override,
    general::rule_7_not_a_member,
    general::restart_in_place,
    general::outside_ordinals,
    general::forces_new_cluster,
    general::rule_8_shared_cluster,
    general::recovery,
    general::lost_data,
    general::refilled_member,
    general::rule_9_untrusted_ledger,
];

/// Rules 11 to 16, in order, which look at the member or count voters. Rule 17 answers if none of
/// them applies. The one without a number is that of a member that leaves for good.
const MEMBERS: [Rule; 7] = [
    members::removal,
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
///     Actor, Disruption, Grace, Grants, Kind, GrantKind, Snapshot, TargetPod, Verdict, decide,
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
/// let deletion = GrantKind::Delete { uid: "uid-1".into(), rollout: false };
/// let one = none.issue(&"etcd-main-1".into(), deletion, "anna".into(), String::new());
/// let Verdict::Wait(reason) = decide(&cluster, &one, &drain) else { panic!() };
/// assert_eq!(reason.slug(), "NoHeadroom");
/// ```
pub fn decide(snapshot: &Snapshot, grants: &Grants, disruption: &Disruption) -> Verdict {
    let name = &disruption.target.name;
    if let Some(verdict) = decide_early(&snapshot.circumstances, snapshot.pod(name), disruption) {
        return verdict;
    }
    let case = Case::new(snapshot, grants, disruption);
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
        Verdict::Allow(_) => general::rule_10_disruption_budget(&case).unwrap_or(verdict),
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
    Case::new(snapshot, grants, disruption).count(needed)
}
