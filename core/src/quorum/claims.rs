//! The decisions about the data of a member: the delete of its `PersistentVolumeClaim`, and the
//! delete of its pod while the claim is terminating.
//!
//! Kubernetes keeps a claim that is deleted as long as a pod uses it. The data is destroyed when
//! the pod goes, at a moment that nobody asks about. So the claim stays while its member serves,
//! and no copy of the data goes unless the other members keep it: a majority of them serves.
//! While quorum is lost, pods are created again on their claims, and no claim goes (the volume
//! proposal of etcd-operator, part 2).

use super::circumstances::{Circumstances, Scope, Teardown};
use super::decide::{by_override, count_for, decide};
use super::disruption::{Actor, Disruption, Grace, Kind, TargetPod};
use super::expected_voters::majority;
use super::grants::Grants;
use super::id::{PodName, PodUid};
use super::pod::{Node, Pod};
use super::process::ProcessState;
use super::settlement::ReplacementProgress;
use super::snapshot::{Member, Snapshot};
use super::trust::Trust;
use super::verdict::{Allowance, Basis, Reason, Verdict, Waiver};
use super::volume::Volume;

/// A request to delete a `PersistentVolumeClaim`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimDeletion {
    /// The name of the claim.
    pub claim: String,
    /// The pods of the members whose data is on the claim: the pods that mount it, or else the one
    /// that the StatefulSet would give it. Empty if the claim is that of no member.
    pub members: Vec<PodName>,
    /// Whether the claim is terminating already.
    pub terminating: bool,
    /// Whether the UID in the request's preconditions is that of another claim.
    pub other_uid: bool,
    /// Whether the garbage collector deletes the claim, because its owners are gone.
    pub collected: bool,
    /// The pod that would start on the next claim, without its data and under its old identity: it
    /// waits for a node, for which Kubernetes protects no claim.
    pub waiting_pod: Option<PodName>,
    /// The pod that comes back on this claim, which the garbage collector deletes because the owner
    /// is gone that the claim names.
    pub disowned: Option<PodName>,
    /// The asker.
    pub actor: Actor,
}

/// Decides on the delete of a claim. A permission to destroy data takes a grant of the kind
/// [`super::GrantKind::Replace`].
///
/// ```
/// use quorumgate_core::quorum::evidence::{Probe, Unanswered};
/// use quorumgate_core::quorum::pod::Containers;
/// use quorumgate_core::quorum::{
///     Actor, ClaimDeletion, Grants, Snapshot, Verdict, decide_claim, example,
/// };
///
/// let mut observation = example::healthy("etcd-main", 3);
/// let delete = ClaimDeletion {
///     claim: "data-etcd-main-2".into(),
///     members: vec!["etcd-main-2".into()],
///     terminating: false,
///     other_uid: false,
///     collected: false,
///     waiting_pod: None,
///     disowned: None,
///     actor: Actor::Stranger,
/// };
/// let ask = |observation: &_| {
///     decide_claim(&Snapshot::assemble(observation), &Grants::default(), &delete)
/// };
/// let Verdict::Deny(reason) = ask(&observation) else { panic!("its member serves") };
/// assert_eq!(reason.slug(), "ClaimInUse");
///
/// // The member is gone, and the two others have its data.
/// let probe = &mut observation.round.probes[2];
/// *probe = Probe::unanswered(probe.target.clone(), Unanswered::Refused);
/// observation.pods[2].etcd_ready = false;
/// observation.pods[2].containers = Containers::AllTerminated { finished: false };
/// assert!(matches!(ask(&observation), Verdict::Allow(_)));
/// ```
pub fn decide_claim(snapshot: &Snapshot, grants: &Grants, deletion: &ClaimDeletion) -> Verdict {
    if let Some(verdict) = decide_claim_early(&snapshot.circumstances, deletion) {
        return verdict;
    }
    // An owner reference is written by anybody, so a pod that uses the claim is asked about. By the
    // retention policy of a StatefulSet such a pod is gone.
    let has_pod = |member: &PodName| snapshot.pod(member).is_some();
    if deletion.collected && !deletion.members.iter().any(has_pod) {
        return waived(Waiver::Teardown(Teardown::Owner));
    }
    let is_member = |member: &&PodName| {
        !snapshot.is_no_member(member) || snapshot.may_be_of_unknown_member(member)
    };
    let members = || deletion.members.iter().filter(is_member);
    let Some(member) = members().next() else {
        return Verdict::Allow(Allowance::Grant(Basis::NotAMember));
    };
    let is_own_step = deletion.actor == Actor::Gate && grants.permit_replacement(member);
    let serves = |member: &&PodName| snapshot.member(member).is_some_and(Member::serves_quorum);
    let serving: Vec<PodName> = members().filter(serves).cloned().collect();
    if !serving.is_empty() && !is_own_step {
        return Verdict::Deny(Reason::ClaimInUse {
            claim: deletion.claim.clone(),
            members: serving,
        });
    }
    if let Some(pod) = &deletion.disowned {
        return Verdict::Deny(Reason::ClaimDisowned {
            cluster: snapshot.cluster.clone(),
            claim: deletion.claim.clone(),
            pod: pod.clone(),
        });
    }
    if let Some(pod) = &deletion.waiting_pod
        && !is_own_step
    {
        return awaited(snapshot, deletion, pod);
    }
    let disruption = replacement_of(snapshot, member, deletion.actor);
    if members().count() > 1 {
        // All of these copies would go at once.
        let needed = majority(snapshot.voters(grants, Some(member)));
        return Verdict::Wait(Reason::LastCopy(count_for(
            snapshot,
            grants,
            &disruption,
            needed,
        )));
    }
    let verdict = decide(snapshot, grants, &disruption);
    let Verdict::Allow(_) = verdict else {
        return verdict;
    };
    if is_on_its_way(snapshot, member) && !is_own_step {
        return awaited(snapshot, deletion, member);
    }
    keeping_data(snapshot, grants, &disruption)
}

