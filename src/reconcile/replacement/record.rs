//! The record of a replacement, to and from the budget's status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::ReplacementStatus;
use crate::plan::replacement::{Proof, Record};
use crate::quorum::{PodName, PodUid};

/// The record as the planner has it. The error says for people what is not understood.
pub(super) fn read(status: &ReplacementStatus) -> Result<Record, String> {
    let old_id = status.old_member_id.as_ref();
    let old_id = old_id
        .map(|id| {
            let problem = |_| format!("status.replacements has a member id {id:?}");
            id.parse().map_err(problem)
        })
        .transpose()?;
    Ok(Record {
        member: PodName::new(&status.member),
        old_id,
        old_pod: status.old_pod_uid.as_deref().map(PodUid::new),
        old_claim: status.old_claim_uid.clone(),
        peer_urls: status.peer_urls.clone(),
        corrupt: status.reason == Proof::Corrupt.slug(),
    })
}

/// The record of a replacement that begins now.
pub(super) fn begun(record: &Record, proof: Option<&Proof>, now: Timestamp) -> ReplacementStatus {
    ReplacementStatus {
        member: record.member.to_string(),
        reason: proof.map_or("Requested", Proof::slug).to_owned(),
        start_time: time(now),
        completion_time: None,
        old_member_id: record.old_id.map(|id| id.to_string()),
        old_claim_uid: record.old_claim.clone(),
        old_pod_uid: record.old_pod.as_ref().map(ToString::to_string),
        peer_urls: record.peer_urls.clone(),
    }
}

/// The record of a replacement that gives up another claim and another pod than it began with.
pub(super) fn renewed(open: &ReplacementStatus, record: &Record) -> ReplacementStatus {
    ReplacementStatus {
        old_claim_uid: record.old_claim.clone(),
        old_pod_uid: record.old_pod.as_ref().map(ToString::to_string),
        ..open.clone()
    }
}

/// A time as the API server keeps it, in whole seconds.
pub(in crate::reconcile) fn time(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = Record {
            member: "etcd-2".into(),
            old_id: Some("8e9e05c52164694d".parse().unwrap()),
            old_pod: Some("p2".into()),
            old_claim: Some("c2".into()),
            peer_urls: vec!["http://etcd-2.etcd-peer:2380".into()],
            corrupt: false,
        };
        let status = begun(&record, Some(&Proof::VolumeLost), Timestamp::UNIX_EPOCH);
        assert_eq!(status.reason, "VolumeLost");
        assert_eq!(read(&status), Ok(record.clone()));
        let corrupt = Record {
            corrupt: true,
            ..record.clone()
        };
        let status = begun(&corrupt, Some(&Proof::Corrupt), Timestamp::UNIX_EPOCH);
        assert_eq!(read(&status), Ok(corrupt));
        let odd = ReplacementStatus {
            old_member_id: Some("it".into()),
            ..status
        };
        assert!(
            read(&odd).is_err(),
            "a record that is not understood counts"
        );
    }
}
