//! The rules about a change of a StatefulSet.
//!
//! A change that takes members which serve is announced first, whoever makes it: a delete of the
//! StatefulSet and a scale to 0 as well as a scale-in. A change that takes nobody who serves needs
//! no announcement.

use super::super::circumstances::{Scope, Teardown};
use super::super::id::ClusterRef;
use super::super::intent::Intent;
use super::super::serving::Serving;
use super::super::verdict::{
    Allowance, Basis, DataTaken, NamedOwner, Reason, TeardownBy, Unannounced, Verdict, Waiver,
};

use super::change::Change;
use super::listed::Listed;

/// The facts about a StatefulSet and its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatefulSetInput {
    /// The StatefulSet.
    pub set: ClusterRef,
    /// Whether the StatefulSet is an enrolled cluster (rule 1).
    pub scope: Scope,
    /// The teardown of its namespace or of its owner, if there is one (rule 3).
    pub teardown: Option<Teardown>,
    /// Whether the garbage collector deletes the StatefulSet with an owner that lived while the
    /// StatefulSet named it. The garbage collector has read the owner itself, uncached (rule 3).
    pub collected: bool,
    /// Whether a valid override is in force (rule 6).
    pub overridden: bool,
    /// The announcement that counts.
    pub intent: Option<Intent>,
    /// The reason why an announcement that exists does not count.
    pub ignored: Option<String>,
    /// The owners.
    pub owner: Owner,
    /// Whether the budget allows a teardown that nobody announced.
    pub teardown_policy: TeardownPolicy,
    /// Whether the claims of a formed cluster are deleted by the change: with the StatefulSet, or
    /// with its pods (`whenDeleted` and `whenScaled` of `persistentVolumeClaimRetentionPolicy`).
    pub takes_data: Option<DataTaken>,
    /// The members of the ordinals that would leave.
    pub listed: Listed,
    /// The members that serve. `None` if no look at the members was made yet.
    pub serving: Option<Serving>,
}

/// Whether a cluster may be torn down without an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TeardownPolicy {
    /// A teardown is announced.
    #[default]
    Announce,
    /// A teardown needs no announcement.
    Allow,
}

/// The owners of a StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// The StatefulSet has no owner.
    None,
    /// The owner lives.
    Lives {
        /// The kind and the name of the owner.
        owner: String,
        /// Whether the owner itself asks for no members: its `spec.replicas` or `spec.size` is 0.
        asks_for_none: bool,
    },
    /// The owner is gone, and was never seen alive.
    NeverSeen {
        /// The kind and the name of the owner.
        owner: String,
    },
    /// The owner could not be read.
    Unread {
        /// The kind and the name of the owner.
        owner: String,
        /// The failure.
        why: String,
    },
}

/// Decides about one change. [`Allowance::Grant`] means that the change may happen once the budget
/// has it on record.
pub fn decide(change: &Change, input: &StatefulSetInput) -> Verdict {
    if let Some(verdict) = before_the_members(change, input) {
        return verdict;
    }
    match change {
        Change::Delete => teardown(TeardownBy::Delete, input),
        Change::Resize { to, .. } if to.count == 0 => teardown(TeardownBy::Hibernation, input),
        Change::Resize { .. } => scale_in(input),
    }
}

/// The rules that need no look at the members.
fn before_the_members(change: &Change, input: &StatefulSetInput) -> Option<Verdict> {
    if input.scope == Scope::Foreign {
        return Some(waived(Waiver::Foreign));
    }
    if let Some(teardown @ (Teardown::Namespace | Teardown::Owner)) = input.teardown {
        return Some(waived(Waiver::Teardown(teardown)));
    }
    if input.collected && *change == Change::Delete {
        return Some(match input.scope {
            Scope::Enrolled => granted(Basis::OwnerGone),
            Scope::NoLedger => Verdict::Wait(Reason::NoLedger),
            Scope::NoDefinition | Scope::Foreign => waived(Waiver::Teardown(Teardown::Owner)),
        });
    }
    if input.overridden {
        return Some(granted(Basis::Override));
    }
    match input.scope {
        Scope::NoLedger => Some(Verdict::Wait(Reason::NoLedger)),
        Scope::NoDefinition => Some(Verdict::Wait(Reason::NoDefinition)),
        // Rule 8 has no place here: a budget has the name of its StatefulSet, so no two claim it.
        Scope::Enrolled | Scope::Foreign => None,
    }
}

