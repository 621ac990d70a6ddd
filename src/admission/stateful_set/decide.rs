//! The decision about a StatefulSet: pure, from facts that others found out.

use std::fmt;

use crate::quorum::{PodName, Scope, Teardown};

use super::change::Change;
use super::intent::Intent;
use crate::api::names::{AGGREGATE_TO_OWNERS, INTENT};

/// What was found out about a StatefulSet and its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Whether it is an enrolled cluster.
    pub scope: Scope,
    /// Whether its namespace or its owner goes, or is gone (rule 3).
    pub teardown: Option<Teardown>,
    /// Whether the garbage collector deletes it, which has read its owner itself (rule 3).
    pub collected: bool,
    /// Whether a valid override is in force (rule 6).
    pub lifted: bool,
    /// The announcement that counts.
    pub intent: Option<Intent>,
    /// Its controlling owner.
    pub owner: Owner,
    /// The members of the ordinals that would leave.
    pub listed: Listed,
}

/// The controlling owner of a StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// It has none: whoever deletes it is its owner.
    None,
    /// It lives.
    Lives {
        /// Its kind and name.
        owner: String,
    },
    /// It could not be read.
    Unread {
        /// Its kind and name.
        owner: String,
        /// Why.
        why: String,
    },
}

/// Which of the leaving ordinals' members etcd still lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// These; none where all were removed.
    Members(Vec<PodName>),
    /// Nobody could be asked.
    Unknown {
        /// What the probes met.
        because: Vec<String>,
    },
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum SetVerdict {
    /// It takes nothing that has to be recorded.
    Pass(Passing),
    /// Yes, once the budget says so: its pods then cascade freely.
    Record(Because),
    /// Not now.
    Wait(SetReason),
    /// Not like this.
    Deny(SetReason),
}

/// Why a change needs no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Passing {
    /// Rule 1: not an enrolled cluster.
    Foreign,
    /// No ordinal leaves.
    NothingLeaves,
    /// The pods stay.
    Orphans,
    /// It goes already.
    Terminating,
    /// 0 replicas: hibernation. Its pods are granted one by one.
    Hibernation,
    /// Rule 3: the namespace goes.
    TeardownNamespace,
    /// Rule 3: the owner goes.
    TeardownOwner,
}

/// Why a change is admitted and recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Because {
    /// Rule 6.
    Override,
    /// It was announced.
    Intent,
    /// No owner would miss it.
    NoOwner,
    /// Rule 3, by the garbage collector's word: the owner goes. Recorded, because the gate may not be able to tell for its pods.
    OwnerGone,
    /// etcd lists none of the members that leave.
    MembersRemoved,
}

/// Why a change of a StatefulSet is refused.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum SetReason {
    /// It is enrolled and has no budget yet.
    NoLedger,
    /// The definition of budgets is missing.
    NoDefinition,
    /// Its owner lives, and nobody announced the delete.
    OwnerLives {
        /// Its kind and name.
        owner: String,
        /// Why an announcement that is there does not count.
        ignored: Option<String>,
    },
    /// Its owner could not be read.
    OwnerUnread {
        /// Its kind and name.
        owner: String,
        /// Why.
        why: String,
    },
    /// Members that would leave are still in etcd's list, and nobody announced it.
    MembersListed {
        /// Their pods.
        members: Vec<PodName>,
        /// Why an announcement that is there does not count.
        ignored: Option<String>,
    },
    /// Nobody could be asked for etcd's list.
    MembersUnknown {
        /// What the probes met.
        because: Vec<String>,
    },
    /// Something could not be read or written in time.
    Unavailable {
        /// What.
        what: String,
    },
}

impl SetReason {
    /// A stable word.
    pub fn slug(&self) -> &'static str {
        self.into()
    }
}

/// The decision about one change. `ignored` tells why an announcement that is there does not count.
pub fn decide(change: &Change, facts: &Facts, ignored: Option<String>) -> SetVerdict {
    if let Some(verdict) = before_the_cluster(change, facts) {
        return verdict;
    }
    match change {
        Change::Delete => delete(facts, ignored),
        Change::Resize { .. } => scale_in(facts, ignored),
    }
}

