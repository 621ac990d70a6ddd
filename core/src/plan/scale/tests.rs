use super::*;
use crate::quorum::evidence::{Probe, Target, Unanswered};
use crate::quorum::pod::Pod;
use crate::quorum::{
    Actor, Allowance, GrantKind, Observation, PodUid, SmallCluster, Verdict, example,
};
use proptest::prelude::*;

/// A cluster whose etcd and Kubernetes carry out the steps. The pods follow when they are told.
struct World {
    observation: Observation,
    input: ScaleInput,
    grants: Grants,
    list: Vec<ListedMember>,
    added: u64,
    /// The pods that were permitted to go and are not back.
    out: BTreeSet<PodName>,
    /// The steps that were made.
    steps: Vec<String>,
}

impl World {
    fn new(voters: u32, count: u32) -> Self {
        let observation = example::healthy("etcd", voters);
        let list = observation.round.probes[0].members.clone().unwrap();
        Self {
            input: ScaleInput {
                count,
                membership: MembershipBy::Gate,
                owner: None,
                first: Ordinal(0),
                rolling_out: false,
                replacing: None,
                is_labelled: true,
                only_warns: false,
                replace: Mode::Manual,
                cannot_join: None,
                failing_pods: BTreeSet::new(),
                handover: Handover::Possible,
                list: Some(list.clone()),
                versions: vec!["3.6.16".parse().unwrap()],
                recorded: BTreeSet::new(),
                left_claims: BTreeMap::new(),
            },
            observation,
            grants: Grants::default(),
            list,
            added: 0,
            out: BTreeSet::new(),
            steps: Vec::new(),
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::assemble(&self.observation)
    }

    fn next(&self) -> Next {
        next(&self.snapshot(), &self.grants, &self.input)
    }

    fn waits(&self) -> &'static str {
        match self.next() {
            Next::Wait(because) => because.slug(),
            other => panic!("{other:?}"),
        }
    }

    /// The members answer with the list as it is. Learners serve what they have, and give no list.
    fn answer(&mut self) {
        self.input.list = Some(self.list.clone());
        let voters = self.list.iter().filter(|one| !one.learner).count();
        let voters = u32::try_from(voters).unwrap();
        self.observation.expected = self
            .observation
            .expected
            .observe(voters, self.observation.replicas);
        let index = |one: &ListedMember| Ordinal::from_pod(&PodName::new(&*one.name)).unwrap().0;
        let leader = self
            .list
            .iter()
            .find(|one| !one.name.is_empty() && !one.learner)
            .unwrap()
            .id;
        let started = self.list.iter().filter(|one| !one.name.is_empty());
        let probes = started.map(|one| {
            let like = example::healthy("etcd", index(one) + 1)
                .round
                .probes
                .pop()
                .unwrap();
            let mut status = like.status.clone().unwrap();
            status.member_id = one.id;
            status.leader = Some(leader);
            status.learner = one.learner;
            Probe {
                read: if one.learner {
                    Err(Unanswered::Learner)
                } else {
                    like.read.clone()
                },
                members: if one.learner {
                    Err(Unanswered::Learner)
                } else {
                    Ok(self.list.clone())
                },
                status: Ok(status),
                target: like.target,
            }
        });
        let mut probes: Vec<Probe> = probes.collect();
        for (probe, one) in probes
            .iter_mut()
            .zip(self.list.iter().filter(|one| !one.name.is_empty()))
        {
            if self.out.contains(&PodName::new(&*one.name)) {
                *probe = Probe::unanswered(probe.target.clone(), Unanswered::Deadline);
            }
        }
        self.observation.round.probes = probes;
        for pod in &mut self.observation.pods {
            pod.terminating = self.out.contains(&pod.name);
        }
    }

