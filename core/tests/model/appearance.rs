//! The appearance of members to one look, and the observation that the shipped code gets of it.
//!
//! A *look* is one reading of the cluster: the pods from the Kubernetes API, and the answers of the
//! members.

use std::time::Duration;

use quorumgate_core::quorum::evidence::{ListedMember, Probe, Round, Status, Target, Unanswered};
use quorumgate_core::quorum::pod::{Containers, Node, Pod};
use quorumgate_core::quorum::{
    Circumstances, ClusterId, ClusterRef, ExpectedVoters, MemberId, Observation, Ordinal, PodName,
    PodUid,
};

use crate::halves::Sight;
use crate::set::Set;
use crate::state::{Expected, Listed, MEMBERS, Member, Phase, State, Volume};
use crate::truth;

/// The appearance of every member to one look.
pub(crate) type Look = [Appearance; MEMBERS];

/// The appearance of a member to one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Appearance {
    /// Nothing was seen: there is no such member, or nobody looked.
    #[default]
    None,
    /// The member answers, and is in contact with a quorum.
    Answers,
    /// The member answers, and knows no leader.
    Leaderless,
    /// No answer came in time. The kubelet says that the member runs.
    Silent,
    /// The member accepts connections, and answers nothing.
    Mute,
    /// The member answers, and its pod is terminating.
    Ending,
    /// The member has no pod.
    Missing,
    /// The pod waits for a scheduling gate.
    Held,
    /// The pod is being created.
    Starting,
    /// The container runs, and its client port refuses.
    Refusing,
    /// The process does not run.
    Crashed,
    /// The node is gone.
    Lost,
    /// Another member answers at the member's address.
    Impersonated,
}

/// The appearances to a look that misses the members in `hidden`, although they run.
pub(crate) fn look(state: &State, hidden: Set) -> Look {
    let quorate = truth::is_quorate(state);
    let mut look = [Appearance::None; MEMBERS];
    for (n, member) in state.members() {
        look[n] = if hidden.has(n) {
            Appearance::Silent
        } else {
            of(*member, quorate)
        };
    }
    look
}

fn of(member: Member, quorate: bool) -> Appearance {
    match member.phase {
        Phase::Absent => Appearance::None,
        Phase::Up if quorate => Appearance::Answers,
        Phase::Up | Phase::Cut => Appearance::Leaderless,
        Phase::Ending => Appearance::Ending,
        Phase::Missing => Appearance::Missing,
        Phase::Held => Appearance::Held,
        Phase::Starting => Appearance::Starting,
        Phase::Initialising | Phase::Booting => Appearance::Refusing,
        Phase::Crashed => Appearance::Crashed,
        Phase::Hung | Phase::Busy => Appearance::Silent,
        Phase::Lost => Appearance::Lost,
        Phase::Impersonated => Appearance::Impersonated,
    }
}

/// The appearances of a look, and everything else that an observation is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Scene {
    pub(crate) sight: Sight,
    pub(crate) listed: [Listed; MEMBERS],
    pub(crate) outdated: Set,
    /// The members that are listed and never ran.
    pub(crate) unstarted: Set,
    pub(crate) volumes: [Volume; MEMBERS],
    /// Whether the pods are the volumes.
    pub(crate) in_pods: bool,
    /// The members whose entries have newer ids than those on record.
    pub(crate) renewed: Set,
    /// The members that have yet to catch up.
    pub(crate) behind: Set,
    /// The member that has handed leadership over, if it led.
    pub(crate) handed_over: Option<u8>,
    pub(crate) replicas: u8,
    pub(crate) expected: Expected,
    /// Whether the StatefulSet has just grown.
    pub(crate) young: bool,
    /// The members whose pods a recorded scale-in lets go.
    pub(crate) let_go: Set,
    /// Whether the gate's connections are rejected, and readiness probes fail.
    pub(crate) is_rejected: bool,
    /// By mutation: a refusal counts as the kubelet's word that the process has ended.
    pub(crate) believes_refusals: bool,
    /// By mutation: the names of members do not show that they belong in pods.
    pub(crate) nameless: bool,
}

