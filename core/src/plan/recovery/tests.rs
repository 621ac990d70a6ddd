use super::*;
use crate::quorum::evidence::{Probe, Target, Unanswered};
use crate::quorum::pod::{Containers, Node};
use crate::quorum::{Observation, Volume, example};

/// A cluster of which the first member alone answers, and names no leader. The claims of the others
/// are gone, and their pods wait.
struct Loss {
    observation: Observation,
    input: RecoveryInput,
}

fn claim(state: ClaimState, volume: VolumeFinding) -> ClaimFacts {
    ClaimFacts {
        state,
        lost: false,
        volume,
        place: Place::Claim,
    }
}

fn here(n: u32) -> ClaimState {
    ClaimState::Here {
        uid: format!("c{n}"),
        terminating: false,
    }
}

impl Loss {
    fn new(voters: u32) -> Self {
        let observation = example::healthy("etcd", voters);
        let mut claims = BTreeMap::new();
        for n in 0..voters {
            let pod = PodName::new(format!("etcd-{n}"));
            claims.insert(pod, claim(here(n), VolumeFinding::AsRecorded));
        }
        let mut loss = Self {
            input: RecoveryInput {
                request: Some(Ok(id(&observation, 0))),
                recorded: BTreeMap::new(),
                versions: vec!["3.6.16".parse().unwrap()],
                wanted: voters,
                membership: MembershipBy::Gate,
                only_warns: false,
                bootstraps: false,
                management: PodManagement::Parallel,
                cannot_start: None,
                is_forced: false,
                list: None,
                claims,
                held_pods: BTreeSet::new(),
                record: None,
            },
            observation,
        };
        for (n, pod) in (0..).zip(&loss.observation.pods) {
            let id = id(&loss.observation, n);
            loss.input.recorded.insert(pod.name.clone(), id);
        }
        loss.answers_without_leader(0);
        for n in 1..voters {
            loss.loses(n);
        }
        loss
    }

    fn answers_without_leader(&mut self, n: usize) {
        let probe = &mut self.observation.round.probes[n];
        probe.status.as_mut().unwrap().leader = None;
        probe.read = Err(Unanswered::NoLeader);
    }

    fn loses(&mut self, n: u32) {
        let index = usize::try_from(n).unwrap();
        let pod = &mut self.observation.pods[index];
        pod.containers = Containers::Unreported;
        pod.node = Node::Unscheduled;
        self.input.held_pods.insert(pod.uid.clone());
        let lost = VolumeFinding::Wrong {
            volume: Volume::in_pod("new"),
            difference: Difference::NewClaim,
        };
        let name = pod.name.clone();
        self.input.claims.insert(name, claim(here(n), lost));
        let target = self.observation.round.probes[index].target.clone();
        self.observation.round.probes[index] = Probe::unanswered(target, Unanswered::Refused);
    }

    /// The member answers as the only one that it lists.
    fn is_alone(&mut self) {
        let id = id(&self.observation, 0);
        let mut healthy = example::healthy("etcd", 1).round.probes.pop().unwrap();
        healthy.target = self.observation.round.probes[0].target.clone();
        let mut list = healthy.members.clone().unwrap();
        list.retain(|one| one.id == id);
        self.observation.round.probes[0] = healthy;
        self.input.list = Some(list);
    }

    /// The pod was created again.
    fn comes_back_as(&mut self, uid: &str) {
        self.observation.pods[0].uid = uid.into();
        self.observation.round.probes[0].target = Target::Pod(uid.into());
    }

    fn next(&self) -> Next {
        let snapshot = Snapshot::assemble(&self.observation);
        next(&snapshot, &Grants::default(), &self.input)
    }

    fn acts(&self) -> Step {
        match self.next() {
            Next::Act(step) => step,
            other => panic!("{other:?}"),
        }
    }

    fn waits(&self) -> &'static str {
        match self.next() {
            Next::Wait(because) => because.slug(),
            other => panic!("{other:?}"),
        }
    }
}

