//! The answers of one probe round, sorted by member.
//!
//! A contradictory answer (two pods with one member id, an endpoint that answers differently twice)
//! is kept apart from a missing one.

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::{ListedMember, Probe, Round, Status, Target, Unanswered};
use super::id::{MemberId, PodName, PodUid};
use super::pod::Pod;

/// The answer of one endpoint.
#[derive(Debug, Clone)]
pub(super) enum MemberAnswer<'a> {
    /// A status, and the read and the member list that followed it.
    Heard(Heard<'a>),
    /// No status, and the reason.
    Silent(Unanswered),
    /// A status whose member id other pods answered with too. Nobody can tell which pod is that
    /// member.
    Shared { id: MemberId, with: Vec<PodName> },
}

/// A status that belongs to exactly one member.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heard<'a> {
    pub(super) status: &'a Status,
    pub(super) read: &'a Result<(), Unanswered>,
    pub(super) members: &'a Result<Vec<ListedMember>, Unanswered>,
}

/// The answers of one round, sorted by pod and by external member.
#[derive(Debug)]
pub(super) struct Answers<'a> {
    pods: BTreeMap<&'a PodUid, MemberAnswer<'a>>,
    external: BTreeMap<MemberId, MemberAnswer<'a>>,
}

impl<'a> Answers<'a> {
    /// Sorts the answers of a round. Answers of pods that are not in `pods` are dropped, because an
    /// earlier incarnation gave them.
    pub(super) fn sort(pods: &'a [Pod], round: &'a Round) -> Self {
        let mut by_target: BTreeMap<&Target, Vec<&Probe>> = BTreeMap::new();
        for probe in &round.probes {
            by_target.entry(&probe.target).or_default().push(probe);
        }
        let mut sorted = Self {
            pods: pods.iter().map(|pod| (&pod.uid, unasked(pod))).collect(),
            external: BTreeMap::new(),
        };
        for (target, probes) in by_target {
            match target {
                Target::Pod(uid) => {
                    if let Some(answer) = sorted.pods.get_mut(uid) {
                        *answer = one_answer(&probes);
                    }
                }
                Target::External(id) => {
                    sorted
                        .external
                        .insert(*id, of_member(*id, one_answer(&probes)));
                }
            }
        }
        sorted.separate_shared(pods);
        sorted
    }

    /// The answer of a pod.
    pub(super) fn of_pod(&self, uid: &PodUid) -> Option<&MemberAnswer<'a>> {
        self.pods.get(uid)
    }

    /// The statuses that pods gave, each of exactly one member.
    pub(super) fn by_pods(&self) -> impl Iterator<Item = (&'a PodUid, &Heard<'a>)> {
        let pods = self.pods.iter();
        pods.filter_map(|(uid, answer)| Some((*uid, answer.heard()?)))
    }

    /// The answer from the client URL of a member without a pod.
    pub(super) fn of_external(&self, id: MemberId) -> Option<&MemberAnswer<'a>> {
        self.external.get(&id)
    }

    /// Every status of this round, once per member.
    pub(super) fn heard(&self) -> impl Iterator<Item = &Heard<'a>> {
        let by_pods: BTreeSet<MemberId> = self.pods.values().filter_map(MemberAnswer::id).collect();
        let elsewhere = self
            .external
            .iter()
            .filter(move |(id, _)| !by_pods.contains(id))
            .map(|(_, answer)| answer);
        self.pods
            .values()
            .chain(elsewhere)
            .filter_map(MemberAnswer::heard)
    }

    fn separate_shared(&mut self, pods: &[Pod]) {
        let mut claims: BTreeMap<MemberId, Vec<&Pod>> = BTreeMap::new();
        for pod in pods {
            if let Some(id) = self.pods.get(&pod.uid).and_then(MemberAnswer::id) {
                claims.entry(id).or_default().push(pod);
            }
        }
        for (id, claimants) in claims.into_iter().filter(|(_, c)| c.len() > 1) {
            for pod in &claimants {
                let mut with: Vec<PodName> = claimants
                    .iter()
                    .filter(|other| other.uid != pod.uid)
                    .map(|other| other.name.clone())
                    .collect();
                with.sort();
                if let Some(answer) = self.pods.get_mut(&pod.uid) {
                    *answer = MemberAnswer::Shared { id, with };
                }
            }
        }
    }
}

impl<'a> MemberAnswer<'a> {
    /// The status, if it belongs to exactly one member.
    pub(super) fn heard(&self) -> Option<&Heard<'a>> {
        match self {
            Self::Heard(heard) => Some(heard),
            Self::Silent(_) | Self::Shared { .. } => None,
        }
    }

    fn id(&self) -> Option<MemberId> {
        match self {
            Self::Heard(heard) => Some(heard.status.member_id),
            Self::Shared { id, .. } => Some(*id),
            Self::Silent(_) => None,
        }
    }
}

fn unasked<'a>(pod: &Pod) -> MemberAnswer<'a> {
    MemberAnswer::Silent(if pod.has_address {
        Unanswered::NotAsked
    } else {
        Unanswered::NoAddress
    })
}

fn one_answer<'a>(probes: &[&'a Probe]) -> MemberAnswer<'a> {
    let Some((first, rest)) = probes.split_first() else {
        return MemberAnswer::Silent(Unanswered::NotAsked);
    };
    if rest.iter().any(|other| other != first) {
        return MemberAnswer::Silent(Unanswered::Other(
            "it gave different answers in one round".into(),
        ));
    }
    match &first.status {
        Ok(status) => MemberAnswer::Heard(Heard {
            status,
            read: &first.read,
            members: &first.members,
        }),
        Err(unanswered) => MemberAnswer::Silent(unanswered.clone()),
    }
}

fn of_member(id: MemberId, answer: MemberAnswer<'_>) -> MemberAnswer<'_> {
    match answer.id() {
        Some(answered) if answered != id => MemberAnswer::Silent(Unanswered::Other(format!(
            "member {answered} answers at its client URL"
        ))),
        _ => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_contradicts_itself_has_said_nothing() {
        let probe = |why| Probe::unanswered(Target::External(MemberId(1)), why);
        let (slow, refused) = (probe(Unanswered::Deadline), probe(Unanswered::Refused));
        let said = |probes: &[&Probe]| match one_answer(probes) {
            MemberAnswer::Silent(why) => why.to_string(),
            answered => format!("{answered:?}"),
        };
        assert_eq!(said(&[]), "it was not asked");
        assert_eq!(said(&[&slow, &slow]), "it did not answer in time");
        let contradiction = "it gave different answers in one round";
        assert_eq!(said(&[&slow, &refused]), contradiction);
        assert_eq!(said(&[&slow, &slow, &refused]), contradiction);
    }
}