/// A change that takes every member.
fn teardown(by: TeardownBy, input: &StatefulSetInput) -> Verdict {
    if input.intent == Some(by.announced_by(input.takes_data)) {
        return granted(Basis::Intent);
    }
    let asks = matches!(
        input.owner,
        Owner::Lives {
            asks_for_none: true,
            ..
        }
    );
    if by == TeardownBy::Hibernation && asks && input.takes_data.is_none() {
        return granted(Basis::OwnerAsks);
    }
    if input.teardown_policy == TeardownPolicy::Allow {
        return granted(Basis::TeardownAllowed);
    }
    let takes_data = input.takes_data;
    let serving = match &input.serving {
        None => return Verdict::Wait(Reason::MembersUnknown { because: vec![] }),
        Some(Serving::Nobody) if takes_data.is_none() => return granted(Basis::NobodyServes),
        Some(serving) => serving.clone(),
    };
    let owner = match &input.owner {
        Owner::None => None,
        Owner::NeverSeen { owner } => Some(NamedOwner::NeverSeen(owner.clone())),
        Owner::Lives { owner, .. } => Some(NamedOwner::Lives(owner.clone())),
        Owner::Unread { owner, why } => {
            return Verdict::Wait(Reason::OwnerUnread {
                set: input.set.clone(),
                by,
                owner: owner.clone(),
                why: why.clone(),
            });
        }
    };
    Verdict::Deny(Reason::Unannounced(Box::new(Unannounced {
        set: input.set.clone(),
        by,
        serving,
        takes_data,
        owner,
        ignored: input.ignored.clone(),
    })))
}

fn scale_in(input: &StatefulSetInput) -> Verdict {
    if input.intent == Some(Intent::ScaleIn) {
        return granted(Basis::Intent);
    }
    match &input.listed {
        Listed::Members(members) if members.is_empty() => granted(Basis::MembersRemoved),
        Listed::Members(members) => Verdict::Deny(Reason::MembersListed {
            cluster: input.set.clone(),
            members: members.clone(),
            ignored: input.ignored.clone(),
        }),
        Listed::Unknown { because } => Verdict::Wait(Reason::MembersUnknown {
            because: because.clone(),
        }),
    }
}

fn waived(waiver: Waiver) -> Verdict {
    Verdict::Allow(Allowance::Waived(waiver))
}

