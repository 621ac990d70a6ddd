//! Which of the leaving members etcd still lists.

use crate::quorum::{EvidenceMode, Member, Membership, PodName, Snapshot, Why};

use super::decide::Listed;

/// The leaving pods whose members are, or may be, in etcd's list. Only a list from a member in contact with a quorum shows that one
/// is gone from it.
pub(super) fn among(leaving: &[PodName], snapshot: &Snapshot) -> Listed {
    if snapshot.policy.evidence == EvidenceMode::Readiness {
        // Nobody can look: only an announcement lets them go.
        return Listed::Members(leaving.to_vec());
    }
    match snapshot.membership {
        Membership::Confirmed { voters: _ } => Listed::Members(still_listed(leaving, snapshot)),
        Membership::Unread | Membership::Stale { voters: _ } => Listed::Unknown {
            because: snapshot.members.iter().filter_map(why).collect(),
        },
    }
}

fn still_listed(leaving: &[PodName], snapshot: &Snapshot) -> Vec<PodName> {
    let is_listed = |pod: &&PodName| {
        snapshot.member(pod).is_some() || podless(snapshot).any(|member| pod.names(&member.name))
    };
    let mut listed: Vec<PodName> = leaving.iter().filter(is_listed).cloned().collect();
    // A member that never started has no name: it may be any of those that leave.
    let nameless =
        podless(snapshot).filter(|member| member.condition.why() == Some(&Why::Unstarted));
    listed.extend(nameless.map(|member| PodName::new(member.name.clone())));
    listed
}

fn podless(snapshot: &Snapshot) -> impl Iterator<Item = &Member> {
    snapshot
        .members
        .iter()
        .filter(|member| member.pod.is_none())
}

fn why(member: &Member) -> Option<String> {
    let why = member.condition.why()?;
    Some(format!("{}: {why}", member.name))
}
