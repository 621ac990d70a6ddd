//! The run of a replacement, from what is seen and from the record.

use super::super::learner::{does_not_join, has_caught_up, runs_here};
use super::allowed::refusal;
use super::begin::{begin, next_leader};
use super::input::{Mode, Record, ReplacementInput};
use super::membership_by::MembershipBy;
use super::refusal::Refusal;
use super::step::{Next, Step};
use crate::quorum::evidence::ListedMember;
use crate::quorum::pod::Pod;
use crate::quorum::{
    ClaimState, Comparison, Condition, Grants, Member, MemberId, ReplacementProgress, Role,
    Snapshot,
};

/// The next step of a replacement, while the given grants are open.
///
/// ```
/// use quorumgate_core::plan::Handover;
/// use quorumgate_core::plan::replacement::{ReplacementInput, MembershipBy, Mode, Next, next};
/// use quorumgate_core::quorum::{Comparison, Grants, Snapshot, example};
///
/// let observation = example::healthy("etcd", 3);
/// let list = observation.round.probes[0].members.clone().unwrap();
/// let input = ReplacementInput {
///     mode: Mode::Manual,
///     membership: MembershipBy::Gate,
///     replaces_in_pod: false,
///     request: Some("etcd-2".into()),
///     wanted: None,
///     recorded: Default::default(),
///     rolling_out: false,
///     handover: Handover::Possible,
///     list: Some(list),
///     versions: vec!["3.6.16".parse().unwrap()],
///     claims: Default::default(),
///     held_pods: Default::default(),
///     failing_pods: Default::default(),
///     crash_loops: Default::default(),
///     replace_after: Default::default(),
///     leases_held: Default::default(),
///     has_backup: false,
///     data: Comparison::Unknown,
///     record: None,
/// };
/// let cluster = Snapshot::assemble(&observation);
/// let Next::Act(step) = next(&cluster, &Grants::default(), &input) else { panic!() };
/// assert_eq!(step.to_string(), "replace etcd-2: somebody asked for it");
/// ```
pub fn next(snapshot: &Snapshot, grants: &Grants, input: &ReplacementInput) -> Next {
    let open = input.record.as_ref();
    match open.filter(|record| grants.permit_replacement(&record.member)) {
        Some(record) => go_on(snapshot, grants, input, record),
        None => match begin(snapshot, grants, input) {
            Next::Nothing => left_behind(snapshot, grants, input),
            next @ (Next::Wait { .. } | Next::Act(_)) => next,
        },
    }
}

/// The promotion of a learner that a replacement has left behind whose record is gone, such as with
/// a deleted budget: it runs in a pod of the StatefulSet, which asks for more voters than etcd
/// lists, and all of those serve. Nobody else would promote it.
fn left_behind(snapshot: &Snapshot, grants: &Grants, input: &ReplacementInput) -> Next {
    // Whoever scales out adds learners, and promotes them.
    let scales_out = snapshot.scaled_out_for.is_some();
    let is_quiet = grants.iter().next().is_none() && input.mode != Mode::Off && !scales_out;
    let listed = input.list.iter().flatten();
    let voters: Vec<MemberId> = listed.filter(|l| !l.learner).map(|l| l.id).collect();
    let lacks_voters = u32::try_from(voters.len()).is_ok_and(|n| n < snapshot.replicas);
    let all_serve = voters.iter().all(|id| {
        let mut members = snapshot.members.iter();
        members.any(|member| member.id == Some(*id) && member.serves_quorum())
    });
    if input.membership != MembershipBy::Gate || !is_quiet || !lacks_voters || !all_serve {
        return Next::Nothing;
    }
    let mut learners = snapshot.members.iter().filter(|m| m.role == Role::Learner);
    let caught_up = learners.find_map(|member| {
        let (pod, id) = (member.pod_name()?.clone(), member.id?);
        let may_vote = input.wants(&pod) && runs_here(member) && has_caught_up(member, snapshot);
        may_vote.then_some(Step::Promote { pod, id })
    });
    caught_up.map_or(Next::Nothing, Next::Act)
}

