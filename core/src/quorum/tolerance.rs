//! The arithmetic of quorum: how many voters count, how many serve, and how many may go.

use super::condition::Condition;
use super::expected_voters::{count, majority};
use super::grants::Grants;
use super::id::PodName;
use super::membership::Membership;
use super::policy::EvidenceMode;
use super::process::ProcessState;
use super::snapshot::{Member, Role, Snapshot};
use super::trust::Trust;
use super::why::Why;

/// The number of members that a cluster can still lose while the given grants are open.
///
/// ```
/// use quorumgate_core::quorum::{Grants, GrantKind, Snapshot, example};
///
/// let cluster = Snapshot::assemble(&example::healthy("etcd-main", 5));
/// let deletion = GrantKind::Delete { uid: "uid-4".into(), rollout: false };
/// let grants = Grants::default();
/// let one = grants.issue(&"etcd-main-4".into(), deletion, "anna".into(), String::new());
///
/// let tolerance = cluster.tolerance(&one);
/// assert_eq!((tolerance.voters, tolerance.majority), (5, 3));
/// // The member with a grant does not count as serving any more, although it still answers.
/// assert_eq!(tolerance.serving, 4);
/// assert_eq!(tolerance.disruptions_allowed(), 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tolerance {
    /// The number of voters that count.
    pub voters: u32,
    /// The number of serving voters without a grant.
    pub serving: u32,
    /// The majority of `voters`.
    pub majority: u32,
    /// The number of voters that have to serve without one that goes: the majority, or more while
    /// a voter may be added.
    pub needed: u32,
    /// The pods with an open grant.
    pub in_flight: Vec<PodName>,
    /// Whether no serving member may go although quorum would allow it: the ledger is not trusted,
    /// so grants that it does not show may be open (rule 9), another budget guards the same members
    /// (rule 8), data is lost, or new pods would leave the cluster.
    pub is_withheld: bool,
}

impl Tolerance {
    /// The serving voters without a grant, minus the majority. A negative number means that quorum
    /// is lost or not proven.
    pub fn headroom(&self) -> i64 {
        i64::from(self.serving) - i64::from(self.majority)
    }

    /// The number of serving voters that may go now.
    pub fn disruptions_allowed(&self) -> u32 {
        if self.is_withheld {
            return 0;
        }
        self.serving.saturating_sub(self.needed)
    }
}

impl Snapshot {
    /// The number of members that the cluster can still lose.
    pub fn tolerance(&self, grants: &Grants) -> Tolerance {
        let voters = self.voters(grants, None);
        Tolerance {
            voters,
            serving: self.serving(grants, None),
            majority: majority(voters),
            needed: self.needed(voters),
            in_flight: in_flight(grants, None),
            is_withheld: self.circumstances.ledger != Trust::Trusted
                || self.circumstances.shared_with.is_some() && !self.has_all_members_here()
                || self.circumstances.forces_new_cluster
                || self.went_back.is_some()
                || !self.refilled.is_empty(),
        }
    }

    /// The number of voters that count: the voters of the member list and the learners with a
    /// grant, but never fewer than the expected voters. A learner with a grant counts because it
    /// may be promoted while the grant is open. `aside` is not counted as such a learner.
    pub fn voters(&self, grants: &Grants, aside: Option<&PodName>) -> u32 {
        let promotable = self
            .members
            .iter()
            .filter(|member| member.role == Role::Learner)
            .filter_map(Member::pod_name)
            .filter(|pod| Some(*pod) != aside && grants.holds(pod))
            .count();
        self.electorate(&self.members)
            .max(listed(self.membership).saturating_add(count(promotable)))
    }

    /// The number of `voters` that have to serve without one that goes: the majority, or the
    /// majority of one voter more while a scale-out may add one.
    pub(super) fn needed(&self, voters: u32) -> u32 {
        let recent = self
            .scaled_out_for
            .is_some_and(|since| since < self.policy.scale_out_grace);
        let no_learner = self.members.iter().all(|m| m.role == Role::Voter);
        let joining = recent && no_learner && self.replicas > voters;
        majority(voters.saturating_add(u32::from(joining)))
    }

    /// The number of serving voters without a grant, `aside` left out.
    pub fn serving(&self, grants: &Grants, aside: Option<&PodName>) -> u32 {
        let serving = self
            .members
            .iter()
            .filter(|member| member.serves_quorum())
            .filter(|member| {
                member
                    .pod_name()
                    .is_none_or(|pod| Some(pod) != aside && !grants.holds(pod))
            })
            .count();
        count(serving)
    }

