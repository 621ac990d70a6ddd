//! The end of a cluster's log and the loss of its data in the budget's status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::page::Page;
use crate::api::names::ACCEPT_DATA_LOSS;
use crate::api::{DataLossStatus, LogEndStatus, QuorumDisruptionBudgetStatus};
use crate::quorum::{LogEnd, WentBack};

impl Page {
    /// The end of the cluster's log on record.
    pub fn log_end(&self) -> Option<LogEnd> {
        let recorded = self.status()?.log_end.as_ref()?;
        Some(LogEnd {
            cluster: recorded.cluster_id.parse().ok()?,
            index: recorded.raft_index.try_into().ok()?,
        })
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

    /// Whether a person has accepted exactly this loss.
    fn accepts(&self, loss: &DataLossStatus) -> bool {
        let value = self.budget().annotations().get(ACCEPT_DATA_LOSS);
        let accepted: Option<Timestamp> = value.and_then(|value| value.trim().parse().ok());
        accepted.is_some_and(|accepted| accepted.as_second() == loss.detection_time.0.as_second())
    }
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
