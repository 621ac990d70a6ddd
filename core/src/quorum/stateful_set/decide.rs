//! The rules about a change of a StatefulSet.

use crate::quorum::{Basis, Permission, Reason, Scope, Teardown, Verdict, Waiver};

use super::{Change, Listed};

/// The facts about a StatefulSet and its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Whether the StatefulSet is an enrolled cluster (rule 1).
    pub scope: Scope,
    /// The teardown of its namespace or of its owner, if there is one (rule 3).
    pub teardown: Option<Teardown>,
    /// Whether the garbage collector deletes the StatefulSet. The garbage collector has read the
    /// owner itself, uncached (rule 3).
    pub collected: bool,
    /// Whether a valid override is in force (rule 6).
    pub overridden: bool,
    /// The announcement that counts.
    pub intent: Option<Intent>,
    /// The reason why an announcement that exists does not count.
    pub ignored: Option<String>,
    /// The controlling owner.
    pub owner: Owner,
    /// The members of the ordinals that would leave.
    pub listed: Listed,
}

/// A person's announcement (annotation `quorumgate.io/intent`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Intent {
    /// The cluster is to be deleted.
    Delete,
    /// Members are to be removed by a lower `spec.replicas`.
    ScaleIn,
    /// The members are to start a new cluster with empty volumes. No change of the StatefulSet is
    /// permitted by that.
    Bootstrap,
}

