//! The NOSPACE alarm: when it is disarmed.
//!
//! An alarm stays until it is disarmed, also when there is room again. The gate disarms it when
//! there is room on every member. The gate never compacts: what history may go is for the owner to
//! say.

use super::input::{DefragmentationInput, Mode};
use crate::quorum::evidence::AlarmKind;
use crate::quorum::{Member, MemberId, Snapshot};

/// The share of the quota, in percent, below which every member has to be.
const LIMIT: u64 = 90;

/// The decision about NOSPACE alarms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disarm {
    /// There is no such alarm.
    NoAlarm,
    /// Every member has room: exactly the alarms of these members are disarmed.
    Disarm(Vec<MemberId>),
    /// A member has no room yet, and a defragmentation makes some.
    AfterDefragmentation {
        /// The name of the member.
        member: String,
    },
    /// A defragmentation does not help: too much of the database is in use. The owner has to
    /// delete data and compact, or to raise the quota.
    NothingToReclaim {
        /// The name of the member.
        member: String,
        /// The bytes in use in percent of the quota.
        percent: u64,
    },
    /// The sizes or the quota of a member are not known.
    Unknown {
        /// The name of the member.
        member: String,
    },
    /// The alarms could be disarmed, and the gate only reports: the mode is not Auto and no run
    /// was asked for.
    ReportOnly,
}

/// Decides whether NOSPACE alarms are disarmed.
///
/// Every member counts, learners too: the next alarm would come at once. The alarms are those that
/// were seen, by member id, so that one raised meanwhile stays.
pub fn disarm(snapshot: &Snapshot, input: &DefragmentationInput) -> Disarm {
    let raised: Vec<MemberId> = snapshot
        .members
        .iter()
        .filter(|member| member.alarms.contains(&AlarmKind::NoSpace))
        .filter_map(|member| member.id)
        .collect();
    if raised.is_empty() {
        return Disarm::NoAlarm;
    }
    if let Some(reason) = snapshot.members.iter().find_map(|m| held_up_by(m, input)) {
        return reason;
    }
    let by_itself = input.settings.mode == Mode::Auto && input.other_schedule.is_none();
    let on_request = input.settings.mode != Mode::Off && input.request.is_some();
    if by_itself || on_request {
        Disarm::Disarm(raised)
    } else {
        Disarm::ReportOnly
    }
}

/// The reason why the alarms stay, for the sake of this member.
fn held_up_by(member: &Member, input: &DefragmentationInput) -> Option<Disarm> {
    let name = member.name.clone();
    let own = member
        .pod_name()
        .map(|pod| input.member(pod))
        .unwrap_or_default();
    let (Some(sizes), Some(quota)) = (member.sizes, own.quota_of(member)) else {
        return Some(Disarm::Unknown { member: name });
    };
    if is_below_limit(sizes.db, quota) {
        return None;
    }
    Some(if is_below_limit(sizes.in_use, quota) {
        Disarm::AfterDefragmentation { member: name }
    } else {
        Disarm::NothingToReclaim {
            member: name,
            percent: percent(sizes.in_use, quota),
        }
    })
}

/// Whether a size leaves room below the quota.
pub(super) fn is_below_limit(size: u64, quota: u64) -> bool {
    percent(size, quota) < LIMIT
}

/// The share of `part` in `whole`, in percent, rounded down.
pub(super) fn percent(part: u64, whole: u64) -> u64 {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}
