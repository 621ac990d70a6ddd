//! The end of a cluster's log, the loss of its data and refilled members in the budget's status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::page::Page;
use crate::api::names::ACCEPT_DATA_LOSS;
use crate::api::{DataLossStatus, LogEndStatus, QuorumDisruptionBudgetStatus, RefillStatus};
use crate::quorum::{LogEnd, MemberId, PodName, WentBack};

impl Page {
    /// The end of the cluster's log on record.
    pub fn log_end(&self) -> Option<LogEnd> {
        read_log_end(self.status()?)
    }

    /// The loss of data on record, unless a person has accepted it.
    pub fn loss(&self) -> Option<WentBack> {
        let loss = self.status()?.data_loss.as_ref()?;
        if self.accepts(loss) {
            return None;
        }
        let cluster = loss.cluster_id.parse().ok()?;
        let serves_as = loss.serves_as.as_ref().map(|id| id.parse());
        Some(WentBack {
            cluster,
            serves_as: serves_as.transpose().ok()?.unwrap_or(cluster),
            reached: loss.reached.try_into().ok()?,
            is: loss.found.try_into().ok()?,
        })
    }

    /// The refilled members on record that nobody has accepted.
    pub fn refills(&self) -> Vec<MemberId> {
        let refills = self.status().map(|status| status.refills.as_slice());
        let refills = refills.unwrap_or_default();
        let open = refills
            .iter()
            .filter(|one| !self.accepts_refill(one, refills));
        open.filter_map(|refill| refill.member_id.parse().ok())
            .collect()
    }

    /// Whether a person has accepted exactly this loss.
    fn accepts(&self, loss: &DataLossStatus) -> bool {
        let found = loss.detection_time.0.as_second();
        self.accepted_until() == Some(found)
    }

    /// Whether a person has accepted this refill, or a later one of all that are on record.
    fn accepts_refill(&self, refill: &RefillStatus, all: &[RefillStatus]) -> bool {
        let found = |refill: &RefillStatus| refill.detection_time.0.as_second();
        self.accepted_until().is_some_and(|accepted| {
            accepted >= found(refill) && all.iter().any(|one| found(one) == accepted)
        })
    }

    /// The second up to which a person has accepted what was lost.
    fn accepted_until(&self) -> Option<i64> {
        let value = self.budget().annotations().get(ACCEPT_DATA_LOSS)?;
        let accepted: Timestamp = value.trim().parse().ok()?;
        Some(accepted.as_second())
    }
}

/// The end of the cluster's log in a status.
pub fn read_log_end(status: &QuorumDisruptionBudgetStatus) -> Option<LogEnd> {
    let recorded = status.log_end.as_ref()?;
    Some(LogEnd {
        cluster: recorded.cluster_id.parse().ok()?,
        index: recorded.raft_index.try_into().ok()?,
    })
}

/// Puts refilled members into a status, and drops those that were replaced since or accepted.
pub(super) fn write_refills(
    page: &Page,
    found: Vec<(PodName, MemberId, Timestamp)>,
    status: &mut QuorumDisruptionBudgetStatus,
) {
    for (member, id, at) in found {
        let refill = RefillStatus {
            member: member.to_string(),
            member_id: id.to_string(),
            detection_time: Time(at),
        };
        status.refills.retain(|known| known.member != refill.member);
        status.refills.push(refill);
    }
    let (members, all) = (&status.members, status.refills.clone());
    status.refills.retain(|refill| {
        let id = Some(&refill.member_id);
        let is_listed = members.iter().any(|member| member.member_id.as_ref() == id);
        is_listed && !page.accepts_refill(refill, &all)
    });
}

/// Writes what was seen of the log into a status: its end, and a loss that was found at this time.
/// A loss that was accepted ends, and the record begins again with what is there.
pub(super) fn write(
    page: &Page,
    end: Option<LogEnd>,
    lost: Option<(WentBack, Timestamp)>,
    status: &mut QuorumDisruptionBudgetStatus,
) {
    let is_accepted = status
        .data_loss
        .as_ref()
        .is_some_and(|loss| page.accepts(loss));
    if is_accepted && end.is_some() {
        status.data_loss = None;
        status.log_end = None;
    }
    if let Some((lost, at)) = lost
        && status.data_loss.is_none()
        && !is_accepted
    {
        status.data_loss = Some(DataLossStatus {
            detection_time: Time(at),
            cluster_id: lost.cluster.to_string(),
            serves_as: (lost.serves_as != lost.cluster).then(|| lost.serves_as.to_string()),
            reached: signed(lost.reached),
            found: signed(lost.is),
        });
    }
    let recorded = page.log_end().filter(|_| status.log_end.is_some());
    if let Some(end) = end.filter(|end| end.replaces(recorded)) {
        status.log_end = Some(LogEndStatus {
            cluster_id: end.cluster.to_string(),
            raft_index: signed(end.index),
        });
    }
}

fn signed(index: u64) -> i64 {
    index.try_into().unwrap_or(i64::MAX)
}