fn awaited(snapshot: &Snapshot, deletion: &ClaimDeletion, pod: &PodName) -> Verdict {
    Verdict::Deny(Reason::ClaimAwaited {
        cluster: snapshot.cluster.clone(),
        claim: deletion.claim.clone(),
        id: snapshot.member_for(pod).and_then(|member| member.id),
    })
}

/// Whether a member that is not dead runs in this pod, or starts there. It would serve from a claim
/// that goes with its next end.
fn is_on_its_way(snapshot: &Snapshot, pod: &PodName) -> bool {
    let runs = snapshot.member(pod).is_some_and(|member| {
        matches!(member.process, ProcessState::Alive | ProcessState::Starting)
    });
    let is_scheduled = |pod: &Pod| pod.node != Node::Unscheduled;
    runs && snapshot.pod(pod).is_some_and(is_scheduled)
}

/// The rules about a claim that need no look at any member: rules 1 to 4 and 6. `None` means that
/// the members have to be asked.
///
/// Hibernation and scale-in are no teardown here: the claims outlive the pods on purpose. An
/// override passes also where there is no ledger to record its grant in.
pub fn decide_claim_early(
    circumstances: &Circumstances,
    deletion: &ClaimDeletion,
) -> Option<Verdict> {
    if circumstances.scope == Scope::Foreign || deletion.members.is_empty() {
        return Some(waived(Waiver::Foreign));
    }
    if deletion.terminating {
        return Some(waived(Waiver::Terminating));
    }
    match circumstances.teardown {
        Some(teardown @ (Teardown::Namespace | Teardown::StatefulSet | Teardown::Owner)) => {
            return Some(waived(Waiver::Teardown(teardown)));
        }
        Some(Teardown::Hibernation | Teardown::ScaleIn) | None => {}
    }
    if deletion.other_uid {
        return Some(waived(Waiver::WrongIncarnation));
    }
    by_override(circumstances, deletion.actor).or(match circumstances.scope {
        Scope::NoLedger => Some(Verdict::Wait(Reason::NoLedger)),
        Scope::NoDefinition => Some(Verdict::Wait(Reason::NoDefinition)),
        Scope::Enrolled | Scope::Foreign => None,
    })
}

