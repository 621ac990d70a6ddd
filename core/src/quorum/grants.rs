//! The pure half of the ledger: which members may be on their way out, why, and until when they count as gone.
//!
//! A member with a grant does not count as serving, whatever its probes say, until every cause of the grant has settled.
//! Every yes, also a repeated one, raises `seq`: a write that changes nothing would be no fence.

use std::collections::BTreeMap;

use super::id::{PodName, PodUid};

/// The open grants of one cluster, one entry per member, keyed by pod name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grants {
    entries: BTreeMap<PodName, Grant>,
    last_seq: u64,
}

/// Why one member may be on its way out. Never empty while it is in [`Grants`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    /// At most one per kind of cause.
    pub causes: Vec<Cause>,
}

/// One reason for which a member was permitted to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// What was permitted.
    pub what: Permitted,
    /// The sequence number of the latest yes to it; unique within the ledger and rising.
    pub seq: u64,
    /// Who was told yes last: a username, for people.
    pub by: String,
    /// When, RFC 3339, by the clock of the replica that said it: for people only, nothing is decided by it.
    pub at: String,
}

/// What was permitted, with what its settlement needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permitted {
    /// This incarnation may be deleted or evicted.
    Delete {
        /// The incarnation. A newer one replaces it.
        uid: PodUid,
        /// Whether a rollout asked for it.
        rollout: bool,
    },
    /// The member may be defragmented.
    Defragment {
        /// The replica that does it.
        holder: String,
        /// The longest it may take, seconds.
        timeout_seconds: u64,
    },
    /// The member's volume may be replaced.
    Replace,
}

impl Permitted {
    /// Whether both are the same kind of cause, so that one replaces the other.
    pub fn same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// This cause, given again while `open` was. A rollout's own delete is known by its grant, so a stranger who asks for the same
    /// incarnation in between must not turn it into a stranger's.
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
    /// The grants as they were recorded. `last_seq` is the highest sequence number ever given in this ledger.
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

    /// Every member with a grant.
    pub fn iter(&self) -> impl Iterator<Item = (&PodName, &Grant)> {
        self.entries.iter()
    }

    /// The grant of one member.
    pub fn of(&self, member: &PodName) -> Option<&Grant> {
        self.entries.get(member)
    }

    /// Whether the member has a grant.
    pub fn holds(&self, member: &PodName) -> bool {
        self.entries.contains_key(member)
    }

    /// The highest sequence number given so far.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Says yes to one more cause, or again to one that is open: the returned ledger differs from this one in any case.
    #[must_use]
    pub fn issue(&self, member: &PodName, what: Permitted, by: String, at: String) -> Self {
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

    /// Takes one cause back after its settlement was observed: only if it is still the one with this `seq`.
    /// `None` where nothing changes.
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

    fn delete(uid: &str, rollout: bool) -> Permitted {
        Permitted::Delete {
            uid: uid.into(),
            rollout,
        }
    }

    fn issue(grants: &Grants, member: &str, what: Permitted) -> Grants {
        grants.issue(&member.into(), what, "kubectl".into(), String::new())
    }

    fn causes(grants: &Grants, member: &str) -> Vec<(Permitted, u64)> {
        grants
            .of(&member.into())
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
        let both = issue(&deleted, "a", Permitted::Replace);
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
