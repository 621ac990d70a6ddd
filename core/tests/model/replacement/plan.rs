//! The shipped planner and the shipped identity guard: the facts that they get, and their answers.

use std::collections::BTreeMap;

use quorumgate_core::plan::Handover;
use quorumgate_core::plan::replacement::{
    self as shipped, ClaimFacts, MembershipBy, Mode, Next, Place, ReplacementInput, Start, guard,
    next as next_of,
};
use quorumgate_core::quorum::evidence::ListedMember;
use quorumgate_core::quorum::{
    Circumstances, ClaimState, Comparison, PodName, PodUid, Volume as Bound, VolumeFinding,
    confirmed_list, volume_finding,
};

use super::{Named, Record, Step};
use crate::appearance::{Appearance, NAME, Scene, VERSION, id, pod_name, uid};
use crate::decision::{Ledger, snapshot};
use crate::ledger::{self, Open};
use crate::memo::{Memo, remembered};
use crate::set::Set;
use crate::state::{MEMBERS, Volume};

/// The next step, and the member that it is about. A pod that need not wait any more is released
/// where the planner has nothing to do.
pub(super) fn next(
    scene: Scene,
    open: Open,
    record: Option<Record>,
    asked: Option<u8>,
) -> Option<(u8, Step)> {
    type Question = (Scene, Open, Option<Record>, Option<u8>);
    thread_local!(static MEMO: Memo<Question, Option<(u8, Step)>> = Memo::default());
    remembered(
        &MEMO,
        (scene, open, record, asked),
        |(scene, open, record, asked)| {
            let snapshot = snapshot(&scene, Ledger::Trusted);
            let input = input(&scene, record, asked);
            match next_of(&snapshot, &ledger::grants(&open), &input) {
                Next::Act(step) => Some(translated(step, &input)),
                Next::Nothing | Next::Wait { .. } => {
                    let list = input.list.as_deref();
                    let free = |n: &usize| !must_wait(Volumes::from_scene(&scene), *n, list);
                    let n = held(&scene).iter().find(free)?;
                    Some((u8::try_from(n).unwrap(), Step::Release))
                }
            }
        },
    )
}

/// The volumes of all members.
#[derive(Clone, Copy)]
pub(crate) struct Volumes {
    pub(crate) of: [Volume; MEMBERS],
    /// Whether the pods are the volumes.
    pub(crate) in_pods: bool,
}

impl Volumes {
    fn from_scene(scene: &Scene) -> Self {
        Self {
            of: scene.volumes,
            in_pods: scene.in_pods,
        }
    }
}

/// Whether the identity guard keeps the pod of a member from starting.
pub(crate) fn must_wait(volumes: Volumes, n: usize, list: Option<&[ListedMember]>) -> bool {
    let start = Start {
        set: NAME,
        pod: &pod_name(n),
        membership: MembershipBy::Gate,
        is_formed: true,
        bootstrap: false,
        recorded_id: Some(id(n, false)),
        volume: &finding(volumes, n),
        list,
        others_only: false,
    };
    guard(&start).hold.is_some()
}

fn input(scene: &Scene, record: Option<Record>, asked: Option<u8>) -> ReplacementInput {
    let members = || (0..MEMBERS).filter(|n| scene.sight.pods[*n] != Appearance::None);
    let observation = scene.observation(Circumstances::ordinary());
    let snapshot = snapshot(scene, Ledger::Trusted);
    let claim_of = |n| {
        let input = ClaimFacts {
            state: claim(scene.volumes[n], n),
            lost: matches!(scene.volumes[n], Volume::Failed | Volume::FailedGoing),
            volume: finding(Volumes::from_scene(scene), n),
            place: if scene.in_pods {
                Place::Pod
            } else {
                Place::Claim
            },
        };
        (pod_name(n), input)
    };
    let answered = observation.round.probes.iter();
    let versions = answered.filter_map(|probe| probe.status.as_ref().ok());
    ReplacementInput {
        mode: Mode::Auto,
        membership: MembershipBy::Gate,
        wanted: None,
        replaces_in_pod: false,
        request: asked.map(|n| pod_name(n.into())),
        recorded: members().map(|n| (pod_name(n), id(n, false))).collect(),
        rolling_out: false,
        handover: Handover::Possible,
        list: confirmed_list(&snapshot, &observation.round),
        versions: versions.map(|_| VERSION.parse().unwrap()).collect(),
        // Without a pod nothing stands for the claim.
        claims: members()
            .filter(|n| !scene.in_pods || scene.volumes[*n] != Volume::None)
            .map(claim_of)
            .collect(),
        held_pods: held(scene).iter().map(|n| uid(n, true)).collect(),
        // Every pod of the model starts as the gate lets it.
        failing_pods: std::iter::empty().collect(),
        crash_loops: std::iter::empty().collect(),
        replace_after: std::time::Duration::from_mins(15),
        leases_held: std::iter::empty().collect(),
        has_backup: false,
        // No member of the model is corrupt.
        data: Comparison::Unknown,
        record: record.map(recorded),
    }
}

