//! The member list that counts, and how reliable it is.

use std::collections::BTreeMap;

use super::answers::{Answers, Heard};
use super::evidence::{ListedMember, Round};
use super::id::{ClusterId, MemberId};
use super::snapshot::Snapshot;

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

/// etcd's member list, from a voter whose linearizable read passed before, where some voter serves:
/// the list that `snapshot`, which was made from `round`, goes by.
pub fn confirmed_list(snapshot: &Snapshot, round: &Round) -> Option<Vec<ListedMember>> {
    let cluster = snapshot.cluster_id.filter(|_| snapshot.proves_quorum())?;
    let answers = Answers::sort(&snapshot.pods, round);
    let list = List::choose(&answers, cluster)?;
    list.confirmed.then(|| list.members.to_vec())
}

/// The member list that counts. Lists of members whose read passed come first, and among these the
/// list of the voter with the highest applied index.
#[derive(Debug, Clone)]
pub(super) struct List<'a> {
    pub(super) members: &'a [ListedMember],
    pub(super) confirmed: bool,
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

fn candidate<'a>(heard: &Heard<'a>) -> Option<(List<'a>, u64)> {
    let members = heard.members.as_ref().ok()?;
    let mut by_id = BTreeMap::new();
    for listed in members {
        by_id.entry(listed.id).or_insert(listed);
    }
    let list = List {
        members,
        confirmed: heard.read.is_ok(),
        by_id,
    };
    let own = list.entry(heard.status.member_id)?;
    (!own.learner).then_some((list, heard.status.applied_index))
}
