//! The reasons why no defragmentation begins.

use std::time::Duration;

use super::super::hindrance::Hindrance;
use super::super::version::{Defect, Version};
use crate::quorum::PodName;

/// The reason why a member that is due is not defragmented now, with its numbers. `Display` is a
/// sentence for people.
#[derive(
    Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames, derive_more::Display,
)]
pub enum Refusal {
    /// A reason that holds back other work of the gate, too.
    #[display("{_0}")]
    Hindered(Hindrance),
    /// The mode is Report.
    #[display(
        "spec.defragmentation.mode is Report; annotate the budget with quorumgate.io/defragment for one run"
    )]
    ReportOnly,
    /// The backup sidecar defragments by a schedule of its own.
    #[display(
        "the backup sidecar defragments by its own schedule ({schedule}) and takes no grant; switch that off first"
    )]
    OtherSchedule {
        /// The schedule.
        schedule: String,
    },
    /// The window is closed.
    #[display("the window is closed")]
    OutsideWindow,
    /// Not all voters serve.
    #[display("{serving} of {voters} voters serve, and all have to")]
    NotAllServing {
        /// The number of voters that count.
        voters: u32,
        /// The number of voters that serve.
        serving: u32,
    },
    /// All voters serve, but not for long enough.
    #[display("all voters have served for {} of {} s", served_for.as_secs(), needed.as_secs())]
    ServingTooShort {
        /// The time for which they have served.
        served_for: Duration,
        /// The time for which they have to serve.
        needed: Duration,
    },
    /// A member is a learner.
    #[display("{member} is a learner")]
    Learner {
        /// The name of the member.
        member: String,
    },
    /// A CORRUPT alarm stands.
    #[display("a CORRUPT alarm stands against {member}")]
    Corrupt {
        /// The name of the member.
        member: String,
    },
    /// A member is behind the leader.
    #[display("{}", lag(member, *behind, *most))]
    Behind {
        /// The name of the member.
        member: String,
        /// The entries that it is behind. `None` if that is not known.
        behind: Option<u64>,
        /// The most entries that it may be behind.
        most: u64,
    },
    /// A defragmentation is in flight already, whoever began it.
    #[display("{pod} is defragmenting")]
    InFlight {
        /// The pod.
        pod: PodName,
    },
    /// The version is not known.
    #[display("its version of etcd is not known")]
    VersionUnknown,
    /// The version has a defect, and the member runs too short a time or is behind.
    #[display("etcd {version}: {defect}; so the member has to run for a minute and to be in sync{}", unsteady(*behind, *up_for))]
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
    #[display("the free space on its volume is not known")]
    RoomUnknown,
    /// The volume has no room for a second copy of what is in use.
    #[display("a defragmentation writes {} MiB, and {} MiB are free on its volume", needed >> 20, free >> 20)]
    NoRoom {
        /// The bytes that a defragmentation writes.
        needed: u64,
        /// The bytes that are free.
        free: u64,
    },
    /// The liveness probe would end the member before the defragmentation does.
    #[display("it would not answer for about {} s, and its liveness probe bears {} s, of which a third is used at most", predicted.as_secs(), bears.as_secs())]
    LivenessTooShort {
        /// The predicted time.
        predicted: Duration,
        /// The time that the probe bears.
        bears: Duration,
    },
    /// The defragmentation would take longer than the settings allow.
    #[display("it would take about {} s, and spec.defragmentation.timeout is {} s", predicted.as_secs(), timeout.as_secs())]
    TooLong {
        /// The predicted time.
        predicted: Duration,
        /// The longest time.
        timeout: Duration,
    },
    /// The member leads, and no follower that is done can take over.
    #[display("it leads, and no follower that is defragmented can take over")]
    NoHeir,
    /// Another process holds the grant of a run.
    #[display("{holder} defragments {pod}, or did when it was last seen")]
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

fn lag(member: &str, behind: Option<u64>, most: u64) -> String {
    match behind {
        Some(behind) => {
            format!("{member} is {behind} entries behind, at most {most} are tolerated")
        }
        None => format!("how far {member} is behind is not known"),
    }
}

fn unsteady(behind: Option<u64>, up_for: Option<Duration>) -> String {
    let behind = behind.map(|behind| format!(", it is {behind} entries behind"));
    let up_for = up_for.map(|up_for| format!(", it runs for {} s", up_for.as_secs()));
    behind.unwrap_or_default() + &up_for.unwrap_or_default()
}