/// The progress of a recorded replacement, for the settlement of its grant. That it was undone is
/// for [`next`] to say ([`Step::Undo`]).
pub fn progress(
    snapshot: &Snapshot,
    input: &ReplacementInput,
    record: &Record,
) -> ReplacementProgress {
    let present = snapshot.pod(&record.member).map(|pod| &pod.uid);
    let new_pod = present.is_some() && present != record.old_pod.as_ref();
    let new_claim = match input.claim_of(&record.member) {
        Some(ClaimState::Here { uid, terminating }) => {
            !terminating && Some(uid) != record.old_claim.as_ref()
        }
        Some(ClaimState::Gone) => false,
        None => record.old_claim.is_none(),
    };
    let serves = |member: &Member| {
        // The pod may find its own entry, and joins under the id that it had.
        let any_id = matches!(input.membership, MembershipBy::Pod | MembershipBy::Sidecar);
        member.serves_quorum() && (any_id || member.id != record.old_id)
    };
    if new_pod && new_claim && snapshot.member(&record.member).is_some_and(serves) {
        ReplacementProgress::Serves
    } else {
        ReplacementProgress::Underway
    }
}

/// The members whose CORRUPT alarms may be disarmed, because the one that was the reason for them
/// is out of etcd: etcd refuses writes while an alarm stands. These are the removed member itself,
/// and where its data was not that of the others, whoever was accused instead, once all that are
/// left have the same.
pub fn disarm(snapshot: &Snapshot, input: &ReplacementInput) -> Vec<MemberId> {
    let (Some(record), Some(list)) = (&input.record, &input.list) else {
        return Vec::new();
    };
    let Some(old) = record.old_id else {
        return Vec::new();
    };
    if list.iter().any(|listed| listed.id == old) {
        return Vec::new();
    }
    let all = record.corrupt && input.data == Comparison::Same;
    let accused = snapshot.accused.iter().copied();
    accused.filter(|id| all || *id == old).collect()
}

/// The next step of a replacement on record.
fn go_on(snapshot: &Snapshot, grants: &Grants, input: &ReplacementInput, record: &Record) -> Next {
    let step = match input.membership {
        MembershipBy::Gate => with_membership(snapshot, grants, input, record),
        MembershipBy::Pod | MembershipBy::Sidecar => {
            without_membership(snapshot, grants, input, record)
        }
        MembershipBy::Owner => Err(Refusal::Owner),
    };
    step.map_or_else(
        |because| Next::Wait {
            pod: record.member.clone(),
            proof: None,
            because,
        },
        Next::Act,
    )
}

/// The steps where the gate changes the member list.
fn with_membership(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &ReplacementInput,
    record: &Record,
) -> Result<Step, Refusal> {
    let pod = record.member.clone();
    let list = input.list.as_deref().ok_or(Refusal::NoList)?;
    let is_old = |listed: &&ListedMember| Some(listed.id) == record.old_id;
    let added = list.iter().find(|l| !is_old(l) && is_of(l, record));
    if let Some(old) = list.iter().find(is_old) {
        let first = first_change(snapshot, grants, input, record);
        return match first {
            Ok(Some(step)) => Ok(step),
            Ok(None) => Ok(Step::RemoveMember { pod, id: old.id }),
            Err(because) if added.is_some() => Err(because),
            Err(because) => Ok(Step::Undo { pod, because }),
        };
    }
    let Some(added) = added else {
        return Ok(Step::AddLearner {
            pod,
            peer_urls: record.peer_urls.clone(),
        });
    };
    if let Some(step) = rejoin(snapshot, grants, input, record, added)? {
        return Ok(step);
    }
    if let Some(step) = recreate(snapshot, input, record)? {
        return Ok(step);
    }
    join(snapshot, input, record, added)
}