    /// A pod per replica, and in each the member that etcd expects there.
    fn follow(&mut self) {
        let replicas = self.observation.replicas;
        let pods = (0..replicas).map(|n| example::healthy("etcd", n + 1).pods.pop().unwrap());
        self.observation.pods = pods.collect::<Vec<Pod>>();
        for one in &mut self.list {
            let pod = PodName::of_url("etcd", &one.peer_urls[0]).unwrap();
            if Ordinal::from_pod(&pod).unwrap().0 < replicas {
                one.name = pod.to_string();
            }
        }
        for pod in &mut self.observation.pods {
            let of = self.list.iter().find(|one| one.name == pod.name.as_str());
            pod.recorded_id = of.map(|one| one.id);
        }
        self.answer();
    }

    /// Makes the next step. The result is whether there was one.
    fn step(&mut self) -> bool {
        let Next::Act(step) = self.next() else {
            return false;
        };
        self.steps.push(step.to_string());
        match step {
            Step::AddLearner { peer_urls, .. } => {
                assert!(self.list.iter().all(|one| !one.learner), "two at once");
                self.added += 1;
                self.list.push(ListedMember {
                    id: MemberId(100 + self.added),
                    name: String::new(),
                    learner: true,
                    client_urls: Vec::new(),
                    peer_urls,
                });
            }
            Step::SetReplicas(to) => {
                let from = self.observation.replicas;
                assert_eq!(from.abs_diff(to), 1);
                let top = format!("etcd-{}", from - 1);
                assert!(
                    to > from || self.list.iter().all(|one| one.name != top),
                    "a member's"
                );
                self.observation.replicas = to;
            }
            Step::Promote { id, .. } => {
                self.list
                    .iter_mut()
                    .find(|one| one.id == id)
                    .unwrap()
                    .learner = false;
            }
            Step::DeletePod(pod) => panic!("{pod:?} joins"),
            Step::MoveLeader { .. } => panic!("the first one leads"),
            Step::RemoveMember { pod, id } => {
                let what = GrantKind::Delete {
                    uid: pod.uid,
                    rollout: false,
                };
                self.grants = self
                    .grants
                    .issue(&pod.name, what, "gate".into(), String::new());
                self.list.retain(|one| one.id != id);
            }
            Step::Withdraw { id, .. } => self.list.retain(|one| one.id != id),
        }
        self.answer();
        true
    }

    /// A request for a pod, which goes if it may.
    fn ask(&mut self, ordinal: u32) {
        let Some(pod) = self
            .observation
            .pods
            .iter()
            .find(|pod| pod.ordinal == Some(Ordinal(ordinal)))
        else {
            return;
        };
        let target = TargetPod {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        };
        let asked = Disruption {
            precondition: None,
            actor: Actor::Stranger,
            ..Disruption::of_gate(target, Kind::Delete)
        };
        let verdict = decide(&self.snapshot(), &self.grants, &asked);
        if let Verdict::Allow(Allowance::Grant(_)) = verdict {
            let what = GrantKind::Delete {
                uid: asked.target.uid.clone(),
                rollout: false,
            };
            let name = asked.target.name;
            self.grants = self.grants.issue(&name, what, "anna".into(), String::new());
            self.out.insert(name);
            self.answer();
        }
    }

    /// The pods that went are back, or gone for good, and their grants settle.
    fn come_back(&mut self) {
        self.out.clear();
        let all: Vec<(PodName, u64)> = self
            .grants
            .iter()
            .flat_map(|(pod, grant)| grant.causes.iter().map(|c| (pod.clone(), c.seq)))
            .collect();
        for (pod, seq) in all {
            self.grants = self.grants.settle(&pod, seq).unwrap();
        }
        self.follow();
    }

    /// Whether a majority of the voters that etcd lists is not out.
    fn has_majority(&self) -> bool {
        let voters = self.list.iter().filter(|one| !one.learner);
        let names: Vec<PodName> = voters.map(|one| PodName::new(&*one.name)).collect();
        let here = names.iter().filter(|name| !self.out.contains(name)).count();
        here > names.len() / 2
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            if !self.step() {
                return;
            }
            self.come_back();
        }
        panic!("it never ends: {:?}", self.steps);
    }

    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.list.iter().map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        names
    }
}

