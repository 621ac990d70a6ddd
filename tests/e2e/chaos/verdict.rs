//! The check that every permission was right, from the witness's samples and the API server's audit
//! log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use jiff::Timestamp;
use quorumgate_testbed::control_plane::audit::AuditEvent;
use quorumgate_testbed::etcd_cluster::EtcdCluster;

use super::asked;
use super::tally::Tally;
use super::timeline::{Replaced, Timeline};
use super::witness::{Listed, Sample};

/// How far a sample may be from a permission and still tell about it: the pause between two
/// samples, and the delays of a busy machine.
const NEAR: Duration = Duration::from_millis(900);
/// The time after a fault or a change of membership for which a member may show its effects.
const LINGERS: Duration = Duration::from_secs(2);
/// The part of the timeline that a failure prints, before and after its moment.
const AROUND: Duration = Duration::from_secs(5);

/// Why a member does not serve, if it does not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Out {
    No,
    /// The pod was deleted while its member served.
    Taken,
    Failed,
}

/// Fails with the first permission that was wrong. Otherwise returns what was examined.
pub(super) fn every_permission_was_right(
    etcd: &EtcdCluster,
    samples: &[Sample],
    events: &[AuditEvent],
    timeline: &Timeline,
) -> Result<Tally> {
    ensure!(samples.len() > 20, "{} samples are too few", samples.len());
    let mut permissions = BTreeMap::<String, usize>::new();
    let prefix = format!("{}-", etcd.name());
    for event in events {
        let Some(reason) = permitted(event) else {
            continue;
        };
        if !event.object_ref.name.starts_with(&prefix) {
            continue;
        }
        if reason != "Terminating" {
            *permissions.entry(reason.to_owned()).or_default() += 1;
        }
        if was_right(reason, event, samples) == Some(false) {
            let at = event.request_received_timestamp;
            bail!(
                "{} of {} by {} at {at} was permitted as {reason:?}, and no sample shows that\n{}{}",
                event.verb,
                event.object_ref.name,
                event.user.username,
                seen_around(samples, at),
                timeline.around(at, AROUND)
            );
        }
    }
    asked::no_delete_went_unasked(&prefix, samples, events)?;
    let taken = never_too_many_taken(&prefix, samples, timeline)?;
    let asked = permissions.values().sum::<usize>();
    ensure!(
        asked > 0,
        "no request for a member of {etcd:?} was permitted"
    );
    Ok(Tally {
        permissions,
        samples: samples.len(),
        taken,
        ..Tally::default()
    })
}

/// The gate's webhook that was asked, if the event is about the removal of a pod.
pub(super) fn hook(event: &AuditEvent) -> Option<&'static str> {
    match (event.verb.as_str(), event.object_ref.subresource.as_str()) {
        ("delete", "") if event.object_ref.resource == "pods" => Some("pods.quorumgate.io"),
        ("create", "eviction") => Some("evictions.quorumgate.io"),
        _ => None,
    }
}

/// The reason for permissions with no recorded reason. The API server asks again if the pod has
/// changed since its first question, and the audit log keeps only the first answer.
const SECOND_ANSWER: &str = "SecondAnswer";

/// The reason of a delete or an eviction that was permitted and carried out.
fn permitted(event: &AuditEvent) -> Option<&str> {
    let hook = hook(event)?;
    let said = |key: &str| event.annotations.get(&format!("{hook}/{key}"));
    if !(200..300).contains(&event.response_status.code) {
        return None;
    }
    match said("verdict")?.as_str() {
        "allow" => said("reason").map(String::as_str),
        _ => Some(SECOND_ANSWER),
    }
}