/// The steps where the member's pod changes the member list by itself.
fn without_membership(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &ReplacementInput,
    record: &Record,
) -> Result<Step, Refusal> {
    let pod = record.member.clone();
    // Such a pod waits since the gate changed the member list. The next one is not kept waiting.
    let held = held_pod(snapshot, input, record).filter(|held| !held.terminating);
    let unheld = held.map(|held| Step::DeletePod {
        pod: pod.clone(),
        uid: held.uid.clone(),
    });
    let step = recreate(snapshot, input, record)?.or(unheld);
    if let Some(step) = step {
        // The delete of the claim is the first change. Without a claim that is the delete of the
        // pod.
        let begins = matches!(step, Step::DeleteClaim { .. }) || record.old_claim.is_none();
        if !begins {
            return Ok(step);
        }
        return Ok(match first_change(snapshot, grants, input, record) {
            Ok(handover) => handover.unwrap_or(step),
            Err(because) => Step::Undo { pod, because },
        });
    }
    settled(snapshot, input, record)
}

/// The last step, once the new voter serves.
fn settled(
    snapshot: &Snapshot,
    input: &ReplacementInput,
    record: &Record,
) -> Result<Step, Refusal> {
    let pod = record.member.clone();
    match progress(snapshot, input, record) {
        ReplacementProgress::Serves => Ok(Step::Settle { pod }),
        ReplacementProgress::Underway
        | ReplacementProgress::Undone
        | ReplacementProgress::Stands => Err(Refusal::Joining { behind: None }),
    }
}

/// The check before the first change, and the handover of a leader. `Ok(None)`: the change may be
/// made.
fn first_change(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &ReplacementInput,
    record: &Record,
) -> Result<Option<Step>, Refusal> {
    let pod = &record.member;
    if let Some(because) = refusal(snapshot, grants, input, pod) {
        return Err(because);
    }
    Ok(
        next_leader(snapshot, grants, input, pod)?.map(|to| Step::MoveLeader {
            pod: pod.clone(),
            to,
        }),
    )
}

/// The steps that give up the old claim and pod. `Ok(None)`: a new pod is there, on a new claim.
fn recreate(
    snapshot: &Snapshot,
    input: &ReplacementInput,
    record: &Record,
) -> Result<Option<Step>, Refusal> {
    let name = record.member.clone();
    let claim = input.claim_of(&name);
    // The volume of the new claim may be lost as well.
    let is_lost = input.claims.get(&name).is_some_and(|claim| claim.lost);
    let is_old = |uid: &String| is_lost || Some(uid) == record.old_claim.as_ref();
    if let Some(ClaimState::Here {
        uid,
        terminating: false,
    }) = claim
        && is_old(uid)
    {
        let uid = uid.clone();
        return Ok(Some(Step::DeleteClaim { pod: name, uid }));
    }
    let Some(pod) = snapshot.pod(&name) else {
        return Err(Refusal::Recreation);
    };
    // A pod that was created on the old claim meanwhile would keep that claim for ever.
    let on_old_claim = matches!(
        claim,
        Some(ClaimState::Here { uid, terminating }) if *terminating || is_old(uid)
    );
    let is_old_pod = Some(&pod.uid) == record.old_pod.as_ref();
    if (is_old_pod || on_old_claim) && !pod.terminating {
        let uid = pod.uid.clone();
        return Ok(Some(Step::DeletePod { pod: name, uid }));
    }
    if pod.terminating || claim == Some(&ClaimState::Gone) {
        return Err(Refusal::Recreation);
    }
    Ok(None)
}

/// The steps from the new pod to the new voter.
fn join(
    snapshot: &Snapshot,
    input: &ReplacementInput,
    record: &Record,
    added: &ListedMember,
) -> Result<Step, Refusal> {
    let pod = record.member.clone();
    if let Some(held) = held_pod(snapshot, input, record) {
        let uid = held.uid.clone();
        return Ok(Step::Release { pod, uid });
    }
    if let Some(record) = without_claim(snapshot, input, record, added) {
        return Ok(Step::Renew { record });
    }
    let member = snapshot.member(&pod).filter(|m| m.id == Some(added.id));
    if !added.learner {
        return settled(snapshot, input, record);
    }
    let learner = member.filter(|member| member.condition == Condition::Learning);
    let of_another = input.recorded.get(&pod).is_some_and(|id| *id != added.id);
    let on_claim = input.is_on_no_claim(&pod)
        || matches!(
            input.claim_of(&pod),
            Some(ClaimState::Here {
                terminating: false,
                ..
            })
        );
    if learner.is_some_and(runs_here) && on_claim && of_another {
        return Ok(Step::RecordVolume { pod, id: added.id });
    }
    if learner.is_some_and(|learner| has_caught_up(learner, snapshot)) {
        return Ok(Step::Promote { pod, id: added.id });
    }
    let behind = learner.and_then(|member| member.lag);
    Err(Refusal::Joining { behind })
}

