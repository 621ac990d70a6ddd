//! Recovery from a permanent loss of quorum: one member starts alone, with what it has, and the
//! others join it with empty volumes.
//!
//! The member starts with etcd's `--force-new-cluster`, which keeps its data, its id and the id of
//! the cluster, and forgets all other members. A process that starts again with that setting
//! forgets them again. So the pod goes once more before anybody joins. The others then come back as
//! any member does whose data is lost ([`super::replacement`]).
//!
//! [`next`] reads what is there, and the record. A gate that ends between any two steps loses
//! nothing.

use super::desired::PodManagement;
use super::hindrance::Hindrance;
use super::replacement::{ClaimFacts, MembershipBy, Place};
use super::version::{Defect, Version};
use crate::quorum::evidence::ListedMember;
use crate::quorum::{
    ClaimState, Difference, Grants, Member, MemberId, Membership, Ordinal, PodName, PodUid, Role,
    Snapshot, TargetPod, VolumeFinding, list, majority,
};
use std::collections::{BTreeMap, BTreeSet};

/// The facts of one look at a cluster, beside its snapshot and its grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryInput {
    /// The member that is to start alone, as a person wrote it, or the reason why what was written
    /// does not count. `None` where nobody asks.
    pub request: Option<Result<MemberId, Refusal>>,
    /// The ids on record, by pod. A member that does not answer has the one on record.
    pub recorded: BTreeMap<PodName, MemberId>,
    /// The versions that the members report. A member that does not answer is left out.
    pub versions: Vec<Version>,
    /// The number of pods that are to have members.
    pub wanted: u32,
    /// The one who changes etcd's member list.
    pub membership: MembershipBy,
    /// Whether refusals are only reported, so that nothing is set in new pods.
    pub only_warns: bool,
    /// Whether a new cluster is announced.
    pub bootstraps: bool,
    /// The order in which the StatefulSet creates pods.
    pub management: PodManagement,
    /// The reason why new pods cannot be told to start alone, or whom they join.
    pub cannot_start: Option<String>,
    /// Whether the member's present pod has the setting.
    pub is_forced: bool,
    /// etcd's member list, from a voter whose linearizable read passed before. `None` if there is
    /// no such list.
    pub list: Option<Vec<ListedMember>>,
    /// The claims of the members, by pod. A member whose data is not on a claim is absent.
    pub claims: BTreeMap<PodName, ClaimFacts>,
    /// The pods that wait for the gate's scheduling gate.
    pub held_pods: BTreeSet<PodUid>,
    /// The recovery on record that has not ended.
    pub record: Option<Record>,
}

/// The record of a recovery, in the budget's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The pod of the member that starts alone.
    pub member: PodName,
    /// The id of the member.
    pub id: MemberId,
    /// The UID of the pod that is to go.
    pub pod: PodUid,
    /// How far it is.
    pub phase: Phase,
}

/// How far a recovery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Phase {
    /// The member is to start alone. The pods of all others wait.
    Alone,
    /// The member has started alone, and is to start once more, without the setting.
    Again,
    /// The member serves, and the others join it.
    Rejoining,
}

/// The next thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// No person asks for a recovery.
    Nothing,
    /// A recovery is asked for or under way, and nothing can be done now.
    Wait(Refusal),
    /// The gate carries out this step. After it everything is observed again.
    Act(Step),
}

/// A single effect, which may have happened already. `Display` is a sentence.
#[derive(
    Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames, derive_more::Display,
)]
pub enum Step {
    /// Take a grant and write the record in one compare-and-swap. From then on the pods of all
    /// others wait.
    #[display("let member {} of {} start alone, with what it has", _0.id, _0.member)]
    Begin(Record),
    /// Delete the member's pod. The next one starts with the setting, or without it.
    #[display("delete {}, so that its member starts anew", _0.name)]
    DeletePod(TargetPod),
    /// Take a grant and write that the member has started alone.
    #[display("start member {} of {} once more, without --force-new-cluster", _0.id, _0.member)]
    StartAgain(Record),
    /// Write that the others may join.
    #[display("member {} of {} serves: let the others join it", _0.id, _0.member)]
    Rejoin(Record),
    /// Drop the record, before anything was forgotten: the member serves together with others, or
    /// nobody asks any more.
    #[display("leave {} as it is", _0.member)]
    Abandon(Record),
    /// Write that all have joined.
    #[display("all members are back")]
    Finish(Record),
}

impl Step {
    /// The stable identifier of the step, for metrics.
    pub fn slug(&self) -> &'static str {
        self.into()
    }
}

