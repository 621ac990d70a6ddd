//! The run, from what is seen and from the grant on record.

use std::cmp::Reverse;

use super::super::hindrance::Hindrance;
use super::allowed::{not_all_serving, refusal};
use super::due::{Due, due, reclaimable};
use super::input::{Call, DefragmentationInput, MemberFacts, Mode};
use super::refusal::Refusal;
use super::step::{Next, Step};
use crate::quorum::{
    DefragmentationProgress, Disruption, GrantKind, Grants, Kind, Member, MemberId, PodName,
    Snapshot, TargetPod, leader_to_move,
};

/// The next step of a run, while the given grants are open.
///
/// ```
/// use std::time::Duration;
/// use quorumgate_core::plan::Handover;
/// use quorumgate_core::plan::defragmentation::{
///     Call, DefragmentationInput, MemberFacts, Mode, Next, Settings, Step, next,
/// };
/// use quorumgate_core::quorum::{Grants, PodName, Snapshot, example};
///
/// let mut observation = example::healthy("etcd-main", 3);
/// for probe in &mut observation.round.probes {
///     let status = probe.status.as_mut().unwrap();
///     (status.db_size, status.db_size_in_use) = (2 << 30, 1 << 30);
/// }
/// let member = || MemberFacts {
///     version: "3.6.16".parse().ok(),
///     room: Some(8 << 30),
///     ..MemberFacts::default()
/// };
/// let input = DefragmentationInput {
///     settings: Settings { mode: Mode::Auto, ..Settings::default() },
///     request: None,
///     in_window: true,
///     other_schedule: None,
///     rolling_out: false,
///     all_served_for: Duration::from_secs(60),
///     handover: Handover::Possible,
///     me: "gate-0/1".into(),
///     call: Call::NotMade,
///     members: (0..3).map(|n| (PodName::new(format!("etcd-main-{n}")), member())).collect(),
/// };
/// // The member in etcd-main-0 leads, so a follower goes first.
/// let cluster = Snapshot::assemble(&observation);
/// let Next::Act(step) = next(&cluster, &Grants::default(), &input) else { panic!() };
/// assert_eq!(step.to_string(), "defragment etcd-main-2: 1024 MiB (50 %) can be freed");
/// ```
pub fn next(snapshot: &Snapshot, grants: &Grants, input: &DefragmentationInput) -> Next {
    let open = grants.iter().find_map(|(pod, grant)| {
        grant.causes.iter().find_map(|cause| match &cause.what {
            GrantKind::Defragment { holder, .. } => Some((pod, holder)),
            GrantKind::Delete { .. } | GrantKind::Replace => None,
        })
    });
    match open {
        Some((pod, holder)) if *holder == input.me => go_on(snapshot, grants, input, pod),
        Some((pod, holder)) => Next::Watch {
            pod: pod.clone(),
            because: Refusal::OtherHolder {
                pod: pod.clone(),
                holder: holder.clone(),
            },
        },
        None => begin(snapshot, grants, input),
    }
}

/// The progress of a defragmentation, for the settlement of its grant. `holder` is the process in
/// the grant. A grant whose holder is gone settles by [`DefragmentationProgress::NotMine`], that is
/// by age.
pub fn progress(
    snapshot: &Snapshot,
    pod: &PodName,
    holder: &str,
    input: &DefragmentationInput,
) -> DefragmentationProgress {
    let own = input.member(pod);
    let serves = snapshot.member(pod).is_some_and(Member::serves_quorum);
    if own.in_flight == Some(true) {
        return DefragmentationProgress::Running;
    }
    if holder != input.me {
        return DefragmentationProgress::NotMine;
    }
    match input.call {
        Call::Returned { done } if serves && is_over(done, &own) => {
            DefragmentationProgress::Returned
        }
        // The server did not say that it is done, and nobody can ask: the age of the grant decides.
        Call::Returned { done: false } if serves && own.in_flight.is_none() => {
            DefragmentationProgress::NotMine
        }
        // Whether the call is made at all is for `next` to say.
        Call::NotMade | Call::Running | Call::Returned { .. } => DefragmentationProgress::Running,
    }
}

/// Whether a call that has returned is over on the server too. Where the server did not say that
/// it is done, the metric has to.
fn is_over(done: bool, own: &MemberFacts) -> bool {
    match own.in_flight {
        Some(in_flight) => !in_flight,
        None => done,
    }
}