/// Decides on a disruption of a pod whose claim is terminating: the end of the pod destroys the
/// data. A permission takes two grants, one of the kind [`super::GrantKind::Delete`] and one of the
/// kind [`super::GrantKind::Replace`], unless [`takes_data`] says that the first is enough.
///
/// Everything that [`decide()`] lets pass for the sake of the owner (a teardown, an override) or
/// because the pod is no member passes here too. Every other disruption has to leave a majority
/// that serves, also where it would cost nothing apart from the data.
pub fn decide_with_terminating_claim(
    snapshot: &Snapshot,
    grants: &Grants,
    disruption: &Disruption,
) -> Verdict {
    let verdict = decide(snapshot, grants, disruption);
    match &verdict {
        Verdict::Allow(Allowance::Grant(basis)) => match basis {
            Basis::Teardown(_) | Basis::Override | Basis::NotAMember => verdict,
            Basis::Learner
            | Basis::CostsNothing
            | Basis::Repair
            | Basis::Proceed
            | Basis::Recovery
            | Basis::SingleMember
            | Basis::TwoMembers
            | Basis::Majority { .. }
            // etcd lists the member no more, and its data is nobody's.
            | Basis::Removal
            // These concern StatefulSets, and say nothing about the data of a pod.
            | Basis::Intent
            | Basis::OwnerAsks
            | Basis::TeardownAllowed
            | Basis::NobodyServes
            | Basis::OwnerGone
            | Basis::MembersRemoved => keeping_data(snapshot, grants, disruption),
        },
        Verdict::Allow(Allowance::Waived(_)) | Verdict::Wait(_) | Verdict::Deny(_) => verdict,
    }
}

/// The policy for members whose data goes with their pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataInPods {
    /// The disruption of such a member is the beginning of its replacement.
    Replace,
    /// The member stays.
    Refuse,
    /// The member goes as any other does.
    Allow,
}

/// Decides on a disruption of a pod whose data goes with it.
///
/// Everything that [`decide()`] lets pass for the sake of the owner (a teardown, an override) or
/// because the pod is no voter passes here too. Otherwise the next step is the replacement of the
/// member, so all that it asks is asked now: all others serve, and they are at least two.
///
/// ```
/// use quorumgate_core::quorum::{
///     Actor, DataInPods, Disruption, Grace, Grants, Kind, Snapshot, TargetPod, Verdict,
///     decide_with_data_in_pod, example,
/// };
///
/// let drain = Disruption {
///     target: TargetPod { name: "etcd-2".into(), uid: "uid-2".into() },
///     kind: Kind::Evict,
///     actor: Actor::Stranger,
///     grace: Grace::Graceful,
///     precondition: None,
/// };
/// let of = |members, policy| {
///     let cluster = Snapshot::assemble(&example::healthy("etcd", members));
///     decide_with_data_in_pod(&cluster, &Grants::default(), &drain, policy)
/// };
/// assert!(matches!(of(3, DataInPods::Replace), Verdict::Allow(_)));
/// assert!(matches!(of(3, DataInPods::Refuse), Verdict::Deny(_)));
/// ```
pub fn decide_with_data_in_pod(
    snapshot: &Snapshot,
    grants: &Grants,
    disruption: &Disruption,
    policy: DataInPods,
) -> Verdict {
    let verdict = decide(snapshot, grants, disruption);
    let Verdict::Allow(Allowance::Grant(basis)) = verdict else {
        return verdict;
    };
    let target = &disruption.target.name;
    // Where its node is gone, or its pod has ended, the data is gone already.
    let is_dead = snapshot
        .member(target)
        .is_some_and(|member| member.process == ProcessState::DeadForGood);
    let passes = is_dead
        || matches!(
            basis,
            Basis::Teardown(_) | Basis::Override | Basis::NotAMember | Basis::Learner
        );
    match policy {
        _ if passes => verdict,
        DataInPods::Allow => verdict,
        DataInPods::Refuse => Verdict::Deny(Reason::DataInPod {
            pod: target.clone(),
        }),
        DataInPods::Replace => {
            if let Trust::Untrusted { remaining } = snapshot.circumstances.ledger {
                return Verdict::Wait(Reason::LedgerUntrusted { remaining });
            }
            let voters = snapshot.voters(grants, Some(target));
            if voters < 3 {
                return Verdict::Deny(Reason::OnlyDataInPod {
                    pod: target.clone(),
                    voters,
                });
            }
            let others = snapshot.serving(grants, Some(target));
            let needed = (voters - 1).max(majority(voters));
            if others >= needed {
                return verdict;
            }
            let count = count_for(snapshot, grants, disruption, needed);
            Verdict::Wait(Reason::LastCopy(count))
        }
    }
}

