//! A cluster built member by member, and the observation that a perfect observer would make of it.
//!
//! Members are called `a`, `b`, `c` and so on, and so are their pods. The id of `a` is `aa`, that
//! of `b` is `bb`. At the beginning all members serve, and `a` leads in term 5.

use std::collections::BTreeMap;
use std::time::Duration;

use quorumgate_core::quorum::evidence::{
    Alarm, AlarmKind, ListedMember, Probe, Round, Status, Target, Unanswered,
};
use quorumgate_core::quorum::pod::{Containers, LeaseRole, Node, Pod};
use quorumgate_core::quorum::{
    Actor, Circumstances, ClusterId, ClusterRef, Disruption, ExpectedVoters, Grace, Kind, MemberId,
    Observation, Ordinal, Policy, TargetPod,
};

/// The cluster id of members without another one.
pub(crate) const CLUSTER: ClusterId = ClusterId(0xc1);

/// The plainest request for a pod: by the usual asker of this kind, with a grace period, without a
/// UID as a precondition.
pub(crate) fn ask(target: &str, kind: Kind) -> Disruption {
    let own = matches!(kind, Kind::RolloutStep | Kind::Defragment | Kind::Replace);
    Disruption {
        target: TargetPod {
            name: target.into(),
            uid: format!("{target}-1").as_str().into(),
        },
        kind,
        actor: if own { Actor::Gate } else { Actor::Stranger },
        grace: Grace::Graceful,
        precondition: None,
    }
}

/// A cluster and everything that can be observed of it.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) members: Vec<Inhabitant>,
    pub(crate) replicas: u32,
    pub(crate) expected: u32,
    /// The `spec.replicas` when the expected voters were last written.
    pub(crate) expected_under: u32,
    pub(crate) leader: MemberId,
    pub(crate) term: u64,
    pub(crate) circumstances: Circumstances,
    pub(crate) policy: Policy,
    pub(crate) scaled_out_for: Option<Duration>,
    pub(crate) quorum_lost_for: Option<Duration>,
    pub(crate) mute_for: Option<Duration>,
    /// The number of external voters on record that have been removed since.
    pub(crate) removed_externals: u32,
    pub(crate) learners_stuck_for: BTreeMap<MemberId, Duration>,
    /// The revision that the owner lets go on without quorum.
    pub(crate) proceed_without_quorum: Option<String>,
}

/// A member, a pod, or both.
#[derive(Debug, Clone)]
pub(crate) struct Inhabitant {
    pub(crate) name: String,
    pub(crate) id: MemberId,
    pub(crate) listed: Listed,
    /// Whether the member was promoted a moment ago and still calls itself a learner.
    pub(crate) promoted_unawares: bool,
    pub(crate) pod: Option<Pod>,
    /// Whether the budget has a record of the member's pod. The pod need not exist now.
    pub(crate) recorded: bool,
    pub(crate) cluster: ClusterId,
    /// The answers of the member's endpoint.
    pub(crate) answers: Answers,
    /// The leader that the member names instead of the true one.
    pub(crate) names: Names,
    pub(crate) read: Result<(), Unanswered>,
    pub(crate) list: Known,
    pub(crate) applied: u64,
    pub(crate) alarm: Option<AlarmKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listed {
    Voter,
    Learner,
    /// A member that was added as a voter and never started, so that it has no name and no client
    /// URL.
    Unstarted,
    No,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answers {
    Itself,
    /// An answer with another member's id (a reused address).
    As(MemberId),
    Not(Unanswered),
    /// No answer, because the member was not asked.
    Unasked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    TheLeader,
    Nobody,
    Another(MemberId, u64),
}

/// The member list that the member gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Known {
    Current,
    /// An old list with these members only.
    Old(Vec<MemberId>),
    Nothing(Unanswered),
}

pub(crate) fn name(index: usize) -> String {
    char::from(b'a' + u8::try_from(index).unwrap()).to_string()
}

pub(crate) fn id(index: usize) -> MemberId {
    MemberId(0x11 * (10 + u64::try_from(index).unwrap()))
}

impl World {
    /// Makes every learner have made no progress for `stuck`.
    pub(crate) fn learners_are_stuck_for(&mut self, stuck: Duration) {
        let ids = self.members.iter().map(|member| member.id);
        self.learners_stuck_for = ids.map(|id| (id, stuck)).collect();
    }

