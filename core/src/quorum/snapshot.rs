//! The state of a cluster at one moment ([`Snapshot`]), and the observation that it is built from
//! ([`Observation`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use super::circumstances::Circumstances;
use super::condition::Condition;
use super::evidence::{AlarmKind, Round, Unanswered};
use super::expected_voters::ExpectedVoters;
use super::id::{ClusterId, ClusterRef, MemberId, Ordinal, PodName, PodUid};
use super::log_end::{LogEnd, WentBack};
use super::membership::Membership;
use super::pod::Pod;
use super::policy::{EvidenceMode, Policy};
use super::process::ProcessState;
use super::why::Why;

/// The input of one decision: facts read from the Kubernetes API, answers of etcd, and the budget's
/// records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The cluster.
    pub cluster: ClusterRef,
    /// The facts about the cluster's Kubernetes objects.
    pub circumstances: Circumstances,
    /// The owner's choices.
    pub policy: Policy,
    /// The StatefulSet's `spec.replicas`. If the StatefulSet is gone, the last value that the
    /// budget recorded.
    pub replicas: u32,
    /// The StatefulSet's `status.updateRevision`, to which a rollout moves the pods.
    pub update_revision: Option<String>,
    /// The update revision that the owner lets roll on without quorum, from the annotation on the
    /// budget. `None` if nothing was seen that keeps updated members apart from the others.
    pub proceed_without_quorum: Option<String>,
    /// The most voters seen, from the budget's status.
    pub expected: ExpectedVoters,
    /// Whether the cluster is known to have worked once: its members agreed on a cluster id, or a
    /// kubelet called one of them ready. (The expected voters do not say so, because their count
    /// starts again after a scale-in.)
    pub formed: bool,
    /// The time since `spec.replicas` last went up. `None` if it never did, or too long ago to be
    /// remembered.
    pub scaled_out_for: Option<Duration>,
    /// The time for which quorum has been lost without a gap, confirmed outside of admission.
    /// `None` if it is not lost.
    pub quorum_lost_for: Option<Duration>,
    /// The time for which the same pods have been mute ([`Snapshot::is_mute`]), watched outside of
    /// admission. `None` if they are not.
    pub mute_for: Option<Duration>,
    /// The time for which each learner has made no progress, watched outside of admission.
    pub learners_stuck_for: BTreeMap<MemberId, Duration>,
    /// The pods of the cluster, found by name. Their labels and owners make no difference.
    pub pods: Vec<Pod>,
    /// The pod in which each member was last seen, from the budget's record.
    pub recorded_pods: BTreeMap<MemberId, PodName>,
    /// The number of external voters in the budget's record. It counts while no member gives a
    /// member list of the cluster on record.
    pub recorded_externals: u32,
    /// `spec.ordinals.start` of the StatefulSet: the ordinal of its first pod.
    pub first_ordinal: u32,
    /// The etcd cluster id in the budget's record.
    pub recorded_cluster: Option<ClusterId>,
    /// The end of the cluster's log in the budget's record.
    pub recorded_log_end: Option<LogEnd>,
    /// The loss of data in the budget's record, which nobody has accepted yet.
    pub recorded_loss: Option<WentBack>,
    /// The members in the budget's record that began without their data and serve under their old
    /// ids, unless somebody has accepted that.
    pub recorded_refills: Vec<MemberId>,
    /// The answers of etcd. Empty with [`super::policy::EvidenceMode::Readiness`].
    pub round: Round,
}

impl Observation {
    /// An observation without pods and answers: nothing read, nothing asked, nothing recorded.
    pub fn before_any_look(cluster: ClusterRef, replicas: u32) -> Self {
        Self {
            cluster,
            circumstances: Circumstances::ordinary(),
            policy: Policy::default(),
            replicas,
            update_revision: None,
            proceed_without_quorum: None,
            expected: ExpectedVoters::default(),
            formed: false,
            scaled_out_for: None,
            quorum_lost_for: None,
            mute_for: None,
            learners_stuck_for: BTreeMap::new(),
            pods: Vec::new(),
            recorded_pods: BTreeMap::new(),
            recorded_externals: 0,
            first_ordinal: 0,
            recorded_cluster: None,
            recorded_log_end: None,
            recorded_loss: None,
            recorded_refills: Vec::new(),
            round: Round::default(),
        }
    }
}