/// Whether a permission on this ground, for a pod whose claim is terminating, takes the data of a
/// member that is to come back: then the grant of the kind [`super::GrantKind::Replace`] tells when
/// it is back.
pub fn takes_data(basis: Basis) -> bool {
    !matches!(basis, Basis::Teardown(_) | Basis::NotAMember)
}

/// The permission to destroy a member's data, if the others keep it.
fn keeping_data(snapshot: &Snapshot, grants: &Grants, disruption: &Disruption) -> Verdict {
    if let Trust::Untrusted { remaining } = snapshot.circumstances.ledger {
        return Verdict::Wait(Reason::LedgerUntrusted { remaining });
    }
    let target = &disruption.target.name;
    let others = snapshot.serving(grants, Some(target));
    let needed = majority(snapshot.voters(grants, Some(target)));
    if others >= needed {
        return Verdict::Allow(Allowance::Grant(Basis::Majority {
            others,
            majority: needed,
        }));
    }
    Verdict::Wait(Reason::LastCopy(count_for(
        snapshot, grants, disruption, needed,
    )))
}

/// The disruption that the replacement of a member is. It belongs to the member, so it holds for
/// whatever pod there is.
pub fn replacement_of(snapshot: &Snapshot, member: &PodName, actor: Actor) -> Disruption {
    let uid = snapshot.pod(member).map(|pod| pod.uid.clone());
    Disruption {
        target: TargetPod {
            name: member.clone(),
            uid: uid.unwrap_or_else(|| PodUid::new("")),
        },
        kind: Kind::Replace,
        actor,
        grace: Grace::Graceful,
        precondition: None,
    }
}

fn waived(waiver: Waiver) -> Verdict {
    Verdict::Allow(Allowance::Waived(waiver))
}

/// The result of an uncached read of a claim, made after the ledger was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimState {
    /// There is no claim of that name.
    Gone,
    /// There is a claim of that name.
    Here {
        /// The UID of the claim.
        uid: String,
        /// Whether the claim is terminating.
        terminating: bool,
    },
}

/// The progress of a [`super::GrantKind::Replace`] that somebody else asked for, by the claim:
/// `recorded` is the volume that the budget recorded for the member before.
///
/// The caller must not record another volume for the member while the grant is open.
pub fn progress_of_claim(
    recorded: Option<&Volume>,
    claim: &ClaimState,
    serves: bool,
) -> ReplacementProgress {
    let uid = match claim {
        ClaimState::Gone
        | ClaimState::Here {
            terminating: true, ..
        } => return ReplacementProgress::Underway,
        ClaimState::Here { uid, .. } => uid,
    };
    match recorded {
        Some(before) if before.claim_uid == *uid => ReplacementProgress::Stands,
        Some(_) if serves => ReplacementProgress::Serves,
        None if serves => ReplacementProgress::Stands,
        Some(_) | None => ReplacementProgress::Underway,
    }
}

/// The progress of a [`super::GrantKind::Replace`] that somebody else asked for, by all claims of
/// the member, where no volume is recorded. A member that has left never comes back, so only the
/// request for its data is waited for.
pub fn progress_of_claims(
    snapshot: &Snapshot,
    member: &PodName,
    claims: &[ClaimState],
) -> ReplacementProgress {
    let terminates = |claim: &ClaimState| {
        let ClaimState::Here { terminating, .. } = claim else {
            return false;
        };
        *terminating
    };
    let are_gone = !claims.is_empty() && claims.iter().all(|claim| *claim == ClaimState::Gone);
    if are_gone && snapshot.is_no_member(member) {
        // The data is gone, and nobody is to come back to it.
        return ReplacementProgress::Serves;
    }
    let serves = snapshot.member(member).is_some_and(Member::serves_quorum);
    let is_back = serves && !claims.contains(&ClaimState::Gone);
    if !claims.iter().any(terminates) && (is_back || snapshot.has_left(member)) {
        ReplacementProgress::Stands
    } else {
        ReplacementProgress::Underway
    }
}

#[cfg(test)]
mod tests;