fn held(scene: &Scene) -> Set {
    Set::new((0..MEMBERS).filter(|n| scene.sight.pods[*n] == Appearance::Held))
}

fn claim_uid(n: usize, stands: bool) -> String {
    format!("claim-{}", uid(n, stands))
}

fn claim(volume: Volume, n: usize) -> ClaimState {
    match volume {
        Volume::None => ClaimState::Gone,
        volume => ClaimState::Here {
            uid: claim_uid(n, true),
            terminating: volume.is_going(),
        },
    }
}

/// The volume of a member, compared with the one on record.
fn finding(volumes: Volumes, n: usize) -> VolumeFinding {
    let bound = |n: usize, own: bool| {
        if volumes.in_pods {
            return Bound::in_pod(uid(n, own).as_str());
        }
        Bound {
            claim_uid: claim_uid(n, own),
            volume_id: Some(format!("volume-{n}-{own}")),
            directory: None,
        }
    };
    let is_own = |n: usize| {
        !matches!(
            volumes.of[n],
            Volume::None | Volume::Blank | Volume::New | Volume::Stale
        )
    };
    let recorded: BTreeMap<PodName, Bound> = (0..MEMBERS)
        .map(|n| {
            let record = Bound {
                // The claim that exists now is the one on record, or another one.
                claim_uid: claim_uid(n, is_own(n)),
                ..bound(n, true)
            };
            (pod_name(n), record)
        })
        .collect();
    let present = Bound {
        claim_uid: claim_uid(n, true),
        ..bound(n, is_own(n))
    };
    let there = (volumes.of[n] != Volume::None).then_some(&present);
    volume_finding(&recorded, &pod_name(n), there)
}

fn peer_urls(n: usize) -> Vec<String> {
    vec![format!("https://{}:2380", pod_name(n))]
}

fn recorded(record: Record) -> shipped::Record {
    let n = usize::from(record.target);
    let named = |what: Named| match what {
        Named::Nothing => None,
        Named::Present => Some(true),
        Named::Past => Some(false),
    };
    shipped::Record {
        member: pod_name(n),
        old_id: record.listed.then(|| id(n, false)),
        old_pod: named(record.pod).map(|stands| uid(n, stands)),
        old_claim: named(record.claim).map(|stands| claim_uid(n, stands)),
        peer_urls: peer_urls(n),
        corrupt: false,
    }
}

/// A step of the shipped planner in the terms of the model.
fn translated(step: shipped::Step, input: &ReplacementInput) -> (u8, Step) {
    use shipped::Step as Theirs;
    let member = |pod: &PodName| {
        let n = (0..MEMBERS).find(|n| pod_name(*n) == *pod).unwrap();
        u8::try_from(n).unwrap()
    };
    match step {
        Theirs::Grant { record, .. } | Theirs::Renew { record } => {
            let target = member(&record.member);
            let n = usize::from(target);
            let named = |there: Option<bool>| match there {
                None => Named::Nothing,
                Some(true) => Named::Present,
                Some(false) => Named::Past,
            };
            let is_present = |pod: PodUid| pod == uid(n, true);
            let is_present_claim = |claim: String| claim == claim_uid(n, true);
            let ours = Record {
                target,
                listed: record.old_id.is_some(),
                pod: named(record.old_pod.map(is_present)),
                claim: named(record.old_claim.map(is_present_claim)),
            };
            (target, Step::Grant(ours))
        }
        Theirs::RemoveMember { pod, .. } => (member(&pod), Step::Remove),
        Theirs::AddLearner { pod, .. } => (member(&pod), Step::Add),
        Theirs::DeleteClaim { pod, .. } => (member(&pod), Step::DeleteClaim),
        Theirs::DeletePod { pod, .. } => (member(&pod), Step::DeletePod),
        Theirs::Release { pod, .. } => (member(&pod), Step::Release),
        Theirs::RecordVolume { pod, .. } => (member(&pod), Step::RecordVolume),
        Theirs::Promote { pod, .. } => (member(&pod), Step::Promote),
        Theirs::Settle { pod } => (member(&pod), Step::Settle),
        Theirs::Undo { pod, .. } => (member(&pod), Step::Undo),
        Theirs::MoveLeader { pod, .. } => panic!("{pod} has handed over: {input:?}"),
    }
}