fn granted(basis: Basis) -> Verdict {
    Verdict::Allow(Allowance::Grant(basis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::stateful_set::Ordinals;

    /// Five members of an owner that lives, all of them serving.
    fn input() -> StatefulSetInput {
        StatefulSetInput {
            set: ClusterRef::new("db", "etcd"),
            scope: Scope::Enrolled,
            teardown: None,
            collected: false,
            overridden: false,
            intent: None,
            ignored: None,
            owner: owned(false),
            teardown_policy: TeardownPolicy::Announce,
            takes_data: None,
            listed: Listed::Members(vec!["etcd-3".into(), "etcd-4".into()]),
            serving: Some(Serving::Members(vec!["etcd-0".into(), "etcd-1".into()])),
        }
    }

    fn owned(asks_for_none: bool) -> Owner {
        Owner::Lives {
            owner: "Etcd main".to_owned(),
            asks_for_none,
        }
    }

    fn unread() -> Owner {
        Owner::Unread {
            owner: "Widget main".to_owned(),
            why: "forbidden".to_owned(),
        }
    }

    fn resize(from: u32, to: u32) -> Change {
        let ordinals = |count| Ordinals {
            start: Some(0),
            count,
        };
        Change::Resize {
            from: ordinals(from),
            to: ordinals(to),
        }
    }

    /// The two changes that take every member, each with its announcement.
    fn teardowns() -> [(Change, Intent); 2] {
        [
            (Change::Delete, Intent::Delete),
            (resize(3, 0), Intent::Hibernate),
        ]
    }

    #[track_caller]
    fn says(verdict: &Verdict, parts: &[&str]) {
        let (Verdict::Deny(reason) | Verdict::Wait(reason)) = verdict else {
            panic!("it passes: {verdict:?}")
        };
        let said = reason.to_string();
        for part in parts {
            assert!(said.contains(part), "nothing of {part}: {said}");
        }
    }

    #[test]
    fn a_teardown_of_serving_members_is_denied_with_the_exact_command() {
        for owner in [Owner::None, owned(false)] {
            let input = StatefulSetInput { owner, ..input() };
            let delete = decide(&Change::Delete, &input);
            assert!(matches!(delete, Verdict::Deny(_)), "{delete:?}");
            says(
                &delete,
                &[
                    "etcd-0, etcd-1 serve",
                    "kubectl -n db annotate --overwrite statefulset etcd quorumgate.io/intent=delete",
                    "kubectl -n db delete statefulset etcd --cascade=orphan",
                    "spec.policy.teardown",
                ],
            );
            let hibernation = decide(&resize(3, 0), &input);
            assert!(matches!(hibernation, Verdict::Deny(_)), "{hibernation:?}");
            says(
                &hibernation,
                &[
                    "kubectl -n db annotate --overwrite statefulset etcd quorumgate.io/intent=hibernate",
                ],
            );
        }
        says(&decide(&Change::Delete, &input()), &["Etcd main"]);
    }

    #[test]
    fn a_teardown_passes_when_exactly_it_was_announced() {
        for (change, intent) in teardowns() {
            let announced = |intent| StatefulSetInput {
                intent: Some(intent),
                ..input()
            };
            assert_eq!(decide(&change, &announced(intent)), granted(Basis::Intent));
            for other in [Intent::ScaleIn, Intent::Bootstrap] {
                let verdict = decide(&change, &announced(other));
                assert!(matches!(verdict, Verdict::Deny(_)), "{verdict:?}");
            }
        }
        let hibernates = StatefulSetInput {
            intent: Some(Intent::Hibernate),
            ..input()
        };
        let verdict = decide(&Change::Delete, &hibernates);
        assert!(matches!(verdict, Verdict::Deny(_)), "{verdict:?}");
    }

    #[test]
    fn a_teardown_passes_where_nobody_serves_or_the_budget_allows_it() {
        for (change, _) in teardowns() {
            let dead = StatefulSetInput {
                serving: Some(Serving::Nobody),
                ..input()
            };
            assert_eq!(decide(&change, &dead), granted(Basis::NobodyServes));
            let allowed = StatefulSetInput {
                teardown_policy: TeardownPolicy::Allow,
                serving: None,
                ..input()
            };
            assert_eq!(decide(&change, &allowed), granted(Basis::TeardownAllowed));
            let unknown = StatefulSetInput {
                serving: Some(Serving::Unknown {
                    because: vec!["etcd-0: timed out".to_owned()],
                }),
                ..input()
            };
            let verdict = decide(&change, &unknown);
            assert!(matches!(verdict, Verdict::Deny(_)), "{verdict:?}");
            says(&verdict, &["etcd-0: timed out", "quorumgate.io/intent"]);
        }
    }

    #[test]
    fn a_teardown_that_takes_the_claims_is_announced_also_where_nobody_serves() {
        let lost = StatefulSetInput {
            serving: Some(Serving::Nobody),
            takes_data: Some(DataTaken::Claims),
            ..input()
        };
        let verdict = decide(&Change::Delete, &lost);
        assert!(matches!(verdict, Verdict::Deny(_)), "{verdict:?}");
        says(&verdict, &["whenDeleted", "intent=delete"]);
        let verdict = decide(&resize(3, 0), &lost);
        assert!(matches!(verdict, Verdict::Deny(_)), "{verdict:?}");
        says(&verdict, &["whenScaled", "intent=delete"]);
        let in_pods = StatefulSetInput {
            takes_data: Some(DataTaken::InPods),
            ..lost
        };
        let verdict = decide(&resize(3, 0), &in_pods);
        assert!(matches!(verdict, Verdict::Deny(_)), "{verdict:?}");
        says(&verdict, &["their data is in their pods"]);
    }

    #[test]
    fn the_members_are_looked_at_only_where_nothing_else_answers() {
        for (change, intent) in teardowns() {
            let unlooked = StatefulSetInput {
                serving: None,
                ..input()
            };
            let verdict = decide(&change, &unlooked);
            let waits = matches!(verdict, Verdict::Wait(Reason::MembersUnknown { .. }));
            assert!(waits, "{verdict:?}");
            let announced = StatefulSetInput {
                intent: Some(intent),
                ..unlooked
            };
            assert_eq!(decide(&change, &announced), granted(Basis::Intent));
        }
    }

    #[test]
    fn an_owner_that_asks_for_no_members_hibernates_them_and_deletes_nothing() {
        let asks = StatefulSetInput {
            owner: owned(true),
            serving: None,
            ..input()
        };
        assert_eq!(decide(&resize(3, 0), &asks), granted(Basis::OwnerAsks));
        let asks = StatefulSetInput {
            owner: owned(true),
            ..input()
        };
        let verdict = decide(&Change::Delete, &asks);
        assert!(matches!(verdict, Verdict::Deny(_)), "{verdict:?}");
    }

    #[test]
    fn an_owner_that_cannot_be_read_makes_a_delete_wait() {
        for (change, intent) in teardowns() {
            let input = StatefulSetInput {
                owner: unread(),
                ..input()
            };
            let verdict = decide(&change, &input);
            assert!(matches!(verdict, Verdict::Wait(_)), "{verdict:?}");
            let slug: &str = intent.into();
            let intent = format!("quorumgate.io/intent={slug}");
            says(
                &verdict,
                &[
                    "Widget main",
                    "forbidden",
                    &intent,
                    "quorumgate.io/aggregate-to-owners=true",
                ],
            );
        }
    }

    #[test]
    fn what_the_garbage_collector_deletes_goes_whatever_is_known_of_its_owner() {
        for owner in [Owner::None, owned(false), unread()] {
            let collected = |scope| StatefulSetInput {
                collected: true,
                owner: owner.clone(),
                scope,
                ..input()
            };
            // Recorded, so that its pods may follow.
            assert_eq!(
                decide(&Change::Delete, &collected(Scope::Enrolled)),
                granted(Basis::OwnerGone)
            );
            assert_eq!(
                decide(&Change::Delete, &collected(Scope::NoDefinition)),
                waived(Waiver::Teardown(Teardown::Owner))
            );
            assert_eq!(
                decide(&Change::Delete, &collected(Scope::NoLedger)),
                Verdict::Wait(Reason::NoLedger)
            );
            // It proves nothing about anything but a delete.
            assert!(matches!(
                decide(&resize(5, 3), &collected(Scope::Enrolled)),
                Verdict::Deny(_)
            ));
        }
    }

    #[test]
    fn a_hibernation_that_takes_the_data_is_announced_as_a_delete() {
        for taken in [DataTaken::Claims, DataTaken::InPods] {
            let with = |intent| StatefulSetInput {
                takes_data: Some(taken),
                intent: Some(intent),
                owner: owned(true),
                ..input()
            };
            let verdict = decide(&resize(3, 0), &with(Intent::Hibernate));
            says(&verdict, &["quorumgate.io/intent=delete"]);
            let announced = decide(&resize(3, 0), &with(Intent::Delete));
            assert_eq!(announced, granted(Basis::Intent));
        }
    }

    #[test]
    fn an_owner_that_was_never_seen_takes_nothing_along() {
        let input = StatefulSetInput {
            owner: Owner::NeverSeen {
                owner: "ConfigMap gone".to_owned(),
            },
            ..input()
        };
        says(
            &decide(&Change::Delete, &input),
            &[
                "ConfigMap gone, which was never seen",
                r#"kubectl -n db patch statefulset etcd --type=json -p='[{"op": "remove", "path": "/metadata/ownerReferences"}]'"#,
            ],
        );
    }

    #[test]
    fn a_scale_in_is_denied_while_etcd_lists_the_members_and_recorded_after() {
        let Verdict::Deny(reason) = decide(&resize(5, 3), &input()) else {
            panic!("not denied")
        };
        assert!(reason.to_string().contains("etcd-3, etcd-4"), "{reason}");
        let removed = StatefulSetInput {
            listed: Listed::Members(vec![]),
            ..input()
        };
        assert_eq!(
            decide(&resize(5, 3), &removed),
            granted(Basis::MembersRemoved)
        );
        let announced = StatefulSetInput {
            intent: Some(Intent::ScaleIn),
            ..input()
        };
        assert_eq!(decide(&resize(5, 3), &announced), granted(Basis::Intent));
    }

    #[test]
    fn a_scale_in_waits_where_nobody_can_be_asked() {
        let input = StatefulSetInput {
            listed: Listed::Unknown { because: vec![] },
            ..input()
        };
        assert!(matches!(
            decide(&resize(5, 3), &input),
            Verdict::Wait(Reason::MembersUnknown { .. })
        ));
    }

    #[test]
    fn rules_3_and_6_come_first() {
        for teardown in [Teardown::Namespace, Teardown::Owner] {
            let input = StatefulSetInput {
                teardown: Some(teardown),
                ..input()
            };
            for (change, _) in teardowns() {
                assert_eq!(decide(&change, &input), waived(Waiver::Teardown(teardown)));
            }
        }
        let overridden = StatefulSetInput {
            overridden: true,
            ..input()
        };
        for change in [resize(5, 3), resize(5, 0), Change::Delete] {
            assert_eq!(decide(&change, &overridden), granted(Basis::Override));
        }
    }

    #[test]
    fn a_foreign_set_passes_and_one_without_ledger_waits() {
        for (scope, expected) in [
            (Scope::Foreign, waived(Waiver::Foreign)),
            (Scope::NoLedger, Verdict::Wait(Reason::NoLedger)),
            (Scope::NoDefinition, Verdict::Wait(Reason::NoDefinition)),
        ] {
            let input = StatefulSetInput { scope, ..input() };
            assert_eq!(decide(&Change::Delete, &input), expected);
        }
    }
}
