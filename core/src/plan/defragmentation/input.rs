//! The facts and settings of a defragmentation that a snapshot does not have.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::desired::Handover;
use super::super::version::Version;
use crate::quorum::{Member, PodName};

/// `spec.defragmentation` of the budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Whether the gate defragments.
    pub mode: Mode,
    /// The bytes that a defragmentation has to free at least.
    pub min_reclaim: u64,
    /// The share of the file, in percent, that a defragmentation has to free at least.
    pub min_percent: u8,
    /// The share of the quota, in percent, above which less is enough.
    pub quota_pressure: u8,
    /// The longest time that one defragmentation may take.
    pub timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Report,
            min_reclaim: 200 << 20,
            min_percent: 45,
            quota_pressure: 80,
            timeout: Duration::from_secs(15 * 60),
        }
    }
}

/// Whether the gate defragments by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Never, also not on request.
    Off,
    /// On request. What is due is only reported.
    Report,
    /// Whenever it is due.
    Auto,
}

/// The facts of one look at a cluster, beside its snapshot and its grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefragmentationInput {
    /// The settings.
    pub settings: Settings,
    /// The value of the annotation `quorumgate.io/defragment`. Every new value asks for one run of
    /// all members.
    pub request: Option<String>,
    /// Whether the window is open, in which a run may begin. True if there is no window.
    pub in_window: bool,
    /// The schedule by which etcd-druid's sidecar defragments, if it does.
    pub other_schedule: Option<String>,
    /// Whether a rollout is under way.
    pub rolling_out: bool,
    /// The time for which every voter has served without a gap, watched by this replica.
    pub all_served_for: Duration,
    /// Whether leadership can be moved now.
    pub handover: Handover,
    /// The name of this process. No two processes have the same one: that of a pod is not enough,
    /// because its container may restart.
    pub me: String,
    /// The call that this process has made under the open grant.
    pub call: Call,
    /// The members by pod.
    pub members: BTreeMap<PodName, MemberFacts>,
}

/// The one call of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Call {
    /// No call was made by this process under the open grant.
    #[default]
    NotMade,
    /// The call has not returned.
    Running,
    /// The call has returned.
    Returned {
        /// Whether the server said that it is done. A deadline or a lost connection proves nothing.
        done: bool,
    },
}

/// The facts about one member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberFacts {
    /// The version that the member's status reports.
    pub version: Option<Version>,
    /// The quota from the metric `etcd_server_quota_backend_bytes`, for versions whose status has
    /// none.
    pub quota: Option<u64>,
    /// The bytes that are free on the member's volume.
    pub room: Option<u64>,
    /// Whether the metric `etcd_disk_defrag_inflight` is 1. `None` if it could not be read.
    pub in_flight: Option<bool>,
    /// The time without an answer that the liveness probe of etcd's container bears. `None` if
    /// there is no such probe.
    pub liveness: Option<Duration>,
    /// The latest run on record.
    pub last: Option<LastRun>,
}

/// The record of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastRun {
    /// The time since the run ended.
    pub ended_ago: Duration,
    /// The time that the run took. `None` if nobody saw its end.
    pub took: Option<Duration>,
    /// The size of the file before, in bytes.
    pub size_before: u64,
    /// The size of the file after, in bytes. `None` if nobody knows how the run ended.
    pub size_after: Option<u64>,
    /// The request that the run served.
    pub request: Option<String>,
}

impl DefragmentationInput {
    /// The facts as they will be once all voters have served for long enough.
    #[must_use]
    pub fn after_a_while(&self) -> Self {
        Self {
            all_served_for: Duration::MAX,
            ..self.clone()
        }
    }

    /// The facts about the member in the pod `pod`.
    pub(super) fn member(&self, pod: &PodName) -> MemberFacts {
        self.members.get(pod).cloned().unwrap_or_default()
    }
}

impl MemberFacts {
    /// The quota of a member, in bytes.
    pub(super) fn quota_of(&self, member: &Member) -> Option<u64> {
        let reported = member.sizes.and_then(|sizes| sizes.quota);
        reported.or(self.quota).filter(|quota| *quota > 0)
    }
}
