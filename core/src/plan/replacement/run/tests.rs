use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::plan::Handover;
use crate::plan::replacement::{ClaimFacts, CrashLoop, Exit, Mode, Place, Proof};
use crate::quorum::evidence::{Alarm, AlarmKind, Probe, Target, Unanswered};
use crate::quorum::pod::Containers;
use crate::quorum::{
    Actor, ClaimDeletion, Comparison, Difference, EvidenceMode, ExpectedVoters, GrantKind,
    MemberId, Observation, PodName, PodUid, Verdict, Volume, VolumeFinding, decide_claim, example,
};

/// A cluster whose etcd and Kubernetes carry out the steps of a replacement. The member in etcd-2
/// is the one that is replaced.
struct World {
    observation: Observation,
    input: ReplacementInput,
    grants: Grants,
    list: Vec<ListedMember>,
    /// The number of members that were added so far.
    added: u64,
    /// The member whose data is on a claim. etcd never starts on the data of a removed one.
    written: BTreeMap<String, MemberId>,
}

/// The id of the first member that is added.
const FIRST_NEW: u64 = 9;
const TARGET: &str = "etcd-2";

impl World {
    fn new(voters: u32) -> Self {
        let observation = example::healthy("etcd", voters);
        let list = observation.round.probes[0].members.clone().unwrap();
        let claims =
            (0..voters).map(|n| (PodName::new(format!("etcd-{n}")), claim(&format!("c{n}"))));
        Self {
            input: ReplacementInput {
                mode: Mode::Manual,
                membership: MembershipBy::Gate,
                replaces_in_pod: false,
                request: Some(TARGET.into()),
                wanted: None,
                recorded: BTreeMap::new(),
                rolling_out: false,
                handover: Handover::Possible,
                list: Some(list.clone()),
                versions: vec!["3.6.16".parse().unwrap()],
                claims: claims.collect(),
                held_pods: BTreeSet::new(),
                failing_pods: BTreeSet::new(),
                crash_loops: BTreeMap::new(),
                replace_after: Duration::from_mins(15),
                leases_held: BTreeSet::new(),
                has_backup: true,
                data: Comparison::Unknown,
                record: None,
            },
            observation,
            grants: Grants::default(),
            list,
            added: 0,
            written: BTreeMap::new(),
        }
    }

    /// A replacement until its new member has started.
    fn started() -> Self {
        let mut world = Self::new(3);
        for _ in 0..6 {
            world.step();
        }
        world.start(0);
        world
    }

    /// A replacement whose new pod was created while the gate was down: on its new claim etcd began
    /// under the id that was removed.
    fn begun_under_the_removed_id() -> Self {
        let mut world = Self::new(3);
        for _ in 0..5 {
            world.step();
        }
        let used = world.claim_uid();
        world.written.insert(used, MemberId(3));
        world.input.held_pods.clear();
        world.start(0);
        world
    }

    /// Goes on to the end, by another claim.
    fn gives_up_its_claim_and_joins(&mut self) {
        let used = self.claim_uid();
        let steps: Vec<String> = (0..4).map(|_| self.step()).collect();
        assert_eq!(steps, ["Renew", "DeleteClaim", "DeletePod", "Release"]);
        assert_ne!(self.claim_uid(), used);
        self.start(0);
        let steps: Vec<String> = (0..2).map(|_| self.step()).collect();
        assert_eq!(steps, ["Promote", "Settle"]);
    }

    fn snapshot(&self) -> Snapshot {
        let mut observation = self.observation.clone();
        for probe in &mut observation.round.probes {
            if probe.members.is_ok() {
                probe.members = Ok(self.list.clone());
            }
        }
        Snapshot::assemble(&observation)
    }

    fn next(&mut self) -> Next {
        self.input.list = Some(self.list.clone());
        next(&self.snapshot(), &self.grants, &self.input)
    }

    /// The step, or the reason to wait, as a word.
    fn said(&mut self) -> String {
        match self.next() {
            Next::Nothing => "nothing".into(),
            Next::Wait { because, .. } => format!("wait {}", because.slug()),
            Next::Act(Step::Undo { because, .. }) => format!("undo {}", because.slug()),
            Next::Act(step) => step.slug().into(),
        }
    }

    fn pod(&mut self) -> &mut crate::quorum::pod::Pod {
        &mut self.observation.pods[2]
    }

    /// Raises CORRUPT alarms against these members.
    fn accuse(&mut self, members: &[u64]) {
        let alarm = |member: &u64| Alarm {
            member: MemberId(*member),
            kind: AlarmKind::Corrupt,
        };
        let status = self.observation.round.probes[0].status.as_mut();
        status.unwrap().alarms = members.iter().map(alarm).collect();
    }

    fn silence(&mut self, n: usize) {
        let probe = &mut self.observation.round.probes[n];
        *probe = Probe::unanswered(probe.target.clone(), Unanswered::Refused);
        self.observation.pods[n].etcd_ready = false;
        self.observation.pods[n].containers = Containers::EtcdFailed {
            reason: "CrashLoopBackOff".into(),
        };
    }

    /// Carries a step out, with what follows from it.
    fn carry_out(&mut self, step: &Step) {
        match step {
            Step::Grant { record, .. } => {
                let by = "gate".to_owned();
                let member = &record.member;
                self.grants = self
                    .grants
                    .issue(member, GrantKind::Replace, by, String::new());
                self.input.record = Some(record.clone());
            }
            Step::MoveLeader { to, .. } => {
                for probe in &mut self.observation.round.probes {
                    if let Ok(status) = &mut probe.status {
                        (status.leader, status.term) = (Some(*to), 3);
                    }
                }
            }
            Step::RemoveMember { id, .. } => {
                self.list.retain(|listed| listed.id != *id);
                self.silence(2);
            }
            Step::AddLearner { peer_urls, .. } => {
                self.list.push(ListedMember {
                    id: MemberId(FIRST_NEW + self.added),
                    name: String::new(),
                    learner: true,
                    peer_urls: peer_urls.clone(),
                    client_urls: Vec::new(),
                });
                self.added += 1;
            }
            Step::DeleteClaim { uid, .. } => self.claim_is(uid, true),
            Step::DeletePod { .. } => self.recreate(),
            Step::Release { uid, .. } => {
                self.input.held_pods.remove(uid);
            }
            Step::RecordVolume { pod, id } => {
                self.input.recorded.insert(pod.clone(), *id);
            }
            Step::Renew { record } => self.input.record = Some(record.clone()),
            Step::Promote { id, .. } => {
                for listed in self.list.iter_mut().filter(|l| l.id == *id) {
                    listed.learner = false;
                }
                let probe = &mut self.observation.round.probes[2];
                probe.status.as_mut().unwrap().learner = false;
                probe.read = Ok(());
                probe.members = Ok(Vec::new());
            }
            Step::Settle { pod } | Step::Undo { pod, .. } => {
                let seq = self.grants.last_seq();
                self.grants = self.grants.settle(pod, seq).unwrap();
                self.input.record = None;
                self.input.request = None;
            }
        }
    }