fn id(observation: &Observation, n: usize) -> MemberId {
    observation.round.probes[n]
        .status
        .as_ref()
        .unwrap()
        .member_id
}

#[test]
fn one_of_three_or_of_five_starts_alone_then_without_the_setting_and_then_the_others_join() {
    for voters in [3, 5] {
        let mut loss = Loss::new(voters);
        let Step::Begin(record) = loss.acts() else {
            panic!("{:?}", loss.next());
        };
        assert_eq!(
            (record.member.as_str(), record.phase),
            ("etcd-0", Phase::Alone)
        );
        loss.input.record = Some(record.clone());
        // The record gives up the votes of the others.
        loss.observation.expected.voters = 1;
        assert!(matches!(loss.acts(), Step::DeletePod(pod) if pod.uid == record.pod));

        loss.comes_back_as("alone");
        assert!(
            matches!(loss.acts(), Step::DeletePod(_)),
            "it lacks the setting"
        );
        loss.input.is_forced = true;
        assert_eq!(loss.waits(), "Starting");
        loss.is_alone();
        let Step::StartAgain(record) = loss.acts() else {
            panic!("{:?}", loss.next());
        };
        loss.input.record = Some(record);
        assert!(matches!(loss.acts(), Step::DeletePod(_)));
        // Its container may have started again meanwhile, or its pod was made by an old answer.
        loss.comes_back_as("again");
        assert!(
            matches!(loss.acts(), Step::DeletePod(_)),
            "it has the setting"
        );
        loss.input.is_forced = false;
        let Step::Rejoin(record) = loss.acts() else {
            panic!("{:?}", loss.next());
        };
        loss.input.record = Some(record);
        assert_eq!(loss.waits(), "Rejoining");
    }
}

#[test]
fn a_quorum_that_comes_back_before_anything_was_forgotten_ends_it() {
    let mut loss = Loss::new(3);
    let Step::Begin(record) = loss.acts() else {
        panic!();
    };
    loss.observation = example::healthy("etcd", 3);
    loss.observation.expected.voters = 1;
    loss.input.list = loss.observation.round.probes[0].members.clone().ok();
    loss.input.record = Some(record);
    assert!(matches!(loss.acts(), Step::Abandon(_)));
}

#[test]
fn it_ends_when_etcd_lists_as_many_voters_as_there_are_replicas() {
    let mut loss = Loss::new(3);
    let Step::Begin(mut record) = loss.acts() else {
        panic!();
    };
    record.phase = Phase::Rejoining;
    loss.input.record = Some(record);
    let all = example::healthy("etcd", 3).round.probes[0]
        .members
        .clone()
        .unwrap();
    loss.input.list = Some(all[..2].to_vec());
    assert_eq!(loss.waits(), "Rejoining");
    let mut learning = all.clone();
    learning[2].learner = true;
    loss.input.list = Some(learning);
    assert_eq!(loss.waits(), "Rejoining");
    loss.input.list = Some(all.clone());
    assert!(matches!(loss.acts(), Step::Finish(_)));
    // Nobody gives a list, or the cluster sleeps.
    loss.input.list = None;
    assert_eq!(loss.waits(), "Starting");
    (loss.input.list, loss.input.wanted) = (Some(all.clone()), 0);
    assert_eq!(loss.waits(), "Rejoining");
    // The budget asks for fewer.
    (loss.input.list, loss.input.wanted) = (Some(all[..1].to_vec()), 1);
    assert!(matches!(loss.acts(), Step::Finish(_)));
}