/// The reason why nothing can be done now. `Display` is a sentence for people.
#[derive(
    Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames, derive_more::Display,
)]
pub enum Refusal {
    /// No member has the id.
    #[display("no member has the id {_0}")]
    NoSuchMember(String),
    /// The request is too old, or has no time. Written for one loss, it must not count for another.
    #[display(
        "the request {_0} is too old or has no time, and counts for an hour: ask with kubectl quorum recover"
    )]
    Expired(String),
    /// The budget only warns, so no pod would be kept from starting.
    #[display("the budget only warns: set spec.enforcement to Enforce first")]
    OnlyWarns,
    /// Others change the member list.
    #[display("the gate does not change the member list of this cluster (status.membership)")]
    Membership,
    /// A new cluster is announced, which gives everything up.
    #[display("a new cluster is announced (quorumgate.io/intent: bootstrap)")]
    Bootstrap,
    /// The settings cannot be given to new pods.
    #[display("new pods cannot be told to start alone, or whom they join: {_0}")]
    CannotStart(String),
    /// A pod of this ordinal would not be created again.
    #[display(
        "{_0} would not be created again: with podManagementPolicy OrderedReady only the member in the first pod can start alone"
    )]
    Ordered(PodName),
    /// The member does not run, does not answer, or knows a leader.
    #[display("{_0} has yet to answer that it has no leader")]
    Silent(PodName),
    /// The member does not have its data.
    #[display("{_0} does not have the volume on record")]
    NoData(PodName),
    /// A member serves.
    #[display("quorum is not lost: {_0} serves")]
    QuorumKept(String),
    /// A majority may come back.
    #[display(
        "a majority may come back: besides {member} these have their data, or may have it: {}. A majority is {needed} of {voters}. \
         Bring them back, or give up the data of those that cannot come back: delete their claims and their pods",
        list(others)
    )]
    MayReturn {
        /// The member that is to start alone.
        member: PodName,
        /// The others that have their data, or may have it.
        others: Vec<String>,
        /// The number that makes a majority.
        needed: u32,
        /// The number of voters.
        voters: u32,
    },
    /// The pod is on its way.
    #[display("{_0} starts")]
    Starting(PodName),
    /// The others join.
    #[display("{voters} of {wanted} members are back, and the others join one after another")]
    Rejoining {
        /// The number of voters that etcd lists.
        voters: u32,
        /// The number of pods that are to have members.
        wanted: u32,
    },
    /// The same as holds back other work.
    #[display("{_0}")]
    Hindered(Hindrance),
}

impl Refusal {
    /// The stable identifier of the reason, for status.
    pub fn slug(&self) -> &'static str {
        if let Self::Hindered(hindrance) = self {
            return hindrance.slug();
        }
        self.into()
    }
}

/// The next step of a recovery.
///
/// A request for another member than the one on record counts only where the data of that one is
/// lost as well: by itself it is a cluster that takes writes.
pub fn next(snapshot: &Snapshot, grants: &Grants, input: &RecoveryInput) -> Next {
    let begins = input.request.as_ref().map(|asked| {
        let id = *asked.as_ref().map_err(Clone::clone)?;
        may_begin(snapshot, grants, input, id)
    });
    let step = match (&input.record, begins) {
        (None, None) => return Next::Nothing,
        (None, Some(begins)) => begins.map(Step::Begin),
        (Some(open), Some(Ok(other)))
            if other.id != open.id && is_without_data(&open.member, snapshot, input) =>
        {
            Ok(Step::Begin(other))
        }
        (Some(open), _) => go_on(snapshot, input, open),
    };
    step.map_or_else(Next::Wait, Next::Act)
}

fn go_on(snapshot: &Snapshot, input: &RecoveryInput, record: &Record) -> Result<Step, Refusal> {
    match record.phase {
        Phase::Alone => alone(snapshot, input, record),
        Phase::Again => again(snapshot, input, record),
        Phase::Rejoining => rejoining(input, record),
    }
}

/// The reason why no pod would start as it is to, whichever member it is.
fn obstacle(snapshot: &Snapshot, input: &RecoveryInput) -> Option<Refusal> {
    if input.membership != MembershipBy::Gate {
        return Some(Refusal::Membership);
    }
    if input.only_warns {
        return Some(Refusal::OnlyWarns);
    }
    if input.bootstraps {
        return Some(Refusal::Bootstrap);
    }
    let by_settings = || input.cannot_start.clone().map(Refusal::CannotStart);
    forced_by_template(snapshot).or_else(by_settings)
}