    fn claim_is(&mut self, uid: &str, terminating: bool) {
        let state = ClaimState::Here {
            uid: uid.into(),
            terminating,
        };
        self.input.claims.get_mut(&TARGET.into()).unwrap().state = state;
    }

    /// The StatefulSet controller creates claim and pod again, and the pod waits for the gate.
    fn recreate(&mut self) {
        let claim = format!("{}-new", self.claim_uid());
        self.claim_is(&claim, false);
        self.recreate_pod(true);
    }

    /// The StatefulSet controller creates the pod again, on the claim that is there.
    fn recreate_pod(&mut self, held: bool) {
        let before = self.pod().uid.clone();
        let uid = PodUid::new(format!("{before}-new"));
        self.input.held_pods.remove(&before);
        self.pod().uid = uid.clone();
        self.pod().recorded_id = None;
        if held {
            self.input.held_pods.insert(uid.clone());
        }
        let target = Target::Pod(uid);
        self.observation.round.probes[2] = Probe::unanswered(target, Unanswered::Refused);
    }

    fn claim_uid(&self) -> String {
        match &self.input.claims[&TARGET.into()].state {
            ClaimState::Here { uid, .. } => uid.clone(),
            ClaimState::Gone => panic!("no claim"),
        }
    }

    /// The member that was added last, if etcd lists it.
    fn new_member(&self) -> Option<&ListedMember> {
        self.list.iter().find(|listed| listed.id.0 >= FIRST_NEW)
    }

    /// The new member starts: it follows the leader and is so far behind. It does not where its
    /// claim has the data of another one.
    fn start(&mut self, behind: u64) {
        let Some((id, learner)) = self.new_member().map(|new| (new.id, new.learner)) else {
            return;
        };
        if self.input.claims.contains_key(&TARGET.into()) {
            let claim = self.claim_uid();
            if *self.written.entry(claim).or_insert(id) != id {
                return;
            }
        }
        let mut probe = self.observation.round.probes[0].clone();
        let status = probe.status.as_mut().unwrap();
        status.member_id = id;
        status.learner = learner;
        status.applied_index -= behind;
        probe.target = Target::Pod(self.pod().uid.clone());
        if learner {
            probe.read = Err(Unanswered::Learner);
            probe.members = Err(Unanswered::Learner);
        } else {
            probe.members = Ok(Vec::new());
        }
        self.observation.round.probes[2] = probe;
        self.pod().containers = Containers::Running;
        for listed in self.list.iter_mut().filter(|l| l.id == id) {
            listed.name = TARGET.into();
        }
    }

    fn is_held(&self) -> bool {
        !self.input.held_pods.is_empty()
    }

    fn step(&mut self) -> String {
        let next = self.next();
        if let Next::Act(step) = &next {
            let said = self.said();
            self.carry_out(step);
            return said;
        }
        self.said()
    }
}

/// A new member finds the data of the old one there, and on the data of a removed member etcd never
/// starts.
#[test]
fn a_member_in_a_directory_of_a_node_is_replaced_only_once_the_node_is_gone() {
    let of_node = |lost: bool| {
        let mut world = in_pods();
        for claim in world.input.claims.values_mut() {
            claim.place = Place::Node;
        }
        world.input.claims.get_mut(&TARGET.into()).unwrap().lost = lost;
        world.input.mode = Mode::Auto;
        world.silence(2);
        world
    };
    let mut asked = of_node(false);
    asked.input.request = Some(TARGET.into());
    assert_eq!(asked.said(), "wait OnNode");
    assert_eq!(of_node(false).said(), "nothing");
    assert_eq!(of_node(true).said(), "Grant");
}

fn claim(uid: &str) -> ClaimFacts {
    ClaimFacts {
        state: ClaimState::Here {
            uid: uid.into(),
            terminating: false,
        },
        lost: false,
        volume: VolumeFinding::AsRecorded,
        place: Place::Claim,
    }
}

fn refused(change: impl FnOnce(&mut World)) -> String {
    let mut world = World::new(3);
    change(&mut world);
    world.said()
}

#[test]
fn a_member_is_removed_added_as_a_learner_started_anew_and_promoted() {
    let mut world = World::new(3);
    let mut steps = Vec::new();
    while steps.len() < 20 && world.input.request.is_some() {
        steps.push(world.step());
        if steps.last().unwrap() == "wait Joining" {
            world.start(0);
        }
    }
    assert_eq!(
        steps,
        [
            "Grant",
            "RemoveMember",
            "AddLearner",
            "DeleteClaim",
            "DeletePod",
            "Release",
            "wait Joining",
            "Promote",
            "Settle",
        ]
    );
    assert_eq!(world.next(), Next::Nothing);
}

#[test]
fn a_learner_is_promoted_when_it_has_caught_up_within_the_bound() {
    let mut world = World::new(3);
    for _ in 0..6 {
        world.step();
    }
    for probe in &mut world.observation.round.probes {
        if let Ok(status) = &mut probe.status {
            status.applied_index = 10_000;
        }
    }
    world.start(5_001);
    assert_eq!(world.said(), "wait Joining");
    world.start(5_000);
    assert_eq!(world.said(), "Promote");
}

#[test]
fn a_leader_hands_over_first_and_is_left_alone_where_it_cannot() {
    let mut world = World::new(3);
    world.step();
    for probe in &mut world.observation.round.probes {
        probe.status.as_mut().unwrap().leader = Some(MemberId(3));
    }
    world.input.handover = Handover::Refused;
    assert_eq!(world.said(), "undo HandoverRefused");
    world.input.handover = Handover::Possible;
    assert_eq!(world.step(), "MoveLeader");
    assert_eq!(world.step(), "RemoveMember");
}

#[test]
fn before_the_first_change_everything_is_judged_again_and_after_it_nothing_is_undone() {
    let mut world = World::new(3);
    world.step();
    world.input.rolling_out = true;
    assert_eq!(world.said(), "undo Rollout");
    world.input.rolling_out = false;
    world.silence(1);
    assert_eq!(world.said(), "undo NotAllServing");
    let mut begun = World::new(3);
    begun.step();
    begun.step();
    begun.input.rolling_out = true;
    assert_eq!(begun.said(), "AddLearner");
}