    /// A cluster of `voters` members that all serve.
    pub(crate) fn new(voters: usize) -> Self {
        let replicas = u32::try_from(voters).unwrap();
        Self {
            members: (0..voters).map(Inhabitant::serving).collect(),
            replicas,
            expected: replicas,
            expected_under: replicas,
            leader: id(0),
            term: 5,
            circumstances: Circumstances::ordinary(),
            policy: Policy::default(),
            scaled_out_for: None,
            quorum_lost_for: None,
            mute_for: None,
            removed_externals: 0,
            learners_stuck_for: BTreeMap::new(),
            proceed_without_quorum: None,
        }
    }

    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|m| m.name == name)
    }

    /// Makes sure that members up to `name` exist. New ones are not in etcd's member list yet.
    pub(crate) fn grow_to(&mut self, name: &str) -> usize {
        while self.index(name).is_none() {
            let mut newcomer = Inhabitant::serving(self.members.len());
            newcomer.listed = Listed::No;
            if let Some(pod) = &mut newcomer.pod {
                pod.recorded_id = None;
            }
            self.members.push(newcomer);
        }
        self.index(name).unwrap()
    }

    pub(crate) fn observation(&self) -> Observation {
        Observation {
            cluster: ClusterRef::new("ns", "etcd"),
            circumstances: self.circumstances.clone(),
            policy: self.policy.clone(),
            replicas: self.replicas,
            update_revision: Some("new".into()),
            proceed_without_quorum: self.proceed_without_quorum.clone(),
            expected: ExpectedVoters {
                voters: self.expected,
                replicas: self.expected_under,
            },
            formed: self.expected > 0,
            scaled_out_for: self.scaled_out_for,
            quorum_lost_for: self.quorum_lost_for,
            mute_for: self.mute_for,
            learners_stuck_for: self.learners_stuck_for.clone(),
            recorded_pods: self
                .members
                .iter()
                .filter(|m| m.recorded)
                .map(|m| (m.id, m.name.as_str().into()))
                .collect(),
            recorded_externals: {
                let external = |m: &&Inhabitant| m.pod.is_none() && !m.recorded;
                let voters = self.members.iter().filter(external);
                let voters =
                    voters.filter(|m| matches!(m.listed, Listed::Voter | Listed::Unstarted));
                u32::try_from(voters.count()).unwrap() + self.removed_externals
            },
            first_ordinal: 0,
            recorded_cluster: Some(CLUSTER),
            recorded_log_end: None,
            recorded_loss: None,
            recorded_refills: Vec::new(),
            pods: self.members.iter().filter_map(|m| m.pod.clone()).collect(),
            round: Round {
                probes: self.members.iter().filter_map(|m| self.probe(m)).collect(),
            },
        }
    }

    fn probe(&self, member: &Inhabitant) -> Option<Probe> {
        let target = match &member.pod {
            Some(pod) => Target::Pod(pod.uid.clone()),
            None if matches!(member.listed, Listed::Voter | Listed::Learner) => {
                Target::External(member.id)
            }
            None => return None,
        };
        let answering = match &member.answers {
            Answers::Not(unanswered) => {
                return Some(Probe::unanswered(target, unanswered.clone()));
            }
            Answers::Unasked => return None,
            Answers::Itself => own_id(member),
            Answers::As(other) => *other,
        };
        let (leader, term) = match member.names {
            Names::TheLeader if member.cluster != CLUSTER => (Some(own_id(member)), 2),
            Names::TheLeader => (Some(self.leader), self.term),
            Names::Nobody => (None, self.term),
            Names::Another(leader, term) => (Some(leader), term),
        };
        Some(Probe {
            target,
            status: Ok(Status {
                cluster_id: member.cluster,
                member_id: answering,
                leader,
                term,
                raft_index: member.applied,
                applied_index: member.applied,
                learner: member.listed == Listed::Learner || member.promoted_unawares,
                alarms: self.alarms(),
                db_size: 25_000_000,
                db_size_in_use: 20_000_000,
                revision: 0,
                db_size_quota: None,
                version: "3.6.16".into(),
            }),
            read: member.read.clone(),
            members: self.list_of(member),
        })
    }

    /// The alarms as every member shows them: an alarm of one member shows on all.
    fn alarms(&self) -> Vec<Alarm> {
        self.members
            .iter()
            .filter_map(|m| m.alarm.map(|kind| Alarm { member: m.id, kind }))
            .collect()
    }

    fn list_of(&self, member: &Inhabitant) -> Result<Vec<ListedMember>, Unanswered> {
        let known: Vec<&Inhabitant> = match &member.list {
            Known::Nothing(unanswered) => return Err(unanswered.clone()),
            Known::Current if member.cluster == CLUSTER => self
                .members
                .iter()
                .filter(|m| m.listed != Listed::No)
                .collect(),
            Known::Current => {
                return Ok(vec![ListedMember {
                    id: own_id(member),
                    ..listed(member)
                }]);
            }
            Known::Old(ids) => self
                .members
                .iter()
                .filter(|m| ids.contains(&m.id))
                .collect(),
        };
        Ok(known.into_iter().map(listed).collect())
    }
}