/// The name of the cluster, with which the names of its pods begin.
pub(crate) const NAME: &str = "etcd";

/// The name of a member's pod.
pub(crate) fn pod_name(n: usize) -> PodName {
    PodName::new(format!("{NAME}-{n}"))
}

/// The UID of the pod that exists now, or of an earlier incarnation.
pub(crate) fn uid(n: usize, stands: bool) -> PodUid {
    PodUid::new(format!("{n}-{}", if stands { "now" } else { "before" }))
}

impl Scene {
    /// The observation that a replica would make. Quorum that looks lost counts as lost for long.
    pub(crate) fn observation(&self, circumstances: Circumstances) -> Observation {
        let replicas = u32::from(self.replicas);
        let pod_of = |n| {
            let is_known = self.listed[n] != Listed::No && !self.unstarted.has(n);
            let known = is_known.then(|| self.id(n));
            let mut pod = pod(n, self.sight.pods[n], known, self.outdated.has(n))?;
            if self.is_rejected {
                (pod.etcd_ready, pod.ready) = (false, false);
                if self.believes_refusals && pod.containers == Containers::Running {
                    pod.containers = Containers::EtcdFailed {
                        reason: "Error".into(),
                    };
                }
            }
            Some(pod)
        };
        Observation {
            circumstances,
            update_revision: Some("new".into()),
            expected: ExpectedVoters {
                voters: u32::from(self.expected.voters),
                replicas: u32::from(self.expected.replicas),
            },
            scaled_out_for: self.young.then_some(Duration::ZERO),
            quorum_lost_for: Some(LONG),
            mute_for: Some(LONG),
            recorded_cluster: Some(CLUSTER),
            recorded_log_end: None,
            recorded_loss: None,
            pods: (0..MEMBERS).filter_map(pod_of).collect(),
            round: Round {
                probes: (0..MEMBERS).filter_map(|n| self.probe(n)).collect(),
            },
            ..Observation::before_any_look(ClusterRef::new("ns", NAME), replicas)
        }
    }

    fn probe(&self, n: usize) -> Option<Probe> {
        let learner = self.listed[n] == Listed::Learner;
        let target = match self.sight.pods[n] {
            Appearance::None => return None,
            // A member that never ran has no client URL.
            Appearance::Missing if self.listed[n] == Listed::No || self.unstarted.has(n) => {
                return None;
            }
            Appearance::Missing => Target::External(self.id(n)),
            _ => Target::Pod(uid(n, true)),
        };
        let silent = |why| Some(Probe::unanswered(target.clone(), why));
        let (answering, leader) = match self.sight.answers[n] {
            Appearance::Held | Appearance::Starting => return silent(Unanswered::NoAddress),
            _ if self.is_rejected => return silent(Unanswered::Refused),
            // A process that lingers after its pod is gone may go on answering at its client URL.
            Appearance::Answers | Appearance::Ending | Appearance::Missing => (n, self.leader()),
            Appearance::Leaderless => (n, None),
            Appearance::Impersonated => match self.leader() {
                Some(leader) => (leader, Some(leader)),
                None => return silent(Unanswered::Deadline),
            },
            Appearance::Mute => return silent(Unanswered::Mute),
            Appearance::Crashed | Appearance::Refusing => return silent(Unanswered::Refused),
            _ => return silent(Unanswered::Deadline),
        };
        let nobody_leads = leader.is_none();
        Some(Probe {
            target,
            status: Ok(self.status(answering, leader, learner)),
            read: match (learner, nobody_leads) {
                (true, _) => Err(Unanswered::Learner),
                (false, true) => Err(Unanswered::NoLeader),
                (false, false) => Ok(()),
            },
            members: if learner {
                Err(Unanswered::Learner)
            } else {
                Ok(self.list())
            },
        })
    }

