//! The cluster id, the leader and the term that more than half of the answers agree on.
//!
//! More than half of the *answers* is enough to call a member serving. A decision counts only
//! members that serve together, and demands a majority of all voters from them. To call a member
//! *wrong* (in another cluster, or behind another leader), a majority of all *voters* has to
//! contradict it.

use std::collections::BTreeMap;

use super::answers::Answers;
use super::id::{ClusterId, MemberId};

/// A value that more than half of the answers agree on, and the number of those answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreed<T> {
    pub(super) on: T,
    pub(super) votes: u32,
}

/// The leader that a member names, and the raft term.
pub(super) type Leadership = (MemberId, u64);

/// The cluster id in more than half of the answers.
pub(super) fn cluster(answers: &Answers<'_>) -> Option<Agreed<ClusterId>> {
    most(answers.heard().map(|heard| heard.status.cluster_id))
}

/// Every cluster id in the answers, sorted.
pub(super) fn clusters(answers: &Answers<'_>) -> Vec<ClusterId> {
    let mut ids: Vec<ClusterId> = answers.heard().map(|h| h.status.cluster_id).collect();
    ids.sort();
    ids.dedup();
    ids
}

/// The leader and term that more than half of the answering voters of `cluster` name. A voter that
/// names no leader counts among the answering ones.
pub(super) fn leadership(answers: &Answers<'_>, cluster: ClusterId) -> Option<Agreed<Leadership>> {
    let named = most(
        answers
            .heard()
            .map(|heard| heard.status)
            .filter(|status| status.cluster_id == cluster && !status.learner)
            .map(|status| status.leader.map(|leader| (leader, status.term))),
    )?;
    named.on.map(|on| Agreed {
        on,
        votes: named.votes,
    })
}

fn most<T: Ord>(votes: impl Iterator<Item = T>) -> Option<Agreed<T>> {
    let mut count: BTreeMap<T, u32> = BTreeMap::new();
    for vote in votes {
        *count.entry(vote).or_default() += 1;
    }
    let all: u32 = count.values().sum();
    count
        .into_iter()
        .find(|(_, votes)| votes * 2 > all)
        .map(|(on, votes)| Agreed { on, votes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_half_agree_or_nobody_does() {
        let agreed = |votes: &[u32]| most(votes.iter().copied()).map(|a| (a.on, a.votes));
        assert_eq!(agreed(&[]), None);
        assert_eq!(agreed(&[7]), Some((7, 1)));
        assert_eq!(agreed(&[7, 8]), None);
        assert_eq!(agreed(&[8, 7, 7]), Some((7, 2)));
        assert_eq!(agreed(&[1, 2, 3, 3]), None);
    }
}
