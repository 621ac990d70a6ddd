//! What etcd itself answered: the raw result of one round of probes, before anybody judged it.
//!
//! A probe asks one endpoint three things, in this order: `Maintenance.Status`, a linearizable read, and the member list
//! (not linearizable). Each failure is kept, because "nobody answered" and "it answered that it is ill" are different evidence.

use super::id::{ClusterId, MemberId, PodUid};

/// The answers of every endpoint that was asked in one round, all under one deadline.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Round {
    /// One entry per endpoint.
    pub probes: Vec<Probe>,
}

/// The answers of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Whom the endpoint belongs to, as far as the asker knew.
    pub target: Target,
    /// `Maintenance.Status`: local, answered without quorum.
    pub status: Result<Status, Unanswered>,
    /// A linearizable read: proves contact with a quorum. etcd's "permission denied" counts as passed. Not asked of a learner
    /// ([`Unanswered::Learner`]), nor of a voter whose status names no leader ([`Unanswered::NoLeader`]).
    pub read: Result<(), Unanswered>,
    /// The member list this endpoint holds. Where the read passed, it was asked after it, and so is at least as new as the
    /// moment the round began; where the read failed, it is what the member last knew.
    pub members: Result<Vec<ListedMember>, Unanswered>,
}

impl Probe {
    /// The probe of an endpoint that answered nothing at all, or that could not even be asked.
    pub fn unanswered(target: Target, why: Unanswered) -> Self {
        Self {
            target,
            status: Err(why),
            read: Err(Unanswered::NotAsked),
            members: Err(Unanswered::NotAsked),
        }
    }
}

/// Whose client endpoint was asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A pod of the StatefulSet, by the incarnation whose address was used.
    Pod(PodUid),
    /// A voter without a pod (an external member), by its client URL.
    External(MemberId),
}

/// The answer to `Maintenance.Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The cluster the endpoint belongs to.
    pub cluster_id: ClusterId,
    /// The member that answered.
    pub member_id: MemberId,
    /// The leader it knows, if any.
    pub leader: Option<MemberId>,
    /// Its raft term.
    pub term: u64,
    /// The raft index it has received.
    pub raft_index: u64,
    /// The raft index it has applied. etcd 3.3 and older leave it 0.
    pub applied_index: u64,
    /// Whether it says of itself that it is a learner.
    pub learner: bool,
    /// Every alarm it knows; an alarm of one member shows on all of them.
    pub alarms: Vec<Alarm>,
    /// Size of the backend database file, bytes.
    pub db_size: u64,
    /// Bytes of it in use.
    pub db_size_in_use: u64,
    /// Its space quota in bytes, where the version reports it (3.6 and later).
    pub db_size_quota: Option<u64>,
    /// etcd's version, for example `3.6.16`.
    pub version: String,
}

/// An alarm as it stands in the `errors` of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alarm {
    /// The member that raised it.
    pub member: MemberId,
    /// What it says.
    pub kind: AlarmKind,
}

/// What an alarm says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlarmKind {
    /// The member's database reached its quota: the cluster refuses writes until it is disarmed.
    NoSpace,
    /// The member's data differs from that of the others.
    Corrupt,
}

/// One entry of etcd's member list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedMember {
    /// Its id.
    pub id: MemberId,
    /// Its name; empty while it has never started.
    pub name: String,
    /// Whether it is a learner.
    pub learner: bool,
    /// Its peer URLs.
    pub peer_urls: Vec<String>,
    /// Its client URLs; empty while it has never started.
    pub client_urls: Vec<String>,
}

/// Why an endpoint gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Unanswered {
    /// The pod has no address.
    #[error("it has no address")]
    NoAddress,
    /// Nothing listens: the kernel of the pod's host refused the connection. With a Ready node's word, proof that etcd is down.
    #[error("it refused the connection")]
    Refused,
    /// No answer before the deadline. Proves slowness only.
    #[error("it did not answer in time")]
    Deadline,
    /// The TLS handshake failed, or the certificates to use could not be read.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// etcd refused the call: authentication is on and the gate's user may not ask.
    #[error("etcd refused to answer: {0}")]
    Denied(String),
    /// etcd says it has no leader.
    #[error("it knows no leader")]
    NoLeader,
    /// A learner answers nothing but its status.
    #[error("it is a learner")]
    Learner,
    /// An earlier question to this endpoint went unanswered, so this one was not asked.
    #[error("it was not asked")]
    NotAsked,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}