#[test]
fn nothing_begins_while_a_majority_may_come_back() {
    let refused = |change: &dyn Fn(&mut Loss)| {
        let mut loss = Loss::new(3);
        change(&mut loss);
        loss.waits()
    };
    let own = |loss: &mut Loss, n: usize| {
        let name = loss.observation.pods[n].name.clone();
        let index = u32::try_from(n).unwrap();
        let claim = claim(here(index), VolumeFinding::AsRecorded);
        loss.input.claims.insert(name, claim);
    };
    assert_eq!(refused(&|loss| own(loss, 1)), "MayReturn");
    // Something runs on the new volume.
    assert_eq!(refused(&|loss| loss.input.held_pods.clear()), "MayReturn");
    // Nobody knows what it has.
    assert_eq!(
        refused(&|loss| drop(loss.input.claims.remove(&"etcd-2".into()))),
        "MayReturn"
    );
    let healthy = |loss: &mut Loss| {
        let request = loss.input.request.clone();
        loss.observation = example::healthy("etcd", 3);
        loss.input.request = request;
    };
    assert_eq!(refused(&healthy), "QuorumKept");
    let one_answers =
        |loss: &mut Loss| loss.observation.round.probes[0].status = Err(Unanswered::Deadline);
    assert_eq!(refused(&one_answers), "Silent");

    let mut five = Loss::new(5);
    own(&mut five, 1);
    assert!(
        matches!(five.acts(), Step::Begin(_)),
        "two of five are no majority"
    );
    own(&mut five, 2);
    assert_eq!(five.waits(), "MayReturn");
}

#[test]
fn nothing_begins_with_a_member_that_cannot_start_alone() {
    let refused = |change: &dyn Fn(&mut RecoveryInput)| {
        let mut loss = Loss::new(3);
        change(&mut loss.input);
        loss.waits()
    };
    let unknown = |i: &mut RecoveryInput| i.request = Some(Ok(MemberId(77)));
    assert_eq!(refused(&unknown), "NoSuchMember");
    let goes = |i: &mut RecoveryInput| {
        let own = i.claims.get_mut(&PodName::new("etcd-0")).unwrap();
        own.state = ClaimState::Gone;
    };
    assert_eq!(refused(&goes), "NoData");
    let old = |i: &mut RecoveryInput| i.request = Some(Err(Refusal::Expired("a".into())));
    assert_eq!(refused(&old), "Expired");
    let defective = |i: &mut RecoveryInput| i.versions = vec!["3.5.19".parse().unwrap()];
    assert_eq!(refused(&defective), "Defect");
    assert_eq!(refused(&|i| i.only_warns = true), "OnlyWarns");
    assert_eq!(refused(&|i| i.bootstraps = true), "Bootstrap");
    assert_eq!(refused(&|i| i.membership = MembershipBy::Pod), "Membership");
    assert_eq!(
        refused(&|i| i.cannot_start = Some("a file".into())),
        "CannotStart"
    );
    let place = |place| {
        move |i: &mut RecoveryInput| {
            let own = i.claims.get_mut(&PodName::new("etcd-0")).unwrap();
            own.place = place;
        }
    };
    assert_eq!(refused(&place(Place::Pod)), "NoData");
    assert_eq!(
        refused(&|i| i.claims.get_mut(&PodName::new("etcd-0")).unwrap().lost = true),
        "NoData"
    );
    let mut ordered = Loss::new(3);
    ordered.input.management = PodManagement::OrderedReady;
    assert!(
        matches!(ordered.acts(), Step::Begin(_)),
        "the first pod comes first"
    );
    ordered.observation.first_ordinal = 1;
    assert_eq!(ordered.waits(), "Ordered");
    assert_eq!(
        {
            let mut nobody = Loss::new(3);
            nobody.input.request = None;
            nobody.next()
        },
        Next::Nothing
    );
}

/// A member that was started without a quorum may answer nothing.
#[test]
fn a_survivor_that_listens_and_never_answers_starts_alone_by_its_id_on_record() {
    let mut loss = Loss::new(3);
    let id = id(&loss.observation, 0);
    let target = loss.observation.round.probes[0].target.clone();
    loss.observation.round.probes[0] = Probe::unanswered(target, Unanswered::Mute);
    let Step::Begin(record) = loss.acts() else {
        panic!("{:?}", loss.next());
    };
    assert_eq!(record.id, id);
}

