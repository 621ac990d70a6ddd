//! The condition of a member: whether it takes part in quorum, from what etcd answered.
//!
//! A member is Failing only by positive evidence. A member about which the evidence is missing is
//! Unknown. So a lost answer can turn Serving or Failing into Unknown, and can never make a member
//! Serving.

use std::collections::{BTreeMap, BTreeSet};

use super::agreement::{self, Agreed, Leadership};
use super::answers::{Answers, Heard, MemberAnswer};
use super::evidence::{AlarmKind, Unanswered};
use super::expected_voters::majority;
use super::id::{ClusterId, MemberId};
use super::membership::List;
use super::why::Why;

/// Whether a member takes part in quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// A voter that has just proved that it takes part.
    Serving,
    /// A learner that follows the leader. Learners take no part in quorum.
    Learning,
    /// A member that is known not to take part, and the reason.
    Failing(Why),
    /// A member of which nobody knows whether it takes part, and the reason.
    Unknown(Why),
}

impl Condition {
    /// The reason why the member does not serve; `None` for Serving and Learning.
    pub fn why(&self) -> Option<&Why> {
        match self {
            Self::Serving | Self::Learning => None,
            Self::Failing(why) | Self::Unknown(why) => Some(why),
        }
    }
}

/// The views that the answers of a round share. One answer is judged by comparing it with them.
#[derive(Debug)]
pub(super) struct Consensus<'a> {
    pub(super) cluster: Option<Agreed<ClusterId>>,
    pub(super) leadership: Option<Agreed<Leadership>>,
    pub(super) list: Option<List<'a>>,
    /// The number of voters that count.
    pub(super) voters: u32,
    alarms: BTreeMap<MemberId, BTreeSet<AlarmKind>>,
    applied: BTreeMap<MemberId, u64>,
    lag_bound: u64,
}

impl<'a> Consensus<'a> {
    /// The views that `answers` share. `known` is the number of voters that the cluster is known to
    /// have had. `size` returns the number of voters that count, given the member list that counts.
    pub(super) fn find(
        answers: &Answers<'a>,
        lag_bound: u64,
        known: u32,
        size: impl FnOnce(Option<&List<'a>>) -> u32,
    ) -> Self {
        let cluster = agreement::cluster(answers);
        let list = cluster.and_then(|agreed| {
            let list = List::choose(answers, agreed.on)?;
            Some(list.backed(answers, agreed.on, known))
        });
        let of_cluster =
            |heard: &&Heard<'a>| Some(heard.status.cluster_id) == cluster.map(|c| c.on);
        let mut alarms: BTreeMap<MemberId, BTreeSet<AlarmKind>> = BTreeMap::new();
        for alarm in answers
            .heard()
            .filter(of_cluster)
            .flat_map(|heard| &heard.status.alarms)
        {
            alarms.entry(alarm.member).or_default().insert(alarm.kind);
        }
        Self {
            cluster,
            leadership: cluster.and_then(|agreed| agreement::leadership(answers, agreed.on)),
            voters: size(list.as_ref()),
            list,
            alarms,
            applied: answers
                .heard()
                .filter(of_cluster)
                .map(|heard| (heard.status.member_id, heard.status.applied_index))
                .collect(),
            lag_bound,
        }
    }

    /// The alarms that stand against a member.
    pub(super) fn alarms(&self, id: MemberId) -> Vec<AlarmKind> {
        self.alarms
            .get(&id)
            .map(|kinds| kinds.iter().copied().collect())
            .unwrap_or_default()
    }

    /// The members against which a CORRUPT alarm stands.
    pub(super) fn accused(&self) -> BTreeSet<MemberId> {
        let alarms = self.alarms.iter();
        let corrupt = alarms.filter(|(_, kinds)| kinds.contains(&AlarmKind::Corrupt));
        corrupt.map(|(id, _)| *id).collect()
    }

    /// The member list, if a member in contact with a quorum gave it.
    pub(super) fn confirmed_list(&self) -> Option<&List<'a>> {
        self.list.as_ref().filter(|list| list.confirmed)
    }

    /// Whether `votes` are a majority of the voters that count, so that a member that contradicts
    /// them is wrong.
    pub(super) fn outvotes(&self, votes: u32) -> bool {
        votes >= majority(self.voters)
    }

    /// Whether a majority of the voters that count belongs to the cluster whose member list counts.
    pub(super) fn is_backed(&self) -> bool {
        self.cluster
            .is_some_and(|agreed| self.outvotes(agreed.votes))
    }