/// What is settled whatever the cluster's members do.
fn before_the_cluster(change: &Change, facts: &Facts) -> Option<SetVerdict> {
    if facts.scope == Scope::Foreign {
        return Some(SetVerdict::Pass(Passing::Foreign));
    }
    match facts.teardown {
        Some(Teardown::Namespace) => return Some(SetVerdict::Pass(Passing::TeardownNamespace)),
        Some(Teardown::Owner) => return Some(SetVerdict::Pass(Passing::TeardownOwner)),
        Some(Teardown::StatefulSet | Teardown::Hibernation | Teardown::ScaleIn) | None => {}
    }
    if facts.collected && *change == Change::Delete {
        return Some(match facts.scope {
            Scope::Enrolled => SetVerdict::Record(Because::OwnerGone),
            Scope::NoLedger | Scope::NoDefinition | Scope::Foreign => {
                SetVerdict::Pass(Passing::TeardownOwner)
            }
        });
    }
    if facts.lifted {
        return Some(SetVerdict::Record(Because::Override));
    }
    if matches!(change, Change::Resize { to, .. } if to.count == 0) {
        return Some(SetVerdict::Pass(Passing::Hibernation));
    }
    match facts.scope {
        Scope::NoLedger => Some(SetVerdict::Wait(SetReason::NoLedger)),
        Scope::NoDefinition => Some(SetVerdict::Wait(SetReason::NoDefinition)),
        // A StatefulSet's budget has its name: two cannot claim it.
        Scope::Enrolled | Scope::Foreign => None,
    }
}

fn delete(facts: &Facts, ignored: Option<String>) -> SetVerdict {
    if facts.intent == Some(Intent::Delete) {
        return SetVerdict::Record(Because::Intent);
    }
    match &facts.owner {
        Owner::None => SetVerdict::Record(Because::NoOwner),
        Owner::Lives { owner } => SetVerdict::Deny(SetReason::OwnerLives {
            owner: owner.clone(),
            ignored,
        }),
        Owner::Unread { owner, why } => SetVerdict::Wait(SetReason::OwnerUnread {
            owner: owner.clone(),
            why: why.clone(),
        }),
    }
}

fn scale_in(facts: &Facts, ignored: Option<String>) -> SetVerdict {
    if facts.intent == Some(Intent::ScaleIn) {
        return SetVerdict::Record(Because::Intent);
    }
    match &facts.listed {
        Listed::Members(members) if members.is_empty() => {
            SetVerdict::Record(Because::MembersRemoved)
        }
        Listed::Members(members) => SetVerdict::Deny(SetReason::MembersListed {
            members: members.clone(),
            ignored,
        }),
        Listed::Unknown { because } => SetVerdict::Wait(SetReason::MembersUnknown {
            because: because.clone(),
        }),
    }
}

impl fmt::Display for SetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLedger => f.write_str(
                "it is enrolled but has no QuorumDisruptionBudget yet; the gate is creating it, retry in a moment",
            ),
            Self::NoDefinition => f.write_str(
                "the CustomResourceDefinition quorumdisruptionbudgets.quorumgate.io is missing; install it again (`quorumgate crds | kubectl apply -f -`)",
            ),
            Self::OwnerLives { owner, ignored } => {
                write!(
                    f,
                    "its owner {owner} lives and would miss its members; delete the owner, keep the pods (--cascade=orphan), or announce it: kubectl annotate statefulset NAME {INTENT}=delete",
                )?;
                explain(f, ignored.as_deref())
            }
            Self::OwnerUnread { owner, why } => write!(
                f,
                "its owner {owner} could not be read ({why}), so whether it lives and would miss its members is unknown; delete the owner, which takes this along, keep the pods (--cascade=orphan), or announce it: kubectl annotate statefulset NAME {INTENT}=delete; to let the gate read such owners, grant it get on them by a ClusterRole with the label {AGGREGATE_TO_OWNERS}=true",
            ),
            Self::MembersListed { members, ignored } => {
                let names: Vec<&str> = members.iter().map(PodName::as_str).collect();
                write!(
                    f,
                    "etcd still lists the members of {}; remove them first (`etcdctl member remove`), or announce it: kubectl annotate statefulset NAME {INTENT}=scale-in",
                    names.join(", "),
                )?;
                explain(f, ignored.as_deref())
            }
            Self::MembersUnknown { because } => {
                f.write_str("no member could be asked which members etcd lists")?;
                if !because.is_empty() {
                    write!(f, ": {}", because.join("; "))?;
                }
                Ok(())
            }
            Self::Unavailable { what } => write!(f, "{what}; retry in a moment"),
        }
    }
}

fn explain(f: &mut fmt::Formatter<'_>, ignored: Option<&str>) -> fmt::Result {
    ignored.map_or(Ok(()), |why| write!(f, " ({why})"))
}