#[test]
fn while_the_chosen_member_cannot_start_its_pod_is_left_alone_and_another_may_be_chosen() {
    let mut loss = Loss::new(5);
    let Step::Begin(record) = loss.acts() else {
        panic!();
    };
    loss.input.record = Some(record);
    // The setting could not be given to the next pod.
    let change = |loss: &mut Loss, change: &dyn Fn(&mut RecoveryInput)| {
        let before = loss.input.clone();
        change(&mut loss.input);
        let waits = loss.waits();
        loss.input = before;
        waits
    };
    assert_eq!(change(&mut loss, &|i| i.bootstraps = true), "Bootstrap");
    assert_eq!(
        change(&mut loss, &|i| i.membership = MembershipBy::Owner),
        "Membership"
    );
    assert_eq!(
        change(&mut loss, &|i| i.cannot_start = Some("a file".into())),
        "CannotStart"
    );
    // While it may have its data, nobody else starts alone.
    let (first, open) = (loss.input.request.clone(), loss.input.clone());
    loss.input.request = Some(Ok(id(&example::healthy("etcd", 5), 1)));
    assert!(!matches!(loss.next(), Next::Act(Step::Begin(_))));
    loss.input = open;
    loss.input.request = first;
    // It has lost its volume as well, so its next pod waits, and the other survivor is asked for.
    loss.comes_back_as("empty");
    loss.loses(0);
    loss.input.held_pods.insert("empty".into());
    assert_eq!(loss.waits(), "NoData");
    let other = PodName::new("etcd-1");
    loss.input.held_pods.remove(&loss.observation.pods[1].uid);
    loss.input
        .claims
        .insert(other.clone(), claim(here(1), VolumeFinding::AsRecorded));
    loss.observation.pods[1] = example::healthy("etcd", 5).pods[1].clone();
    loss.observation.round.probes[1] = example::healthy("etcd", 5).round.probes[1].clone();
    loss.answers_without_leader(1);
    loss.input.request = Some(Ok(id(&loss.observation, 1)));
    let Step::Begin(record) = loss.acts() else {
        panic!("{:?}", loss.next());
    };
    assert_eq!(record.member, other);
}

#[test]
fn a_request_that_is_withdrawn_before_anything_was_changed_ends_it() {
    let mut loss = Loss::new(3);
    let Step::Begin(record) = loss.acts() else {
        panic!();
    };
    loss.input.record = Some(record);
    loss.input.request = None;
    assert!(matches!(loss.acts(), Step::Abandon(_)));
    // Its old pod is gone, so it may have started alone.
    loss.comes_back_as("alone");
    assert!(matches!(loss.acts(), Step::DeletePod(_)));
}

/// A StatefulSet may have the members of higher ordinals of a cluster that spans two of Kubernetes.
#[test]
fn members_elsewhere_that_are_named_like_pods_may_have_a_quorum() {
    let mut loss = Loss::new(3);
    loss.input.recorded.remove(&PodName::new("etcd-1"));
    assert_eq!(loss.waits(), "MayReturn");
    let mut mute = Loss::new(3);
    mute.observation.first_ordinal = 3;
    let target = mute.observation.round.probes[0].target.clone();
    mute.observation.round.probes[0] = Probe::unanswered(target, Unanswered::Mute);
    assert_eq!(mute.waits(), "Silent");
}

#[test]
fn only_a_template_with_the_setting_keeps_a_member_that_started_alone_from_starting_again() {
    let mut loss = Loss::new(3);
    let Step::Begin(mut record) = loss.acts() else {
        panic!();
    };
    record.phase = Phase::Again;
    loss.input.record = Some(record);
    loss.input.membership = MembershipBy::Pod;
    loss.input.only_warns = true;
    assert!(matches!(loss.acts(), Step::DeletePod(_)));
    loss.observation.circumstances.forces_new_cluster = true;
    assert_eq!(loss.waits(), "CannotStart");
}
