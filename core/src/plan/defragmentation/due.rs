//! The members that are due, and why.

use std::time::Duration;

use super::input::{DefragmentationInput, LastRun, MemberFacts};
use super::nospace::{is_below_limit, percent};
use crate::quorum::evidence::AlarmKind;
use crate::quorum::{Member, Sizes, Snapshot};

/// The bytes that a run has to free at least under quota pressure. A run that frees less has
/// gained nothing.
const LEAST: u64 = 32 << 20;

/// The time after a run without gain before the next one.
const AFTER_NO_GAIN: Duration = Duration::from_secs(24 * 60 * 60);

/// The reason why a member is due. `Display` completes the sentence "the member is due: …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, derive_more::Display)]
pub enum Due {
    /// A NOSPACE alarm stands, whoever raised it, so the cluster refuses writes. The member is one
    /// that holds it up, and a defragmentation brings it below the limit at which the alarm can be
    /// disarmed.
    #[display("a NOSPACE alarm stands, and {} MiB can be freed", reclaim >> 20)]
    NoSpace {
        /// The bytes to free.
        reclaim: u64,
    },
    /// The annotation asks for a run.
    #[display("a run was asked for")]
    Requested,
    /// The size exceeds the share of the quota that the settings name.
    #[display("its database has {percent} % of the quota, and {} MiB can be freed", reclaim >> 20)]
    QuotaPressure {
        /// The bytes to free.
        reclaim: u64,
        /// The size in percent of the quota.
        percent: u64,
    },
    /// The bytes that can be freed exceed both floors of the settings.
    #[display("{} MiB ({percent} %) can be freed", reclaim >> 20)]
    Reclaim {
        /// The bytes to free.
        reclaim: u64,
        /// The bytes to free in percent of the size.
        percent: u64,
    },
}

impl Due {
    /// The stable identifier of the reason, for metrics and status.
    pub fn slug(&self) -> &'static str {
        self.into()
    }

    /// Whether the run need not wait for the window: the cluster refuses writes, or a person asked.
    pub(super) fn is_urgent(self) -> bool {
        matches!(self, Self::NoSpace { .. } | Self::Requested)
    }
}

/// The reason why a member is due. `None` if it is not, or if its sizes are not known.
pub fn due(snapshot: &Snapshot, member: &Member, input: &DefragmentationInput) -> Option<Due> {
    let own = member.pod_name().map(|pod| input.member(pod))?;
    let sizes = member.sizes?;
    let last = own.last.as_ref();
    let asked =
        input.request.is_some() && last.and_then(|l| l.request.as_ref()) != input.request.as_ref();
    if asked {
        return Some(Due::Requested);
    }
    if last.is_some_and(LastRun::rests) {
        return None;
    }
    let mut all = snapshot.members.iter();
    let alarm = all.any(|member| member.alarms.contains(&AlarmKind::NoSpace));
    no_space(member, &own, sizes)
        .filter(|_| alarm)
        .or_else(|| quota_pressure(member, &own, sizes, input))
        .or_else(|| reclaim(sizes, input))
}

fn no_space(member: &Member, own: &MemberFacts, sizes: Sizes) -> Option<Due> {
    let quota = own.quota_of(member)?;
    let helps = !is_below_limit(sizes.db, quota) && is_below_limit(sizes.in_use, quota);
    helps.then(|| Due::NoSpace {
        reclaim: reclaimable(sizes),
    })
}

fn quota_pressure(
    member: &Member,
    own: &MemberFacts,
    sizes: Sizes,
    input: &DefragmentationInput,
) -> Option<Due> {
    let percent = percent(sizes.db, own.quota_of(member)?);
    let reclaim = reclaimable(sizes);
    let due = percent > u64::from(input.settings.quota_pressure) && reclaim >= LEAST;
    due.then_some(Due::QuotaPressure { reclaim, percent })
}

fn reclaim(sizes: Sizes, input: &DefragmentationInput) -> Option<Due> {
    let reclaim = reclaimable(sizes);
    let percent = percent(reclaim, sizes.db);
    let due =
        reclaim >= input.settings.min_reclaim && percent >= u64::from(input.settings.min_percent);
    due.then_some(Due::Reclaim { reclaim, percent })
}

impl LastRun {
    /// Whether the run gained nothing, and was so recent that the next one would not either.
    pub fn rests(&self) -> bool {
        let freed = self
            .size_after
            .map_or(0, |after| self.size_before.saturating_sub(after));
        freed < LEAST && self.ended_ago < AFTER_NO_GAIN
    }
}

/// The bytes that a defragmentation frees.
pub(super) fn reclaimable(sizes: Sizes) -> u64 {
    sizes.db.saturating_sub(sizes.in_use)
}
