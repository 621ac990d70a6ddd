//! The members that a teardown would take while they serve.

use super::condition::Condition;
use super::id::PodName;
use super::snapshot::{Member, Snapshot};

/// Whether any member of a StatefulSet serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serving {
    /// No member serves, by positive evidence.
    Nobody,
    /// The pods of the members that serve.
    Members(Vec<PodName>),
    /// No member is seen to serve, and nobody knows whether these do.
    Unknown {
        /// The reasons, a line per member.
        because: Vec<String>,
    },
}

impl Serving {
    /// The members of the snapshot that run in pods of the StatefulSet. A member without a pod does
    /// not serve, whatever is known of it.
    pub fn from_snapshot(snapshot: &Snapshot) -> Self {
        let here = || {
            snapshot
                .members
                .iter()
                .filter(|member| member.pod.is_some())
        };
        let serving: Vec<PodName> = here()
            .filter(|member| member.serves_quorum())
            .filter_map(|member| member.pod_name().cloned())
            .collect();
        if !serving.is_empty() {
            return Self::Members(serving);
        }
        let is_confirmed = snapshot.quorum_lost_for.is_some();
        let unknown = |member| unknown(member, is_confirmed);
        let because: Vec<String> = here().filter_map(unknown).collect();
        if because.is_empty() {
            Self::Nobody
        } else {
            Self::Unknown { because }
        }
    }
}

/// The reason why nobody knows whether the member serves, or will in a moment. Members that elect a
/// leader serve again a second later, so they count until the loss of the quorum is confirmed.
fn unknown(member: &Member, is_confirmed: bool) -> Option<String> {
    let is_known = match &member.condition {
        Condition::Learning | Condition::Serving => true,
        Condition::Failing(_) => is_confirmed || !member.may_serve(),
        Condition::Unknown(_) => member.process.is_down(),
    };
    let why = member.condition.why().filter(|_| !is_known)?;
    Some(format!("{}: {why}", member.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::evidence::{Probe, Unanswered};
    use crate::quorum::pod::Containers;
    use crate::quorum::{Observation, example};

    fn of(observation: &Observation) -> Serving {
        Serving::from_snapshot(&Snapshot::assemble(observation))
    }

    fn silent(unanswered: &Unanswered) -> Observation {
        let mut observation = example::healthy("etcd", 3);
        for probe in &mut observation.round.probes {
            *probe = Probe::unanswered(probe.target.clone(), unanswered.clone());
        }
        observation
    }

    #[test]
    fn members_that_serve_are_named() {
        let mut observation = example::healthy("etcd", 3);
        let all = ["etcd-0", "etcd-1", "etcd-2"].map(PodName::new);
        assert_eq!(of(&observation), Serving::Members(all.into()));
        let cut_off = observation.round.probes[0].target.clone();
        observation.round.probes[0] = Probe::unanswered(cut_off, Unanswered::Deadline);
        let two = ["etcd-1", "etcd-2"].map(PodName::new);
        assert_eq!(of(&observation), Serving::Members(two.into()));
    }

    #[test]
    fn members_that_do_not_answer_may_serve_and_those_that_ended_do_not() {
        let Serving::Unknown { because } = of(&silent(&Unanswered::Deadline)) else {
            panic!("nobody knows")
        };
        assert_eq!(because.len(), 3, "{because:?}");
        let mut ended = silent(&Unanswered::Refused);
        for pod in &mut ended.pods {
            pod.containers = Containers::EtcdFailed {
                reason: "CrashLoopBackOff".to_owned(),
            };
            pod.etcd_ready = false;
        }
        assert_eq!(of(&ended), Serving::Nobody);
    }

    #[test]
    fn members_that_elect_a_leader_may_serve_until_the_loss_is_confirmed() {
        let mut observation = example::healthy("etcd", 3);
        for probe in &mut observation.round.probes {
            probe.status.as_mut().unwrap().leader = None;
            probe.read = Err(Unanswered::NoLeader);
        }
        let electing = of(&observation);
        assert!(matches!(electing, Serving::Unknown { .. }), "{electing:?}");
        observation.quorum_lost_for = Some(std::time::Duration::from_secs(7));
        assert_eq!(of(&observation), Serving::Nobody);
    }

    #[test]
    fn without_pods_nobody_serves() {
        let mut observation = silent(&Unanswered::Deadline);
        observation.pods.clear();
        observation.round.probes.clear();
        assert_eq!(of(&observation), Serving::Nobody);
    }
}
