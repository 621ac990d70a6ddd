//! Random clusters for the properties. Each member is in one of a number of states.

use std::time::Duration;

use proptest::prelude::*;

use quorumgate_core::quorum::evidence::{AlarmKind, Unanswered};
use quorumgate_core::quorum::pod::{Containers, Node};
use quorumgate_core::quorum::{ClusterId, majority};

use crate::world::{self, Answers, Inhabitant, Known, Listed, Names, World};

/// The state of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Serving,
    NoSpace,
    Unready,
    External,
    /// The member answers at its client URL, and the pod that it belongs in does not exist.
    Astray,
    Hangs,
    BadTls,
    SlowRead,
    NoList,
    LostNode,
    Leaderless,
    StaleLeader,
    Lagging,
    Corrupt,
    Refuses,
    Crashed,
    Terminated,
    Finished,
    OutOfService,
    NodeGone,
    Pending,
    Creating,
    Terminating,
    Unstarted,
    Gone,
    OtherCluster,
    Reused,
    Learner,
    DeadLearner,
    Removed,
    RemovedSilent,
}

use State::*;

impl State {
    /// Whether the member takes part in quorum, and the evidence shows it.
    pub(super) fn serves(self) -> bool {
        matches!(self, Serving | NoSpace | Unready | External | NoList)
    }

    /// Whether the member may take part without showing it.
    fn hidden(self) -> bool {
        matches!(
            self,
            Astray | Hangs | BadTls | SlowRead | LostNode | Reused | Terminating
        )
    }

    /// Whether the process is down, and the evidence shows it.
    pub(super) fn is_down(self) -> bool {
        matches!(
            self,
            Refuses
                | Crashed
                | Terminated
                | Finished
                | OutOfService
                | NodeGone
                | Pending
                | Creating
                | DeadLearner
        )
    }

    pub(super) fn is_learner(self) -> bool {
        matches!(self, Learner | DeadLearner)
    }

    pub(super) fn is_listed(self) -> bool {
        !matches!(self, Removed | RemovedSilent)
    }

    pub(super) fn votes(self) -> bool {
        self.is_listed() && !self.is_learner()
    }
}

/// A kind of evidence that may go missing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Loss {
    Status,
    Read,
    List,
    Probe,
    Node,
    Containers,
    Record,
}

pub(super) fn losses() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::Status),
        Just(Loss::Read),
        Just(Loss::List),
        Just(Loss::Probe),
        Just(Loss::Node),
        Just(Loss::Containers),
        Just(Loss::Record),
    ]
}

/// A cluster by the states of its members.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    pub(super) states: Vec<State>,
    /// The true number of voters.
    pub(super) voters: u32,
    pub(super) replicas: u32,
    pub(super) lost_for: Option<Duration>,
    pub(super) scaled_out_for: Option<Duration>,
    /// The number of external voters on record that have been removed since.
    pub(super) removed_externals: u32,
}

/// Clusters in any states, including combinations that are impossible.
pub(super) fn any() -> impl Strategy<Value = Cluster> {
    let states = prop::sample::select(vec![
        Serving,
        Serving,
        Serving,
        NoSpace,
        Unready,
        External,
        Astray,
        Hangs,
        BadTls,
        SlowRead,
        NoList,
        LostNode,
        Leaderless,
        StaleLeader,
        Lagging,
        Corrupt,
        Refuses,
        Crashed,
        Terminated,
        Finished,
        OutOfService,
        NodeGone,
        Pending,
        Creating,
        Terminating,
        Unstarted,
        Gone,
        OtherCluster,
        Reused,
        Learner,
        DeadLearner,
        Removed,
        RemovedSilent,
    ]);
    clusters(states)
}