/// Whether some sample near the permission shows that its reason was true. `None` for reasons that
/// are not about serving.
fn was_right(reason: &str, event: &AuditEvent, samples: &[Sample]) -> Option<bool> {
    let member = event.object_ref.name.as_str();
    let from = event.request_received_timestamp - NEAR;
    let until = event.stage_timestamp + NEAR;
    let mut near = samples
        .iter()
        .filter(|sample| sample.ended >= from && sample.begun <= until);
    // A learner may be promoted in between, and a sample does not see members and lists at one
    // moment. So the smallest majority near the permission counts.
    let listed = near.clone().map(|sample| &sample.listed);
    let needed = listed.filter(|listed| !listed.voters.is_empty());
    let needed = needed.map(Listed::majority).min().unwrap_or(usize::MAX);
    let enough = |sample: &Sample| sample.others(member) >= needed;
    match reason {
        "Majority" => Some(near.any(enough)),
        SECOND_ANSWER => Some(near.any(|sample| !sample.serves(member) || enough(sample))),
        "CostsNothing" | "Repair" => Some(near.any(|sample| !sample.serves(member))),
        "Learner" | "NotAMember" => Some(near.any(|sample| !sample.listed.voters.contains(member))),
        _ => None,
    }
}

/// Checks that at no time more members were out because of permissions than the majority can spare.
/// A member that is being replaced goes on to count as a voter, although etcd does not list it. If
/// its volume was lost, it has failed; if somebody asked for it, it was taken.
fn never_too_many_taken(prefix: &str, samples: &[Sample], timeline: &Timeline) -> Result<usize> {
    let mut out = BTreeMap::<String, Out>::new();
    let mut left = Timestamp::MIN;
    let mut most = 0;
    for pair in samples.windows(2) {
        let [before, now] = pair else { continue };
        let voters = &counted(prefix, now, timeline);
        if !voters.is_superset(&counted(prefix, before, timeline)) {
            left = now.begun;
            // A removal of a voter while others are out was checked by etcd itself, and makes its
            // own majority of the remaining voters.
            out.values_mut()
                .filter(|out| **out == Out::Taken)
                .for_each(|out| *out = Out::Failed);
        }
        out.retain(|member, _| voters.contains(member));
        for member in voters {
            // A new voter counts from the first time it serves.
            let known = out.entry(member.clone()).or_insert(Out::Failed);
            let lingers = now.begun <= left.saturating_add(LINGERS).unwrap_or(Timestamp::MAX);
            *known = after(*known, member, before, now, timeline, lingers);
        }
        let taken = out.values().filter(|out| **out == Out::Taken).count();
        most = most.max(taken);
        ensure!(
            taken <= spare(voters.len()),
            "{taken} of {} voters were taken at {}\n{}{}",
            voters.len(),
            now.begun,
            seen_around(samples, now.begun),
            timeline.around(now.begun, AROUND)
        );
    }
    Ok(most)
}

/// The voters that count: those that etcd lists, and those that are being replaced.
fn counted(prefix: &str, sample: &Sample, timeline: &Timeline) -> BTreeSet<String> {
    let replaced = timeline.replaced_at(sample.begun).map(|(member, _)| member);
    let replaced = replaced.filter(|member| member.starts_with(prefix));
    let listed = sample.listed.voters.iter().cloned();
    listed.chain(replaced.map(str::to_owned)).collect()
}

/// The number of so many voters that may be out at one time.
fn spare(voters: usize) -> usize {
    voters.saturating_sub(voters / 2 + 1)
}

/// Whether the gate has removed this member because somebody asked for it.
fn is_removed(member: &str, now: &Sample, timeline: &Timeline) -> bool {
    let mut replaced = timeline.replaced_at(now.begun);
    !now.listed.voters.contains(member) && replaced.any(|one| one == (member, Replaced::Asked))
}

fn after(
    out: Out,
    member: &str,
    before: &Sample,
    now: &Sample,
    timeline: &Timeline,
    another_left: bool,
) -> Out {
    if now.serves(member) {
        return Out::No;
    }
    if out != Out::No {
        return out;
    }
    let (then, later) = (before.pods.get(member), now.pods.get(member));
    let same = matches!((then, later), (Some(then), Some(later)) if then.uid == later.uid);
    let is_removed = is_removed(member, now, timeline);
    let goes = is_removed || later.is_none_or(|later| later.terminating) || !same;
    let node = then.and_then(|then| then.node.as_deref());
    let broken = timeline.broke(member, node, before.begun - LINGERS, now.ended);
    if goes && !broken && !another_left {
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
        let voters = sample.listed.voters.len();
        format!(
            "  seen {} … {}: {voters} voters; {}\n",
            sample.begun,
            sample.ended,
            pods.join("; ")
        )
    })
    .collect::<Vec<_>>()
    .concat()
}