/// The steps for a new member that has started once and whose pod waits all the same: its volume
/// is not the one on record. `Ok(None)`: there is no such member.
///
/// Either the member lost its volume again, and would come back under its new id without its data.
/// Or its pod was created again before its volume was recorded ([`Step::RecordVolume`]), and the
/// volume has the data of the new id. So both go, the new id and the volume: on the data of a
/// removed member etcd never starts. The claim is put on record before the id is removed, because
/// nothing tells afterwards that it was in use.
fn rejoin(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &ReplacementInput,
    record: &Record,
    added: &ListedMember,
) -> Result<Option<Step>, Refusal> {
    let held = held_pod(snapshot, input, record);
    let Some(held) = held.filter(|_| !added.name.is_empty()) else {
        return Ok(None);
    };
    if let Some(record) = given_up(held, input, record) {
        return Ok(Some(Step::Renew { record }));
    }
    let first = first_change(snapshot, grants, input, record)?;
    Ok(Some(first.unwrap_or(Step::RemoveMember {
        pod: record.member.clone(),
        id: added.id,
    })))
}

/// The record without the new claim, where the new member does not come up on it: the member has
/// never started, and in its pod etcd has ended over and over, or has run for the progress
/// deadline. `None`: the claim stays.
///
/// A pod that was created while the gate was down starts as its template says. On the new claim,
/// and without a reachable peer, etcd may have begun there under the id that was removed. On that
/// data it never joins: it ends, or it runs on as a member that nobody knows. The claim has nothing
/// that anybody needs. A member that joins publishes its name within seconds, however much data it
/// has to fetch.
fn without_claim(
    snapshot: &Snapshot,
    input: &ReplacementInput,
    record: &Record,
    added: &ListedMember,
) -> Option<Record> {
    let pod = snapshot.pod(&record.member)?;
    let fails = does_not_join(pod, snapshot, &input.failing_pods);
    let never_started = added.name.is_empty();
    (fails && never_started)
        .then(|| given_up(pod, input, record))
        .flatten()
}

/// The record with the member's present claim and this pod as those to give up. `None` if the claim
/// is on record already, or there is none.
fn given_up(pod: &Pod, input: &ReplacementInput, record: &Record) -> Option<Record> {
    if input.is_on_no_claim(&record.member) {
        let is_known = record.old_pod.as_ref() == Some(&pod.uid);
        return (!is_known).then(|| Record {
            old_pod: Some(pod.uid.clone()),
            ..record.clone()
        });
    }
    let claim = match input.claim_of(&record.member)? {
        ClaimState::Here { uid, .. } => uid,
        ClaimState::Gone => return None,
    };
    (record.old_claim.as_ref() != Some(claim)).then(|| Record {
        old_claim: Some(claim.clone()),
        old_pod: Some(pod.uid.clone()),
        ..record.clone()
    })
}

/// The member's pod, if it waits for the gate's scheduling gate.
fn held_pod<'a>(
    snapshot: &'a Snapshot,
    input: &ReplacementInput,
    record: &Record,
) -> Option<&'a Pod> {
    let pod = snapshot.pod(&record.member);
    pod.filter(|pod| input.held_pods.contains(&pod.uid))
}

/// Whether an entry of the member list is that of the member on record: by its peer URLs, since a
/// member may have another name than its pod, or by its name, since its URLs may change with its
/// address.
fn is_of(listed: &ListedMember, record: &Record) -> bool {
    let mut urls = listed.peer_urls.iter();
    let is_named = !listed.name.is_empty() && record.member.names(&listed.name);
    is_named || urls.any(|url| record.peer_urls.contains(url))
}

#[cfg(test)]
mod tests;
