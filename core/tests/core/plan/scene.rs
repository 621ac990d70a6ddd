//! A cluster in the middle of a rollout from revision `old` to `new`, and the planner's answer for
//! it.
//!
//! Members are `a` (ordinal 0), `b`, `c` and so on. Unless a test says otherwise, all serve, `a`
//! leads, and every pod is outdated.

use std::time::Duration;

use quorumgate_core::plan::{Desired, Next, Step, WaitingOn, next_step};
use quorumgate_core::quorum::evidence::Unanswered;
use quorumgate_core::quorum::pod::{Containers, Node};
use quorumgate_core::quorum::{GrantKind, Grants, Snapshot};

use crate::world::{self, Answers, Inhabitant, Listed, World};

#[derive(Clone)]
pub(super) struct Scene {
    pub(super) world: World,
    pub(super) desired: Desired,
    pub(super) grants: Grants,
}

pub(super) fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

impl Scene {
    pub(super) fn new(members: usize) -> Self {
        let mut world = World::new(members);
        for member in &mut world.members {
            member.pod_mut(|pod| pod.revision = Some("old".into()));
        }
        Self {
            world,
            desired: Desired::by_default(),
            grants: Grants::default(),
        }
    }

    /// Changes each of the members whose letters are in `names`.
    pub(super) fn with(mut self, names: &str, change: impl Fn(&mut Inhabitant)) -> Self {
        for name in names.chars() {
            let index = self.world.index(&name.to_string()).unwrap();
            change(&mut self.world.members[index]);
        }
        self
    }

    pub(super) fn updated(self, names: &str) -> Self {
        self.with(names, |m| {
            m.pod_mut(|pod| pod.revision = Some("new".into()));
        })
    }

    pub(super) fn wishing(mut self, wish: impl FnOnce(&mut Desired)) -> Self {
        wish(&mut self.desired);
        self
    }

    pub(super) fn in_world(mut self, change: impl FnOnce(&mut World)) -> Self {
        change(&mut self.world);
        self
    }

    pub(super) fn led_by(self, name: &str) -> Self {
        self.in_world(|world| world.leader = world.members[world.index(name).unwrap()].id)
    }

    /// Gives this pod a grant for its present incarnation.
    pub(super) fn granted(mut self, name: &str, to_rollout: bool) -> Self {
        let what = GrantKind::Delete {
            uid: format!("{name}-1").as_str().into(),
            rollout: to_rollout,
        };
        self.grants = self
            .grants
            .issue(&name.into(), what, "somebody".into(), String::new());
        self
    }

    /// Makes this pod's member not have served for `how_long`.
    pub(super) fn out_for(self, pod: &str, how_long: Duration) -> Self {
        self.wishing(|desired| {
            desired.out_for.insert(pod.into(), how_long);
        })
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::assemble(&self.world.observation())
    }

    pub(super) fn next(&self) -> Next {
        next_step(&self.snapshot(), &self.grants, &self.desired)
    }

    /// The next step in words: `done`, the sentences of the steps, or `wait` with the identifier of
    /// the reason.
    pub(super) fn says(&self) -> String {
        match self.next() {
            Next::Done => "done".into(),
            Next::Act(steps) => {
                let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
                steps.join("; ")
            }
            Next::Wait(waiting) => format!("wait {}", waiting.slug()),
        }
    }

    /// The reason to wait.
    pub(super) fn waits_on(&self) -> WaitingOn {
        match self.next() {
            Next::Wait(waiting) => waiting,
            other => panic!("{other:?}"),
        }
    }

    /// The sentence of the reason to wait.
    pub(super) fn waits_because(&self) -> String {
        self.waits_on().to_string()
    }

    /// The only next step.
    pub(super) fn step(&self) -> Step {
        match self.next() {
            Next::Act(steps) if steps.iter().count() == 1 => steps.into_iter().next().unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn crashed(member: &mut Inhabitant) {
    member.crashed();
}

pub(super) fn starting(member: &mut Inhabitant) {
    member.silent(Unanswered::NoAddress);
    member.pod_mut(|pod| {
        pod.has_address = false;
        pod.containers = Containers::Creating;
        pod.ready = false;
        pod.etcd_ready = false;
    });
}

/// Makes a member run, cut off from its peers.
pub(super) fn leaderless(member: &mut Inhabitant) {
    member.answers = Answers::Itself;
    member.leaderless();
    member.pod_mut(|pod| pod.containers = Containers::Running);
}

/// Makes a member hang: the node reports it as running, and nothing answers.
pub(super) fn hung(member: &mut Inhabitant) {
    member.silent(Unanswered::Deadline);
    member.pod_mut(|pod| {
        pod.ready = false;
        pod.etcd_ready = false;
    });
}

/// Makes the member's node fall silent. The pod still looks as before.
pub(super) fn on_a_lost_node(member: &mut Inhabitant) {
    member.silent(Unanswered::Deadline);
    member.pod_mut(|pod| {
        pod.node = Node::NotReady;
        pod.ready = false;
    });
}

pub(super) fn node_gone(member: &mut Inhabitant) {
    member.silent(Unanswered::Deadline);
    member.pod_mut(|pod| pod.node = Node::Gone);
}

/// Makes a member serve while its readiness probe has yet to pass.
pub(super) fn unready(member: &mut Inhabitant) {
    member.pod_mut(|pod| pod.ready = false);
}

/// Makes the member's pod deleted and not created again yet.
pub(super) fn missing(member: &mut Inhabitant) {
    member.silent(Unanswered::Deadline);
    member.pod = None;
}

pub(super) fn terminating(member: &mut Inhabitant) {
    member.pod_mut(|pod| pod.terminating = true);
}

/// Makes a member a learner that answers and follows.
pub(super) fn learner(member: &mut Inhabitant) {
    member.listed = Listed::Learner;
    member.read = Err(Unanswered::Learner);
    member.list = world::Known::Nothing(Unanswered::Learner);
}

/// Makes a member unknown to etcd's member list, and silent.
pub(super) fn not_listed(member: &mut Inhabitant) {
    member.listed = Listed::No;
    member.silent(Unanswered::Refused);
    member.pod_mut(|pod| pod.recorded_id = None);
}

pub(super) fn sick_sidecar(member: &mut Inhabitant) {
    member.pod_mut(|pod| pod.sidecar_failing = true);
}
