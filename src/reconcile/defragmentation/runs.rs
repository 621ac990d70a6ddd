//! The record of the latest run of each member, in the budget's status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::calls::CallEnd;
use crate::api::DefragmentationStatus;
use crate::plan::defragmentation::{DefragmentationInput, due};
use crate::quorum::{Member, PodName, Snapshot};

/// The record of a run that begins now.
pub(super) fn begun(
    snapshot: &Snapshot,
    member: &Member,
    pod: &PodName,
    facts: &DefragmentationInput,
    now: Timestamp,
) -> DefragmentationStatus {
    let due = due(snapshot, member, facts);
    let size = member.sizes.map(|sizes| sizes.db).unwrap_or_default();
    DefragmentationStatus {
        member: pod.to_string(),
        reason: due.map_or("NotDueAnyMore", |due| due.slug()).into(),
        start_time: time(now),
        completion_time: None,
        took_milliseconds: None,
        size_before_bytes: integer(size),
        size_after_bytes: None,
        request: facts.request.clone(),
        error: None,
    }
}

/// Completes the record of a member's run. `end` is the end of the call, if this process made it
/// and saw its end; `size` is the size of the database now.
pub(super) fn end(
    runs: &mut [DefragmentationStatus],
    pod: &PodName,
    end: Option<&CallEnd>,
    size: Option<u64>,
    now: Timestamp,
) {
    let is_open = |run: &&mut DefragmentationStatus| run.member == pod.as_str() && is_open(run);
    let Some(run) = runs.iter_mut().find(is_open) else {
        return;
    };
    run.size_after_bytes = size.map(integer);
    if let Some(end) = end {
        run.completion_time = Some(time(now));
        run.took_milliseconds = i64::try_from(end.took.as_millis()).ok();
        run.error.clone_from(&end.error);
    }
}

/// Takes back the record of a member's run that did not begin after all.
pub(super) fn take_back(runs: &mut Vec<DefragmentationStatus>, pod: &PodName) {
    runs.retain(|run| run.member != pod.as_str() || !is_open(run));
}

/// Whether nothing is known of the end of a run.
fn is_open(run: &DefragmentationStatus) -> bool {
    run.completion_time.is_none() && run.size_after_bytes.is_none()
}

/// A time as the API server keeps it, in whole seconds.
fn time(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

fn integer(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(member: &str) -> DefragmentationStatus {
        DefragmentationStatus {
            member: member.into(),
            reason: "Reclaim".into(),
            start_time: time(Timestamp::UNIX_EPOCH),
            completion_time: None,
            took_milliseconds: None,
            size_before_bytes: 90,
            size_after_bytes: None,
            request: Some("now".into()),
            error: None,
        }
    }

    #[test]
    fn a_run_whose_end_nobody_saw_has_a_size_and_no_end() {
        let mut runs = vec![open("etcd-0"), open("etcd-1")];
        end(
            &mut runs,
            &"etcd-1".into(),
            None,
            Some(40),
            Timestamp::UNIX_EPOCH,
        );
        let expected = DefragmentationStatus {
            size_after_bytes: Some(40),
            ..open("etcd-1")
        };
        assert_eq!(runs, [open("etcd-0"), expected]);
    }

    #[test]
    fn a_run_that_did_not_begin_is_taken_back_and_an_earlier_one_stays() {
        let mut runs = vec![open("etcd-0"), open("etcd-1")];
        take_back(&mut runs, &"etcd-1".into());
        assert_eq!(runs, [open("etcd-0")]);
        let mut ended = vec![DefragmentationStatus {
            completion_time: Some(time(Timestamp::UNIX_EPOCH)),
            ..open("etcd-1")
        }];
        let before = ended.clone();
        take_back(&mut ended, &"etcd-1".into());
        assert_eq!(ended, before);
    }
}
