//! The reasons why no replacement begins, and what one that has begun waits for.

use std::fmt;

use crate::plan::Hindrance;

/// The reason why a member is not replaced now, or not further. `Display` is a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Refusal {
    /// A reason that holds back other work of the gate, too.
    Hindered(Hindrance),
    /// The mode is Off.
    Off,
    /// The mode is Manual, and nobody asked.
    NotRequested,
    /// The owner of the StatefulSet changes the member list.
    Owner,
    /// The pod is not one of a member.
    NoSuchMember,
    /// No member list that proves anything could be read.
    NoList,
    /// The cluster is too small.
    TooFewVoters {
        /// The number of voters that count.
        voters: u32,
    },
    /// Not all others serve.
    NotAllServing {
        /// The number of other voters.
        others: u32,
        /// The number of them that serve.
        serving: u32,
    },
    /// Another member is a learner.
    Learner {
        /// The name of the member.
        member: String,
    },
    /// A CORRUPT alarm stands against another member: its data may be the wrong one.
    Corrupt {
        /// The name of the member.
        member: String,
    },
    /// No member told its version.
    VersionUnknown,
    /// Nothing would keep the sidecar from starting a new cluster.
    NoTrace,
    /// The member's peer URLs are not known, so it could not be added again.
    PeerUrlsUnknown,
    /// The member leads, and no other can take over.
    NoHeir,
    /// The old pod or claim is on its way out, or the new one is not there yet.
    Recreation,
    /// The member starts, joins or catches up.
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hindered(hindrance) => write!(f, "{hindrance}"),
            Self::Off => f.write_str("spec.dataProtection.replace is Off"),
            Self::NotRequested => f.write_str(
                "spec.dataProtection.replace is Manual; annotate the budget with quorumgate.io/replace and the id of the member",
            ),
            Self::Owner => f.write_str(
                "the owner of the StatefulSet changes the member list and would take the removal for a scale-in; \
                 let the owner replace the member: scale its cluster out by one, delete the pod and claim of this member, scale in again",
            ),
            Self::NoSuchMember => f.write_str("it is not the pod of a member"),
            Self::NoList => f.write_str("no up-to-date member list could be read"),
            Self::TooFewVoters { voters } => write!(
                f,
                "a cluster of {voters} cannot spare a voter while another one joins; three are needed"
            ),
            Self::NotAllServing { others, serving } => {
                write!(f, "{serving} of {others} other voters serve, and all have to")
            }
            Self::Learner { member } => write!(f, "{member} is a learner, and etcd takes one at a time"),
            Self::Corrupt { member } => write!(
                f,
                "a CORRUPT alarm stands against {member} too, so nobody knows whose data is right"
            ),
            Self::VersionUnknown => f.write_str("no member told its version"),
            Self::NoTrace => f.write_str(
                "the member's Lease has no holder and there is no backup, so its sidecar would start a new cluster",
            ),
            Self::PeerUrlsUnknown => f.write_str("its peer URLs are not known"),
            Self::NoHeir => f.write_str("it leads, and no other member can take over"),
            Self::Recreation => f.write_str("its pod and its claim are being created again"),
            Self::Joining { behind: Some(behind) } => {
                write!(f, "it catches up and is {behind} entries behind")
            }
            Self::Joining { behind: None } => f.write_str("it starts and joins"),
        }
    }
}
