//! The beginning of a replacement: which member, and the record with which it begins.

use super::super::hindrance::Hindrance;
use super::allowed::refusal;
use super::input::{Mode, Proof, Record, ReplacementInput};
use super::membership_by::MembershipBy;
use super::refusal::Refusal;
use super::step::{Next, Step};
use crate::quorum::evidence::ListedMember;
use crate::quorum::{
    Actor, ClaimState, Difference, GrantKind, Grants, Member, MemberId, PodName, PodUid, Snapshot,
    leader_to_move, replacement_of,
};

/// The first step of a replacement: grant and record.
pub(super) fn begin(snapshot: &Snapshot, grants: &Grants, input: &ReplacementInput) -> Next {
    let Some((pod, proof)) = target(snapshot, input) else {
        return Next::Nothing;
    };
    match may_begin(snapshot, grants, input, &pod, proof.as_ref()) {
        Ok(record) => Next::Act(Step::Grant { record, proof }),
        Err(because) => Next::Wait {
            pod,
            proof,
            because,
        },
    }
}

/// The member to replace: the one that a person named, or else the first whose data is proven to
/// be lost.
fn target(snapshot: &Snapshot, input: &ReplacementInput) -> Option<(PodName, Option<Proof>)> {
    let prove = |pod: &PodName| Proof::against(pod, snapshot, input);
    if let Some(asked) = &input.request {
        return Some((asked.clone(), prove(asked)));
    }
    let here = snapshot.members.iter().filter_map(Member::pod_name);
    let mut pods: Vec<&PodName> = here.chain(&snapshot.not_members).collect();
    pods.sort();
    let mut proven = pods.into_iter().filter(|pod| input.wants(pod));
    proven.find_map(|pod| prove(pod).map(|proof| (pod.clone(), Some(proof))))
}

fn may_begin(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &ReplacementInput,
    pod: &PodName,
    proof: Option<&Proof>,
) -> Result<Record, Refusal> {
    let went_with_its_pod = proof == Some(&Proof::VolumeChanged(Difference::NewPod));
    match (input.mode, &input.request) {
        _ if went_with_its_pod && input.replaces_in_pod => {}
        (Mode::Off, _) => return Err(Refusal::Off),
        (Mode::Manual, None) => return Err(Refusal::NotRequested),
        (Mode::Manual, Some(_)) | (Mode::Auto | Mode::Rejoining, _) => {}
    }
    if proof == Some(&Proof::CrashLoop) && input.request.is_none() {
        let lasted = snapshot
            .pod(pod)
            .and_then(|own| input.crash_loops.get(&own.uid));
        let lasted = lasted.map(|found| found.lasted).unwrap_or_default();
        if lasted < input.replace_after {
            let (lasted, after) = (lasted.as_secs(), input.replace_after.as_secs());
            return Err(Refusal::MayRecover { lasted, after });
        }
    }
    if input.stays_on_its_node(pod) {
        return Err(Refusal::OnNode);
    }
    if input.shares_its_claim(pod) {
        return Err(Refusal::SharedClaim);
    }
    let record = record(snapshot, input, pod, proof)?;
    if let Some(because) = refusal(snapshot, grants, input, pod) {
        return Err(because);
    }
    if is_otherwise_permitted(grants, pod) {
        let pods = vec![pod.clone()];
        return Err(Hindrance::Granted { pods }.into());
    }
    next_leader(snapshot, grants, input, pod)?;
    Ok(record)
}

/// Whether another disruption of the member is permitted, whose end is to be waited for. A
/// permission to destroy its data without a record is taken over: its member cannot be back before
/// it is replaced.
fn is_otherwise_permitted(grants: &Grants, pod: &PodName) -> bool {
    let causes = grants.get(pod).map(|grant| grant.causes.as_slice());
    let mut causes = causes.unwrap_or_default().iter();
    causes.any(|cause| cause.what != GrantKind::Replace)
}

/// The record of the replacement of the member in `pod`.
fn record(
    snapshot: &Snapshot,
    input: &ReplacementInput,
    pod: &PodName,
    proof: Option<&Proof>,
) -> Result<Record, Refusal> {
    let list = input.list.as_deref().unwrap_or_default();
    let known = snapshot.member_for(pod);
    let seen = snapshot.pod(pod);
    let id = known
        .and_then(|member| member.id)
        .or_else(|| seen.and_then(|pod| pod.recorded_id))
        .or_else(|| input.recorded.get(pod).copied());
    if known.is_none() && id.is_none() {
        return Err(Refusal::NoSuchMember);
    }
    let listed = list.iter().find(|listed| Some(listed.id) == id);
    let urls = listed.map(|listed| listed.peer_urls.clone());
    let peer_urls = urls.or_else(|| like_those_of_others(snapshot, list, pod));
    if peer_urls.is_none() && input.membership == MembershipBy::Gate {
        return Err(match input.list {
            Some(_) => Refusal::PeerUrlsUnknown,
            None => Refusal::NoList,
        });
    }
    let old_claim = match input.claim_of(pod) {
        Some(ClaimState::Here { uid, .. }) => Some(uid.clone()),
        Some(ClaimState::Gone) | None => None,
    };
    // A pod that waits for its scheduling gate has never started: it is the new one already, on a
    // new claim. After a loss of quorum it may be on the data that is given up, and the next one is
    // told whom it joins.
    let all_are_old = input.mode == Mode::Rejoining;
    let is_old = |uid: &PodUid| all_are_old || !input.held_pods.contains(uid);
    let old_pod = seen.map(|pod| &pod.uid).filter(|uid| is_old(uid));
    Ok(Record {
        member: pod.clone(),
        // Of a member that was removed by hand too: by this id somebody asked for it.
        old_id: listed.map(|listed| listed.id).or(id),
        old_claim: old_claim.filter(|_| seen.is_none_or(|pod| is_old(&pod.uid))),
        old_pod: old_pod.cloned(),
        peer_urls: peer_urls.unwrap_or_default(),
        corrupt: proof == Some(&Proof::Corrupt),
    })
}

/// The peer URLs of a member that is not listed: those of another one, with its own name instead.
/// `None` where no other one is at the name of its pod.
pub(in crate::plan) fn like_those_of_others(
    snapshot: &Snapshot,
    list: &[ListedMember],
    pod: &PodName,
) -> Option<Vec<String>> {
    let set = &snapshot.cluster.name;
    list.iter().find_map(|other| {
        let urls = other.peer_urls.iter().map(|url| {
            let theirs = PodName::of_url(set, url)?;
            Some(url.replacen(theirs.as_str(), pod.as_str(), 1))
        });
        urls.collect::<Option<Vec<String>>>()
            .filter(|urls| !urls.is_empty())
    })
}

/// The member that takes leadership over. `None` if the member in `pod` does not lead.
pub(super) fn next_leader(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &ReplacementInput,
    pod: &PodName,
) -> Result<Option<MemberId>, Refusal> {
    if !snapshot.member(pod).is_some_and(|member| member.leader) {
        return Ok(None);
    }
    if let Some(hindrance) = Hindrance::of_handover(input.handover) {
        return Err(hindrance.into());
    }
    leader_to_move(
        snapshot,
        grants,
        &replacement_of(snapshot, pod, Actor::Gate),
    )
    .map(Some)
    .ok_or(Refusal::NoHeir)
}