#[test]
fn from_one_to_five_and_back_one_member_joins_or_leaves_at_a_time() {
    let mut world = World::new(1, 3);
    for count in [3, 5, 3, 1] {
        world.input.count = count;
        world.settle();
        assert_eq!(world.next(), Next::Done, "{count}");
        assert_eq!(world.observation.replicas, count);
        assert_eq!(world.list.len(), count as usize);
        assert!(world.list.iter().all(|one| !one.learner));
    }
    assert_eq!(world.names(), ["etcd-0"]);
    let first: Vec<&str> = world.steps.iter().take(3).map(String::as_str).collect();
    let expected = [
        "add etcd-1 as a learner at https://etcd-1:2380",
        "set the replicas to 2",
        "promote member 65 of etcd-1",
    ];
    assert_eq!(first, expected);
    let last: Vec<&str> = world
        .steps
        .iter()
        .rev()
        .take(2)
        .map(String::as_str)
        .collect();
    assert_eq!(last[0], "set the replicas to 1");
    assert!(last[1].starts_with("remove member"), "{last:?}");
}

proptest! {
    /// Whenever the wish changes and whenever the pods follow, the number of voters moves by one,
    /// no pod of a member is given up, and in the end there are as many as asked for.
    #[test]
    fn whenever_the_mind_changes_it_ends_at_the_last_wish(
        from in 1_u32..=5,
        wishes in prop::collection::vec((1_u32..=5, 0_usize..6, any::<bool>()), 1..6),
    ) {
        let mut world = World::new(from, from);
        for (count, steps, follows) in wishes {
            world.input.count = count;
            for _ in 0..steps {
                if !world.step() || follows {
                    world.follow();
                }
            }
        }
        world.come_back();
        world.settle();
        prop_assert_eq!(world.next(), Next::Done);
        prop_assert_eq!(world.observation.replicas, world.input.count);
        prop_assert_eq!(world.list.len(), world.input.count as usize);
    }
}

proptest! {
    /// Between any two steps anything is asked for, and pods follow and come back at any time: a
    /// majority of the voters that etcd lists at that moment is not permitted to be out.
    #[test]
    fn no_order_of_deletes_and_steps_takes_the_majority(
        from in 1_u32..=5,
        moves in prop::collection::vec((0_u8..6, 0_u32..6), 1..40),
    ) {
        let mut world = World::new(from, from);
        // A cluster of one is its owner's to restart.
        world.observation.policy.single_member = SmallCluster::Never;
        for (what, which) in moves {
            match what {
                0 => world.input.count = which.clamp(1, 5),
                1 | 2 => world.ask(which),
                3 => world.come_back(),
                _ => drop(world.step()),
            }
            prop_assert!(world.has_majority(), "{:?} of {:?} are out", world.out, world.list);
        }
        world.come_back();
        world.settle();
        prop_assert_eq!(world.next(), Next::Done);
    }
}

#[test]
fn a_learner_that_never_had_a_pod_is_withdrawn_when_the_mind_changes() {
    let mut world = World::new(3, 5);
    assert!(world.step());
    world.input.count = 3;
    assert!(matches!(world.next(), Next::Act(Step::Withdraw { .. })));
    world.settle();
    assert_eq!(world.next(), Next::Done);
}

#[test]
fn a_leader_that_leaves_hands_over_first() {
    let mut world = World::new(3, 2);
    for probe in &mut world.observation.round.probes {
        probe.status.as_mut().unwrap().leader = Some(MemberId(3));
    }
    let Next::Act(Step::MoveLeader { pod, to }) = world.next() else {
        panic!("{:?}", world.next());
    };
    assert_eq!(pod.as_str(), "etcd-2");
    assert_ne!(to, MemberId(3));
    world.input.handover = Handover::Refused;
    assert_eq!(world.waits(), "HandoverRefused");
}

