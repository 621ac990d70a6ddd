//! Which of the leaving members etcd still lists.

use crate::quorum::{EvidenceMode, Member, Membership, Ordinal, PodName, Snapshot, Why};

use super::decide::Listed;
use super::ordinals::{Leaving, pod};

/// How many of the leaving pods are named where nobody can say which of them have a member.
const NAMED: usize = 9;

/// The leaving pods whose members are, or may be, in etcd's list. Only a list from a member in contact with a quorum shows that one
/// is gone from it. It is gone through member by member: those are as many as there are, whatever a request says that leaves.
pub fn among(leaving: &Leaving, snapshot: &Snapshot) -> Listed {
    if snapshot.policy.evidence == EvidenceMode::Readiness {
        // Nobody can look: only an announcement lets them go.
        return Listed::Members(leaving.first_pods(&snapshot.cluster.name, NAMED));
    }
    match snapshot.membership {
        Membership::Confirmed { voters: _ } => Listed::Members(still_listed(leaving, snapshot)),
        Membership::Unread | Membership::Stale { voters: _ } => Listed::Unknown {
            because: snapshot.members.iter().filter_map(why).collect(),
        },
    }
}

fn still_listed(leaving: &Leaving, snapshot: &Snapshot) -> Vec<PodName> {
    let ordinals = snapshot.members.iter().filter_map(|member| {
        let called = match &member.pod {
            Some(pod) => pod.name.clone(),
            None => PodName::new(member.name.clone()),
        };
        let ordinal = Ordinal::of(&called).filter(|ordinal| leaving.contains(*ordinal))?;
        let would_be = pod(&snapshot.cluster.name, ordinal);
        let is_its = if member.pod.is_some() {
            would_be == called
        } else {
            would_be.names(called.as_str())
        };
        is_its.then_some(ordinal)
    });
    let mut ordinals: Vec<Ordinal> = ordinals.collect();
    ordinals.sort_unstable();
    ordinals.dedup();
    // A member that never started has no name: it may be any of those that leave.
    let nameless =
        podless(snapshot).filter(|member| member.condition.why() == Some(&Why::Unstarted));
    let named = ordinals
        .into_iter()
        .map(|ordinal| pod(&snapshot.cluster.name, ordinal));
    named
        .chain(nameless.map(|member| PodName::new(member.name.clone())))
        .collect()
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
