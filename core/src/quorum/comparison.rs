//! The comparison of what the members have, made while a CORRUPT alarm stands.
//!
//! The alarm alone does not prove whose data is wrong. etcd 3.5 raises it against no member. From
//! 3.6 on the periodic check raises it against a follower that differs from the leader, also where
//! the leader is the one whose data is wrong; only the check after compactions asks for a majority
//! (`etcdserver/corrupt.go`, and measured). A learner is filled from the leader, so the replacement
//! of the wrong member would give the wrong data to a majority.

use std::collections::{BTreeMap, BTreeSet};

use super::expected_voters::majority;
use super::id::MemberId;

/// The hash of a member's keys up to a revision, by etcd's `HashKV`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataHash {
    /// The hash.
    pub hash: u32,
    /// The revision up to which the member has compacted. Hashes of different compactions cannot be
    /// compared.
    pub compacted: i64,
}

/// The result of a comparison of the members' data at one revision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Comparison {
    /// Nothing was compared, or nothing can be: a voter did not answer, or has compacted otherwise.
    #[default]
    Unknown,
    /// All voters have the same.
    Same,
    /// All voters have the same but for this one, and they are a majority.
    Differs(MemberId),
    /// More than one voter differs, or no majority has the same.
    Disagreement,
}

impl Comparison {
    /// Compares the answers of these voters at one revision.
    pub fn new(voters: &BTreeSet<MemberId>, answers: &BTreeMap<MemberId, DataHash>) -> Self {
        let mut groups: BTreeMap<u32, Vec<MemberId>> = BTreeMap::new();
        let mut compacted = BTreeSet::new();
        for voter in voters {
            let Some(answer) = answers.get(voter) else {
                return Self::Unknown;
            };
            compacted.insert(answer.compacted);
            groups.entry(answer.hash).or_default().push(*voter);
        }
        if compacted.len() != 1 {
            return Self::Unknown;
        }
        let needed = usize::try_from(majority(u32::try_from(voters.len()).unwrap_or(u32::MAX)));
        let right = groups
            .values()
            .any(|same| needed.is_ok_and(|needed| same.len() >= needed));
        let mut alone = groups.values().filter(|same| same.len() == 1);
        match (groups.len(), alone.next()) {
            (1, _) => Self::Same,
            (2, Some(one)) if right => one.first().map_or(Self::Unknown, |id| Self::Differs(*id)),
            _ => Self::Disagreement,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(hashes: &[(u32, i64)]) -> Comparison {
        let ids = (1..).map(MemberId);
        let answers: BTreeMap<_, _> = ids
            .zip(
                hashes
                    .iter()
                    .map(|&(hash, compacted)| DataHash { hash, compacted }),
            )
            .collect();
        Comparison::new(&answers.keys().copied().collect(), &answers)
    }

    #[test]
    fn the_one_that_differs_from_a_majority_is_named() {
        assert_eq!(compared(&[(7, 1), (7, 1), (7, 1)]), Comparison::Same);
        let third = Comparison::Differs(MemberId(3));
        assert_eq!(compared(&[(7, 1), (7, 1), (8, 1)]), third);
        let fourth = Comparison::Differs(MemberId(4));
        assert_eq!(compared(&[(7, 1), (7, 1), (7, 1), (8, 1), (7, 1)]), fourth);
    }

    #[test]
    fn without_a_majority_or_with_two_that_differ_nobody_is_named() {
        for hashes in [
            &[(7, 1), (8, 1)][..],
            &[(7, 1), (8, 1), (9, 1)],
            &[(7, 1), (7, 1), (8, 1), (8, 1)],
            &[(7, 1), (7, 1), (7, 1), (8, 1), (9, 1)],
            &[(7, 1), (7, 1), (7, 1), (8, 1), (8, 1)],
        ] {
            assert_eq!(compared(hashes), Comparison::Disagreement, "{hashes:?}");
        }
    }

    #[test]
    fn what_cannot_be_compared_is_unknown() {
        assert_eq!(compared(&[]), Comparison::Unknown);
        assert_eq!(compared(&[(7, 1), (7, 1), (8, 2)]), Comparison::Unknown);
        let answer = DataHash {
            hash: 7,
            compacted: 1,
        };
        let voters = [1, 2, 3].map(MemberId).into();
        let answers = [1, 2].map(|n| (MemberId(n), answer)).into();
        assert_eq!(Comparison::new(&voters, &answers), Comparison::Unknown);
    }
}