#[test]
fn a_member_that_is_lost_leaves_and_one_joins_only_while_all_serve() {
    let lose = |world: &mut World, n: usize| {
        let target: Target = world.observation.round.probes[n].target.clone();
        world.observation.round.probes[n] = Probe::unanswered(target, Unanswered::Deadline);
    };
    let mut grows = World::new(3, 5);
    lose(&mut grows, 2);
    assert_eq!(grows.waits(), "NotAllServing");
    let mut shrinks = World::new(5, 4);
    lose(&mut shrinks, 4);
    assert!(matches!(
        shrinks.next(),
        Next::Act(Step::RemoveMember { .. })
    ));
    let mut shrinks = World::new(5, 4);
    lose(&mut shrinks, 3);
    assert_eq!(
        shrinks.waits(),
        "NoHeadroom",
        "it is not the one that leaves"
    );
    let mut pair = World::new(2, 1);
    lose(&mut pair, 1);
    assert_ne!(pair.next(), Next::Done);
    assert!(
        !matches!(pair.next(), Next::Act(_)),
        "one of two makes no majority"
    );
}

#[test]
fn nothing_changes_while_something_else_is_under_way() {
    type Change = fn(&mut World);
    let cases: [(&str, Change); 9] = [
        ("NotLabelled", |world| world.input.is_labelled = false),
        ("OnlyWarns", |world| world.input.only_warns = true),
        ("Rollout", |world| world.input.rolling_out = true),
        ("Replacing", |world| {
            world.input.replacing = Some("etcd-1".into());
        }),
        ("Granted", |world| {
            let delete = GrantKind::Delete {
                uid: PodUid::new("uid-1"),
                rollout: false,
            };
            world.grants =
                Grants::default().issue(&"etcd-1".into(), delete, "anna".into(), String::new());
        }),
        ("Terminating", |world| {
            world.observation.pods[1].terminating = true;
        }),
        ("MembersByOthers", |world| {
            world.input.membership = MembershipBy::Pod;
        }),
        ("Owned", |world| {
            world.input.owner = Some("Etcd main".to_owned());
        }),
        ("NoList", |world| world.input.list = None),
    ];
    for (reason, change) in cases {
        for (from, to) in [(3, 5), (3, 2)] {
            let mut world = World::new(from, to);
            change(&mut world);
            assert_eq!(world.waits(), reason, "{from} to {to}");
        }
    }
}

#[test]
fn a_member_joins_only_where_it_can_start() {
    type Change = fn(&mut World);
    let cases: [(&str, Change); 5] = [
        ("CannotJoin", |world| {
            world.input.cannot_join = Some("its settings are in a file".to_owned());
        }),
        ("ClaimLeft", |world| {
            let claim = "data-etcd-3".to_owned();
            world.input.left_claims.insert("etcd-3".into(), claim);
        }),
        ("PeerURLsUnknown", |world| {
            for one in world.input.list.iter_mut().flatten() {
                one.peer_urls = vec!["https://10.0.0.1:2380".to_owned()];
            }
        }),
        ("Defect", |world| {
            world.input.versions = vec!["3.5.9".parse().unwrap()];
        }),
        ("Learner", |world| {
            let strange = ListedMember {
                id: MemberId(77),
                name: "elsewhere".into(),
                learner: true,
                peer_urls: vec!["https://10.0.0.9:2380".into()],
                client_urls: Vec::new(),
            };
            world.input.list.as_mut().unwrap().push(strange);
        }),
    ];
    for (reason, change) in cases {
        let mut world = World::new(3, 4);
        change(&mut world);
        assert_eq!(world.waits(), reason);
    }
}

#[test]
fn a_learner_leaves_although_a_voter_is_down_and_one_that_never_joins_gets_another_pod() {
    let mut world = World::new(3, 4);
    world.step();
    world.step();
    let replicas = world.observation.replicas;
    let pod = example::healthy("etcd", replicas).pods.pop().unwrap();
    world.observation.pods.push(Pod {
        recorded_id: None,
        ..pod
    });
    assert_eq!(world.waits(), "Joining");
    world.input.failing_pods.insert("uid-3".into());
    assert!(matches!(world.next(), Next::Act(Step::DeletePod(_))));
    let target = world.observation.round.probes[1].target.clone();
    world.observation.round.probes[1] = Probe::unanswered(target, Unanswered::Deadline);
    world.input.count = 3;
    assert!(matches!(world.next(), Next::Act(Step::RemoveMember { .. })));
}