/// The next step of a run of this process.
fn go_on(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &DefragmentationInput,
    pod: &PodName,
) -> Next {
    let in_flight = || Next::Watch {
        pod: pod.clone(),
        because: Refusal::InFlight { pod: pod.clone() },
    };
    match input.call {
        Call::Running => in_flight(),
        Call::Returned { .. } => match progress(snapshot, pod, &input.me, input) {
            DefragmentationProgress::Returned => Next::Act(Step::Settle { pod: pod.clone() }),
            DefragmentationProgress::Running
            | DefragmentationProgress::NotBegun
            | DefragmentationProgress::NotMine => in_flight(),
        },
        Call::NotMade => Next::Act(match last_check(snapshot, grants, input, pod) {
            Ok(step) => step,
            Err(because) => Step::GiveUp {
                pod: pod.clone(),
                because,
            },
        }),
    }
}

/// The step between grant and call: everything is judged again.
fn last_check(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &DefragmentationInput,
    pod: &PodName,
) -> Result<Step, Refusal> {
    let member = snapshot.member(pod);
    let target = member.and_then(target);
    let (Some(member), Some(pod)) = (member, target) else {
        return Err(not_all_serving(snapshot));
    };
    let on_request = due(snapshot, member, input) == Some(Due::Requested);
    if let Some(because) = refusal(snapshot, grants, input, &pod, on_request) {
        return Err(because);
    }
    Ok(match next_leader(snapshot, grants, input, &pod)? {
        Some(to) => Step::MoveLeader { pod, to },
        None => Step::Begin { pod },
    })
}

/// The first step of the next run. A call that outlived its ledger comes to its end first.
fn begin(snapshot: &Snapshot, grants: &Grants, input: &DefragmentationInput) -> Next {
    let mut refused = None;
    for (member, due, pod) in candidates(snapshot, input) {
        let runs = input.call == Call::Running;
        let because = runs
            .then(|| Refusal::InFlight {
                pod: pod.name.clone(),
            })
            .or_else(|| not_by_itself(due, input))
            .or_else(|| refusal(snapshot, grants, input, &pod, due == Due::Requested))
            .or_else(|| next_leader(snapshot, grants, input, &pod).err());
        let Some(because) = because else {
            return Next::Act(Step::Grant { pod, due });
        };
        refused = refused.or_else(|| {
            Some(Next::Wait {
                pod: member.pod_name()?.clone(),
                due,
                because,
            })
        });
    }
    refused.unwrap_or(Next::Nothing)
}

/// The members that are due, in the order in which they go: followers before the leader; those that
/// hold up a NOSPACE alarm first, then those of which the most can be freed.
fn candidates<'a>(
    snapshot: &'a Snapshot,
    input: &DefragmentationInput,
) -> Vec<(&'a Member, Due, TargetPod)> {
    if input.settings.mode == Mode::Off {
        return Vec::new();
    }
    let mut due: Vec<_> = snapshot
        .members
        .iter()
        .filter_map(|member| Some((member, due(snapshot, member, input)?, target(member)?)))
        .collect();
    due.sort_by_key(|(member, due, pod)| {
        let urgent = matches!(due, Due::NoSpace { .. });
        let frees = member.sizes.map_or(0, reclaimable);
        let name = Reverse(pod.name.clone());
        (member.leader, Reverse(urgent), Reverse(frees), name)
    });
    due
}

/// The reason why a member that is due is left to a person or to another hour.
fn not_by_itself(due: Due, input: &DefragmentationInput) -> Option<Refusal> {
    if due == Due::Requested {
        return None;
    }
    if input.settings.mode != Mode::Auto {
        return Some(Refusal::ReportOnly);
    }
    if let Some(schedule) = input.other_schedule.clone() {
        return Some(Refusal::OtherSchedule { schedule });
    }
    (!input.in_window && !due.is_urgent()).then_some(Refusal::OutsideWindow)
}

/// The follower that takes leadership over from the member in `pod`. `None` if that member does
/// not lead, or is the only one.
///
/// The follower is one that is not due: otherwise it would have to hand over as well, soon after.
fn next_leader(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &DefragmentationInput,
    pod: &TargetPod,
) -> Result<Option<MemberId>, Refusal> {
    let leads = snapshot.member(&pod.name).is_some_and(|m| m.leader);
    if !leads || snapshot.members.len() <= 1 {
        return Ok(None);
    }
    if let Some(hindrance) = Hindrance::of_handover(input.handover) {
        return Err(hindrance.into());
    }
    let mut done = snapshot.clone();
    done.members
        .retain(|m| m.leader || due(snapshot, m, input).is_none());
    let run = Disruption::of_gate(pod.clone(), Kind::Defragment);
    leader_to_move(&done, grants, &run)
        .map(Some)
        .ok_or(Refusal::NoHeir)
}

fn target(member: &Member) -> Option<TargetPod> {
    member.pod.as_ref().map(|pod| TargetPod {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
    })
}

#[cfg(test)]
mod tests;
