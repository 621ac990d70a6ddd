//! The member list that counts, and how reliable it is.

use std::collections::{BTreeMap, BTreeSet};

use super::answers::{Answers, Heard};
use super::evidence::ListedMember;
use super::expected_voters::count;
use super::id::{ClusterId, MemberId};

/// The number of voters in etcd's member list, and how reliable the list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// No list could be read.
    Unread,
    /// The list comes from a member that did not prove contact with a quorum, so it may be out of
    /// date.
    Stale {
        /// The number of voters listed.
        voters: u32,
    },
    /// The list comes from a voter whose linearizable read passed before.
    Confirmed {
        /// The number of voters listed.
        voters: u32,
    },
}

/// The member list that counts. Lists of members whose read passed come first, and among these the
/// list of the voter with the highest applied index.
#[derive(Debug, Clone)]
pub(super) struct List<'a> {
    pub(super) members: &'a [ListedMember],
    pub(super) confirmed: bool,
    /// The number of known voters, some of which the list leaves out without a proof.
    pub(super) leaves_out: Option<u32>,
    by_id: BTreeMap<MemberId, &'a ListedMember>,
}

impl<'a> List<'a> {
    /// Chooses among the lists of the answering voters of `cluster`.
    pub(super) fn choose(answers: &Answers<'a>, cluster: ClusterId) -> Option<Self> {
        answers
            .heard()
            .filter(|heard| heard.status.cluster_id == cluster && !heard.status.learner)
            .filter_map(candidate)
            .max_by_key(|(list, applied)| {
                // Equal indices mean equal lists. Should that ever not hold, the larger cluster is
                // the safer guess.
                let mut ids: Vec<MemberId> = list.members.iter().map(|m| m.id).collect();
                ids.sort();
                (list.confirmed, *applied, list.voters(), ids)
            })
            .map(|(list, _)| list)
    }

    /// The list, which proves nothing where it leaves out some of the `known` voters and fewer than
    /// half of them list the same voters. A member that was started with `--force-new-cluster`
    /// keeps the cluster id, is in contact with a quorum of one, and lists itself alone.
    pub(super) fn backed(mut self, answers: &Answers<'a>, cluster: ClusterId, known: u32) -> Self {
        if self.voters() >= known {
            return self;
        }
        let own = ids_of_voters(self.members);
        let of_cluster = answers
            .heard()
            .filter(|heard| heard.status.cluster_id == cluster);
        let backs = |heard: &&Heard<'_>| {
            let listed = heard.members.as_ref().ok();
            own.contains(&heard.status.member_id)
                && listed.is_some_and(|listed| ids_of_voters(listed) == own)
        };
        let backing = count(of_cluster.filter(backs).count());
        if backing < known.div_ceil(2) {
            self.confirmed = false;
            self.leaves_out = Some(known);
        }
        self
    }

    /// The entry of a member.
    pub(super) fn entry(&self, id: MemberId) -> Option<&'a ListedMember> {
        self.by_id.get(&id).copied()
    }

    /// The number of voters.
    pub(super) fn voters(&self) -> u32 {
        let voters = self.members.iter().filter(|listed| !listed.learner).count();
        u32::try_from(voters).unwrap_or(u32::MAX)
    }

    /// The size of the cluster by `list`, and how reliable it is.
    pub(super) fn membership(list: Option<&Self>) -> Membership {
        match list {
            None => Membership::Unread,
            Some(list) if list.confirmed => Membership::Confirmed {
                voters: list.voters(),
            },
            Some(list) => Membership::Stale {
                voters: list.voters(),
            },
        }
    }
}

fn ids_of_voters(members: &[ListedMember]) -> BTreeSet<MemberId> {
    let voters = members.iter().filter(|listed| !listed.learner);
    voters.map(|listed| listed.id).collect()
}

fn candidate<'a>(heard: &Heard<'a>) -> Option<(List<'a>, u64)> {
    let members = heard.members.as_ref().ok()?;
    let mut by_id = BTreeMap::new();
    for listed in members {
        by_id.entry(listed.id).or_insert(listed);
    }
    let list = List {
        members,
        confirmed: heard.read.is_ok(),
        leaves_out: None,
        by_id,
    };
    let own = list.entry(heard.status.member_id)?;
    (!own.learner).then_some((list, heard.status.applied_index))
}
