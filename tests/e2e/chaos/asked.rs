//! Checks that the gate was asked. A pod is a member's by its name, whatever its labels and its
//! owner.

use std::time::Duration;

use anyhow::{Result, ensure};
use quorumgate_testbed::control_plane::audit::AuditEvent;

use super::verdict::hook;
use super::witness::Sample;

/// The most time by which the witness sees a terminating pod later than the API server.
const LATE: Duration = Duration::from_secs(5);

/// Fails if a pod with a serving member was deleted and the gate was not asked.
pub(super) fn no_delete_went_unasked(
    prefix: &str,
    samples: &[Sample],
    events: &[AuditEvent],
) -> Result<()> {
    for event in events {
        let Some(hook) = hook(event) else { continue };
        let member = event.object_ref.name.as_str();
        let asked = event.annotations.contains_key(&format!("{hook}/verdict"));
        let kubelet = event.user.username.starts_with("system:node:");
        if asked || kubelet || !went(event) || !member.starts_with(prefix) {
            continue;
        }
        let at = event.request_received_timestamp;
        let before = samples.iter().rev().find(|sample| sample.ended < at);
        let Some(sample) = before.filter(|sample| sample.stands(member)) else {
            continue;
        };
        // A second delete of a terminating pod needs no question. The first delete may have been
        // received after this one, if this one took longer.
        let terminated = events.iter().any(|other| {
            let this =
                went(other) && other.object_ref.name == member && !std::ptr::eq(other, event);
            (this || of_all(other))
                && other.request_received_timestamp < event.stage_timestamp
                && other.stage_timestamp > sample.begun - LATE
        });
        ensure!(
            terminated,
            "{} of {member} by {} at {at} was carried out, and the gate was not asked",
            event.verb,
            event.user.username
        );
    }
    Ok(())
}

/// Whether the event deletes a collection of pods. Such an event does not name the pods.
fn of_all(event: &AuditEvent) -> bool {
    event.verb == "deletecollection" && event.object_ref.resource == "pods"
}

fn went(event: &AuditEvent) -> bool {
    hook(event).is_some() && (200..300).contains(&event.response_status.code)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::witness::{Listed, Seen};
    use super::*;

    const ASKED: bool = true;

    #[test]
    fn a_delete_without_a_question_is_found() {
        assert!(went_unasked(&[delete("00:10", "00:11", !ASKED)]));
        assert!(!went_unasked(&[delete("00:10", "00:11", ASKED)]));
    }

    #[test]
    fn a_pod_that_terminates_may_be_deleted_again_without_a_question() {
        let again = delete("00:12", "00:13", !ASKED);
        assert!(!went_unasked(&[delete("00:10", "00:11", ASKED), again]));
    }

    #[test]
    fn a_second_delete_may_be_received_before_the_one_that_terminated_the_pod() {
        let slow = delete("00:10", "00:17", !ASKED);
        assert!(!went_unasked(&[slow, delete("00:11", "00:16", ASKED)]));
        let slow = delete("00:10", "00:17", !ASKED);
        assert!(went_unasked(&[slow, delete("00:18", "00:19", ASKED)]));
    }

    fn went_unasked(events: &[AuditEvent]) -> bool {
        let seen = Seen {
            uid: "uid".to_owned(),
            terminating: false,
            node: None,
            serves: true,
        };
        let sample = Sample {
            begun: at("00:09"),
            ended: at("00:09"),
            pods: [("etcd-0".to_owned(), seen)].into(),
            listed: Listed::default(),
        };
        no_delete_went_unasked("etcd-", &[sample], events).is_err()
    }

    fn delete(received: &str, ended: &str, asked: bool) -> AuditEvent {
        let verdict = json!({"pods.quorumgate.io/verdict": "allow"});
        let event = json!({
            "auditID": "",
            "requestURI": "",
            "verb": "delete",
            "user": {"username": "admin"},
            "objectRef": {"resource": "pods", "name": "etcd-0"},
            "responseStatus": {"code": 200},
            "annotations": if asked { verdict } else { json!({}) },
            "requestReceivedTimestamp": at(received),
            "stageTimestamp": at(ended),
        });
        serde_json::from_value(event).expect("an event of an audit log")
    }

    fn at(minute: &str) -> jiff::Timestamp {
        format!("2026-01-01T00:{minute}Z").parse().expect("a time")
    }
}
