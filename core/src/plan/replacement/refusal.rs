//! The reasons why no replacement begins, and what one that has begun waits for.

use super::super::hindrance::Hindrance;
use crate::quorum::Comparison;

/// The reason why a member is not replaced now, or not further. `Display` is a sentence for people.
#[derive(
    Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames, derive_more::Display,
)]
pub enum Refusal {
    /// A reason that holds back other work of the gate, too.
    #[display("{_0}")]
    Hindered(Hindrance),
    /// The mode is Off.
    #[display("spec.dataProtection.replace is Off")]
    Off,
    /// The mode is Manual, and nobody asked.
    #[display(
        "spec.dataProtection.replace is Manual; annotate the budget with quorumgate.io/replace and the id of the member"
    )]
    NotRequested,
    /// The member ends over and over, and has done so for too short a time to be replaced unasked.
    #[display(
        "it has done so for {lasted} of {after} s (spec.dataProtection.replaceAfter); to replace it now, annotate the budget \
                 with quorumgate.io/replace and the id of the member"
    )]
    MayRecover {
        /// The seconds for which it has lasted.
        lasted: u64,
        /// The seconds after which the member is replaced.
        after: u64,
    },
    /// The owner of the StatefulSet changes the member list.
    #[display(
        "the owner of the StatefulSet changes the member list and would take the removal for a scale-in; \
                 let the owner replace the member: scale its cluster out by one, delete the pod and claim of this member, scale in again"
    )]
    Owner,
    /// The member's data is in a directory of its node.
    #[display(
        "its data is in a directory of its node, where the new member would find the data of the old one; \
                 remove the member from etcd, empty the directory, and add the member again: etcdctl member remove, etcdctl member add"
    )]
    OnNode,
    /// Other members have their data on the same claim.
    #[display(
        "other members have their data on the same claim, so it cannot be given up; \
                 remove the member from etcd, empty its directory, and add the member again: etcdctl member remove, etcdctl member add"
    )]
    SharedClaim,
    /// The pod is not one of a member.
    #[display("it is not the pod of a member")]
    NoSuchMember,
    /// No member list that proves anything could be read.
    #[display("no up-to-date member list could be read")]
    NoList,
    /// The cluster is too small.
    #[display(
        "a cluster of {voters} cannot spare a voter while another one joins; three are needed"
    )]
    TooFewVoters {
        /// The number of voters that count.
        voters: u32,
    },
    /// Several members were removed. A new one does not start while its `initial-cluster` names
    /// others that etcd does not list.
    #[display(
        "etcd lists {listed} members and the StatefulSet has {replicas} pods, and a new member starts only where its \
         initial-cluster names those that are listed and itself; scale in to {listed}, and then out by one at a time, \
         with initial-cluster to match"
    )]
    SeveralRemoved {
        /// The number of voters that etcd lists.
        listed: u32,
        /// The pods that the StatefulSet asks for.
        replicas: u32,
    },
    /// Not all others serve.
    #[display("{serving} of {others} other voters serve, and all have to")]
    NotAllServing {
        /// The number of other voters.
        others: u32,
        /// The number of them that serve.
        serving: u32,
    },
    /// Another member is a learner.
    #[display("{member} is a learner, and etcd takes one at a time")]
    Learner {
        /// The name of the member.
        member: String,
    },
    /// A CORRUPT alarm stands against another member: its data may be the wrong one.
    #[display("a CORRUPT alarm stands against {member} too, so nobody knows whose data is right")]
    Corrupt {
        /// The name of the member.
        member: String,
    },
    /// The data of another member is not that of all others.
    #[display(
        "a CORRUPT alarm stands, and the data of {member} is not that of all others: that one is to be replaced"
    )]
    OtherDiffers {
        /// The name of the member.
        member: String,
    },
    /// The data of this member is not that of all others, and the alarm stands against another.
    #[display(
        "its data is not that of all others, and the CORRUPT alarm stands against {member}, whose data is; \
                 move leadership to {member}, and disarm the alarm (etcdctl move-leader, etcdctl alarm disarm)"
    )]
    Mistaken {
        /// The name of the member against which the alarm stands.
        member: String,
    },
    /// A CORRUPT alarm stands, and nothing shows that this member's data is the wrong one.
    #[display("{}", not_shown(*data))]
    NotShown {
        /// The result of the comparison.
        data: Comparison,
    },
    /// No member told its version.
    #[display("no member told its version")]
    VersionUnknown,
    /// Nothing would keep the sidecar from starting a new cluster.
    #[display(
        "the member's Lease has no holder and there is no backup, so its sidecar would start a new cluster"
    )]
    NoTrace,
    /// The member's peer URLs are not known, so it could not be added again.
    #[display("its peer URLs are not known")]
    #[strum(serialize = "PeerURLsUnknown")]
    PeerUrlsUnknown,
    /// The member leads, and no other can take over.
    #[display("it leads, and no other member can take over")]
    NoHeir,
    /// The old pod or claim is on its way out, or the new one is not there yet.
    #[display("its pod and its claim are being created again")]
    Recreation,
    /// The member starts, joins or catches up.
    #[display("{}", joining(*behind))]
    Joining {
        /// The entries that the learner is behind, if that is known.
        behind: Option<u64>,
    },
}

impl From<Hindrance> for Refusal {
    fn from(hindrance: Hindrance) -> Self {
        Self::Hindered(hindrance)
    }
}

impl Refusal {
    /// The stable identifier of the reason, for metrics and status.
    pub fn slug(&self) -> &'static str {
        if let Self::Hindered(hindrance) = self {
            return hindrance.slug();
        }
        self.into()
    }
}

fn joining(behind: Option<u64>) -> String {
    match behind {
        Some(behind) => format!("it catches up and is {behind} entries behind"),
        None => "it starts and joins".to_owned(),
    }
}

fn not_shown(data: Comparison) -> &'static str {
    match data {
        Comparison::Same => {
            "a CORRUPT alarm stands, and all voters have the same data, so it may be mistaken; disarm it \
             (etcdctl alarm disarm), or name the member that it accuses by quorumgate.io/replace"
        }
        Comparison::Disagreement => {
            "a CORRUPT alarm stands, and more than one member differs, so nobody knows whose data is right; \
             compare them (etcdctl endpoint hashkv --cluster), and name one by quorumgate.io/replace"
        }
        Comparison::Unknown | Comparison::Differs(_) => {
            "a CORRUPT alarm stands, and the data of all voters could not be compared"
        }
    }
}
