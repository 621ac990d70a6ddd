//! Why a member does not serve, in words that an operator can act on.

use std::fmt;

use super::evidence::Unanswered;
use super::id::{ClusterId, MemberId, PodName};

/// Why a member is not known to serve. `Display` completes "member x: …"; [`Why::slug`] is for metrics and status.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Why {
    /// Its pod has a `deletionTimestamp`: it is on its way out, whatever it still answers.
    Terminating,
    /// It gave no status.
    Silent(Unanswered),
    /// It refused the connection, and its kubelet calls it ready: one of the two asked the wrong port, or is kept from it.
    RefusesThoughReady,
    /// Other pods answer with the same member id, so nobody knows whose answer it was (a reused address).
    SharedIdentity {
        /// The id.
        id: MemberId,
        /// The other pods.
        with: Vec<PodName>,
    },
    /// It belongs to another etcd cluster than the majority.
    OtherCluster {
        /// Its own.
        own: ClusterId,
        /// That of the majority.
        agreed: ClusterId,
    },
    /// The members report different cluster ids, and no majority stands behind one.
    ClusterDisputed {
        /// Its own.
        own: ClusterId,
    },
    /// A CORRUPT alarm stands against it.
    Corrupt,
    /// It knows no leader.
    NoLeader,
    /// The majority names another leader, or another term.
    OtherLeader {
        /// Whom it names, and in which term.
        own: (MemberId, u64),
        /// Whom the majority names, and in which term.
        agreed: (MemberId, u64),
    },
    /// The members name different leaders, and no majority stands behind one.
    LeaderDisputed {
        /// Whom it names, and in which term.
        own: (MemberId, u64),
    },
    /// Its applied index is too far behind its leader's.
    Lagging {
        /// Raft entries behind.
        behind: u64,
        /// The most that still serves.
        bound: u64,
    },
    /// Its linearizable read did not pass: contact with a quorum is not proven.
    Unconfirmed(Unanswered),
    /// No member that is in contact with a quorum gave a member list.
    NoMemberList,
    /// It is not in the member list, but that is not proof enough.
    NotListed,
    /// It is listed as a voter and still takes itself for a learner.
    NotPromoted,
    /// It was added to the cluster and has never started.
    Unstarted,
    /// It belongs in a pod of this StatefulSet, and there is no such pod now.
    NoPod,
    /// It has no pod here and no endpoint that could be asked.
    Elsewhere,
    /// It answers, but may be one of the pods that could not be identified.
    MayBeAPod,
    /// Its pod is not ready (`evidence: Readiness`).
    NotReady,
    /// Its node is not Ready, so nothing it last reported counts (`evidence: Readiness`).
    NodeNotReady,
}

impl Why {
    /// A stable word for metrics and status.
    pub fn slug(&self) -> &'static str {
        match self {
            Self::Silent(unanswered) | Self::Unconfirmed(unanswered) => unanswered.into(),
            named => named.into(),
        }
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
            Self::Unconfirmed(Unanswered::Deadline) => {
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