/// Clusters in states that are possible together: without a majority no member serves.
///
/// States in which one member's evidence speaks against another (an address that answers for two)
/// are left out, because without that evidence the other member looks better.
pub(super) fn possible() -> impl Strategy<Value = Cluster> {
    any().prop_map(|mut cluster| {
        for state in &mut cluster.states {
            *state = match *state {
                Reused => Hangs,
                // In a StatefulSet of one whose other voter has no pod any more, only the member
                // list tells the cluster from a cluster of one.
                Astray if cluster.replicas == 1 => Serving,
                other => other,
            };
        }
        let able = cluster.states.iter().filter(|s| s.serves() || s.hidden());
        if u32::try_from(able.count()).unwrap() < majority(cluster.voters) {
            for state in &mut cluster.states {
                if matches!(
                    *state,
                    Serving
                        | NoSpace
                        | Unready
                        | SlowRead
                        | NoList
                        | StaleLeader
                        | Lagging
                        | Corrupt
                ) {
                    *state = Leaderless;
                } else if matches!(*state, External | Astray) {
                    *state = Gone;
                }
            }
        }
        cluster
    })
}

fn clusters(state: impl Strategy<Value = State>) -> impl Strategy<Value = Cluster> {
    let waits = || prop::option::of(prop_oneof![Just(60_u64), Just(3600)]);
    (
        prop::collection::vec(state, 1..=7),
        waits(),
        waits(),
        0_u32..3,
        prop::bool::ANY,
        prop_oneof![3 => Just(0_u32), 1 => 1_u32..3],
    )
        .prop_map(
            |(mut states, lost_for, scaled_out_for, more, counts_externals, removed_externals)| {
                // Some member needs a pod, so that there is one to ask for, and every cluster needs
                // a voter.
                if !states.iter().any(|state| has_pod(*state)) || !states.iter().any(|s| s.votes())
                {
                    states[0] = Serving;
                }
                // The cluster of an only voter is the cluster.
                if states.iter().filter(|state| state.votes()).count() == 1 {
                    for state in states.iter_mut().filter(|state| **state == OtherCluster) {
                        *state = Serving;
                    }
                }
                // An address can only be mistaken for that of a member that answers.
                if !matches!(states[0], Serving | NoSpace | Unready) {
                    for state in states.iter_mut().filter(|state| **state == Reused) {
                        *state = Hangs;
                    }
                }
                Cluster {
                    lost_for: lost_for.map(Duration::from_secs),
                    scaled_out_for: scaled_out_for.map(Duration::from_secs),
                    removed_externals,
                    ..Cluster::new(states).with_more_replicas(more, counts_externals)
                }
            },
        )
}

fn has_pod(state: State) -> bool {
    !matches!(state, External | Astray | Gone)
}

impl Cluster {
    pub(super) fn new(states: Vec<State>) -> Self {
        let voters = u32::try_from(states.iter().filter(|s| s.votes()).count()).unwrap();
        Self {
            states,
            voters,
            replicas: voters,
            lost_for: None,
            scaled_out_for: None,
            removed_externals: 0,
        }
    }

    /// External members are no replicas of the StatefulSet, but an owner may count them all the
    /// same.
    fn with_more_replicas(self, more: u32, counts_externals: bool) -> Self {
        let external = |state: &&State| matches!(state, External | Gone) && !counts_externals;
        let externals = self.states.iter().filter(external).count();
        let here = self.voters - u32::try_from(externals).unwrap();
        Self {
            replicas: here.max(1) + more,
            ..self
        }
    }

    /// The names of the members that have a pod.
    pub(super) fn pods(&self) -> Vec<String> {
        self.states
            .iter()
            .enumerate()
            .filter(|(_, state)| has_pod(**state))
            .map(|(index, _)| world::name(index))
            .collect()
    }

    /// The names for which a grant can be open. A pod that is gone is among them.
    pub(super) fn names(&self) -> Vec<String> {
        let named = self.named();
        named
            .filter(|(_, state)| has_pod(*state) || *state == Astray)
            .map(|(name, _)| name)
            .collect()
    }

    pub(super) fn state(&self, pod: &str) -> State {
        let index = self.named().find(|(name, _)| name == pod);
        index.map(|(_, state)| state).unwrap()
    }