/// The controlling owner of a StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// The StatefulSet has no owner, so nothing would miss its members.
    None,
    /// The owner lives.
    Lives {
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

/// Decides about one change. [`Permission::Grant`] means that the change may happen once the budget
/// has it on record.
pub fn decide(change: &Change, facts: &Facts) -> Verdict {
    if let Some(verdict) = before_the_members(change, facts) {
        return verdict;
    }
    match change {
        Change::Delete => delete(facts),
        Change::Resize { .. } => scale_in(facts),
    }
}

/// The rules that need no look at the members.
fn before_the_members(change: &Change, facts: &Facts) -> Option<Verdict> {
    if facts.scope == Scope::Foreign {
        return Some(waived(Waiver::Foreign));
    }
    if let Some(teardown @ (Teardown::Namespace | Teardown::Owner)) = facts.teardown {
        return Some(waived(Waiver::Teardown(teardown)));
    }
    if facts.collected && *change == Change::Delete {
        return Some(match facts.scope {
            Scope::Enrolled => granted(Basis::OwnerGone),
            Scope::NoLedger | Scope::NoDefinition | Scope::Foreign => {
                waived(Waiver::Teardown(Teardown::Owner))
            }
        });
    }
    if facts.overridden {
        return Some(granted(Basis::Override));
    }
    if matches!(change, Change::Resize { to, .. } if to.count == 0) {
        return Some(waived(Waiver::Teardown(Teardown::Hibernation)));
    }
    match facts.scope {
        Scope::NoLedger => Some(Verdict::Wait(Reason::NoLedger)),
        Scope::NoDefinition => Some(Verdict::Wait(Reason::NoDefinition)),
        // Rule 8 has no place here: a budget has the name of its StatefulSet, so no two claim it.
        Scope::Enrolled | Scope::Foreign => None,
    }
}

fn delete(facts: &Facts) -> Verdict {
    if facts.intent == Some(Intent::Delete) {
        return granted(Basis::Intent);
    }
    match &facts.owner {
        Owner::None => granted(Basis::NoOwner),
        Owner::Lives { owner } => Verdict::Deny(Reason::OwnerLives {
            owner: owner.clone(),
            ignored: facts.ignored.clone(),
        }),
        Owner::Unread { owner, why } => Verdict::Wait(Reason::OwnerUnread {
            owner: owner.clone(),
            why: why.clone(),
        }),
    }
}

fn scale_in(facts: &Facts) -> Verdict {
    if facts.intent == Some(Intent::ScaleIn) {
        return granted(Basis::Intent);
    }
    match &facts.listed {
        Listed::Members(members) if members.is_empty() => granted(Basis::MembersRemoved),
        Listed::Members(members) => Verdict::Deny(Reason::MembersListed {
            members: members.clone(),
            ignored: facts.ignored.clone(),
        }),
        Listed::Unknown { because } => Verdict::Wait(Reason::MembersUnknown {
            because: because.clone(),
        }),
    }
}

fn waived(waiver: Waiver) -> Verdict {
    Verdict::Allow(Permission::Waived(waiver))
}

fn granted(basis: Basis) -> Verdict {
    Verdict::Allow(Permission::Grant(basis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::stateful_set::Ordinals;

    fn facts() -> Facts {
        Facts {
            scope: Scope::Enrolled,
            teardown: None,
            collected: false,
            overridden: false,
            intent: None,
            ignored: None,
            owner: Owner::Lives {
                owner: "Etcd main".to_owned(),
            },
            listed: Listed::Members(vec!["etcd-3".into(), "etcd-4".into()]),
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

    #[test]
    fn a_delete_while_its_owner_lives_is_denied_with_three_ways_out() {
        let Verdict::Deny(reason) = decide(&Change::Delete, &facts()) else {
            panic!("not denied")
        };
        let said = reason.to_string();
        for part in [
            "Etcd main",
            "--cascade=orphan",
            "quorumgate.io/intent=delete",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn a_delete_is_recorded_when_announced_or_when_no_owner_would_miss_it() {
        let announced = Facts {
            intent: Some(Intent::Delete),
            ..facts()
        };
        assert_eq!(decide(&Change::Delete, &announced), granted(Basis::Intent));
        {
            let facts = Facts {
                owner: Owner::None,
                ..facts()
            };
            assert_eq!(decide(&Change::Delete, &facts), granted(Basis::NoOwner));
        }
        let otherwise = Facts {
            intent: Some(Intent::ScaleIn),
            ..facts()
        };
        assert!(matches!(
            decide(&Change::Delete, &otherwise),
            Verdict::Deny(_)
        ));
    }

    #[test]
    fn an_owner_that_cannot_be_read_makes_a_delete_wait() {
        let facts = Facts {
            owner: Owner::Unread {
                owner: "Widget main".to_owned(),
                why: "forbidden".to_owned(),
            },
            ..facts()
        };
        let Verdict::Wait(reason) = decide(&Change::Delete, &facts) else {
            panic!("it does not wait")
        };
        let said = reason.to_string();
        for part in [
            "Widget main",
            "forbidden",
            "quorumgate.io/intent=delete",
            "quorumgate.io/aggregate-to-owners=true",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn what_the_garbage_collector_deletes_goes_whatever_is_known_of_its_owner() {
        for owner in [
            Owner::None,
            Owner::Lives {
                owner: "Widget main".to_owned(),
            },
            Owner::Unread {
                owner: "Widget main".to_owned(),
                why: "forbidden".to_owned(),
            },
        ] {
            let collected = |scope| Facts {
                collected: true,
                owner: owner.clone(),
                scope,
                ..facts()
            };
            // Recorded, so that its pods may follow.
            assert_eq!(
                decide(&Change::Delete, &collected(Scope::Enrolled)),
                granted(Basis::OwnerGone)
            );
            assert_eq!(
                decide(&Change::Delete, &collected(Scope::NoLedger)),
                waived(Waiver::Teardown(Teardown::Owner))
            );
            // It proves nothing about anything but a delete.
            assert!(matches!(
                decide(&resize(5, 3), &collected(Scope::Enrolled)),
                Verdict::Deny(_)
            ));
        }
    }

    #[test]
    fn a_scale_in_is_denied_while_etcd_lists_the_members_and_recorded_after() {
        let Verdict::Deny(reason) = decide(&resize(5, 3), &facts()) else {
            panic!("not denied")
        };
        assert!(reason.to_string().contains("etcd-3, etcd-4"), "{reason}");
        let removed = Facts {
            listed: Listed::Members(vec![]),
            ..facts()
        };
        assert_eq!(
            decide(&resize(5, 3), &removed),
            granted(Basis::MembersRemoved)
        );
        let announced = Facts {
            intent: Some(Intent::ScaleIn),
            ..facts()
        };
        assert_eq!(decide(&resize(5, 3), &announced), granted(Basis::Intent));
    }

    #[test]
    fn a_scale_in_waits_where_nobody_can_be_asked() {
        let facts = Facts {
            listed: Listed::Unknown { because: vec![] },
            ..facts()
        };
        assert!(matches!(
            decide(&resize(5, 3), &facts),
            Verdict::Wait(Reason::MembersUnknown { .. })
        ));
    }

    #[test]
    fn no_replicas_is_hibernation_and_passes() {
        assert_eq!(
            decide(&resize(3, 0), &facts()),
            waived(Waiver::Teardown(Teardown::Hibernation))
        );
    }

    #[test]
    fn rules_3_and_6_come_first() {
        for teardown in [Teardown::Namespace, Teardown::Owner] {
            let facts = Facts {
                teardown: Some(teardown),
                ..facts()
            };
            assert_eq!(
                decide(&Change::Delete, &facts),
                waived(Waiver::Teardown(teardown))
            );
        }
        let overridden = Facts {
            overridden: true,
            ..facts()
        };
        assert_eq!(decide(&resize(5, 3), &overridden), granted(Basis::Override));
        assert_eq!(
            decide(&Change::Delete, &overridden),
            granted(Basis::Override)
        );
    }

    #[test]
    fn a_foreign_set_passes_and_one_without_ledger_waits() {
        for (scope, expected) in [
            (Scope::Foreign, waived(Waiver::Foreign)),
            (Scope::NoLedger, Verdict::Wait(Reason::NoLedger)),
            (Scope::NoDefinition, Verdict::Wait(Reason::NoDefinition)),
        ] {
            let facts = Facts { scope, ..facts() };
            assert_eq!(decide(&Change::Delete, &facts), expected);
        }
    }
}