#[test]
fn only_data_that_is_proven_to_be_lost_is_replaced_by_itself() {
    let auto = |change: &dyn Fn(&mut World)| {
        refused(|world| {
            world.input.mode = Mode::Auto;
            world.input.request = None;
            change(world);
        })
    };
    assert_eq!(auto(&|_| {}), "nothing");
    assert_eq!(
        auto(&|w| w.silence(2)),
        "nothing",
        "a dead member may come back"
    );
    let claim_of = |w: &mut World, change: &dyn Fn(&mut ClaimFacts)| {
        change(w.input.claims.get_mut(&TARGET.into()).unwrap());
    };
    assert_eq!(auto(&|w| claim_of(w, &|c| c.lost = true)), "Grant");
    let wrong = |difference: Difference| VolumeFinding::Wrong {
        volume: Volume {
            claim_uid: "c9".into(),
            volume_id: None,
            directory: None,
        },
        difference,
    };
    let emptied = |w: &mut World| claim_of(w, &|c| c.volume = wrong(Difference::NewClaim));
    assert_eq!(auto(&emptied), "nothing", "it serves");
    assert_eq!(
        auto(&|w| {
            emptied(w);
            w.silence(2);
        }),
        "Grant"
    );
    let with = "etcd-1".into();
    let swapped = wrong(Difference::Swapped { with });
    assert_eq!(
        auto(&|w| {
            claim_of(w, &|c| c.volume = swapped.clone());
            w.silence(2);
        }),
        "nothing"
    );
    let corrupt = |w: &mut World| {
        w.accuse(&[0]);
        w.input.data = Comparison::Differs(MemberId(3));
    };
    assert_eq!(auto(&corrupt), "Grant");
    let removed = |w: &mut World| {
        w.list.pop();
        w.silence(2);
    };
    assert_eq!(auto(&removed), "Grant");
    let by_pod = |w: &mut World| {
        removed(w);
        w.input.membership = MembershipBy::Sidecar;
    };
    assert_eq!(auto(&by_pod), "nothing", "it joins again by itself");
    let manual = |w: &mut World| {
        removed(w);
        w.input.mode = Mode::Manual;
    };
    assert_eq!(auto(&manual), "wait NotRequested");
}

/// A CORRUPT alarm against these members, with what a comparison of the data showed. The target is
/// member 3.
fn alarmed(accused: &[u64], data: Comparison, mode: Mode) -> String {
    refused(|world| {
        world.input.mode = mode;
        world.input.request = (mode == Mode::Manual).then(|| TARGET.into());
        world.accuse(accused);
        world.input.data = data;
    })
}

#[test]
fn while_a_corrupt_alarm_stands_the_one_that_differs_from_the_others_is_replaced() {
    let third = Comparison::Differs(MemberId(3));
    for accused in [0, 3] {
        assert_eq!(alarmed(&[accused], third, Mode::Auto), "Grant");
        assert_eq!(alarmed(&[accused], third, Mode::Manual), "Grant");
    }
    // etcd's periodic check takes the leader's data for right.
    assert_eq!(alarmed(&[2], third, Mode::Auto), "wait Mistaken");
    assert_eq!(alarmed(&[2], third, Mode::Manual), "wait Mistaken");
}

#[test]
fn who_names_another_member_than_the_one_that_differs_is_told_which_it_is() {
    let mut world = World::new(3);
    world.accuse(&[0]);
    world.input.data = Comparison::Differs(MemberId(1));
    let Next::Wait { because, .. } = world.next() else {
        panic!("{}", world.said());
    };
    assert!(because.to_string().contains("etcd-0"), "{because}");
}

#[test]
fn the_record_says_whether_wrong_data_was_the_reason() {
    let recorded = |change: &dyn Fn(&mut World)| {
        let mut world = World::new(3);
        change(&mut world);
        match world.next() {
            Next::Act(Step::Grant { record, .. }) => record.corrupt,
            _ => panic!("{}", world.said()),
        }
    };
    assert!(recorded(&|world| {
        world.accuse(&[0]);
        world.input.data = Comparison::Differs(MemberId(3));
    }));
    assert!(!recorded(&|world| {
        world.input.claims.get_mut(&TARGET.into()).unwrap().lost = true;
    }));
}

#[test]
fn an_alarm_alone_proves_nothing_and_a_person_may_insist_on_the_one_it_names() {
    for data in [
        Comparison::Unknown,
        Comparison::Same,
        Comparison::Disagreement,
    ] {
        assert_eq!(alarmed(&[3], data, Mode::Auto), "wait NotShown");
        assert_eq!(alarmed(&[3], data, Mode::Manual), "Grant");
        assert_eq!(alarmed(&[0], data, Mode::Auto), "nothing");
        assert_eq!(alarmed(&[0], data, Mode::Manual), "wait NotShown");
        assert_eq!(alarmed(&[2], data, Mode::Manual), "wait Corrupt");
        assert_eq!(alarmed(&[2, 3], data, Mode::Auto), "wait Corrupt");
        assert_eq!(alarmed(&[0, 3], data, Mode::Manual), "wait NotShown");
    }
}

#[test]
fn alarms_are_disarmed_once_the_one_that_differed_is_out_and_the_others_are_alike() {
    let mut world = World::new(3);
    world.input.mode = Mode::Auto;
    world.input.request = None;
    world.accuse(&[0, 2, 3]);
    world.input.data = Comparison::Differs(MemberId(3));
    let snapshot = world.snapshot();
    let record = |corrupt| Record {
        member: TARGET.into(),
        old_id: Some(MemberId(3)),
        old_pod: None,
        old_claim: None,
        peer_urls: Vec::new(),
        corrupt,
    };
    assert_eq!(disarm(&snapshot, &world.input), [], "nothing is on record");
    world.input.record = Some(record(true));
    assert_eq!(disarm(&snapshot, &world.input), [], "it is listed");
    world.input.list.as_mut().unwrap().pop();
    assert_eq!(
        disarm(&snapshot, &world.input),
        [MemberId(3)],
        "the others may differ"
    );
    world.input.data = Comparison::Same;
    assert_eq!(disarm(&snapshot, &world.input), [0, 2, 3].map(MemberId));
    world.input.record = Some(record(false));
    assert_eq!(
        disarm(&snapshot, &world.input),
        [MemberId(3)],
        "its data was not the reason"
    );
    world.input.list = None;
    assert_eq!(disarm(&snapshot, &world.input), []);
}

#[test]
fn no_other_than_the_one_that_differs_is_replaced_whoever_asks() {
    let second = Comparison::Differs(MemberId(2));
    for accused in [0, 2, 3] {
        assert_eq!(
            alarmed(&[accused], second, Mode::Manual),
            "wait OtherDiffers"
        );
    }
    let mut world = World::new(3);
    world.input.mode = Mode::Auto;
    world.input.request = None;
    world.accuse(&[3]);
    world.input.data = second;
    let Next::Wait { pod, because, .. } = world.next() else {
        panic!("{:?}", world.next());
    };
    assert_eq!(pod, "etcd-1".into());
    let member = "etcd-2".to_owned();
    assert_eq!(because, Refusal::Mistaken { member });
}

#[test]
fn an_id_on_record_that_etcd_does_not_list_proves_that_the_member_was_removed() {
    let mut world = World::new(3);
    world.input.mode = Mode::Auto;
    world.input.request = None;
    world.input.recorded = BTreeMap::from([(TARGET.into(), MemberId(0xdead))]);
    assert_eq!(
        world.said(),
        "nothing",
        "an entry of the list leads to its pod"
    );
    world.list.pop();
    world.silence(2);
    let Next::Act(Step::Grant { record, proof }) = world.next() else {
        panic!("{:?}", world.next());
    };
    assert_eq!(proof, Some(Proof::Removed));
    // A request for this id is served by that.
    assert_eq!(record.old_id, Some(MemberId(3)));
}