    pub(super) fn named(&self) -> impl Iterator<Item = (String, State)> {
        self.states
            .iter()
            .enumerate()
            .map(|(index, state)| (world::name(index), *state))
    }

    pub(super) fn world(&self) -> World {
        let mut world = World::new(self.states.len());
        world.replicas = self.replicas;
        world.expected_under = self.replicas;
        world.expected = self.voters.min(self.replicas);
        world.quorum_lost_for = self.lost_for;
        world.scaled_out_for = self.scaled_out_for;
        world.removed_externals = self.removed_externals;
        let leader = self.states.iter().position(|state| state.serves());
        world.leader = world::id(leader.unwrap_or(0));
        let first = world.members[0].id;
        for (member, state) in world.members.iter_mut().zip(&self.states) {
            become_of(member, *state, first);
        }
        world
    }
}

fn become_of(member: &mut Inhabitant, state: State, another: quorumgate_core::quorum::MemberId) {
    let crashed = Containers::EtcdFailed {
        reason: "CrashLoopBackOff".into(),
    };
    match state {
        Serving => {}
        NoSpace => member.alarm = Some(AlarmKind::NoSpace),
        Unready => member.pod_mut(|pod| pod.ready = false),
        External => member.pod = None,
        Astray => {
            member.pod = None;
            member.recorded = true;
        }
        Hangs => member.silent(Unanswered::Deadline),
        BadTls => member.silent(Unanswered::Tls("expired".into())),
        SlowRead => member.read = Err(Unanswered::Deadline),
        NoList => member.list = Known::Nothing(Unanswered::Deadline),
        LostNode => {
            member.silent(Unanswered::Deadline);
            member.pod_mut(|pod| {
                pod.node = Node::NotReady;
                pod.containers = crashed;
            });
        }
        Leaderless => member.leaderless(),
        StaleLeader => {
            member.names = Names::Another(another, 3);
            member.read = Err(Unanswered::Deadline);
        }
        Lagging => {
            member.applied -= 50_000;
            member.read = Err(Unanswered::Deadline);
        }
        Corrupt => member.alarm = Some(AlarmKind::Corrupt),
        Refuses => member.silent(Unanswered::Refused),
        Crashed => member.crashed(),
        Terminated | Finished => {
            member.silent(Unanswered::Refused);
            let finished = state == Finished;
            member.pod_mut(|pod| pod.containers = Containers::AllTerminated { finished });
        }
        OutOfService | NodeGone => {
            member.silent(Unanswered::Deadline);
            let node = if state == NodeGone {
                Node::Gone
            } else {
                Node::OutOfService
            };
            member.pod_mut(|pod| pod.node = node);
        }
        Pending | Creating => {
            member.silent(Unanswered::NoAddress);
            let unscheduled = state == Pending;
            member.pod_mut(|pod| {
                pod.has_address = false;
                pod.containers = Containers::Creating;
                if unscheduled {
                    pod.node = Node::Unscheduled;
                }
            });
        }
        Terminating => member.pod_mut(|pod| pod.terminating = true),
        Unstarted => {
            member.listed = Listed::Unstarted;
            member.silent(Unanswered::Deadline);
            member.pod_mut(|pod| pod.recorded_id = None);
        }
        Gone => {
            member.pod = None;
            member.silent(Unanswered::Deadline);
        }
        OtherCluster => member.cluster = ClusterId(0xc000 + member.id.0),
        Reused if member.id == another => member.silent(Unanswered::Deadline),
        Reused => member.answers = Answers::As(another),
        Learner | DeadLearner => {
            member.listed = Listed::Learner;
            member.read = Err(Unanswered::Learner);
            member.list = Known::Nothing(Unanswered::Learner);
            if state == DeadLearner {
                member.crashed();
            }
        }
        Removed | RemovedSilent => {
            member.listed = Listed::No;
            member.list = Known::Nothing(Unanswered::Deadline);
            if state == RemovedSilent {
                member.silent(Unanswered::Deadline);
            }
        }
    }
}
