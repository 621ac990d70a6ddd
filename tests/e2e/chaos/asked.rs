//! Whether the gate was asked at all: a member is one by its name, whatever its pod's labels and owner say.

use std::time::Duration;

use anyhow::{Result, ensure};
use quorumgate_testbed::control_plane::audit::AuditEvent;

use super::verdict::hook;
use super::witness::Sample;

/// How much later than the API server the witness may know that somebody is on his way out.
const LATE: Duration = Duration::from_secs(5);

/// Fails where a pod that ran a member which served was deleted, and nobody had asked the gate.
pub(super) fn nobody_went_unasked(
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
        // What terminates may be told so again without a question.
        let earlier = events.iter().any(|other| {
            let this = went(other) && other.object_ref.name == member;
            (this || of_all(other))
                && other.request_received_timestamp < at
                && other.stage_timestamp > sample.begun - LATE
        });
        ensure!(
            earlier,
            "{} of {member} by {} at {at} was carried out, and the gate was not asked",
            event.verb,
            event.user.username
        );
    }
    Ok(())
}

/// Whether it was about many, whose names are not told.
fn of_all(event: &AuditEvent) -> bool {
    event.verb == "deletecollection" && event.object_ref.resource == "pods"
}

fn went(event: &AuditEvent) -> bool {
    hook(event).is_some() && (200..300).contains(&event.response_status.code)
}
