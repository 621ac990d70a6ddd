//! Grants: the recorded permissions to take members out.
//!
//! A member with a grant does not count as serving, whatever its probes say, until every cause of
//! the grant has settled (see [`settlement()`](super::settlement())). Every permission raises the
//! sequence number, a repeated one too. A write that changes nothing would leave the budget's
//! resourceVersion as it is, and a decision that another replica made before would still be
//! accepted.

use std::collections::BTreeMap;

use super::id::{PodName, PodUid};

/// The open grants of one cluster, one per member, keyed by pod name.
///
/// A `Grants` is a value: [`Grants::issue`] and [`Grants::settle`] return a changed copy, which the
/// ledger then writes to the budget by compare-and-swap.
///
/// ```
/// use quorumgate_core::quorum::{Grants, GrantKind, PodName};
///
/// let pod = PodName::new("etcd-main-2");
/// let deletion = GrantKind::Delete { uid: "uid-2".into(), rollout: false };
/// let none = Grants::default();
/// let open = none.issue(&pod, deletion, "kubectl".into(), "2026-11-21T12:00:00Z".into());
/// assert!(open.holds(&pod));
///
/// // The pod of this UID is gone: the only cause settles, and the member is free again.
/// let free = open.settle(&pod, open.last_seq()).unwrap();
/// assert!(!free.holds(&pod));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grants {
    entries: BTreeMap<PodName, Grant>,
    last_seq: u64,
}

/// The open grant of one member. A grant in [`Grants`] has at least one cause.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    /// The causes of the grant, at most one of each kind.
    pub causes: Vec<Cause>,
}

/// A single permission within a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The disruption that was permitted.
    pub what: GrantKind,
    /// The sequence number of the latest permission. Numbers rise and are never used twice within a
    /// ledger.
    pub seq: u64,
    /// The username of the latest asker, for people to read.
    pub by: String,
    /// The time of the latest permission (RFC 3339), by the clock of the replica that gave it.
    /// People read it; no rule does.
    pub at: String,
}

/// A permitted disruption, with the data that its settlement needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantKind {
    /// Permission to delete or evict one incarnation of a pod.
    Delete {
        /// The UID of the incarnation. Permission for a newer incarnation replaces this one.
        uid: PodUid,
        /// Whether a rollout asked for it.
        rollout: bool,
    },
    /// Permission to defragment the member's database.
    Defragment {
        /// The replica that carries out the defragmentation.
        holder: String,
        /// The longest time that the defragmentation may take, in seconds.
        timeout_seconds: u64,
    },
    /// Permission to replace the member's volume.
    Replace,
}

impl GrantKind {
    /// Whether both are of the same kind, so that one replaces the other.
    pub fn same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// The cause to record when `self` is permitted while `open` is recorded. A rollout's
    /// permission to delete stays a rollout's when another asker wants the same incarnation: the
    /// rollout recognises its own delete by the grant.
    fn again(self, open: &Self) -> Self {
        match (self, open) {
            (
                Self::Delete { uid, rollout },
                Self::Delete {
                    uid: before,
                    rollout: stepping,
                },
            ) => {
                let rollout = rollout || (*stepping && uid == *before);
                Self::Delete { uid, rollout }
            }
            (what, _) => what,
        }
    }
}

impl Grants {
    /// The grants as a budget records them. `last_seq` is the highest sequence number that this
    /// ledger has given.
    pub fn recorded(entries: BTreeMap<PodName, Grant>, last_seq: u64) -> Self {
        let highest = entries
            .values()
            .flat_map(|g| &g.causes)
            .map(|c| c.seq)
            .max()
            .unwrap_or_default();
        Self {
            entries,
            last_seq: last_seq.max(highest),
        }
    }

    /// The members with a grant.
    pub fn iter(&self) -> impl Iterator<Item = (&PodName, &Grant)> {
        self.entries.iter()
    }

    /// The grant of a member.
    pub fn get(&self, member: &PodName) -> Option<&Grant> {
        self.entries.get(member)
    }

    /// Whether a member has a grant.
    pub fn holds(&self, member: &PodName) -> bool {
        self.entries.contains_key(member)
    }

    /// Whether the replacement of a member is permitted.
    pub fn permit_replacement(&self, member: &PodName) -> bool {
        let is_replacement = |cause: &Cause| cause.what == GrantKind::Replace;
        self.get(member)
            .is_some_and(|grant| grant.causes.iter().any(is_replacement))
    }