/// A replacement whose record went with its budget after the learner was added. The claim says
/// whose data it has, and that is on record again.
#[test]
fn a_learner_that_waits_for_a_pod_on_the_data_of_a_removed_member_is_replaced() {
    let mut world = World::new(3);
    world.input.recorded = BTreeMap::from([(TARGET.into(), MemberId(3))]);
    for _ in 0..3 {
        world.step();
    }
    let learner = world.list.last().unwrap().clone();
    assert!(learner.learner && learner.name.is_empty());
    world.input.record = None;
    world.input.request = None;
    world.input.mode = Mode::Auto;
    world.grants = Grants::default();
    let mut volume = |volume| {
        world.input.claims.get_mut(&TARGET.into()).unwrap().volume = volume;
        world.said()
    };
    assert_eq!(volume(VolumeFinding::Unknown), "nothing");
    assert_eq!(volume(VolumeFinding::AsRecorded), "Grant");
    let Next::Act(Step::Grant { record, proof }) = world.next() else {
        panic!("{:?}", world.next());
    };
    assert_eq!(proof, Some(Proof::Removed));
    assert_eq!(record.old_id, Some(learner.id));
    assert!(record.old_claim.is_some() && record.old_pod.is_some());
}

/// No voter leaves, so the only one that is left need not be spared.
#[test]
fn removed_members_come_back_beside_the_only_voter_that_is_left() {
    let mut world = World::new(3);
    world.input.mode = Mode::Auto;
    world.input.request = None;
    world.input.recorded = BTreeMap::from([(TARGET.into(), MemberId(0xdead))]);
    world.observation.expected = ExpectedVoters::default();
    for n in [2, 1] {
        world.list.pop();
        world.silence(n);
    }
    let waits = "wait SeveralRemoved";
    assert_eq!(world.said(), waits, "its initial-cluster names all three");
    world.observation.replicas = 2;
    assert_eq!(world.step(), "Grant");
    assert_eq!(world.step(), "AddLearner");
}

#[test]
fn after_a_loss_of_quorum_all_others_join_and_what_their_pods_wait_with_goes() {
    let mut world = World::new(3);
    world.input.mode = Mode::Rejoining;
    world.input.request = None;
    world.input.recorded = BTreeMap::from([(TARGET.into(), MemberId(0xdead))]);
    world.observation.expected = ExpectedVoters::default();
    for n in [2, 1] {
        world.list.pop();
        world.silence(n);
    }
    let held = world.observation.pods[1..]
        .iter()
        .map(|pod| pod.uid.clone());
    world.input.held_pods.extend(held);
    let Next::Act(Step::Grant { record, .. }) = world.next() else {
        panic!("{}", world.said());
    };
    assert!(
        record.old_pod.is_some(),
        "the next pod is told whom it joins"
    );
    assert!(record.old_claim.is_some(), "its data is given up");
    assert_eq!(world.step(), "Grant");
    assert_eq!(world.step(), "AddLearner");
}

#[test]
fn a_member_that_etcd_does_not_list_any_more_is_added_again_at_its_own_url() {
    let mut world = World::new(3);
    world.list.pop();
    world.silence(2);
    assert_eq!(world.step(), "Grant");
    let Next::Act(Step::AddLearner { peer_urls, .. }) = world.next() else {
        panic!("{}", world.said());
    };
    assert_eq!(peer_urls, ["https://etcd-2:2380"]);
}

#[test]
fn every_condition_is_a_reason_of_its_own() {
    assert_eq!(refused(|_| {}), "Grant");
    assert_eq!(refused(|w| w.input.mode = Mode::Off), "wait Off");
    assert_eq!(
        refused(|w| w.input.membership = MembershipBy::Owner),
        "wait Owner"
    );
    assert_eq!(refused(|w| w.input.rolling_out = true), "wait Rollout");
    assert_eq!(refused(|w| w.input.versions.clear()), "wait VersionUnknown");
    let defective = |w: &mut World| w.input.versions = vec!["3.5.19".parse().unwrap()];
    assert_eq!(refused(defective), "wait Defect");
    assert_eq!(refused(|w| w.silence(1)), "wait NotAllServing");
    assert_eq!(
        refused(|w| w.observation.pods[1].terminating = true),
        "wait Terminating"
    );
    let readiness = |w: &mut World| w.observation.policy.evidence = EvidenceMode::Readiness;
    assert_eq!(refused(readiness), "wait NoLiveEvidence");
    let nobody = |w: &mut World| w.input.request = Some("etcd-7".into());
    assert_eq!(refused(nobody), "wait NoSuchMember");
    let learner = |w: &mut World| w.list[1].learner = true;
    assert_eq!(refused(learner), "wait Learner");
    let granted = |w: &mut World| {
        let by = String::new();
        w.grants = w
            .grants
            .issue(&"etcd-1".into(), GrantKind::Replace, by, String::new());
    };
    assert_eq!(refused(granted), "wait Granted");
    let deleted = |w: &mut World| {
        let (by, uid) = (String::new(), "uid-2".into());
        let what = GrantKind::Delete {
            uid,
            rollout: false,
        };
        w.grants = w.grants.issue(&TARGET.into(), what, by, String::new());
    };
    assert_eq!(
        refused(deleted),
        "wait Granted",
        "its pod may be on its way out"
    );
    let remaining = Duration::from_secs(3);
    let resting = |w: &mut World| {
        w.input.request = Some("etcd-0".into());
        w.input.handover = Handover::Resting { remaining };
    };
    assert_eq!(refused(resting), "wait Leadership");
}

/// The claim of a dead member was deleted and then its pod, both with permission. The new pod is
/// held on its new claim.
#[test]
fn a_replacement_takes_over_a_permission_to_destroy_the_data() {
    for (mode, request) in [(Mode::Manual, Some(TARGET.into())), (Mode::Auto, None)] {
        let mut world = World::new(3);
        (world.input.mode, world.input.request) = (mode, request);
        world.input.recorded.insert(TARGET.into(), MemberId(3));
        world.silence(2);
        let by = "anna".to_owned();
        let grants = &world.grants;
        world.grants = grants.issue(&TARGET.into(), GrantKind::Replace, by, String::new());
        world.recreate();
        let claim = world.input.claims.get_mut(&TARGET.into()).unwrap();
        claim.volume = VolumeFinding::Wrong {
            volume: Volume {
                claim_uid: "c2-new".into(),
                volume_id: None,
                directory: None,
            },
            difference: Difference::NewClaim,
        };
        let mut steps = Vec::new();
        while steps.len() < 20 && steps.last().is_none_or(|said| said != "Settle") {
            steps.push(world.step());
            if steps.last().unwrap() == "wait Joining" {
                world.start(0);
            }
        }
        assert_eq!(steps.first().unwrap(), "Grant", "{steps:?}");
        assert_eq!(steps.last().unwrap(), "Settle", "{steps:?}");
        assert_eq!(world.grants.iter().count(), 0);
    }
}