/// The state of a cluster at one moment: its members, the role of each, and whether it serves.
///
/// ```
/// use quorumgate_core::quorum::evidence::{Probe, Unanswered};
/// use quorumgate_core::quorum::{Condition, Membership, Snapshot, example};
///
/// let mut observation = example::healthy("etcd-main", 3);
/// let cut_off = observation.round.probes[2].target.clone();
/// observation.round.probes[2] = Probe::unanswered(cut_off, Unanswered::Deadline);
///
/// let snapshot = Snapshot::assemble(&observation);
/// assert_eq!(snapshot.membership, Membership::Confirmed { voters: 3 });
/// assert_eq!(snapshot.members[0].condition, Condition::Serving);
/// // A timeout proves nothing: the member neither serves nor is known to fail.
/// assert!(matches!(snapshot.members[2].condition, Condition::Unknown(_)));
/// assert!(!snapshot.quorum_lost);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a finding of its own, and they do not exclude each other"
)]
pub struct Snapshot {
    /// The cluster.
    pub cluster: ClusterRef,
    /// The facts about the cluster's Kubernetes objects.
    pub circumstances: Circumstances,
    /// The owner's choices.
    pub policy: Policy,
    /// `spec.replicas`.
    pub replicas: u32,
    /// See [`Observation::update_revision`].
    pub update_revision: Option<String>,
    /// See [`Observation::proceed_without_quorum`].
    pub proceed_without_quorum: Option<String>,
    /// See [`Observation::expected`]. The voters of this observation are taken into account.
    pub expected: ExpectedVoters,
    /// See [`Observation::formed`]. The kubelets' present reports are taken into account.
    pub formed: bool,
    /// See [`Observation::recorded_externals`].
    pub recorded_externals: u32,
    /// See [`Observation::first_ordinal`].
    pub first_ordinal: u32,
    /// See [`Observation::scaled_out_for`].
    pub scaled_out_for: Option<Duration>,
    /// See [`Observation::quorum_lost_for`].
    pub quorum_lost_for: Option<Duration>,
    /// See [`Observation::mute_for`].
    pub mute_for: Option<Duration>,
    /// See [`Observation::learners_stuck_for`].
    pub learners_stuck_for: BTreeMap<MemberId, Duration>,
    /// The cluster id in more than half of the answers. `None` if there is no such id.
    pub cluster_id: Option<ClusterId>,
    /// Every cluster id in the answers, sorted. More than one is reported as a condition.
    pub cluster_ids: Vec<ClusterId>,
    /// The leader that the majority names.
    pub leader: Option<MemberId>,
    /// The raft term in which the leader leads. `None` if etcd was not asked.
    pub term: Option<u64>,
    /// The number of voters in etcd's member list, and how reliable the list is.
    pub membership: Membership,
    /// Whether the members that answer may have started a cluster of their own: the id of their
    /// cluster is not the recorded one, and no majority of the known voters is in it. The first
    /// cluster that is seen is not doubted, unless its list leaves external voters out. The
    /// recorded id is kept meanwhile.
    pub is_cluster_in_doubt: bool,
    /// The number of voters on record, external ones included, where the member list may be that of
    /// another cluster ([`Snapshot::is_cluster_in_doubt`]); 0 otherwise.
    pub unproven_voters: u32,
    /// The members. Those with pods come first; each part is sorted by name.
    pub members: Vec<Member>,
    /// The members against which a CORRUPT alarm stands, as any member of the cluster reported
    /// them. The id 0 stands for no member in particular: etcd 3.5 names none.
    pub accused: BTreeSet<MemberId>,
    /// The pods of the StatefulSet that are proven not to be members (rule 7).
    pub not_members: Vec<PodName>,
    /// The pods of the StatefulSet, sorted by name.
    pub pods: Vec<Pod>,
    /// Whether quorum is lost, by positive evidence.
    pub quorum_lost: bool,
    /// Whether all members of a cluster that worked accept connections and answer nothing, and none
    /// is ready by its kubelet. So do members up to etcd 3.5 that were restarted without a quorum.
    /// This is weaker than [`Snapshot::quorum_lost`]: members that are only too slow for the gate
    /// and for their probes do the same.
    pub is_mute: bool,
    /// The end of the log, by a leader that serves.
    pub log_end: Option<LogEnd>,
    /// The loss of data on record, or else the one that this look shows.
    pub went_back: Option<WentBack>,
    /// The members that began without their data and serve under their old ids, by their names.
    pub refilled: Vec<String>,
}

