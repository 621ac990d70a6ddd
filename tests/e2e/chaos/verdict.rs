//! Whether every permission was right, by what the witness saw and what the API server's audit log says.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use jiff::Timestamp;
use quorumgate_testbed::control_plane::audit::AuditEvent;

use super::timeline::Timeline;
use super::witness::Sample;

/// How far a sample may be from a permission and still speak of it: the pause between two, and a machine that is busy.
const NEAR: Duration = Duration::from_millis(700);
/// How long after a fault a member may show it.
const LINGERS: Duration = Duration::from_secs(2);
/// What of the timeline is told.
const AROUND: Duration = Duration::from_secs(5);

/// Why a member does not serve.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Out {
    No,
    /// Its pod was taken while it served.
    Taken,
    Failed,
}

/// Fails with the first that was not; tells what was looked at otherwise.
pub(super) fn every_permission_was_right(
    samples: &[Sample],
    events: &[AuditEvent],
    timeline: &Timeline,
    members: &[String],
) -> Result<String> {
    let majority = members.len() / 2 + 1;
    ensure!(samples.len() > 20, "{} samples are none", samples.len());
    let mut judged = BTreeMap::<&str, usize>::new();
    for event in events {
        let Some(reason) = permitted(event) else {
            continue;
        };
        if let Some(right) = was_right(reason, event, samples, majority) {
            *judged.entry(reason).or_default() += 1;
            if !right {
                let at = event.request_received_timestamp;
                bail!(
                    "{} of {} by {} at {at} was permitted as {reason:?}, and nobody saw it so\n{}{}",
                    event.verb,
                    event.object_ref.name,
                    event.user.username,
                    seen_around(samples, at),
                    timeline.around(at, AROUND)
                );
            }
        }
    }
    let most = never_too_many_taken(samples, timeline, members, members.len() - majority)?;
    ensure!(judged.values().sum::<usize>() > 0, "nothing was permitted");
    Ok(format!(
        "{} operations, {} samples; permissions by reason: {judged:?}; members taken at one time: {most} at most",
        timeline.len(),
        samples.len()
    ))
}

/// The reason for which a delete or an eviction was permitted and carried out.
fn permitted(event: &AuditEvent) -> Option<&str> {
    let hook = match (event.verb.as_str(), event.object_ref.subresource.as_str()) {
        ("delete", "") => "pods.quorumgate.io",
        ("create", "eviction") => "evictions.quorumgate.io",
        _ => return None,
    };
    let said = |key: &str| event.annotations.get(&format!("{hook}/{key}"));
    let carried_out = (200..300).contains(&event.response_status.code);
    let allowed = said("verdict").is_some_and(|verdict| verdict == "allow");
    (carried_out && allowed).then(|| said("reason").map(String::as_str))?
}

/// Whether some sample near a permission shows its reason to be true; `None` where it is not about who serves.
fn was_right(
    reason: &str,
    event: &AuditEvent,
    samples: &[Sample],
    majority: usize,
) -> Option<bool> {
    let member = event.object_ref.name.as_str();
    let from = event.request_received_timestamp - NEAR;
    let until = event.stage_timestamp + NEAR;
    let mut near = samples
        .iter()
        .filter(|sample| sample.ended >= from && sample.begun <= until);
    match reason {
        "majority" => Some(near.any(|sample| sample.others(member) >= majority)),
        "costs-nothing" | "repair" => Some(near.any(|sample| !sample.serves(member))),
        _ => None,
    }
}

/// At no time more members are out because their pods were taken than the majority can spare.
fn never_too_many_taken(
    samples: &[Sample],
    timeline: &Timeline,
    members: &[String],
    spare: usize,
) -> Result<usize> {
    let mut out: BTreeMap<&str, Out> = members.iter().map(|m| (m.as_str(), Out::No)).collect();
    let mut most = 0;
    for pair in samples.windows(2) {
        let [before, now] = pair else { continue };
        for (member, out) in &mut out {
            *out = after(*out, member, before, now, timeline);
        }
        let taken = out.values().filter(|out| **out == Out::Taken).count();
        most = most.max(taken);
        ensure!(
            taken <= spare,
            "{taken} members were taken at {}\n{}{}",
            now.begun,
            seen_around(samples, now.begun),
            timeline.around(now.begun, AROUND)
        );
    }
    Ok(most)
}

fn after(out: Out, member: &str, before: &Sample, now: &Sample, timeline: &Timeline) -> Out {
    if now.serves(member) {
        return Out::No;
    }
    if out != Out::No {
        return out;
    }
    let (then, later) = (before.pods.get(member), now.pods.get(member));
    let same = matches!((then, later), (Some(then), Some(later)) if then.uid == later.uid);
    let goes = later.is_none_or(|later| later.terminating) || !same;
    let broken = timeline.broke(member, before.begun - LINGERS, now.ended);
    if goes && !broken {
        Out::Taken
    } else {
        Out::Failed
    }
}

fn seen_around(samples: &[Sample], at: Timestamp) -> String {
    let near = samples
        .iter()
        .filter(|sample| sample.begun <= at + NEAR && sample.ended >= at - NEAR);
    near.map(|sample| {
        let pods: Vec<String> = sample
            .pods
            .iter()
            .map(|(name, seen)| {
                let word = if seen.serves { "serves" } else { "does not" };
                let going = if seen.terminating {
                    ", terminating"
                } else {
                    ""
                };
                format!("{name} {word}{going}")
            })
            .collect();
        format!("  seen {}: {}\n", sample.begun, pods.join("; "))
    })
    .collect::<Vec<_>>()
    .concat()
}
