//! The reasons why no defragmentation begins.

use std::fmt;
use std::time::Duration;

use crate::plan::{Defect, Hindrance, Version};
use crate::quorum::PodName;

/// The reason why a member that is due is not defragmented now, with its numbers. `Display` is a
/// sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Refusal {
    /// A reason that holds back other work of the gate, too.
    Hindered(Hindrance),
    /// The mode is Report.
    ReportOnly,
    /// The backup sidecar defragments by a schedule of its own.
    OtherSchedule {
        /// The schedule.
        schedule: String,
    },
    /// The window is closed.
    Window,
    /// Not all voters serve.
    NotAllServing {
        /// The number of voters that count.
        voters: u32,
        /// The number of voters that serve.
        serving: u32,
    },
    /// All voters serve, but not for long enough.
    ServingTooShort {
        /// The time for which they have served.
        served_for: Duration,
        /// The time for which they have to serve.
        needed: Duration,
    },
    /// A member is a learner.
    Learner {
        /// The name of the member.
        member: String,
    },
    /// A CORRUPT alarm stands.
    Corrupt {
        /// The name of the member.
        member: String,
    },
    /// A member is behind the leader.
    Lag {
        /// The name of the member.
        member: String,
        /// The entries that it is behind. `None` if that is not known.
        behind: Option<u64>,
        /// The most entries that it may be behind.
        most: u64,
    },
    /// A defragmentation is in flight already, whoever began it.
    InFlight {
        /// The pod.
        pod: PodName,
    },
    /// The version is not known.
    VersionUnknown,
    /// The version has a defect, and the member runs too short a time or is behind.
    Unsteady {
        /// The version.
        version: Version,
        /// The defect.
        defect: Defect,
        /// The entries that the member is behind.
        behind: Option<u64>,
        /// The time that etcd's container has been running.
        up_for: Option<Duration>,
    },
    /// The free space on the volume is not known, and nobody asked for a run.
    RoomUnknown,
    /// The volume has no room for a second copy of what is in use.
    NoRoom {
        /// The bytes that a defragmentation writes.
        needed: u64,
        /// The bytes that are free.
        free: u64,
    },
    /// The liveness probe would end the member before the defragmentation does.
    Liveness {
        /// The predicted time.
        predicted: Duration,
        /// The time that the probe bears.
        bears: Duration,
    },
    /// The defragmentation would take longer than the settings allow.
    Timeout {
        /// The predicted time.
        predicted: Duration,
        /// The longest time.
        timeout: Duration,
    },
    /// The member leads, and no follower that is done can take over.
    NoHeir,
    /// Another process holds the grant of a run.
    OtherHolder {
        /// The pod of the member.
        pod: PodName,
        /// The other process.
        holder: String,
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
            Self::ReportOnly => f.write_str(
                "spec.defragmentation.mode is Report; annotate the budget with quorumgate.io/defragment for one run",
            ),
            Self::OtherSchedule { schedule } => write!(
                f,
                "the backup sidecar defragments by its own schedule ({schedule}) and takes no grant; switch that off first"
            ),
            Self::Window => f.write_str("the window is closed"),
            Self::NotAllServing { voters, serving } => {
                write!(f, "{serving} of {voters} voters serve, and all have to")
            }
            Self::ServingTooShort { served_for, needed } => write!(
                f,
                "all voters have served for {} of {} s",
                served_for.as_secs(),
                needed.as_secs()
            ),
            Self::Learner { member } => write!(f, "{member} is a learner"),
            Self::Corrupt { member } => write!(f, "a CORRUPT alarm stands against {member}"),
            Self::Lag { member, behind: Some(behind), most } => {
                write!(f, "{member} is {behind} entries behind, at most {most} are tolerated")
            }
            Self::Lag { member, behind: None, .. } => {
                write!(f, "how far {member} is behind is not known")
            }
            Self::InFlight { pod } => write!(f, "{pod} is defragmenting"),
            Self::VersionUnknown => f.write_str("its version of etcd is not known"),
            Self::Unsteady { version, defect, behind, up_for } => {
                write!(f, "etcd {version}: {defect}; so the member has to run for a minute and to be in sync")?;
                if let Some(behind) = behind {
                    write!(f, ", it is {behind} entries behind")?;
                }
                if let Some(up_for) = up_for {
                    write!(f, ", it runs for {} s", up_for.as_secs())?;
                }
                Ok(())
            }
            Self::RoomUnknown => f.write_str("the free space on its volume is not known"),
            Self::NoRoom { needed, free } => write!(
                f,
                "a defragmentation writes {} MiB, and {} MiB are free on its volume",
                needed >> 20,
                free >> 20
            ),
            Self::Liveness { predicted, bears } => write!(
                f,
                "it would not answer for about {} s, and its liveness probe bears {} s, of which a third is used at most",
                predicted.as_secs(),
                bears.as_secs()
            ),
            Self::Timeout { predicted, timeout } => write!(
                f,
                "it would take about {} s, and spec.defragmentation.timeout is {} s",
                predicted.as_secs(),
                timeout.as_secs()
            ),
            Self::NoHeir => f.write_str("it leads, and no follower that is defragmented can take over"),
            Self::OtherHolder { pod, holder } => {
                write!(f, "{holder} defragments {pod}, or did when it was last seen")
            }
        }
    }
}
