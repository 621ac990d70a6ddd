//! What is true of a cluster at one moment, put together from what was observed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::circumstances::Circumstances;
use super::condition::Condition;
use super::evidence::{AlarmKind, Round};
use super::id::{ClusterId, ClusterRef, MemberId, PodName, PodUid};
use super::latch::Latch;
use super::membership::Membership;
use super::pod::Pod;
use super::policy::Policy;
use super::process::ProcessState;

/// Everything one judgement may know: read from the Kubernetes API, asked of etcd, or kept in the budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The cluster.
    pub cluster: ClusterRef,
    /// What surrounds it.
    pub circumstances: Circumstances,
    /// What its owner chose.
    pub policy: Policy,
    /// The StatefulSet's `spec.replicas`; where the StatefulSet is gone, the last one that the budget recorded.
    pub replicas: u32,
    /// The StatefulSet's `status.updateRevision`, where it has one: what a rollout moves the pods to.
    pub update_revision: Option<String>,
    /// The update revision that the cluster's owner lets roll on without quorum, as annotated on the budget; `None` where nothing was seen
    /// that keeps its members apart from the others.
    pub proceed_without_quorum: Option<String>,
    /// The most voters seen, as the budget's status keeps it.
    pub latch: Latch,
    /// Whether there is word that the cluster ever worked: its members agreed on a cluster id, or a kubelet called one of them ready. (The
    /// latch begins anew when `spec.replicas` goes down.)
    pub formed: bool,
    /// How long ago `spec.replicas` last went up; `None` when it did not, or longer ago than anybody remembers.
    pub scaled_out_for: Option<Duration>,
    /// For how long quorum has been lost without a gap, as confirmed outside of admission; `None` when it is not.
    pub quorum_lost_for: Option<Duration>,
    /// For how long each learner has made no progress, as watched outside of admission.
    pub learners_stuck_for: BTreeMap<MemberId, Duration>,
    /// The pods of the cluster, by their names, whatever their labels and owners say.
    pub pods: Vec<Pod>,
    /// The pod that each member was last seen in, as the budget recorded it.
    pub recorded_pods: BTreeMap<MemberId, PodName>,
    /// External voters, of those that the budget recorded. They count while no member gives a list.
    pub recorded_externals: u32,
    /// What etcd answered. Empty with [`super::policy::EvidenceMode::Readiness`].
    pub round: Round,
}

impl Observation {
    /// What there is before anybody has looked: no pod, no answer, no latch, and nothing out of the ordinary.
    pub fn before_any_look(cluster: ClusterRef, replicas: u32) -> Self {
        Self {
            cluster,
            circumstances: Circumstances::ordinary(),
            policy: Policy::default(),
            replicas,
            update_revision: None,
            proceed_without_quorum: None,
            latch: Latch::default(),
            formed: false,
            scaled_out_for: None,
            quorum_lost_for: None,
            learners_stuck_for: BTreeMap::new(),
            pods: Vec::new(),
            recorded_pods: BTreeMap::new(),
            recorded_externals: 0,
            round: Round::default(),
        }
    }
}

/// What is true of a cluster: its members, each with a role and a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The cluster.
    pub cluster: ClusterRef,
    /// What surrounds it.
    pub circumstances: Circumstances,
    /// What its owner chose.
    pub policy: Policy,
    /// `spec.replicas`.
    pub replicas: u32,
    /// See [`Observation::update_revision`].
    pub update_revision: Option<String>,
    /// See [`Observation::proceed_without_quorum`].
    pub proceed_without_quorum: Option<String>,
    /// See [`Observation::latch`], with this observation's voters taken in.
    pub latch: Latch,
    /// See [`Observation::formed`], with what kubelets say now taken in.
    pub formed: bool,
    /// See [`Observation::recorded_externals`].
    pub recorded_externals: u32,
    /// See [`Observation::scaled_out_for`].
    pub scaled_out_for: Option<Duration>,
    /// See [`Observation::quorum_lost_for`].
    pub quorum_lost_for: Option<Duration>,
    /// See [`Observation::learners_stuck_for`].
    pub learners_stuck_for: BTreeMap<MemberId, Duration>,
    /// The etcd cluster id that more than half of the answers carry; `None` while there is none such.
    pub cluster_id: Option<ClusterId>,
    /// Every cluster id that was answered, in order: more than one is a condition to report.
    pub cluster_ids: Vec<ClusterId>,
    /// The leader that the majority names.
    pub leader: Option<MemberId>,
    /// The raft term in which it leads; `None` where etcd was not asked.
    pub term: Option<u64>,
    /// What etcd's member list says of the cluster's size, and how good that word is.
    pub membership: Membership,
    /// Members, those with pods first, by name: the order is canonical and means nothing.
    pub members: Vec<Member>,
    /// Pods of the StatefulSet that are proven not to be members (rule 7).
    pub not_members: Vec<PodName>,
    /// The pods of the StatefulSet, by name.
    pub pods: Vec<Pod>,
    /// Whether the members that answered are positive evidence of a lost quorum.
    pub quorum_lost: bool,
}