fn forced_by_template(snapshot: &Snapshot) -> Option<Refusal> {
    let because = "the template has --force-new-cluster".to_owned();
    let is_forced = snapshot.circumstances.forces_new_cluster;
    is_forced.then_some(Refusal::CannotStart(because))
}

/// The record with which a recovery begins.
fn may_begin(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &RecoveryInput,
    id: MemberId,
) -> Result<Record, Refusal> {
    let unknown = || Refusal::NoSuchMember(id.to_string());
    let recorded = input.recorded.iter().find(|(_, known)| **known == id);
    let recorded = recorded.and_then(|(pod, _)| snapshot.member_for(pod));
    let listed = snapshot.members.iter().find(|member| member.id == Some(id));
    let member = listed.or(recorded).ok_or_else(unknown)?;
    let name = member.pod_name().cloned().ok_or_else(unknown)?;
    if let Some(because) = obstacle(snapshot, input) {
        return Err(because);
    }
    if let Some(hindrance) = Hindrance::of_evidence(snapshot) {
        return Err(Refusal::Hindered(hindrance));
    }
    let defect = Defect::PROMOTION_NOT_PERSISTED;
    if let Some(version) = input.versions.iter().find(|v| defect.affects(**v)) {
        let version = *version;
        return Err(Refusal::Hindered(Hindrance::Defect { version, defect }));
    }
    let is_ordered = input.management == PodManagement::OrderedReady;
    if is_ordered && Ordinal::from_pod(&name) != Some(Ordinal(snapshot.first_ordinal)) {
        return Err(Refusal::Ordered(name));
    }
    let mut all = snapshot.members.iter();
    if let Some(kept) = all.find(|other| other.serves_quorum()) {
        return Err(Refusal::QuorumKept(kept.name.clone()));
    }
    let pod = member.pod.as_ref().filter(|pod| !pod.terminating);
    // Without a list nobody knows of members elsewhere that are named like pods of lower ordinals.
    let has_list = snapshot.membership != Membership::Unread || snapshot.first_ordinal == 0;
    let pod = pod.filter(|_| member.says_no_leader() && member.role == Role::Voter && has_list);
    let Some(pod) = pod else {
        return Err(Refusal::Silent(name));
    };
    let claim = input.claims.get(&name);
    // What is in the pod goes with it, and so does a claim that terminates.
    let is_kept = |claim: &ClaimFacts| {
        let stays = match claim.state {
            ClaimState::Here { terminating, .. } => !terminating,
            ClaimState::Gone => claim.place == Place::Node,
        };
        !claim.lost && stays && claim.place != Place::Pod
    };
    let has_data = claim.is_some_and(|c| is_kept(c) && c.volume == VolumeFinding::AsRecorded);
    if !has_data {
        return Err(Refusal::NoData(name));
    }
    let voters = snapshot.voters(grants, None);
    let needed = majority(voters);
    let others = others_with_data(snapshot, input, &name, voters);
    if others.len() + 1 >= usize::try_from(needed).unwrap_or(usize::MAX) {
        return Err(Refusal::MayReturn {
            member: name,
            others,
            needed,
            voters,
        });
    }
    Ok(Record {
        member: name,
        id,
        pod: pod.uid.clone(),
        phase: Phase::Alone,
    })
}

/// The other voters that have their data, or may have it. A voter that nobody has seen counts,
/// unless its record shows that its data is lost.
fn others_with_data(
    snapshot: &Snapshot,
    input: &RecoveryInput,
    chosen: &PodName,
    voters: u32,
) -> Vec<String> {
    let is_lost = |pod: &PodName| is_without_data(pod, snapshot, input);
    let all = || snapshot.members.iter().filter(|m| m.role == Role::Voter);
    let others = all().filter(|member| member.pod_name() != Some(chosen));
    let with_data = others.filter(|member| !member.pod_name().is_some_and(is_lost));
    let mut named: Vec<String> = with_data.map(|member| member.name.clone()).collect();
    let recorded = input.recorded.keys();
    let unseen_and_lost = recorded.filter(|pod| snapshot.member_for(pod).is_none() && is_lost(pod));
    let known = all().count() + unseen_and_lost.count();
    let voters = usize::try_from(voters).unwrap_or(usize::MAX);
    named.extend((known..voters).map(|_| "a member that was not seen".to_owned()));
    named
}