#[test]
fn a_cluster_of_fewer_than_three_voters_cannot_replace_one() {
    let mut world = World::new(2);
    world.input.request = Some("etcd-1".into());
    assert_eq!(world.said(), "wait TooFewVoters");
}

/// A quota or a stale claim keeps its pod from being created, and etcd lists it all the same.
#[test]
fn a_listed_voter_without_a_pod_is_replaced_and_is_no_removed_one() {
    let mut world = World::new(3);
    world.observation.pods.truncate(2);
    world.observation.round.probes.truncate(2);
    assert_eq!(world.step(), "Grant");
    assert_eq!(world.said(), "RemoveMember");
    world.list.retain(|listed| listed.id != MemberId(3));
    let steps: Vec<String> = (0..2).map(|_| world.step()).collect();
    assert_eq!(steps, ["AddLearner", "DeleteClaim"]);
    assert_eq!(world.said(), "wait Recreation");
    let mut world = World::new(3);
    world.observation.pods.truncate(2);
    world.observation.round.probes.truncate(2);
    world.silence(1);
    assert_eq!(world.said(), "wait NotAllServing");
}

#[test]
fn where_the_pod_changes_the_member_list_the_gate_deletes_claim_and_pod_and_nothing_else() {
    let mut world = World::new(3);
    world.input.membership = MembershipBy::Sidecar;
    let steps = [world.step(), world.step(), world.step()];
    assert_eq!(steps, ["Grant", "DeleteClaim", "DeletePod"]);
    world.input.held_pods.clear();
    assert_eq!(world.said(), "wait Joining");
    // The sidecar removes the member, adds it and promotes it.
    world.list[2].id = MemberId(9);
    world.start(0);
    let probe = &mut world.observation.round.probes[2];
    probe.status.as_mut().unwrap().learner = false;
    (probe.read, probe.members) = (Ok(()), Ok(Vec::new()));
    assert_eq!(world.said(), "Settle");
}

#[test]
fn without_lease_and_backup_a_sidecar_would_start_a_new_cluster() {
    let by_pod = |lease: bool, backup: bool| {
        refused(|world| {
            world.input.membership = MembershipBy::Sidecar;
            world.input.has_backup = backup;
            if lease {
                world.input.leases_held.insert(TARGET.into());
            }
        })
    };
    assert_eq!(by_pod(false, false), "wait NoTrace");
    assert_eq!(by_pod(true, false), "Grant");
    assert_eq!(by_pod(false, true), "Grant");
}

#[test]
fn a_pod_that_was_created_on_the_old_claim_goes_as_well() {
    let mut world = World::new(3);
    for _ in 0..4 {
        world.step();
    }
    world.pod().uid = "uid-2-again".into();
    let Next::Act(Step::DeletePod { uid, .. }) = world.next() else {
        panic!("{}", world.said());
    };
    assert_eq!(uid.as_str(), "uid-2-again");
}

#[test]
fn a_pod_that_is_held_on_a_new_claim_is_let_start_as_it_is() {
    let mut world = World::new(3);
    world.recreate();
    world.observation.pods[2].recorded_id = Some(MemberId(3));
    let steps = [world.step(), world.step(), world.step(), world.step()];
    assert_eq!(steps, ["Grant", "RemoveMember", "AddLearner", "Release"]);
}

/// A pod that waits since the gate changed the member list adds no member.
#[test]
fn a_pod_that_was_held_goes_where_pods_change_the_member_list_by_now() {
    for membership in [MembershipBy::Pod, MembershipBy::Sidecar] {
        let mut world = World::new(3);
        world.recreate();
        world.observation.pods[2].recorded_id = Some(MemberId(3));
        world.input.membership = membership;
        world.input.leases_held.insert(TARGET.into());
        assert_eq!([world.step(), world.step()], ["Grant", "DeletePod"]);
        world.recreate_pod(false);
        assert_eq!(world.said(), "wait Joining", "the next one starts");
    }
}

/// The new member has started once, so etcd knows its new id by name.
fn rejoining(promoted: bool, steps: usize) -> Vec<String> {
    let mut world = World::started();
    if promoted {
        assert_eq!(world.step(), "Promote");
    }
    world.silence(2);
    world.recreate();
    (0..steps).map(|_| world.step()).collect()
}

#[test]
fn a_new_member_that_loses_its_volume_again_gives_up_its_new_id_too() {
    let steps = [
        "Renew",
        "RemoveMember",
        "AddLearner",
        "DeleteClaim",
        "DeletePod",
        "Release",
        "wait Joining",
    ];
    assert_eq!(rejoining(false, 7), steps, "a learner");
    assert_eq!(rejoining(true, 7), steps, "a voter");
}

/// The new member has started, and the old member's volume is on record.
fn unrecorded() -> World {
    let mut world = World::started();
    world.input.recorded = BTreeMap::from([(TARGET.into(), MemberId(3))]);
    world
}

#[test]
fn the_volume_of_a_new_member_is_recorded_before_it_votes() {
    let mut world = unrecorded();
    assert_eq!(world.step(), "RecordVolume");
    assert_eq!(world.input.recorded[&TARGET.into()], MemberId(9));
    assert_eq!(world.step(), "Promote");
    // Its pod goes before the replacement is settled, and comes back on the recorded volume.
    world.recreate_pod(false);
    assert_eq!(world.said(), "wait Joining");
    world.start(0);
    assert_eq!(world.said(), "Settle");
}

#[test]
fn where_the_data_is_on_no_claim_any_more_no_volume_is_waited_for() {
    let mut world = unrecorded();
    world.input.claims.clear();
    world.input.record.as_mut().unwrap().old_claim = None;
    assert_eq!(world.said(), "Promote");
}

#[test]
fn a_volume_with_the_data_of_a_member_that_is_removed_goes_with_it() {
    let mut world = unrecorded();
    let used = world.claim_uid();
    world.recreate_pod(true);
    let held = world.pod().uid.clone();
    let Next::Act(Step::Renew { record }) = world.next() else {
        panic!("{}", world.said());
    };
    assert_eq!(record.old_claim.as_ref(), Some(&used));
    assert_eq!(record.old_pod, Some(held), "the pod would keep the claim");
    let steps: Vec<String> = (0..5).map(|_| world.step()).collect();
    assert_eq!(
        steps,
        [
            "Renew",
            "RemoveMember",
            "AddLearner",
            "DeleteClaim",
            "DeletePod"
        ]
    );
    assert_ne!(world.claim_uid(), used, "it would never start there");
    assert_eq!(world.step(), "Release");
}

