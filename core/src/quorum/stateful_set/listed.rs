//! The leaving members that etcd still lists.

use super::super::id::{Ordinal, PodName};
use super::super::policy::EvidenceMode;
use super::super::snapshot::{Member, Snapshot};
use super::super::why::Why;
use super::ordinals::Leaving;
use super::ordinals::pod;

/// The number of leaving pods that are named if nobody can say which of them have a member.
const NAMED: usize = 9;

/// The members of leaving ordinals that etcd still lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// The pods of these members. Empty if all members were removed.
    Members(Vec<PodName>),
    /// No member could be asked.
    Unknown {
        /// The failures of the probes, a line per member.
        because: Vec<String>,
    },
}

impl Listed {
    /// The leaving pods whose members are in etcd's list, or may be. Only a proven list says that a
    /// member was removed.
    ///
    /// The search goes through the members, which are few, and not through the leaving ordinals,
    /// whose number comes from a request.
    pub fn among(leaving: &Leaving, snapshot: &Snapshot) -> Self {
        if snapshot.policy.evidence == EvidenceMode::Readiness {
            // There is no list to look at, so only an announcement lets the pods go.
            return Self::Members(leaving.first_pods(&snapshot.cluster.name, NAMED));
        }
        let doubted = Self::Unknown {
            because: snapshot.members.iter().filter_map(why).collect(),
        };
        if !snapshot.has_proven_list() {
            return doubted;
        }
        let listed = still_listed(leaving, snapshot);
        if listed.is_empty() && may_list_another(leaving, snapshot) {
            return doubted;
        }
        Self::Members(listed)
    }
}

fn still_listed(leaving: &Leaving, snapshot: &Snapshot) -> Vec<PodName> {
    // Without an id the member in a pod is none of those in the list, as far as is known.
    let listed = snapshot.members.iter().filter(|member| member.id.is_some());
    let mut ordinals: Vec<Ordinal> = listed
        .filter_map(|member| leaves(leaving, snapshot, member))
        .collect();
    ordinals.sort_unstable();
    ordinals.dedup();
    // A member that never started has no name, so it may be any of those that leave.
    let nameless = podless(snapshot)
        .filter(|member| member.condition.why() == Some(&Why::Unstarted))
        .filter(|member| leaves(leaving, snapshot, member).is_none());
    let named = ordinals
        .into_iter()
        .map(|ordinal| pod(&snapshot.cluster.name, ordinal));
    named
        .chain(nameless.map(|member| PodName::new(member.name.clone())))
        .collect()
}

/// Whether a pod that leaves may be one of the listed members: it did not say which member it is,
/// and of some listed member nobody knows the pod.
fn may_list_another(leaving: &Leaving, snapshot: &Snapshot) -> bool {
    let mut here = snapshot.members.iter();
    let leaves_unidentified =
        here.any(|member| member.id.is_none() && leaves(leaving, snapshot, member).is_some());
    leaves_unidentified && podless(snapshot).any(|member| member.pod_name().is_none())
}