#[cfg(test)]
mod tests {
    use super::super::ordinals::Ordinals;
    use super::*;

    fn facts() -> Facts {
        Facts {
            scope: Scope::Enrolled,
            teardown: None,
            collected: false,
            lifted: false,
            intent: None,
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

    fn verdict(change: &Change, facts: &Facts) -> SetVerdict {
        decide(change, facts, None)
    }

    #[test]
    fn a_delete_while_its_owner_lives_is_denied_with_three_ways_out() {
        let SetVerdict::Deny(reason) = verdict(&Change::Delete, &facts()) else {
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
        assert_eq!(
            verdict(&Change::Delete, &announced),
            SetVerdict::Record(Because::Intent)
        );
        {
            let facts = Facts {
                owner: Owner::None,
                ..facts()
            };
            assert_eq!(
                verdict(&Change::Delete, &facts),
                SetVerdict::Record(Because::NoOwner)
            );
        }
        let otherwise = Facts {
            intent: Some(Intent::ScaleIn),
            ..facts()
        };
        assert!(matches!(
            verdict(&Change::Delete, &otherwise),
            SetVerdict::Deny(_)
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
        let SetVerdict::Wait(reason) = verdict(&Change::Delete, &facts) else {
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
                verdict(&Change::Delete, &collected(Scope::Enrolled)),
                SetVerdict::Record(Because::OwnerGone)
            );
            assert_eq!(
                verdict(&Change::Delete, &collected(Scope::NoLedger)),
                SetVerdict::Pass(Passing::TeardownOwner)
            );
            // It proves nothing about anything but a delete.
            assert!(matches!(
                verdict(&resize(5, 3), &collected(Scope::Enrolled)),
                SetVerdict::Deny(_)
            ));
        }
    }

    #[test]
    fn a_scale_in_is_denied_while_etcd_lists_the_members_and_recorded_after() {
        let SetVerdict::Deny(reason) = verdict(&resize(5, 3), &facts()) else {
            panic!("not denied")
        };
        assert!(reason.to_string().contains("etcd-3, etcd-4"), "{reason}");
        let removed = Facts {
            listed: Listed::Members(vec![]),
            ..facts()
        };
        assert_eq!(
            verdict(&resize(5, 3), &removed),
            SetVerdict::Record(Because::MembersRemoved)
        );
        let announced = Facts {
            intent: Some(Intent::ScaleIn),
            ..facts()
        };
        assert_eq!(
            verdict(&resize(5, 3), &announced),
            SetVerdict::Record(Because::Intent)
        );
    }

    #[test]
    fn a_scale_in_waits_where_nobody_can_be_asked() {
        let facts = Facts {
            listed: Listed::Unknown { because: vec![] },
            ..facts()
        };
        assert!(matches!(
            verdict(&resize(5, 3), &facts),
            SetVerdict::Wait(SetReason::MembersUnknown { .. })
        ));
    }

    #[test]
    fn no_replicas_is_hibernation_and_passes() {
        assert_eq!(
            verdict(&resize(3, 0), &facts()),
            SetVerdict::Pass(Passing::Hibernation)
        );
    }

    #[test]
    fn rules_3_and_6_come_first() {
        for (teardown, passing) in [
            (Teardown::Namespace, Passing::TeardownNamespace),
            (Teardown::Owner, Passing::TeardownOwner),
        ] {
            let facts = Facts {
                teardown: Some(teardown),
                ..facts()
            };
            assert_eq!(verdict(&Change::Delete, &facts), SetVerdict::Pass(passing));
        }
        let lifted = Facts {
            lifted: true,
            ..facts()
        };
        assert_eq!(
            verdict(&resize(5, 3), &lifted),
            SetVerdict::Record(Because::Override)
        );
        assert_eq!(
            verdict(&Change::Delete, &lifted),
            SetVerdict::Record(Because::Override)
        );
    }

    #[test]
    fn a_foreign_set_passes_and_one_without_ledger_waits() {
        for (scope, expected) in [
            (Scope::Foreign, SetVerdict::Pass(Passing::Foreign)),
            (Scope::NoLedger, SetVerdict::Wait(SetReason::NoLedger)),
            (
                Scope::NoDefinition,
                SetVerdict::Wait(SetReason::NoDefinition),
            ),
        ] {
            let facts = Facts { scope, ..facts() };
            assert_eq!(verdict(&Change::Delete, &facts), expected);
        }
    }
}