#[test]
fn a_new_claim_on_which_etcd_never_comes_up_is_given_up_as_well() {
    let mut world = World::begun_under_the_removed_id();
    assert_eq!(world.said(), "wait Joining", "it may still come up");
    let failing = world.pod().uid.clone();
    world.input.failing_pods.insert(failing);
    world.gives_up_its_claim_and_joins();
}

/// etcd whose clients and metrics share a port survives what ends it elsewhere: it runs on, under
/// the id that was removed, and answers nobody.
#[test]
fn a_new_claim_on_which_etcd_runs_and_never_joins_is_given_up_after_the_progress_deadline() {
    let mut world = World::begun_under_the_removed_id();
    let deadline = world.snapshot().policy.progress_deadline;
    world.pod().up_for = Some(deadline / 2);
    assert_eq!(world.said(), "wait Joining", "it may still come up");
    world.pod().up_for = Some(deadline);
    world.gives_up_its_claim_and_joins();
}

#[test]
fn a_claim_on_which_the_new_member_has_started_stays_however_often_it_ends() {
    let mut world = World::started();
    let failing = world.pod().uid.clone();
    world.input.failing_pods.insert(failing);
    assert_eq!(world.said(), "Promote");
    world.silence(2);
    assert_eq!(world.said(), "wait Joining");
}

#[test]
fn a_rollout_holds_up_the_replacement_of_a_member_that_serves_and_of_no_other() {
    let mut world = World::new(3);
    world.input.rolling_out = true;
    assert_eq!(world.said(), "wait Rollout");
    world.silence(2);
    assert_eq!(world.said(), "Grant", "the rollout waits for it");
}

#[test]
fn a_volume_that_fails_under_the_new_member_is_given_up_as_the_old_one_was() {
    let mut world = World::started();
    world.silence(2);
    world.input.claims.get_mut(&TARGET.into()).unwrap().lost = true;
    assert_eq!(world.said(), "DeleteClaim");
    world.claim_is("c2-new", true);
    world.input.claims.get_mut(&TARGET.into()).unwrap().lost = false;
    assert_eq!(world.said(), "DeletePod");
}

/// As where the budget is deleted in the middle of a replacement.
#[test]
fn a_learner_whose_record_is_gone_is_promoted_and_one_that_lost_its_data_is_replaced() {
    let forgotten = || {
        let mut world = World::started();
        let seq = world.grants.last_seq();
        world.grants = world.grants.settle(&TARGET.into(), seq).unwrap();
        (world.input.record, world.input.request) = (None, None);
        world
    };
    let mut world = forgotten();
    assert_eq!(world.said(), "Promote");
    world.input.mode = Mode::Off;
    assert_eq!(world.said(), "nothing");
    let mut world = forgotten();
    world.silence(1);
    assert_eq!(world.said(), "nothing", "etcd-1 is needed");
    let mut world = forgotten();
    world.observation.replicas = 2;
    assert_eq!(world.said(), "nothing", "it may be a learner on purpose");
    let mut world = forgotten();
    world.observation.scaled_out_for = Some(Duration::ZERO);
    assert_eq!(world.said(), "nothing", "somebody scales out");

    let mut world = forgotten();
    world.recreate();
    world.pod().recorded_id = Some(MemberId(FIRST_NEW));
    // The new budget has seen two voters.
    world.observation.expected.voters = 2;
    world.input.request = Some(TARGET.into());
    assert_eq!(world.said(), "Grant");
}

#[test]
fn what_the_removed_member_left_behind_goes_also_while_its_pod_is_being_created() {
    let mut world = World::new(3);
    for _ in 0..3 {
        world.step();
    }
    world.pod().containers = Containers::Creating;
    assert_eq!(world.said(), "DeleteClaim");
    let deletion = ClaimDeletion {
        claim: "data-etcd-2".into(),
        members: vec![TARGET.into()],
        terminating: false,
        other_uid: false,
        collected: false,
        waiting_pod: None,
        disowned: None,
        actor: Actor::Gate,
    };
    let verdict = decide_claim(&world.snapshot(), &world.grants, &deletion);
    assert!(matches!(verdict, Verdict::Allow(_)), "{verdict:?}");
    let by_others = ClaimDeletion {
        actor: Actor::Stranger,
        ..deletion
    };
    let verdict = decide_claim(&world.snapshot(), &world.grants, &by_others);
    assert!(matches!(verdict, Verdict::Wait(_)), "{verdict:?}");
}

proptest! {
    /// A gate that ends between any two effects, a step that is carried out twice, and a pod that
    /// is created again meanwhile change nothing: the replacement goes on from what is seen, and
    /// ends. At no moment fewer than a majority of the listed voters serves.
    #[test]
    fn a_replacement_is_resumed_between_any_two_effects(
        twice in prop::collection::vec(any::<bool>(), 20),
        goes in prop::collection::vec(any::<bool>(), 20),
        is_recorded in any::<bool>(),
        leads in any::<bool>(),
    ) {
        let mut world = World::new(3);
        if is_recorded {
            world.input.recorded.insert(TARGET.into(), MemberId(3));
        }
        let rest = std::iter::repeat_n((false, false), 20);
        if leads {
            let to = MemberId(3);
            world.carry_out(&Step::MoveLeader { pod: TARGET.into(), to });
        }
        for (again, goes) in twice.into_iter().zip(goes).chain(rest) {
            // The guard holds the pod only where the volume of another member is on record.
            let new = world.new_member().map(|new| new.id);
            if let (true, false, Some(id)) = (goes, world.is_held(), new)
                && world.written.get(&world.claim_uid()) == Some(&id)
            {
                let recorded = world.input.recorded.get(&TARGET.into());
                let held = recorded.is_some_and(|recorded| *recorded != id);
                world.recreate_pod(held);
            }
            let next = world.next();
            let listed = world.list.iter().filter(|l| !l.learner).count();
            let serving = world.snapshot().members.iter().filter(|m| m.serves_quorum()).count();
            prop_assert!(serving > listed / 2);
            match next {
                Next::Act(step) => {
                    // A lost answer: the effect happened, and the gate knows nothing of it. Only
                    // the effects by compare-and-swap cannot happen twice.
                    let idempotent = matches!(
                        step,
                        Step::DeleteClaim { .. } | Step::RemoveMember { .. } | Step::MoveLeader { .. }
                    );
                    world.carry_out(&step);
                    if again && idempotent {
                        world.carry_out(&step);
                    }
                }
                Next::Wait { .. } if !world.is_held() => world.start(0),
                Next::Wait { because, .. } => prop_assert!(false, "{because}"),
                Next::Nothing => break,
            }
        }
        prop_assert_eq!(world.next(), Next::Nothing);
        prop_assert!(world.new_member().is_some_and(|new| !new.learner));
    }
}