/// Whether the data of the member in this pod is proven to be lost, and nothing runs in its place:
/// its pod waits, or there is none. Without a record it may be a member elsewhere that is only
/// named like a pod.
fn is_without_data(name: &PodName, snapshot: &Snapshot, input: &RecoveryInput) -> bool {
    let is_lost = input.claims.get(name).is_some_and(|claim| {
        let is_new = matches!(
            &claim.volume,
            VolumeFinding::Wrong {
                difference: Difference::NewClaim | Difference::NewPod | Difference::Foreign,
                ..
            }
        );
        claim.lost || claim.state == ClaimState::Gone || is_new
    });
    let pod = snapshot.pod(name);
    let waits = pod.is_none_or(|pod| input.held_pods.contains(&pod.uid));
    is_lost && waits && input.recorded.contains_key(name)
}

/// The member is to start alone.
///
/// Where the request is withdrawn before anything was changed, or after the member has lost its
/// data, the record is dropped, and the others may start again.
fn alone(snapshot: &Snapshot, input: &RecoveryInput, record: &Record) -> Result<Step, Refusal> {
    let pod = present(snapshot, record)?;
    let is_held = input.held_pods.contains(&pod.uid);
    if input.request.is_none() && (pod.uid == record.pod || is_held) {
        return Ok(Step::Abandon(record.clone()));
    }
    if is_alone(snapshot, input, record) {
        return Ok(Step::StartAgain(Record {
            pod: pod.uid,
            phase: Phase::Again,
            ..record.clone()
        }));
    }
    if let Some(abandoned) = serves_with_others(snapshot, input, record) {
        return Ok(abandoned);
    }
    if is_held {
        return Err(Refusal::NoData(record.member.clone()));
    }
    // One that was created while the gate was down has no setting.
    let lacks_setting = pod.uid == record.pod || !input.is_forced;
    match obstacle(snapshot, input).filter(|_| lacks_setting) {
        Some(because) => Err(because),
        None if lacks_setting => Ok(Step::DeletePod(pod)),
        None => Err(Refusal::Starting(record.member.clone())),
    }
}

/// The end of a recovery that found a quorum: the member serves, and etcd lists others.
fn serves_with_others(snapshot: &Snapshot, input: &RecoveryInput, record: &Record) -> Option<Step> {
    let voters = input.list.iter().flatten().filter(|listed| !listed.learner);
    let serves = snapshot
        .member(&record.member)
        .is_some_and(Member::serves_quorum);
    let has_a_quorum = serves && voters.count() > 1 && !input.is_forced;
    has_a_quorum.then(|| Step::Abandon(record.clone()))
}

/// The member has started alone, and is to start without the setting. Nothing but a template with
/// that setting holds this up: whenever the process starts again, it forgets who has joined.
fn again(snapshot: &Snapshot, input: &RecoveryInput, record: &Record) -> Result<Step, Refusal> {
    let pod = present(snapshot, record)?;
    if pod.uid == record.pod || input.is_forced {
        return match forced_by_template(snapshot) {
            Some(because) => Err(because),
            None => Ok(Step::DeletePod(pod)),
        };
    }
    let serves = snapshot
        .member(&record.member)
        .is_some_and(Member::serves_quorum);
    let mut listed = input.list.iter().flatten();
    if serves && listed.any(|listed| listed.id == record.id) {
        return Ok(Step::Rejoin(Record {
            pod: pod.uid,
            phase: Phase::Rejoining,
            ..record.clone()
        }));
    }
    Err(Refusal::Starting(record.member.clone()))
}

/// The others join.
fn rejoining(input: &RecoveryInput, record: &Record) -> Result<Step, Refusal> {
    let Some(list) = &input.list else {
        return Err(Refusal::Starting(record.member.clone()));
    };
    let voters = list.iter().filter(|listed| !listed.learner).count();
    let (voters, wanted) = (u32::try_from(voters).unwrap_or(u32::MAX), input.wanted);
    if voters >= wanted && wanted > 0 && list.iter().all(|listed| !listed.learner) {
        return Ok(Step::Finish(record.clone()));
    }
    Err(Refusal::Rejoining { voters, wanted })
}

/// The member's pod, unless that is on its way.
fn present(snapshot: &Snapshot, record: &Record) -> Result<TargetPod, Refusal> {
    let pod = snapshot.pod(&record.member).filter(|pod| !pod.terminating);
    let pod = pod.ok_or_else(|| Refusal::Starting(record.member.clone()))?;
    Ok(TargetPod {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
    })
}

/// Whether the member serves, as the only one that etcd lists.
fn is_alone(snapshot: &Snapshot, input: &RecoveryInput, record: &Record) -> bool {
    let list = input.list.iter().flatten();
    let is_only = list.map(|listed| listed.id).eq([record.id]);
    let member = snapshot.member(&record.member);
    is_only && member.is_some_and(Member::serves_quorum)
}

#[cfg(test)]
mod tests;
