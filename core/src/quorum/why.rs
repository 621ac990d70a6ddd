//! The reasons why a member does not serve, in words that an operator can act on.

use super::evidence::Unanswered;
use super::id::{ClusterId, MemberId, PodName, list};

/// The reason why a member is not known to serve. `Display` completes the sentence "member x: …".
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, derive_more::Display)]
pub enum Why {
    /// The pod has a `deletionTimestamp`. The member is on its way out, whatever it still answers.
    #[display("its pod is terminating")]
    Terminating,
    /// The member gave no status.
    #[display("{_0}")]
    Silent(Unanswered),
    /// The member refused the connection, and its kubelet reports it as ready. Either the gate or
    /// the kubelet asks a wrong port or is kept from the member.
    #[display("it refused the connection although its kubelet calls it ready")]
    RefusesThoughReady,
    /// The member refused the connection, and no other member answers by the same way. A network
    /// policy or a wrong port refuses in the same manner, while the member serves.
    #[display("it refused the connection, which proves nothing while no other member answers")]
    RefusesAsAllDo,
    /// Other pods answer with the same member id (a reused address). Nobody can tell whose answer
    /// it was.
    #[display("it answers as member {id}, and so does {}", list(with))]
    SharedIdentity {
        /// The member id.
        id: MemberId,
        /// The other pods.
        with: Vec<PodName>,
    },
    /// The member belongs to another etcd cluster than the majority.
    #[display("it belongs to the etcd cluster {own}, the majority to {agreed}")]
    OtherCluster {
        /// The member's cluster id.
        own: ClusterId,
        /// The majority's cluster id.
        agreed: ClusterId,
    },
    /// The members report different cluster ids, and no majority agrees on one.
    #[display("it belongs to the etcd cluster {own}, which no majority of the answers confirms")]
    ClusterDisputed {
        /// The member's cluster id.
        own: ClusterId,
    },
    /// A CORRUPT alarm stands against the member.
    #[display("a CORRUPT alarm stands against it")]
    Corrupt,
    /// The member knows no leader.
    #[display("it knows no leader")]
    NoLeader,
    /// The majority names another leader or another term.
    #[display("it follows {} in term {}, the majority {} in term {}", own.0, own.1, agreed.0, agreed.1)]
    OtherLeader {
        /// The leader and term that the member names.
        own: (MemberId, u64),
        /// The leader and term that the majority names.
        agreed: (MemberId, u64),
    },
    /// The members name different leaders, and no majority agrees on one.
    #[display("it follows {} in term {}, which no majority of the answers confirms", own.0, own.1)]
    LeaderDisputed {
        /// The leader and term that the member names.
        own: (MemberId, u64),
    },
    /// The member's applied index is too far behind the leader's.
    #[display("it is {behind} entries behind its leader, {bound} are tolerated")]
    Lagging {
        /// The number of raft entries that the member is behind.
        behind: u64,
        /// The largest number with which a member still serves.
        bound: u64,
    },
    /// The linearizable read failed, so contact with a quorum is not proven.
    #[display("its linearizable read {}", unconfirmed(_0))]
    Unconfirmed(Unanswered),
    /// No member that is in contact with a quorum gave a member list.
    #[display("no up-to-date member list could be read")]
    NoMemberList,
    /// The member list leaves out known voters, and fewer than half of them confirm it.
    #[display(
        "its member list has {listed} of {known} known voters, and fewer than half of them confirm it"
    )]
    LeavesOut {
        /// The number of voters in the list.
        listed: u32,
        /// The number of known voters.
        known: u32,
    },
    /// The member list does not have the member, and that list is not proof enough.
    #[display("it is not in the member list")]
    NotListed,
    /// The member list calls the member a voter, and the member still calls itself a learner.
    #[display("it still takes itself for a learner")]
    NotPromoted,
    /// The member was added to the cluster and has never started.
    #[display("it was added and has never started")]
    Unstarted,
    /// The member belongs in a pod of this StatefulSet, and that pod does not exist now.
    #[display("it has no pod now")]
    NoPod,
    /// The member has no pod here and no endpoint that could be asked.
    #[display("it has no pod here and could not be asked")]
    Elsewhere,
    /// The answer from the member's client URL may be that of a pod which could not be identified.
    #[display("it answers, but may be one of the pods that did not say who they are")]
    MayBeAPod,
    /// The member serves, its pod is not Ready, and its process is so young that it may be the
    /// first phase of a start: some scripts run etcd, end it, and run it again.
    #[display("it has just started, and its pod is not ready yet")]
    JustStarted,
    /// etcd's container is not ready (`evidence: Readiness`).
    #[display("its container is not ready")]
    NotReady,
    /// The node is not Ready, so its last report does not count (`evidence: Readiness`).
    #[display("its node is not ready")]
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

fn unconfirmed(unanswered: &Unanswered) -> String {
    if *unanswered == Unanswered::Deadline {
        "was not answered in time".to_owned()
    } else {
        format!("failed: {unanswered}")
    }
}
