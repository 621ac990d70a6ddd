//! The facts of one observation of a member, from which its status follows.

use std::time::Duration;

use super::status::{LastDefragmentation, Snapshots, UnixTime};
use crate::quorum::pod::{Containers, Pod};
use crate::quorum::{
    ClusterId, Condition, Member, MemberId, Membership, PodName, ProcessState, Role, Sizes,
    Snapshot, VolumeFinding, Why,
};

/// The facts of one observation of a member.
///
/// [`Facts::of`] fills in what a [`Snapshot`] knows. The caller adds the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact as etcd or Kubernetes states it, and they do not exclude each other"
)]
pub struct Facts {
    /// The time of the observation.
    pub now: UnixTime,
    /// Whether the member is the only one of its cluster.
    pub single: bool,
    /// Whether the `EtcdMember` has the annotation
    /// [`CREATE_AS_LEARNER`](super::CREATE_AS_LEARNER). The caller fills it in.
    pub create_as_learner: bool,
    /// The member's place in etcd's member list.
    pub listing: Listing,
    /// Whether the member is a voter and serves.
    pub serves: bool,
    /// Whether the member leads.
    pub leads: bool,
    /// The member id.
    pub id: Option<MemberId>,
    /// The cluster id that the member answers with.
    pub cluster_id: Option<ClusterId>,
    /// The sizes of the database, if the member reported them.
    pub sizes: Option<Sizes>,
    /// Whether the recorded sizes are old. The caller fills it in.
    pub previous_sizes: PreviousSizes,
    /// The state of etcd's container.
    pub etcd: Etcd,
    /// The way in which the process before ended, if that was seen. The caller fills it in, from
    /// the container's last termination.
    pub exit: Option<Exit>,
    /// The result of the validation of the data, since etcd's container started. The caller fills
    /// it in, from backup-restore's metric `etcdbr_validation_duration_seconds{succeeded}`.
    pub validation: Option<StageResult>,
    /// The result of the restoration, since etcd's container started. The caller fills it in, from
    /// backup-restore's metric `etcdbr_restoration_duration_seconds{succeeded}`.
    pub restoration: Option<StageResult>,
    /// Whether the peer URLs use TLS. The caller fills it in, from the member's Lease or from the
    /// peer URLs in the member list.
    pub peer_tls: Option<bool>,
    /// The snapshots in the backup store. The caller fills it in for the leader only.
    pub snapshots: Option<Snapshots>,
    /// Whether the member has the volume that was recorded for it. The caller fills it in.
    pub volume: VolumeFinding,
    /// The restarts of etcd's container, as its kubelet counts them. The caller fills it in.
    pub restarts: u32,
    /// The latest defragmentation that the gate began or saw. The caller fills it in.
    pub defragmentation: Option<LastDefragmentation>,
}

/// The place of a member in etcd's member list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// The list has the member as a voter.
    Voter,
    /// The list has the member as a learner.
    Learner,
    /// A confirmed list does not have the member.
    No,
    /// No list that proves anything could be read.
    Unknown,
}

/// The state of etcd's container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Etcd {
    /// There is no pod, or etcd's container has not started in it.
    NotStarted,
    /// etcd's container was started.
    Started {
        /// The time of the start.
        since: Option<UnixTime>,
        /// Whether the container runs, is not ready, and nothing listens at the client port: the
        /// member initialises.
        initializes: bool,
    },
}

/// The way in which a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The process ended by itself or by SIGTERM or SIGINT.
    Clean,
    /// The process ended otherwise.
    Unclean,
}

impl Exit {
    /// The way in which a container ended, by its exit code: 0, 130 (SIGINT) and 143 (SIGTERM) are
    /// clean. etcd-wrapper draws the same line.
    pub fn of_code(code: i32) -> Self {
        if matches!(code, 0 | 130 | 143) {
            Self::Clean
        } else {
            Self::Unclean
        }
    }
}

/// The result of a part of the initialisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageResult {
    /// The part succeeded.
    Succeeded,
    /// The part failed.
    Failed,
}

/// The age of the recorded sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreviousSizes {
    /// The caller wrote them so long ago, by its own monotonic clock.
    WrittenFor(Duration),
    /// The caller has not written them.
    NotMine,
}

impl Facts {
    /// The facts that `snapshot` has about the member in the pod `member`.
    pub fn of(snapshot: &Snapshot, member: &PodName, now: UnixTime) -> Self {
        let seen = snapshot.member(member);
        let pod = snapshot.pod(member);
        let answered = seen.filter(|seen| seen.sizes.is_some());
        Self {
            now,
            single: snapshot.replicas <= 1 && snapshot.members.len() <= 1,
            create_as_learner: false,
            listing: Listing::of(snapshot, member),
            serves: seen.is_some_and(Member::serves_quorum),
            leads: seen.is_some_and(|seen| seen.leader && seen.serves_quorum()),
            id: answered.and_then(|seen| seen.id),
            cluster_id: answered.and_then(|seen| cluster_id(snapshot, seen)),
            sizes: answered.and_then(|seen| seen.sizes),
            previous_sizes: PreviousSizes::NotMine,
            etcd: Etcd::of(pod, seen, now),
            exit: None,
            validation: None,
            restoration: None,
            peer_tls: None,
            snapshots: None,
            volume: VolumeFinding::Unknown,
            restarts: 0,
            defragmentation: None,
        }
    }
}

impl Listing {
    /// The place of the member in the pod `member` in the list that `snapshot` is built from.
    pub fn of(snapshot: &Snapshot, member: &PodName) -> Self {
        if snapshot.not_members.contains(member) {
            return Self::No;
        }
        let is_confirmed = matches!(snapshot.membership, Membership::Confirmed { .. });
        let of_this_name = |seen: &&Member| seen.pod_name() == Some(member);
        match snapshot.members.iter().find(of_this_name) {
            Some(seen) if seen.role == Role::Learner => Self::Learner,
            Some(seen) if seen.serves_quorum() => Self::Voter,
            // Without an answer the id is that of the list or of the record, which the list has.
            Some(seen) if is_confirmed && seen.id.is_some() && seen.sizes.is_none() => Self::Voter,
            None if is_confirmed => Self::No,
            Some(_) | None => Self::Unknown,
        }
    }
}

impl Etcd {
    fn of(pod: Option<&Pod>, member: Option<&Member>, now: UnixTime) -> Self {
        let Some(pod) = pod.filter(|pod| pod.containers == Containers::Running) else {
            return Self::NotStarted;
        };
        let up_for = |up: Duration| i64::try_from(up.as_secs()).unwrap_or(i64::MAX);
        Self::Started {
            since: pod
                .up_for
                .map(|up| UnixTime(now.0.saturating_sub(up_for(up)))),
            initializes: member.is_some_and(|m| m.process == ProcessState::Starting),
        }
    }
}

/// The cluster id that a member answered with.
fn cluster_id(snapshot: &Snapshot, member: &Member) -> Option<ClusterId> {
    match &member.condition {
        Condition::Failing(Why::OtherCluster { own, .. })
        | Condition::Unknown(Why::ClusterDisputed { own }) => Some(*own),
        Condition::Serving
        | Condition::Learning
        | Condition::Failing(_)
        | Condition::Unknown(_) => snapshot.cluster_id,
    }
}