/// A member of the cluster, or a pod that counts as one until the contrary is proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The member's id, if it is known.
    pub id: Option<MemberId>,
    /// The name of the member's pod. Without a pod, the member's name in etcd, or else its id.
    pub name: String,
    /// The name of the pod that the member belongs in, even if that pod does not exist now. `None`
    /// for an external member, whose name cannot be that of a pod of this StatefulSet. A grant
    /// holds for this name, however the member is reached.
    pub pod_name: Option<PodName>,
    /// The member's pod, if it exists now.
    pub pod: Option<MemberPod>,
    /// Voter or learner.
    pub role: Role,
    /// Whether the majority names this member as the leader.
    pub leader: bool,
    /// Whether the member takes part in quorum.
    pub condition: Condition,
    /// The state of the member's process.
    pub process: ProcessState,
    /// Whether the member answered and named no leader.
    pub leaderless: bool,
    /// The number of raft entries that the member is behind the leader, if both are known.
    pub lag: Option<u64>,
    /// The sizes of the member's database, as the member reported them.
    pub sizes: Option<Sizes>,
    /// The alarms against the member, as any member of its cluster reported them.
    pub alarms: Vec<AlarmKind>,
}

/// The pod of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPod {
    /// The name of the pod.
    pub name: PodName,
    /// The UID of the pod.
    pub uid: PodUid,
    /// Whether the pod is terminating.
    pub terminating: bool,
    /// The value of the label `controller-revision-hash`.
    pub revision: Option<String>,
}

impl MemberPod {
    pub(super) fn new(pod: &Pod) -> Self {
        Self {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            terminating: pod.terminating,
            revision: pod.revision.clone(),
        }
    }
}

/// The role of a member in raft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum Role {
    /// A member whose vote counts for the majority.
    Voter,
    /// A member that receives the log and has no vote yet.
    Learner,
}

/// The sizes of a member's database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The size of the file, in bytes.
    pub db: u64,
    /// The bytes in use.
    pub in_use: u64,
    /// The space quota in bytes, if the member reports it.
    pub quota: Option<u64>,
}

impl Snapshot {
    /// Whether the member list comes from a voter whose linearizable read passed before, and is not
    /// in doubt ([`Snapshot::unproven_voters`]). Only such a list proves that a member was removed.
    pub fn has_proven_list(&self) -> bool {
        matches!(self.membership, Membership::Confirmed { .. }) && self.unproven_voters == 0
    }

    /// The member whose pod of this name exists now.
    pub fn member(&self, pod: &PodName) -> Option<&Member> {
        self.members
            .iter()
            .find(|member| member.pod.as_ref().is_some_and(|here| here.name == *pod))
    }

    /// The member that belongs in a pod of this name, whether or not that exists.
    pub fn member_for(&self, pod: &PodName) -> Option<&Member> {
        let mut members = self.members.iter();
        members.find(|member| member.pod_name() == Some(pod))
    }

    /// The time for which a learner has made no progress, if that was watched.
    pub fn stuck_for(&self, member: &Member) -> Option<Duration> {
        self.learners_stuck_for.get(&member.id?).copied()
    }

    /// Whether a learner has made no progress for the progress deadline.
    pub fn is_stuck(&self, member: &Member) -> bool {
        let deadline = self.policy.progress_deadline;
        self.stuck_for(member)
            .is_some_and(|stuck| stuck >= deadline)
    }