#[test]
fn the_old_member_settles_nothing_though_it_serves() {
    let mut world = World::new(3);
    world.step();
    let record = world.input.record.clone().unwrap();
    let seen = progress(&world.snapshot(), &world.input, &record);
    assert_eq!(seen, ReplacementProgress::Underway);
    let unclaimed = ReplacementInput {
        claims: BTreeMap::new(),
        ..world.input.clone()
    };
    assert_eq!(
        progress(&world.snapshot(), &unclaimed, &record),
        ReplacementProgress::Underway
    );
}

#[test]
fn the_member_that_is_removed_is_the_one_on_record() {
    let mut world = World::new(3);
    world.step();
    let Next::Act(Step::RemoveMember { id, .. }) = world.next() else {
        panic!("{}", world.said());
    };
    assert_eq!(id, MemberId(3));
}

#[test]
fn while_the_old_and_the_new_one_are_listed_a_refusal_waits_and_undoes_nothing() {
    let mut world = World::new(3);
    world.step();
    let old = world.list[2].clone();
    world.list.push(ListedMember {
        id: MemberId(9),
        name: String::new(),
        learner: false,
        ..old
    });
    world.input.rolling_out = true;
    assert_eq!(world.said(), "wait Rollout");
}

#[test]
fn where_the_pod_changes_the_member_list_only_the_first_delete_is_judged_again() {
    let by_pod = || {
        let mut world = World::new(3);
        world.input.membership = MembershipBy::Sidecar;
        world
    };
    let mut world = by_pod();
    world.step();
    world.input.rolling_out = true;
    assert_eq!(world.said(), "undo Rollout");
    world.input.rolling_out = false;
    world.step();
    world.input.rolling_out = true;
    assert_eq!(world.said(), "DeletePod");
    let mut without_a_claim = by_pod();
    without_a_claim.input.claims.clear();
    without_a_claim.step();
    without_a_claim.input.rolling_out = true;
    assert_eq!(without_a_claim.said(), "undo Rollout");
}

#[test]
fn a_claim_or_a_pod_that_goes_again_is_waited_for() {
    let mut world = World::new(3);
    for _ in 0..5 {
        world.step();
    }
    let claim = world.input.claims.clone();
    world.input.claims.get_mut(&TARGET.into()).unwrap().state = ClaimState::Gone;
    assert_eq!(world.said(), "wait Recreation");
    world.input.claims = claim;
    world.pod().terminating = true;
    assert_eq!(world.said(), "wait Recreation");
    world.pod().terminating = false;
    assert_eq!(world.said(), "Release");
}

#[test]
fn a_replacement_serves_with_a_new_pod_a_new_claim_and_a_new_id() {
    let replaced = |change: &dyn Fn(&mut World)| {
        let mut world = World::new(3);
        let mut steps = 0;
        while world.input.record.is_none() || world.said() != "Settle" {
            if world.step() == "wait Joining" {
                world.start(0);
            }
            steps += 1;
            assert!(steps < 20, "it never settles");
        }
        change(&mut world);
        let record = world.input.record.clone().unwrap();
        progress(&world.snapshot(), &world.input, &record)
    };
    assert_eq!(replaced(&|_| {}), ReplacementProgress::Serves);
    let of_record = |world: &mut World, change: &dyn Fn(&mut Record)| {
        change(world.input.record.as_mut().unwrap());
    };
    assert_eq!(
        replaced(&|w| of_record(w, &|r| r.old_pod = Some("uid-2-new".into()))),
        ReplacementProgress::Underway
    );
    assert_eq!(
        replaced(&|w| of_record(w, &|r| r.old_claim = Some("c2-new".into()))),
        ReplacementProgress::Underway
    );
    assert_eq!(
        replaced(&|w| w.claim_is("c2-new", true)),
        ReplacementProgress::Underway
    );
    let same_id = |w: &mut World| of_record(w, &|r| r.old_id = Some(MemberId(9)));
    assert_eq!(replaced(&same_id), ReplacementProgress::Underway);
    // A sidecar may add the member again under any id.
    let by_pod = |w: &mut World| {
        same_id(w);
        w.input.membership = MembershipBy::Sidecar;
    };
    assert_eq!(replaced(&by_pod), ReplacementProgress::Serves);
}

#[test]
fn steps_and_refusals_tell_what_they_know() {
    let joining = |behind| Refusal::Joining { behind }.to_string();
    assert_eq!(joining(Some(7)), "it catches up and is 7 entries behind");
    assert_eq!(joining(None), "it starts and joins");
    for (data, says) in [
        (Comparison::Same, "all voters have the same data"),
        (Comparison::Disagreement, "more than one member differs"),
        (Comparison::Unknown, "could not be compared"),
    ] {
        let told = Refusal::NotShown { data }.to_string();
        assert!(told.contains(says), "{told}");
    }
    assert_eq!(Proof::VolumeLost.slug(), "VolumeLost");
    let mut world = World::new(3);
    world.input.claims.get_mut(&TARGET.into()).unwrap().lost = true;
    let Next::Act(step) = world.next() else {
        panic!("{}", world.said());
    };
    assert!(
        step.to_string()
            .ends_with("its claim or its volume is gone"),
        "{step}"
    );
}

#[test]
fn a_pod_that_was_never_a_members_has_no_data_to_lose() {
    let mut world = World::new(3);
    let mut lost = claim("c7");
    lost.lost = true;
    let stranger = PodName::new("etcd-7");
    world.input.claims.insert(stranger.clone(), lost.clone());
    assert_eq!(
        Proof::against(&stranger, &world.snapshot(), &world.input),
        None
    );
    // A member is one also where nothing is on record.
    world.input.claims.insert(TARGET.into(), lost);
    world.pod().recorded_id = None;
    let proof = Proof::against(&TARGET.into(), &world.snapshot(), &world.input);
    assert_eq!(proof, Some(Proof::VolumeLost));
}

#[test]
fn a_member_is_gone_from_the_list_if_neither_its_id_nor_its_name_nor_its_address_is_there() {
    let gone = |change: &dyn Fn(&mut World)| {
        let mut world = World::new(3);
        world.input.recorded = BTreeMap::from([(TARGET.into(), MemberId(3))]);
        world.list.pop();
        change(&mut world);
        world.input.list = Some(world.list.clone());
        world.input.lists_no_more(&TARGET.into(), &world.snapshot())
    };
    let listed = |id: u64, name: &str, url: &str| ListedMember {
        id: MemberId(id),
        name: name.into(),
        learner: false,
        peer_urls: vec![url.into()],
        client_urls: Vec::new(),
    };
    assert!(gone(&|_| {}));
    assert!(!gone(&|w| w.input.recorded.clear()));
    assert!(!gone(&|w| w.list.push(listed(
        3,
        "other",
        "https://other:2380"
    ))));
    assert!(!gone(&|w| w.list.push(listed(
        9,
        TARGET,
        "https://other:2380"
    ))));
    let expected = listed(9, "", "https://etcd-2.etcd:2380");
    let on = |volume: VolumeFinding| {
        gone(&|w| {
            w.list.push(expected.clone());
            w.input.claims.get_mut(&TARGET.into()).unwrap().volume = volume.clone();
        })
    };
    assert!(on(VolumeFinding::AsRecorded), "on old data it never starts");
    assert!(!on(VolumeFinding::Unknown));
    assert!(gone(&|w| w.list.push(listed(
        9,
        "",
        "https://etcd-3.etcd:2380"
    ))));
}