/// A member of the cluster, or a pod that counts as one until the contrary is proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id, where it is known.
    pub id: Option<MemberId>,
    /// Its pod's name, or its name in etcd, or its id.
    pub name: String,
    /// The name that its pod has, also while there is no such pod; `None` for an external member, whose name cannot be that of a pod of
    /// this StatefulSet. A grant holds for this name, however the member is reached.
    pub pod_name: Option<PodName>,
    /// Its pod, if it has one now.
    pub pod: Option<MemberPod>,
    /// Voter or learner.
    pub role: Role,
    /// Whether it is the leader that the majority names.
    pub leader: bool,
    /// Whether it takes part in quorum.
    pub condition: Condition,
    /// What is known of its process beyond etcd's answers.
    pub process: ProcessState,
    /// Whether it answered and named no leader.
    pub leaderless: bool,
    /// Raft entries it lags behind the leader, where both are known.
    pub lag: Option<u64>,
    /// Size of its database and the part in use, bytes, as it reported them.
    pub sizes: Option<Sizes>,
    /// Alarms that stand against it, as any member of its cluster reported them.
    pub alarms: Vec<AlarmKind>,
}

/// The pod of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPod {
    /// Its name.
    pub name: PodName,
    /// Its incarnation.
    pub uid: PodUid,
    /// Whether it is terminating.
    pub terminating: bool,
    /// Its `controller-revision-hash`.
    pub revision: Option<String>,
}

/// Voter or learner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum Role {
    /// Counts for quorum.
    Voter,
    /// Does not, yet.
    Learner,
}

/// Sizes of a member's database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// File size, bytes.
    pub db: u64,
    /// Bytes in use.
    pub in_use: u64,
    /// The quota in bytes, where the member reports it.
    pub quota: Option<u64>,
}

impl Snapshot {
    /// The member that is in the pod of this name now.
    pub fn member(&self, pod: &PodName) -> Option<&Member> {
        self.members
            .iter()
            .find(|member| member.pod.as_ref().is_some_and(|here| here.name == *pod))
    }

    /// For how long a learner has made no progress, where that was watched.
    pub fn stuck_for(&self, member: &Member) -> Option<Duration> {
        self.learners_stuck_for.get(&member.id?).copied()
    }

    /// Whether a learner has made no progress for the progress deadline.
    pub fn is_stuck(&self, member: &Member) -> bool {
        let deadline = self.policy.progress_deadline;
        self.stuck_for(member)
            .is_some_and(|stuck| stuck >= deadline)
    }

    /// Whether a quorum gave the member list, and each of its members has a pod of this StatefulSet. A name alone is not enough: members that
    /// run elsewhere may have names like those of its pods.
    pub fn has_all_members_here(&self) -> bool {
        let confirmed = matches!(self.membership, Membership::Confirmed { .. });
        confirmed && self.members.iter().all(|member| member.pod.is_some())
    }

    /// Whether a voter has just proven that there was a quorum a moment ago, even where the others that answered make it a lost one by now.
    pub fn proves_quorum(&self) -> bool {
        self.members.iter().any(Member::serves_quorum)
    }

    /// The pod of this name.
    pub fn pod(&self, name: &PodName) -> Option<&Pod> {
        self.pods.iter().find(|pod| pod.name == *name)
    }
}

impl Member {
    /// See [`Member::pod_name`].
    pub fn pod_name(&self) -> Option<&PodName> {
        self.pod_name.as_ref()
    }

    /// Whether it is a voter that serves.
    pub fn serves_quorum(&self) -> bool {
        self.role == Role::Voter && self.condition == Condition::Serving
    }
}
