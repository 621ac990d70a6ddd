//! The facts and settings of a replacement that a snapshot does not have.

use super::super::desired::Handover;
use super::super::version::Version;
use super::guard::leads_to;
use super::membership_by::MembershipBy;
use crate::quorum::evidence::ListedMember;
use crate::quorum::{
    ClaimState, Comparison, Difference, Member, MemberId, Ordinal, PodName, PodUid, Snapshot,
    VolumeFinding,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// `spec.dataProtection.replace` of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Never.
    Off,
    /// The member that the annotation on the budget names.
    Manual,
    /// Also a member whose data is proven to be lost.
    Auto,
    /// As `Auto`, after a loss of quorum: all others join a member that started alone.
    Rejoining,
}

/// The facts of one look at a cluster, beside its snapshot and its grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacementInput {
    /// Whether the gate replaces members.
    pub mode: Mode,
    /// The one who changes etcd's member list.
    pub membership: MembershipBy,
    /// Whether a member whose data was in its pod is replaced by itself, in whatever mode.
    pub replaces_in_pod: bool,
    /// The pod of the member whose id the annotation `quorumgate.io/replace` on the budget names.
    /// `None` if no member has that id any more: so it asks for one replacement.
    pub request: Option<PodName>,
    /// The ordinals of the pods that are to have members. `None`: all. One that is to leave is not
    /// replaced.
    pub wanted: Option<Range<u32>>,
    /// The member ids that are recorded with the volumes, by pod.
    pub recorded: BTreeMap<PodName, MemberId>,
    /// Whether a rollout is under way.
    pub rolling_out: bool,
    /// Whether leadership can be moved now.
    pub handover: Handover,
    /// etcd's member list, from a voter whose linearizable read passed before. `None` if there is
    /// no such list.
    pub list: Option<Vec<ListedMember>>,
    /// The versions that the members report. A member that does not answer is left out.
    pub versions: Vec<Version>,
    /// The claims of the members, by pod. A member whose data is not on a claim is absent.
    pub claims: BTreeMap<PodName, ClaimFacts>,
    /// The pods that wait for the gate's scheduling gate.
    pub held_pods: BTreeSet<PodUid>,
    /// The pods in which etcd has ended and was started again, over and over.
    pub failing_pods: BTreeSet<PodUid>,
    /// How etcd ends in the pods in which it ends over and over, and does not serve between.
    pub crash_loops: BTreeMap<PodUid, CrashLoop>,
    /// The time after which a member that ends over and over on its own data is replaced
    /// (`spec.dataProtection.replaceAfter`).
    pub replace_after: Duration,
    /// The pods of members whose Lease has a holder, by which etcd-druid's sidecar knows that it
    /// was a member.
    pub leases_held: BTreeSet<PodName>,
    /// Whether there is a backup, by which etcd-druid's sidecar knows that the cluster is not new.
    pub has_backup: bool,
    /// The comparison of the voters' data, made while a CORRUPT alarm stands.
    pub data: Comparison,
    /// The replacement on record, which was written together with its grant.
    pub record: Option<Record>,
}

impl ReplacementInput {
    /// Whether the pod is to have a member.
    pub(super) fn wants(&self, pod: &PodName) -> bool {
        let (ordinal, wanted) = (Ordinal::from_pod(pod), self.wanted.as_ref());
        ordinal
            .zip(wanted)
            .is_none_or(|(Ordinal(n), wanted)| wanted.contains(&n))
    }

    /// The claim of a member. `None` if its data is not on a claim.
    pub(super) fn claim_of(&self, pod: &PodName) -> Option<&ClaimState> {
        let claim = self.claims.get(pod);
        let claim = claim.filter(|claim| claim.place == Place::Claim);
        claim.map(|claim| &claim.state)
    }

    /// Whether the data of the member is known, and on no claim.
    pub(super) fn is_on_no_claim(&self, pod: &PodName) -> bool {
        let claim = self.claims.get(pod);
        claim.is_some_and(|claim| claim.place != Place::Claim)
    }