#[test]
fn only_where_the_gate_adds_the_member_again_its_peer_urls_have_to_be_known() {
    let said = |membership| {
        let mut world = World::new(3);
        world.input.membership = membership;
        world.list.pop();
        world.silence(2);
        for listed in &mut world.list {
            listed.peer_urls = vec!["https://10.0.0.1:2380".into()];
        }
        world.said()
    };
    assert_eq!(said(MembershipBy::Gate), "wait PeerURLsUnknown");
    assert_eq!(said(MembershipBy::Sidecar), "Grant");
}

/// A cluster whose members have their data in their pods.
fn in_pods() -> World {
    let mut world = World::new(3);
    world
        .input
        .claims
        .values_mut()
        .for_each(|claim| claim.place = Place::Pod);
    world.input.recorded.insert(TARGET.into(), MemberId(3));
    world.input.request = None;
    world.input.mode = Mode::Off;
    world.input.replaces_in_pod = true;
    world
}

impl World {
    /// The pod goes with the data that is in it, and another one waits.
    fn loses_its_pod(&mut self) {
        self.recreate_pod(true);
        let claim = self.input.claims.get_mut(&TARGET.into()).unwrap();
        claim.volume = VolumeFinding::Wrong {
            volume: Volume::in_pod("another"),
            difference: Difference::NewPod,
        };
    }
}

#[test]
fn a_member_whose_data_went_with_its_pod_is_replaced_whatever_the_mode() {
    let mut world = in_pods();
    assert_eq!(world.said(), "nothing");
    world.loses_its_pod();
    let steps: Vec<String> = (0..4).map(|_| world.step()).collect();
    assert_eq!(steps, ["Grant", "RemoveMember", "AddLearner", "Release"]);
    world.start(0);
    let steps: Vec<String> = (0..3).map(|_| world.step()).collect();
    assert_eq!(steps, ["RecordVolume", "Promote", "Settle"]);

    let mut kept = in_pods();
    kept.input.replaces_in_pod = false;
    kept.loses_its_pod();
    assert_eq!(kept.said(), "wait Off");
}

#[test]
fn a_member_with_its_data_in_its_pod_is_replaced_on_request_without_a_claim() {
    let mut world = in_pods();
    world.input.mode = Mode::Manual;
    world.input.request = Some(TARGET.into());
    let steps: Vec<String> = (0..5).map(|_| world.step()).collect();
    let expected = [
        "Grant",
        "RemoveMember",
        "AddLearner",
        "DeletePod",
        "Release",
    ];
    assert_eq!(steps, expected);
    world.start(0);
    let steps: Vec<String> = (0..3).map(|_| world.step()).collect();
    assert_eq!(steps, ["RecordVolume", "Promote", "Settle"]);
}

#[test]
fn a_member_that_has_another_name_than_its_pod_is_promoted() {
    let mut world = World::started();
    for listed in world.list.iter_mut().filter(|l| l.id.0 >= FIRST_NEW) {
        listed.name = "m2".into();
    }
    let steps: Vec<String> = (0..2).map(|_| world.step()).collect();
    assert_eq!(steps, ["Promote", "Settle"]);
}

impl World {
    /// Makes etcd end over and over in the pod of this ordinal.
    fn ends_over_and_over(&mut self, n: usize, exit: Exit, minutes: u64) {
        self.silence(n);
        let lasted = Duration::from_mins(minutes);
        let uid = self.observation.pods[n].uid.clone();
        self.input
            .crash_loops
            .insert(uid, CrashLoop { exit, lasted });
    }

    /// A cluster in which nobody asks for a replacement.
    fn unasked(mode: Mode) -> Self {
        let mut world = Self::new(3);
        (world.input.mode, world.input.request) = (mode, None);
        world
    }
}

#[test]
fn a_member_that_ends_on_its_data_is_replaced_after_a_while() {
    let mut world = World::unasked(Mode::Auto);
    world.ends_over_and_over(2, Exit::ByItself, 14);
    assert_eq!(world.said(), "wait MayRecover");
    world.ends_over_and_over(2, Exit::ByItself, 15);
    let Next::Act(Step::Grant { record, proof }) = world.next() else {
        panic!("{:?}", world.next());
    };
    assert_eq!(
        (record.member.as_str(), proof),
        (TARGET, Some(Proof::CrashLoop))
    );
}

#[test]
fn a_member_that_ends_on_its_data_is_replaced_at_once_on_request() {
    let mut world = World::unasked(Mode::Manual);
    world.ends_over_and_over(2, Exit::ByItself, 1);
    assert_eq!(world.said(), "wait NotRequested");
    world.input.request = Some(TARGET.into());
    assert_eq!(world.said(), "Grant");
}

#[test]
fn a_member_that_memory_or_a_probe_ends_is_never_replaced_unasked() {
    for exit in [Exit::Memory, Exit::FromOutside] {
        let mut world = World::unasked(Mode::Auto);
        world.ends_over_and_over(2, exit, 600);
        assert_eq!(world.said(), "nothing", "{exit:?}");
    }
}

#[test]
fn a_member_whose_revision_nobody_serves_with_is_never_replaced_unasked() {
    let mut world = World::unasked(Mode::Auto);
    world.ends_over_and_over(2, Exit::ByItself, 600);
    world.pod().revision = Some("another".into());
    assert_eq!(world.said(), "nothing");
}

#[test]
fn a_member_whose_revision_fails_elsewhere_is_never_replaced_unasked() {
    let mut world = World::unasked(Mode::Auto);
    world.observation = example::healthy("etcd", 5);
    world.list = world.observation.round.probes[0].members.clone().unwrap();
    world.ends_over_and_over(2, Exit::ByItself, 600);
    world.ends_over_and_over(4, Exit::FromOutside, 600);
    assert_eq!(world.said(), "nothing");
}

#[test]
fn a_member_that_ends_on_its_data_waits_until_all_others_serve() {
    let mut world = World::unasked(Mode::Auto);
    world.observation = example::healthy("etcd", 5);
    world.list = world.observation.round.probes[0].members.clone().unwrap();
    world.ends_over_and_over(2, Exit::ByItself, 600);
    world.silence(4);
    assert_eq!(world.said(), "wait NotAllServing");
}

#[test]
fn a_member_that_serves_between_its_ends_is_not_replaced_unasked() {
    let mut world = World::unasked(Mode::Auto);
    let uid = world.pod().uid.clone();
    let (exit, lasted) = (Exit::ByItself, Duration::from_mins(600));
    world
        .input
        .crash_loops
        .insert(uid, CrashLoop { exit, lasted });
    assert_eq!(world.said(), "nothing");
}