    /// The number of raft entries that a member is behind its leader. Where the leader did not
    /// answer, the most advanced member takes its place.
    pub(super) fn lag(&self, id: MemberId) -> Option<u64> {
        let own = self.applied.get(&id)?;
        let leader = self
            .leadership
            .and_then(|agreed| self.applied.get(&agreed.on.0));
        let ahead = leader.or_else(|| self.applied.values().max())?;
        Some(ahead.saturating_sub(*own))
    }
}

/// The condition of a member by its answer.
pub(super) fn of_answer(answer: &MemberAnswer<'_>, consensus: &Consensus<'_>) -> Condition {
    match answer {
        MemberAnswer::Heard(heard) => of_heard(heard, consensus),
        MemberAnswer::Silent(why @ (Unanswered::Refused | Unanswered::Defragmenting)) => {
            Condition::Failing(Why::Silent(why.clone()))
        }
        MemberAnswer::Silent(unanswered) => Condition::Unknown(Why::Silent(unanswered.clone())),
        MemberAnswer::Shared { id, with } => Condition::Unknown(Why::SharedIdentity {
            id: *id,
            with: with.clone(),
        }),
    }
}

fn of_heard(heard: &Heard<'_>, consensus: &Consensus<'_>) -> Condition {
    let found = in_cluster(heard, consensus)
        .or_else(|| healthy(heard, consensus))
        .or_else(|| following(heard, consensus));
    if let Some(amiss) = found {
        return amiss;
    }
    let id = heard.status.member_id;
    match consensus
        .list
        .as_ref()
        .and_then(|list| list.entry(id).map(|e| (e.learner, list.confirmed)))
    {
        Some((true, _)) => Condition::Learning,
        Some((false, _)) if heard.status.learner => Condition::Unknown(Why::NotPromoted),
        Some((false, true)) => confirmed(heard, consensus, id),
        None if consensus.list.is_some() => Condition::Unknown(Why::NotListed),
        Some((false, false)) | None => {
            let list = consensus.list.as_ref();
            let left_out = list.and_then(|list| Some((list.voters(), list.leaves_out?)));
            let why = left_out.map_or(Why::NoMemberList, |(listed, known)| Why::LeavesOut {
                listed,
                known,
            });
            unconfirmed(heard, why)
        }
    }
}

fn in_cluster(heard: &Heard<'_>, consensus: &Consensus<'_>) -> Option<Condition> {
    let own = heard.status.cluster_id;
    match consensus.cluster {
        Some(agreed) if agreed.on == own => None,
        Some(agreed) if consensus.outvotes(agreed.votes) => {
            Some(Condition::Failing(Why::OtherCluster {
                own,
                agreed: agreed.on,
            }))
        }
        _ => Some(Condition::Unknown(Why::ClusterDisputed { own })),
    }
}

fn healthy(heard: &Heard<'_>, consensus: &Consensus<'_>) -> Option<Condition> {
    consensus
        .alarms(heard.status.member_id)
        .contains(&AlarmKind::Corrupt)
        .then_some(Condition::Failing(Why::Corrupt))
}

fn following(heard: &Heard<'_>, consensus: &Consensus<'_>) -> Option<Condition> {
    let Some(leader) = heard.status.leader else {
        return Some(Condition::Failing(Why::NoLeader));
    };
    let own = (leader, heard.status.term);
    match consensus.leadership {
        Some(agreed) if agreed.on == own => None,
        Some(agreed) if consensus.outvotes(agreed.votes) => {
            Some(Condition::Failing(Why::OtherLeader {
                own,
                agreed: agreed.on,
            }))
        }
        _ => Some(Condition::Unknown(Why::LeaderDisputed { own })),
    }
}

fn confirmed(heard: &Heard<'_>, consensus: &Consensus<'_>, id: MemberId) -> Condition {
    match consensus.lag(id) {
        Some(behind) if behind > consensus.lag_bound => Condition::Failing(Why::Lagging {
            behind,
            bound: consensus.lag_bound,
        }),
        _ => match heard.read {
            Ok(()) => Condition::Serving,
            Err(Unanswered::NoLeader) => Condition::Failing(Why::NoLeader),
            Err(unanswered) => Condition::Unknown(Why::Unconfirmed(unanswered.clone())),
        },
    }
}

/// The condition of a member whose membership no confirmed list shows. A failed read is the better
/// reason, where there is one, because it is nearer to the cause than `otherwise`.
fn unconfirmed(heard: &Heard<'_>, otherwise: Why) -> Condition {
    match heard.read {
        Err(Unanswered::NoLeader) => Condition::Failing(Why::NoLeader),
        Err(unanswered) => Condition::Unknown(Why::Unconfirmed(unanswered.clone())),
        Ok(()) => Condition::Unknown(otherwise),
    }
}