    /// Whether other members have their data on the member's claim.
    pub(super) fn shares_its_claim(&self, pod: &PodName) -> bool {
        let uid = |claim: &ClaimFacts| match (&claim.state, claim.place) {
            (ClaimState::Here { uid, .. }, Place::Claim) => Some(uid.clone()),
            _ => None,
        };
        let own = self.claims.get(pod).and_then(uid);
        let mut others = self.claims.iter().filter(|(name, _)| *name != pod);
        own.is_some() && others.any(|(_, claim)| uid(claim) == own)
    }

    /// Whether a new pod of the member would find the data of the old one, which nobody but a
    /// person can remove.
    pub(super) fn stays_on_its_node(&self, pod: &PodName) -> bool {
        let claim = self.claims.get(pod);
        claim.is_some_and(|claim| claim.place == Place::Node && !claim.lost)
    }

    /// Whether the id on record for the member is out of etcd's list, and its pod has nothing to
    /// join with: no entry of the list leads to the pod, or only one that has never started, while
    /// the pod has the volume of the id on record. On such data etcd never starts.
    pub(super) fn lists_no_more(&self, pod: &PodName, snapshot: &Snapshot) -> bool {
        let (Some(list), Some(id)) = (&self.list, self.recorded.get(pod)) else {
            return false;
        };
        let set = &snapshot.cluster.name;
        let volume = self.claims.get(pod).map(|claim| &claim.volume);
        let is_on_old_data = volume == Some(&VolumeFinding::AsRecorded);
        let may_join = |listed: &ListedMember| {
            let is_new = listed.name.is_empty() && is_on_old_data;
            let leads_here = pod.names(&listed.name) || leads_to(set, pod, listed);
            leads_here && !is_new
        };
        !list
            .iter()
            .any(|listed| listed.id == *id || may_join(listed))
    }
}

/// The claim of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimFacts {
    /// The claim, by an uncached read.
    pub state: ClaimState,
    /// Whether the claim's phase is Lost, or its volume is gone or has failed.
    pub lost: bool,
    /// Whether the member has the volume that was recorded for it.
    pub volume: VolumeFinding,
    /// The thing that has the data.
    pub place: Place,
}

/// The thing that has a member's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A claim.
    Claim,
    /// The pod itself, which stands for the claim.
    Pod,
    /// A directory of a node. A new pod there finds what the old one left.
    Node,
}

/// A pod in which etcd ends and is started again, over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashLoop {
    /// The way in which etcd last ended.
    pub exit: Exit,
    /// The time for which this replica of the gate has seen it.
    pub lasted: Duration,
}

/// The way in which a process ended, as its node reported it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The process ended with an error of its own, such as a panic over its data.
    ByItself,
    /// The kernel ended the process for want of memory.
    Memory,
    /// A signal from outside ended the process, as kubelets send one after a failed probe, or it
    /// ended without an error.
    FromOutside,
}

/// The record of a replacement, in the budget's status. Its end is written when its grant
/// settles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The pod of the member.
    pub member: PodName,
    /// The id that is to be removed from etcd. `None` if etcd did not list the member.
    pub old_id: Option<MemberId>,
    /// The UID of the pod that is to go.
    pub old_pod: Option<PodUid>,
    /// The UID of the claim that is to go.
    pub old_claim: Option<String>,
    /// The peer URLs with which the member is added again.
    pub peer_urls: Vec<String>,
    /// Whether it began because the member's data was not that of all others ([`Proof::Corrupt`]).
    pub corrupt: bool,
}