    /// The voter that leads: the first one that answers.
    fn leader(&self) -> Option<usize> {
        let leads = |n: &usize| {
            self.sight.answers[*n] == Appearance::Answers && self.listed[*n] == Listed::Voter
        };
        let handed_over = self.handed_over.map(usize::from);
        let others = (0..MEMBERS).filter(|n| Some(*n) != handed_over && !self.behind.has(*n));
        others.chain(handed_over).find(leads)
    }

    /// The id of a member's entry in etcd's list.
    pub(crate) fn id(&self, n: usize) -> MemberId {
        id(n, self.renewed.has(n))
    }

    pub(crate) fn list(&self) -> Vec<ListedMember> {
        let listed = (0..MEMBERS).filter(|n| self.listed[*n] != Listed::No);
        listed
            .map(|n| ListedMember {
                id: self.id(n),
                name: if self.unstarted.has(n) {
                    String::new()
                } else if self.nameless {
                    format!("m{n}")
                } else {
                    pod_name(n).to_string()
                },
                learner: self.listed[n] == Listed::Learner,
                peer_urls: vec![format!("https://{}:2380", pod_name(n))],
                client_urls: if self.unstarted.has(n) {
                    Vec::new()
                } else {
                    vec![format!("https://{}:2379", pod_name(n))]
                },
            })
            .collect()
    }

    fn status(&self, answering: usize, leader: Option<usize>, learner: bool) -> Status {
        let index = if self.behind.has(answering) { 0 } else { INDEX };
        Status {
            cluster_id: CLUSTER,
            member_id: self.id(answering),
            leader: leader.map(|n| self.id(n)),
            term: 5,
            raft_index: index,
            applied_index: index,
            learner,
            alarms: Vec::new(),
            db_size: 0,
            db_size_in_use: 0,
            revision: 0,
            db_size_quota: None,
            version: VERSION.into(),
        }
    }
}

/// The id of the cluster.
const CLUSTER: ClusterId = ClusterId(0xc1);

/// Longer than any grace period.
const LONG: Duration = Duration::from_secs(3600);

/// The raft index of a member that is up to date: far beyond what a learner may be behind.
const INDEX: u64 = 1_000_000;

/// The version of every member.
pub(crate) const VERSION: &str = "3.6.16";

/// The pod of a member as the API server shows it.
pub(crate) fn pod(
    n: usize,
    shown: Appearance,
    known: Option<MemberId>,
    outdated: bool,
) -> Option<Pod> {
    if matches!(shown, Appearance::None | Appearance::Missing) {
        return None;
    }
    let serves = shown == Appearance::Answers;
    Some(Pod {
        name: pod_name(n),
        uid: uid(n, true),
        ordinal: Some(Ordinal(u32::try_from(n).unwrap())),
        terminating: shown == Appearance::Ending,
        has_address: !matches!(shown, Appearance::Held | Appearance::Starting),
        node: match shown {
            Appearance::Lost => Node::Gone,
            Appearance::Held => Node::Unscheduled,
            _ => Node::Ready,
        },
        containers: match shown {
            Appearance::Held | Appearance::Starting => Containers::Creating,
            Appearance::Crashed => Containers::EtcdFailed {
                reason: "CrashLoopBackOff".into(),
            },
            _ => Containers::Running,
        },
        etcd_ready: serves,
        up_for: Some(LONG),
        ready_for: Some(LONG),
        // Processes that serve go on. So nothing but the answer holds back a member whose pod and
        // answer are of different moments.
        etcd_age: Some(LONG),
        sidecar_failing: false,
        ready: serves,
        revision: Some(if outdated { "old" } else { "new" }.into()),
        lease_role: None,
        recorded_id: known,
    })
}

/// The id of a member, on record or newer.
pub(crate) fn id(n: usize, renewed: bool) -> MemberId {
    let first = if renewed { 0xb0 } else { 0xa0 };
    MemberId(first + u64::try_from(n).unwrap())
}