    /// Whether every voter that counts serves, grants left aside.
    pub fn all_voters_serve(&self) -> bool {
        let all = self.tolerance(&Grants::default());
        all.serving >= all.voters
    }

    /// The number of voters that count, grants left aside.
    ///
    /// An unconfirmed member list may be old, so the pods that may be voters are counted too. A
    /// list without the external voters on record may come from pods that started a cluster of
    /// their own, so the voters on record count until a majority of them shows that the cluster is
    /// theirs. Without any list `spec.replicas` takes its place, together with the external voters
    /// on record.
    pub(super) fn electorate(&self, members: &[Member]) -> u32 {
        let seen = members.iter().filter(|m| m.role == Role::Voter).count();
        let expected = self.expected.voters.max(self.unproven_voters);
        match (self.policy.evidence, self.membership) {
            (EvidenceMode::Live, Membership::Confirmed { voters }) => voters.max(expected),
            (EvidenceMode::Live, Membership::Stale { voters }) => {
                voters.max(expected).max(count(seen))
            }
            (EvidenceMode::Live, Membership::Unread) => {
                let here = self.replicas.max(expected).max(count(seen));
                here.saturating_add(self.recorded_externals)
            }
            (EvidenceMode::Readiness, _) => self.replicas.max(expected).max(count(seen)),
        }
    }
}

/// The pods with an open grant, `aside` left out.
pub(super) fn in_flight(grants: &Grants, aside: Option<&PodName>) -> Vec<PodName> {
    grants
        .iter()
        .map(|(pod, _)| pod)
        .filter(|pod| Some(*pod) != aside)
        .cloned()
        .collect()
}

fn listed(membership: Membership) -> u32 {
    match membership {
        Membership::Unread => 0,
        Membership::Stale { voters } | Membership::Confirmed { voters } => voters,
    }
}

/// Whether quorum is lost: fewer than a majority of voters would be left without the dead ones and
/// without those that answered and know no leader.
///
/// Only positive evidence counts. Without a quorum every etcd process gives up its leader within an
/// election timeout. So a voter that names a leader, or that could not be asked, may still be part
/// of a quorum.
pub(super) fn is_lost(members: &[Member], voters: u32) -> bool {
    let without = members
        .iter()
        .filter(|member| member.role == Role::Voter && is_without_quorum(member))
        .count();
    voters.saturating_sub(count(without)) < majority(voters)
}

fn is_without_quorum(member: &Member) -> bool {
    let dead = match member.process {
        ProcessState::Dead | ProcessState::DeadForGood => true,
        ProcessState::Starting | ProcessState::Alive | ProcessState::Elsewhere => false,
    };
    dead || member.leaderless || member.condition == Condition::Failing(Why::NoLeader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_more_than_half() {
        let majorities: Vec<u32> = (1..=9).map(majority).collect();
        assert_eq!(majorities, [1, 2, 2, 3, 3, 4, 4, 5, 5]);
    }

    #[test]
    fn rule_8_what_a_shared_cluster_may_lose_is_nothing() {
        let mut cluster = Snapshot::assemble(&crate::quorum::example::healthy("etcd", 3));
        let grants = Grants::default();
        assert_eq!(cluster.tolerance(&grants).disruptions_allowed(), 1);
        cluster.circumstances.shared_with = Some(crate::quorum::ClusterRef::new("b", "copy"));
        let all_here = cluster.tolerance(&grants);
        assert_eq!(all_here.disruptions_allowed(), 1, "the other guards none");
        cluster.members[2].pod = None;
        assert_eq!(cluster.tolerance(&grants).disruptions_allowed(), 0);
    }

    #[test]
    fn while_the_ledger_is_untrusted_nothing_that_serves_may_go() {
        let trusted = Tolerance {
            voters: 5,
            serving: 5,
            majority: 3,
            needed: 3,
            in_flight: Vec::new(),
            is_withheld: false,
        };
        assert_eq!(trusted.disruptions_allowed(), 2);
        let untrusted = Tolerance {
            is_withheld: true,
            ..trusted
        };
        assert_eq!(untrusted.disruptions_allowed(), 0);
        assert_eq!(
            untrusted.headroom(),
            2,
            "the cluster's own, whatever the ledger says"
        );
    }

    #[test]
    fn no_voter_makes_no_majority() {
        assert_eq!(majority(0), 1);
    }
}