#[test]
fn a_learner_is_promoted_although_somebody_gave_up_the_claim_that_its_pod_would_have_found() {
    let permitted = |what| {
        let mut world = World::new(3, 4);
        world.step();
        world.step();
        world.follow();
        world.grants =
            Grants::default().issue(&"etcd-3".into(), what, "anna".into(), String::new());
        world
    };
    let claim = permitted(GrantKind::Replace);
    assert!(matches!(claim.next(), Next::Act(Step::Promote { .. })));
    let pod = permitted(GrantKind::Delete {
        uid: PodUid::new("uid-3"),
        rollout: false,
    });
    assert_eq!(pod.waits(), "Granted");
}

#[test]
fn the_member_of_a_lost_node_leaves_although_its_pod_terminates_for_ever() {
    let mut world = World::new(5, 4);
    world.out.insert("etcd-4".into());
    world.answer();
    assert!(world.observation.pods[4].terminating);
    assert!(matches!(world.next(), Next::Act(Step::RemoveMember { .. })));
}

#[test]
fn a_removed_member_is_replaced_where_that_is_asked_for_and_else_its_pod_goes_first() {
    let mut world = World::new(4, 3);
    world.step();
    world.come_back();
    world.input.count = 4;
    world.input.recorded.insert("etcd-3".into());
    assert_eq!(world.next(), Next::Act(Step::SetReplicas(3)));
    world.input.replace = Mode::Auto;
    assert_eq!(world.waits(), "Replacing");
}

#[test]
fn a_cluster_that_sleeps_is_left_alone_and_one_that_lacks_a_pod_gets_it_back() {
    let mut world = World::new(3, 3);
    world.observation.replicas = 0;
    assert_eq!(world.next(), Next::Done);
    world.observation.replicas = 2;
    assert_eq!(world.next(), Next::Act(Step::SetReplicas(3)));
}

#[test]
fn a_member_stays_where_its_pod_could_not_go_after_it() {
    let mut world = World::new(4, 3);
    let external = ListedMember {
        id: MemberId(77),
        name: "elsewhere".into(),
        learner: false,
        peer_urls: vec!["https://10.0.0.9:2380".into()],
        client_urls: Vec::new(),
    };
    world.input.list.as_mut().unwrap().push(external);
    assert_eq!(world.waits(), "MayBeListed");
}

#[test]
fn a_pod_stays_while_etcd_may_list_a_member_in_it() {
    let mut world = World::new(3, 2);
    let list = world.input.list.as_mut().unwrap();
    list[2].name = "of-another-name".into();
    list[2].peer_urls = vec!["https://10.0.0.9:2380".into()];
    let mut snapshot = world.snapshot();
    snapshot
        .members
        .retain(|member| member.id != Some(MemberId(3)));
    let said = next(&snapshot, &world.grants, &world.input);
    let pod = PodName::new("etcd-2");
    assert_eq!(said, Next::Wait(Refusal::MayBeListed { pod }));
}

#[test]
fn a_removal_leaves_a_cluster_in_which_every_voter_serves() {
    let target = |n: u32| TargetPod {
        name: PodName::new(format!("etcd-{n}")),
        uid: PodUid::new(format!("uid-{n}")),
    };
    let remove = |world: &World, n| {
        let removal = Disruption::of_gate(target(n), Kind::Remove);
        decide(&world.snapshot(), &world.grants, &removal)
    };
    for voters in 2..=5 {
        let world = World::new(voters, voters);
        assert!(
            matches!(remove(&world, voters - 1), Verdict::Allow(_)),
            "{voters}"
        );
    }
    assert!(
        !matches!(remove(&World::new(1, 1), 0), Verdict::Allow(_)),
        "the last one"
    );
    let mut granted = World::new(5, 5);
    let delete = GrantKind::Delete {
        uid: PodUid::new("uid-1"),
        rollout: false,
    };
    granted.grants =
        Grants::default().issue(&"etcd-1".into(), delete, "anna".into(), String::new());
    assert!(!matches!(remove(&granted, 4), Verdict::Allow(_)));
}