    /// The highest sequence number given so far.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Adds one more permission for `member`, or repeats an open one. The result always differs
    /// from `self`, because the sequence number rises.
    #[must_use]
    pub fn issue(&self, member: &PodName, what: GrantKind, by: String, at: String) -> Self {
        let mut next = self.clone();
        next.last_seq = next.last_seq.saturating_add(1);
        let grant = next.entries.entry(member.clone()).or_default();
        let what = match grant.causes.iter().find(|c| c.what.same_kind(&what)) {
            Some(open) => what.again(&open.what),
            None => what,
        };
        let cause = Cause {
            what,
            seq: next.last_seq,
            by,
            at,
        };
        grant
            .causes
            .retain(|open| !open.what.same_kind(&cause.what));
        grant.causes.push(cause);
        next
    }

    /// Removes the cause with the sequence number `seq`, after its settlement was observed. `None`
    /// if no such cause is open, for example because it was permitted again meanwhile.
    pub fn settle(&self, member: &PodName, seq: u64) -> Option<Self> {
        let mut next = self.clone();
        let grant = next.entries.get_mut(member)?;
        let before = grant.causes.len();
        grant.causes.retain(|cause| cause.seq != seq);
        if grant.causes.len() == before {
            return None;
        }
        if grant.causes.is_empty() {
            next.entries.remove(member);
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delete(uid: &str, rollout: bool) -> GrantKind {
        GrantKind::Delete {
            uid: uid.into(),
            rollout,
        }
    }

    fn issue(grants: &Grants, member: &str, what: GrantKind) -> Grants {
        grants.issue(&member.into(), what, "kubectl".into(), String::new())
    }

    fn causes(grants: &Grants, member: &str) -> Vec<(GrantKind, u64)> {
        grants
            .get(&member.into())
            .map(|grant| {
                grant
                    .causes
                    .iter()
                    .map(|c| (c.what.clone(), c.seq))
                    .collect()
            })
            .unwrap_or_default()
    }

    #[test]
    fn every_yes_raises_the_sequence_also_a_repeated_one() {
        let once = issue(&Grants::default(), "a", delete("u1", false));
        let twice = issue(&once, "a", delete("u1", false));
        assert_ne!(once, twice);
        assert_eq!(causes(&twice, "a"), [(delete("u1", false), 2)]);
    }

    #[test]
    fn a_newer_incarnation_replaces_the_older() {
        let old = issue(&Grants::default(), "a", delete("u1", true));
        let new = issue(&old, "a", delete("u2", false));
        assert_eq!(causes(&new, "a"), [(delete("u2", false), 2)]);
    }

    #[test]
    fn a_strangers_repeat_leaves_a_rollout_step_what_it_is() {
        let step = issue(&Grants::default(), "a", delete("u1", true));
        let repeated = issue(&step, "a", delete("u1", false));
        assert_eq!(causes(&repeated, "a"), [(delete("u1", true), 2)]);
    }

    #[test]
    fn a_member_is_free_when_no_cause_is_left() {
        let deleted = issue(&Grants::default(), "a", delete("u1", false));
        let both = issue(&deleted, "a", GrantKind::Replace);
        let half = both.settle(&"a".into(), 1).unwrap();
        assert!(half.holds(&"a".into()));
        let free = half.settle(&"a".into(), 2).unwrap();
        assert!(!free.holds(&"a".into()));
        assert_eq!(free.last_seq(), 2, "numbers are never given twice");
    }

    #[test]
    fn a_settlement_of_an_older_yes_changes_nothing() {
        let once = issue(&Grants::default(), "a", delete("u1", false));
        let twice = issue(&once, "a", delete("u1", false));
        assert_eq!(twice.settle(&"a".into(), 1), None);
        assert_eq!(twice.settle(&"b".into(), 2), None);
    }

    #[test]
    fn recorded_grants_go_on_counting_from_their_highest_number() {
        let entries = issue(&Grants::default(), "a", delete("u1", false)).entries;
        assert_eq!(Grants::recorded(entries.clone(), 0).last_seq(), 1);
        assert_eq!(Grants::recorded(entries, 9).last_seq(), 9);
    }
}