/// The id that the member answers with. In another cluster the id differs, because etcd derives ids
/// from the cluster and the peer URLs.
fn own_id(member: &Inhabitant) -> MemberId {
    if member.cluster == CLUSTER {
        member.id
    } else {
        MemberId(member.id.0 + 0x1000)
    }
}

fn listed(member: &Inhabitant) -> ListedMember {
    let started = member.listed != Listed::Unstarted;
    ListedMember {
        id: member.id,
        name: if started {
            member.name.clone()
        } else {
            String::new()
        },
        learner: member.listed == Listed::Learner,
        peer_urls: vec![format!("https://{}:2380", member.name)],
        client_urls: started
            .then(|| format!("https://{}:2379", member.name))
            .into_iter()
            .collect(),
    }
}

impl Inhabitant {
    fn serving(index: usize) -> Self {
        let name = name(index);
        Self {
            id: id(index),
            listed: Listed::Voter,
            promoted_unawares: false,
            pod: Some(Pod {
                name: name.as_str().into(),
                uid: format!("{name}-1").as_str().into(),
                ordinal: Some(Ordinal(u32::try_from(index).unwrap())),
                terminating: false,
                has_address: true,
                node: Node::Ready,
                containers: Containers::Running,
                etcd_ready: true,
                up_for: None,
                ready_for: None,
                etcd_age: Some(Duration::from_hours(1)),
                sidecar_failing: false,
                ready: true,
                revision: Some("new".into()),
                lease_role: Some(if index == 0 {
                    LeaseRole::Leader
                } else {
                    LeaseRole::Follower
                }),
                recorded_id: Some(id(index)),
            }),
            name,
            recorded: false,
            cluster: CLUSTER,
            answers: Answers::Itself,
            names: Names::TheLeader,
            read: Ok(()),
            list: Known::Current,
            applied: 100_000,
            alarm: None,
        }
    }

    /// Makes the endpoint answer nothing.
    pub(crate) fn silent(&mut self, unanswered: Unanswered) {
        self.answers = Answers::Not(unanswered);
    }

    /// Makes the process not run. The kubelet says so, and connections are refused.
    pub(crate) fn crashed(&mut self) {
        self.silent(Unanswered::Refused);
        self.pod_mut(|pod| {
            pod.containers = Containers::EtcdFailed {
                reason: "CrashLoopBackOff".into(),
            };
            pod.ready = false;
            pod.etcd_ready = false;
        });
    }

    /// Makes the member run without contact to a quorum.
    pub(crate) fn leaderless(&mut self) {
        self.names = Names::Nobody;
        self.read = Err(Unanswered::NoLeader);
        self.pod_mut(|pod| {
            pod.ready = false;
            pod.etcd_ready = false;
        });
    }

    pub(crate) fn pod_mut(&mut self, change: impl FnOnce(&mut Pod)) {
        if let Some(pod) = &mut self.pod {
            change(pod);
        }
    }
}
