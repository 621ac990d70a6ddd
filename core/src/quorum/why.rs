//! The reasons why a member does not serve, in words that an operator can act on.

use std::fmt;

use super::evidence::Unanswered;
use super::id::{ClusterId, MemberId, PodName};

/// The reason why a member is not known to serve. `Display` completes the sentence "member x: …".
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Why {
    /// The pod has a `deletionTimestamp`. The member is on its way out, whatever it still answers.
    Terminating,
    /// The member gave no status.
    Silent(Unanswered),
    /// The member refused the connection, and its kubelet reports it as ready. Either the gate or
    /// the kubelet asks a wrong port or is kept from the member.
    RefusesThoughReady,
    /// Other pods answer with the same member id (a reused address). Nobody can tell whose answer
    /// it was.
    SharedIdentity {
        /// The member id.
        id: MemberId,
        /// The other pods.
        with: Vec<PodName>,
    },
    /// The member belongs to another etcd cluster than the majority.
    OtherCluster {
        /// The member's cluster id.
        own: ClusterId,
        /// The majority's cluster id.
        agreed: ClusterId,
    },
    /// The members report different cluster ids, and no majority agrees on one.
    ClusterDisputed {
        /// The member's cluster id.
        own: ClusterId,
    },
    /// A CORRUPT alarm stands against the member.
    Corrupt,
    /// The member knows no leader.
    NoLeader,
    /// The majority names another leader or another term.
    OtherLeader {
        /// The leader and term that the member names.
        own: (MemberId, u64),
        /// The leader and term that the majority names.
        agreed: (MemberId, u64),
    },
    /// The members name different leaders, and no majority agrees on one.
    LeaderDisputed {
        /// The leader and term that the member names.
        own: (MemberId, u64),
    },
    /// The member's applied index is too far behind the leader's.
    Lagging {
        /// The number of raft entries that the member is behind.
        behind: u64,
        /// The largest number with which a member still serves.
        bound: u64,
    },
    /// The linearizable read failed, so contact with a quorum is not proven.
    Unconfirmed(Unanswered),
    /// No member that is in contact with a quorum gave a member list.
    NoMemberList,
    /// The member list does not have the member, and that list is not proof enough.
    NotListed,
    /// The member list calls the member a voter, and the member still calls itself a learner.
    NotPromoted,
    /// The member was added to the cluster and has never started.
    Unstarted,
    /// The member belongs in a pod of this StatefulSet, and that pod does not exist now.
    NoPod,
    /// The member has no pod here and no endpoint that could be asked.
    Elsewhere,
    /// The answer from the member's client URL may be that of a pod which could not be identified.
    MayBeAPod,
    /// The pod is not ready (`evidence: Readiness`).
    NotReady,
    /// The node is not Ready, so its last report does not count (`evidence: Readiness`).
    NodeNotReady,
}

impl Why {
    /// The stable identifier of the reason, for metrics and status. A missing answer is named by
    /// its own cause.
    pub fn slug(&self) -> &'static str {
        if let Self::Silent(unanswered) | Self::Unconfirmed(unanswered) = self {
            return unanswered.into();
        }
        self.into()
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Terminating => f.write_str("its pod is terminating"),
            Self::Silent(unanswered) => write!(f, "{unanswered}"),
            Self::RefusesThoughReady => {
                f.write_str("it refused the connection although its kubelet calls it ready")
            }
            Self::SharedIdentity { id, with } => {
                write!(f, "it answers as member {id}, and so does ")?;
                let names: Vec<&str> = with.iter().map(PodName::as_str).collect();
                f.write_str(&names.join(", "))
            }
            Self::OtherCluster { own, agreed } => {
                write!(
                    f,
                    "it belongs to the etcd cluster {own}, the majority to {agreed}"
                )
            }
            Self::ClusterDisputed { own } => {
                write!(
                    f,
                    "it belongs to the etcd cluster {own}, which no majority of the answers confirms"
                )
            }
            Self::Corrupt => f.write_str("a CORRUPT alarm stands against it"),
            Self::NoLeader => f.write_str("it knows no leader"),
            Self::OtherLeader { own, agreed } => write!(
                f,
                "it follows {} in term {}, the majority {} in term {}",
                own.0, own.1, agreed.0, agreed.1,
            ),
            Self::LeaderDisputed { own } => write!(
                f,
                "it follows {} in term {}, which no majority of the answers confirms",
                own.0, own.1,
            ),
            Self::Lagging { behind, bound } => {
                write!(
                    f,
                    "it is {behind} entries behind its leader, {bound} are tolerated"
                )
            }
            Self::Unconfirmed(unanswered) if *unanswered == Unanswered::Deadline => {
                f.write_str("its linearizable read was not answered in time")
            }
            Self::Unconfirmed(unanswered) => {
                write!(f, "its linearizable read failed: {unanswered}")
            }
            Self::NoMemberList => f.write_str("no up-to-date member list could be read"),
            Self::NotListed => f.write_str("it is not in the member list"),
            Self::NotPromoted => f.write_str("it still takes itself for a learner"),
            Self::Unstarted => f.write_str("it was added and has never started"),
            Self::NoPod => f.write_str("it has no pod now"),
            Self::Elsewhere => f.write_str("it has no pod here and could not be asked"),
            Self::MayBeAPod => {
                f.write_str("it answers, but may be one of the pods that did not say who they are")
            }
            Self::NotReady => f.write_str("its pod is not ready"),
            Self::NodeNotReady => f.write_str("its node is not ready"),
        }
    }
}