/// The proof that a member's data is lost. `Display` completes the sentence "the member is
/// replaced: …".
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, derive_more::Display)]
pub enum Proof {
    /// The claim or its volume is gone.
    #[display("its claim or its volume is gone")]
    VolumeLost,
    /// The member has another volume than the one on record.
    #[display("it has {_0}")]
    VolumeChanged(Difference),
    /// A CORRUPT alarm stands, and the member's data is not that of the others.
    #[display("a CORRUPT alarm stands, and its data is not that of all others")]
    Corrupt,
    /// A CORRUPT alarm stands against the member's own id, and nothing else shows that its data is
    /// wrong. So this alone is no proof, and only a person can ask.
    #[display("a CORRUPT alarm stands against it")]
    Accused,
    /// The id of the member whose data it has is gone from etcd's list.
    #[display("etcd does not list the member any more whose data it has")]
    Removed,
    /// etcd ends over and over by itself, and another member serves with the same revision.
    #[display(
        "its etcd ends over and over with an error of its own, while other members serve with the same template"
    )]
    CrashLoop,
}

impl Proof {
    /// The stable identifier of the proof, for metrics and status.
    pub fn slug(&self) -> &'static str {
        self.into()
    }

    /// The proof against the member in the pod `pod`, if there is any.
    ///
    /// A volume that is another member's proves nothing about lost data: a person has to put the
    /// volumes right. A member that serves on another volume has its data again. A pod that was
    /// never a member's has no data to lose: it may be about to join. Where the pod changes the
    /// member list, it joins again by itself with another volume or after its removal.
    pub(super) fn against(
        pod: &PodName,
        snapshot: &Snapshot,
        input: &ReplacementInput,
    ) -> Option<Self> {
        let by_pod = snapshot.pod(pod).is_some_and(|p| p.recorded_id.is_some());
        let was_member = by_pod || input.recorded.contains_key(pod);
        let is_member = snapshot.members.iter().any(|m| m.pod_name() == Some(pod));
        if !is_member && !was_member {
            return None;
        }
        let by_gate = input.membership == MembershipBy::Gate;
        let serves = snapshot.member(pod).is_some_and(Member::serves_quorum);
        let claim = input.claims.get(pod);
        if claim.is_some_and(|claim| claim.lost || claim.state == ClaimState::Gone) {
            return Some(Self::VolumeLost);
        }
        if let Some(VolumeFinding::Wrong { difference, .. }) = claim.map(|claim| &claim.volume)
            && matches!(
                difference,
                Difference::NewClaim | Difference::NewPod | Difference::Foreign
            )
            && by_gate
            && !serves
        {
            return Some(Self::VolumeChanged(difference.clone()));
        }
        if let Some(id) = snapshot.member(pod).and_then(|member| member.id) {
            match input.data {
                Comparison::Differs(other) if other == id => return Some(Self::Corrupt),
                Comparison::Differs(_) => {}
                _ if snapshot.accused.contains(&id) => return Some(Self::Accused),
                Comparison::Unknown | Comparison::Same | Comparison::Disagreement => {}
            }
        }
        let is_out = snapshot.not_members.contains(pod) || input.lists_no_more(pod, snapshot);
        if by_gate && was_member && is_out {
            return Some(Self::Removed);
        }
        ends_on_its_data(pod, snapshot, input).then_some(Self::CrashLoop)
    }
}

/// Whether etcd in `pod` fails for a reason that is in this member alone. Its nearest reason is the
/// data. A template that is wrong fails elsewhere too, and where nobody serves with it, nothing
/// shows that it works.
fn ends_on_its_data(pod: &PodName, snapshot: &Snapshot, input: &ReplacementInput) -> bool {
    let (Some(own), Some(member)) = (snapshot.pod(pod), snapshot.member(pod)) else {
        return false;
    };
    let ends = |uid: &PodUid| input.crash_loops.get(uid).map(|found| found.exit);
    let alike = || {
        let others = snapshot.pods.iter().filter(|other| other.uid != own.uid);
        others.filter(|other| other.revision == own.revision)
    };
    let serves = |name: &PodName| snapshot.member(name).is_some_and(Member::serves_quorum);
    !member.serves_quorum()
        && ends(&own.uid) == Some(Exit::ByItself)
        && alike().any(|other| serves(&other.name))
        && alike().all(|other| ends(&other.uid).is_none())
}
