//! The raw answers of etcd in one round of probes, before any judgement.
//!
//! A probe asks one endpoint for three things, in this order: `Maintenance.Status`, a linearizable
//! read, and the member list (not linearizable). Every failure is kept, because "it did not answer"
//! and "it answered that it is ill" are different evidence.

use super::id::{ClusterId, MemberId, PodUid};

/// The answers of all endpoints in one round. All of them were asked under one deadline.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Round {
    /// The probes, one per endpoint.
    pub probes: Vec<Probe>,
}

/// The answers of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The owner of the endpoint, as far as the asker knew.
    pub target: Target,
    /// The answer to `Maintenance.Status`. A member answers it from local state, without a quorum.
    pub status: Result<Status, Unanswered>,
    /// The result of a linearizable read, which proves contact with a quorum. etcd's "permission
    /// denied" counts as passed, because etcd confirms the read index first. A learner is not asked
    /// ([`Unanswered::Learner`]), nor is a voter whose status names no leader
    /// ([`Unanswered::NoLeader`]).
    pub read: Result<(), Unanswered>,
    /// The member list that the endpoint holds. It was asked for after the read. If the read
    /// passed, the list is at least as new as the beginning of the round. If the read failed, the
    /// list is the last one that the member knew.
    pub members: Result<Vec<ListedMember>, Unanswered>,
}

impl Probe {
    /// A probe without any answer, because none came or because nobody could ask.
    pub fn unanswered(target: Target, why: Unanswered) -> Self {
        Self {
            target,
            status: Err(why),
            read: Err(Unanswered::NotAsked),
            members: Err(Unanswered::NotAsked),
        }
    }

    /// The first reason why the endpoint does not prove that its member serves: from its status or
    /// else from its read.
    pub fn failure(&self) -> Option<&Unanswered> {
        let status = self.status.as_ref().err();
        status.or(self.read.as_ref().err())
    }
}

/// The owner of a client endpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A pod of the StatefulSet, by the UID whose address was asked.
    Pod(PodUid),
    /// A voter without a pod (an external member), asked at its client URL.
    External(MemberId),
}

/// The answer to `Maintenance.Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The id of the cluster that the member belongs to.
    pub cluster_id: ClusterId,
    /// The id of the member that answered.
    pub member_id: MemberId,
    /// The leader that the member knows, if it knows one.
    pub leader: Option<MemberId>,
    /// The member's raft term.
    pub term: u64,
    /// The last raft index that the member knows to be committed.
    pub raft_index: u64,
    /// The last raft index that the member has applied. etcd 3.3 and older report 0.
    pub applied_index: u64,
    /// The revision of the member's data.
    pub revision: u64,
    /// Whether the member calls itself a learner.
    pub learner: bool,
    /// The alarms that the member knows. An alarm of one member shows on all of them.
    pub alarms: Vec<Alarm>,
    /// The size of the database file, in bytes.
    pub db_size: u64,
    /// The bytes in use in the database file.
    pub db_size_in_use: u64,
    /// The space quota in bytes, where the version reports it (3.6 and later).
    pub db_size_quota: Option<u64>,
    /// The version of etcd, for example `3.6.16`.
    pub version: String,
}

/// An alarm in the `errors` of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alarm {
    /// The member that raised the alarm.
    pub member: MemberId,
    /// The kind of alarm.
    pub kind: AlarmKind,
}

/// The kinds of alarms. `Display` gives etcd's own names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display)]
pub enum AlarmKind {
    /// The member's database reached its quota. The cluster refuses writes until the alarm is
    /// disarmed.
    #[strum(serialize = "NOSPACE")]
    NoSpace,
    /// The member's data differs from that of the others.
    #[strum(serialize = "CORRUPT")]
    Corrupt,
}

/// An entry of etcd's member list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedMember {
    /// The id of the member.
    pub id: MemberId,
    /// The name of the member; empty while the member has never started.
    pub name: String,
    /// Whether the member is a learner.
    pub learner: bool,
    /// The peer URLs of the member.
    pub peer_urls: Vec<String>,
    /// The client URLs of the member; empty while the member has never started.
    pub client_urls: Vec<String>,
}

/// The reason why an endpoint gave no answer.
#[derive(
    Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames,
)]
pub enum Unanswered {
    /// The pod has no address.
    #[error("it has no address")]
    NoAddress,
    /// The connection was refused, so nothing listens at the address. Together with the report of a
    /// Ready node this proves that etcd is down.
    #[error("it refused the connection")]
    Refused,
    /// No answer came before the deadline. A timeout proves slowness only.
    #[error("it did not answer in time")]
    Deadline,
    /// A new connection was accepted, and no answer came before the deadline. etcd up to 3.5 opens
    /// its client port before it has found a quorum, and answers nothing until then. A process that
    /// hangs looks the same.
    #[error("it accepted the connection and did not answer in time")]
    Mute,
    /// No answer came before the deadline, and the member's metrics say that it is defragmenting
    /// its database. It answers nothing else until it is done, whoever asked for it.
    #[error("it is defragmenting its database")]
    Defragmenting,
    /// The TLS handshake failed, or the certificates could not be read.
    #[error("TLS failed: {0}")]
    #[strum(serialize = "TLSFailed")]
    Tls(String),
    /// etcd refused the call: authentication is on, and the gate's user lacks the permission.
    #[error("etcd refused to answer: {0}")]
    #[strum(serialize = "AccessDenied")]
    Denied(String),
    /// etcd says that it has no leader.
    #[error("it knows no leader")]
    NoLeader,
    /// The member is a learner, and learners answer only `Status`.
    #[error("it is a learner")]
    Learner,
    /// The endpoint was not asked, because an earlier question to it went unanswered.
    #[error("it was not asked")]
    NotAsked,
    /// Any other failure.
    #[error("{0}")]
    Other(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::example;

    #[test]
    fn the_failure_of_a_probe_is_that_of_its_status_or_else_of_its_read() {
        let mut probe = example::healthy("etcd", 1).round.probes.remove(0);
        assert_eq!(probe.failure(), None);
        probe.read = Err(Unanswered::NoLeader);
        assert_eq!(probe.failure(), Some(&Unanswered::NoLeader));
        let refused = Probe::unanswered(probe.target, Unanswered::Refused);
        assert_eq!(refused.failure(), Some(&Unanswered::Refused));
    }
}