/// The ordinal of the pod that a member belongs in, if it leaves.
fn leaves(leaving: &Leaving, snapshot: &Snapshot, member: &Member) -> Option<Ordinal> {
    let called = member.pod_name()?;
    let ordinal = Ordinal::from_pod(called).filter(|ordinal| leaving.contains(*ordinal))?;
    (pod(&snapshot.cluster.name, ordinal) == *called).then_some(ordinal)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::evidence::{Probe, Unanswered};
    use crate::quorum::stateful_set::Ordinals;
    use crate::quorum::{MemberId, Observation, example};

    /// The answer to a scale-in of `etcd` to three members.
    fn to_three(from: u32, observation: &Observation) -> Listed {
        let ordinals = |count| Ordinals { start: None, count };
        let leaving = ordinals(from).leaving(ordinals(3), 0);
        Listed::among(&leaving, &Snapshot::assemble(observation))
    }

    fn members(names: &[&str]) -> Listed {
        Listed::Members(names.iter().map(|name| (*name).into()).collect())
    }

    /// Five members, of which the last two have no pod. etcd has these names for them; an empty one
    /// is that of a member that never started.
    fn without_pods(names: [&str; 2]) -> Observation {
        let mut observation = example::healthy("etcd", 5);
        observation.pods.truncate(3);
        observation.round.probes.truncate(3);
        for probe in &mut observation.round.probes {
            let listed = probe.members.as_mut().unwrap();
            for (member, name) in listed.iter_mut().skip(3).zip(names) {
                name.clone_into(&mut member.name);
                if name.is_empty() {
                    member.client_urls.clear();
                }
            }
        }
        observation
    }

    #[test]
    fn the_members_of_leaving_ordinals_are_listed_until_etcd_has_removed_them() {
        let all = example::healthy("etcd", 5);
        assert_eq!(to_three(5, &all), members(&["etcd-3", "etcd-4"]));
        assert_eq!(to_three(5, &example::healthy("etcd", 3)), members(&[]));
        assert_eq!(to_three(3, &all), members(&[]));
    }

    #[test]
    fn a_member_without_a_pod_is_told_by_its_name() {
        let named = |names| to_three(5, &without_pods(names));
        assert_eq!(
            named(["etcd-4", "blue-etcd-3"]),
            members(&["etcd-3", "etcd-4"])
        );
        assert_eq!(named(["etcd-4", "etcd-4"]), members(&["etcd-4"]));
        // Neither is a name of a pod that leaves.
        assert_eq!(named(["other-3", "etcd-5"]), members(&[]));
    }

    /// A drain has taken the pod of a member, whose name in etcd is not that of its pod.
    #[test]
    fn a_member_without_a_pod_is_known_by_the_record_of_its_pod() {
        let mut observation = example::without_last_pod_and_names("etcd", 3);
        let pods = (0..3).map(|n| (MemberId(n + 1), PodName::new(format!("etcd-{n}"))));
        observation.recorded_pods = pods.collect();
        let ordinals = |count| Ordinals { start: None, count };
        let leaving = ordinals(3).leaving(ordinals(2), 0);
        let answer = Listed::among(&leaving, &Snapshot::assemble(&observation));
        assert_eq!(answer, members(&["etcd-2"]));
    }

    /// The ordinals were moved from 0 to 1, and a pod for which etcd lists no member came of that.
    #[test]
    fn a_pod_that_never_was_a_member_is_not_called_listed() {
        let mut observation = example::healthy("etcd", 4);
        observation.pods.remove(0);
        let asked = observation.round.probes.remove(0);
        for probe in &mut observation.round.probes {
            probe.members.as_mut().unwrap().truncate(3);
            probe.status.as_mut().unwrap().leader = Some(MemberId(2));
        }
        let last = observation.pods.last_mut().unwrap();
        (last.recorded_id, last.etcd_ready) = (None, false);
        let probe = observation.round.probes.last_mut().unwrap();
        *probe = Probe::unanswered(probe.target.clone(), Unanswered::Refused);
        drop(asked);
        (observation.replicas, observation.expected.voters) = (3, 3);
        let range = |start| Ordinals {
            start: Some(start),
            count: 3,
        };
        let back = range(1).leaving(range(0), 0);
        let answer =
            |observation: &Observation| Listed::among(&back, &Snapshot::assemble(observation));
        assert_eq!(answer(&observation), members(&[]));
        // It may be the one whose pod nobody knows.
        for probe in &mut observation.round.probes {
            if let Ok(listed) = &mut probe.members {
                "elsewhere".clone_into(&mut listed[0].name);
            }
        }
        let doubted = answer(&observation);
        assert!(matches!(doubted, Listed::Unknown { .. }), "{doubted:?}");
    }

    #[test]
    fn a_member_that_never_started_may_be_any_of_those_that_leave() {
        let unstarted = to_three(5, &without_pods(["", "etcd-9"]));
        let Listed::Members(listed) = unstarted else {
            panic!("{unstarted:?}")
        };
        assert_eq!(listed.len(), 1, "{listed:?}");
    }

    #[test]
    fn only_a_list_from_a_member_in_contact_with_a_quorum_counts() {
        let mut stale = example::healthy("etcd", 3);
        for probe in &mut stale.round.probes {
            probe.read = Err(Unanswered::Deadline);
        }
        let mut unread = stale.clone();
        for probe in &mut unread.round.probes {
            probe.members = Err(Unanswered::Deadline);
        }
        for observation in [stale, unread] {
            let answer = to_three(5, &observation);
            let Listed::Unknown { because } = answer else {
                panic!("{answer:?}")
            };
            assert_eq!(because.len(), 3, "{because:?}");
            assert!(because[0].starts_with("etcd-0: "), "{because:?}");
        }
    }

    #[test]
    fn without_a_list_the_first_pods_that_leave_are_named() {
        let mut blind = example::healthy("etcd", 3);
        blind.policy.evidence = EvidenceMode::Readiness;
        assert_eq!(to_three(4, &blind), members(&["etcd-3"]));
        let Listed::Members(many) = to_three(u32::MAX, &blind) else {
            panic!("there is no list")
        };
        assert_eq!(many.len(), NAMED);
    }
}