    /// Whether the member list is confirmed and each of its members has a pod of this StatefulSet
    /// now. A name is not enough: members that run elsewhere may have names like those of the pods.
    pub fn has_all_members_here(&self) -> bool {
        let confirmed = matches!(self.membership, Membership::Confirmed { .. });
        confirmed && self.members.iter().all(|member| member.pod.is_some())
    }

    /// Whether the pod is proven not to be a member's, or a proven list has no member that belongs
    /// in a pod of this name.
    pub fn is_no_member(&self, pod: &PodName) -> bool {
        let is_unlisted = self.has_proven_list() && self.member_for(pod).is_none();
        self.not_members.contains(pod) || is_unlisted
    }

    /// Whether a listed member may belong in a pod of this name because nobody knows its pod. It
    /// may as well run elsewhere.
    pub(super) fn may_be_of_unknown_member(&self, pod: &PodName) -> bool {
        let unknown = |member: &Member| member.pod_name().is_none();
        let kept = self.kept();
        let is_kept = Ordinal::from_pod(pod).is_some_and(|ordinal| kept.contains(&ordinal.0));
        let may_be = is_kept && !self.not_members.contains(pod);
        may_be && self.members.iter().any(unknown)
    }

    /// Whether the StatefulSet keeps no pod for the ordinal of this one.
    pub fn is_outside_ordinals(&self, pod: &PodName) -> bool {
        let kept = self.kept();
        Ordinal::from_pod(pod).is_some_and(|ordinal| !kept.contains(&ordinal.0))
    }

    /// The ordinals for which the StatefulSet has pods.
    fn kept(&self) -> Range<u32> {
        self.first_ordinal..self.first_ordinal.saturating_add(self.replicas)
    }

    /// Whether no member comes back into a pod of this name: there is none, or etcd is not asked,
    /// and the pod's ordinal has left the StatefulSet by a scale-in. (Hibernation is none: the
    /// members are to come back.)
    pub fn has_left(&self, pod: &PodName) -> bool {
        let is_unasked = self.policy.evidence == EvidenceMode::Readiness;
        let is_beyond = !self.kept().is_empty() && self.is_outside_ordinals(pod);
        let is_gone = is_beyond && self.pod(pod).is_none();
        self.is_no_member(pod) || (is_unasked && is_gone)
    }

    /// Whether some voter has just proved a quorum. By the other answers, which may be newer,
    /// quorum may be lost already.
    pub fn proves_quorum(&self) -> bool {
        self.members.iter().any(Member::serves_quorum)
    }

    /// The pod of this name.
    pub fn pod(&self, name: &PodName) -> Option<&Pod> {
        self.pods.iter().find(|pod| pod.name == *name)
    }
}

impl Member {
    /// Whether the member says that it has no leader, or accepts connections and answers nothing.
    /// So do members that were started without a quorum (etcd 3.7 as well as earlier ones).
    pub fn says_no_leader(&self) -> bool {
        let is_mute = self.condition == Condition::Unknown(Why::Silent(Unanswered::Mute));
        self.leaderless || is_mute
    }

    /// See [`Member::pod_name`].
    pub fn pod_name(&self) -> Option<&PodName> {
        self.pod_name.as_ref()
    }

    /// Whether the member is a voter and serves.
    pub fn serves_quorum(&self) -> bool {
        self.role == Role::Voter && self.condition == Condition::Serving
    }

    /// Whether a voter serves, would serve as soon as there is a leader, or may serve for all that
    /// is known.
    pub(super) fn may_serve(&self) -> bool {
        !self.process.is_down()
            && match &self.condition {
                Condition::Serving | Condition::Learning | Condition::Unknown(_) => true,
                Condition::Failing(why) => matches!(
                    why,
                    Why::NoLeader
                        | Why::OtherLeader { .. }
                        | Why::Lagging { .. }
                        | Why::NotReady
                        | Why::Silent(Unanswered::Defragmenting)
                ),
            }
    }
}
