//! What a run of the model covers, and how far.

use crate::decision::Strategy;
use crate::mutations::Mutation;
use crate::state::Phase;

/// The bounds of one run. Nothing bounds how often something happens, only how much of it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says whether something may happen"
)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) voters: u8,
    pub(crate) learners: u8,
    /// Whether its owner scales it out by one, and in again.
    pub(crate) scales: bool,
    /// Replicas of the gate: so many judgements and so many settlers are under way at once.
    pub(crate) gates: usize,
    /// Deletes under way at once.
    pub(crate) requests: usize,
    /// Members that fail at once, without being asked.
    pub(crate) failures: u32,
    /// How they fail.
    pub(crate) ailments: &'static [Phase],
    /// Whether pods are also deleted by somebody who is not asked, or past the ledger.
    pub(crate) bypasses: bool,
    /// Members that run and that a look may miss at once.
    pub(crate) hidden: u32,
    /// Whether a look sees each member at another moment.
    pub(crate) torn: bool,
    /// Whether a look sees pods at one moment, and what members answer at another.
    pub(crate) halves: bool,
    /// Whether members take part for a while before they listen.
    pub(crate) boots: bool,
    /// Voters that somebody removes from etcd, at most.
    pub(crate) removals: u8,
    /// Whether the rollout driver is at work.
    pub(crate) rollout: bool,
    /// Whether it takes outdated members that do not serve in one cycle, as far as they may go.
    pub(crate) all_at_once: bool,
    /// How many members it may have out at once.
    pub(crate) max_unavailable: u8,
    /// Whether somebody shows in the budget what is seen of the cluster.
    pub(crate) reports: bool,
    /// Whether volumes are replaced.
    pub(crate) replacement: bool,
    /// Whether the budget is deleted and created again.
    pub(crate) recreation: bool,
    /// Whether the gate is out of force for a while, and pods are deleted unasked.
    pub(crate) outages: bool,
    /// How far the fastest replica's clock moves in a tick.
    pub(crate) pace: u8,
    /// How many ticks of its own clock a replica waits before it takes back what never happened.
    pub(crate) settle_time: u8,
    pub(crate) mutation: Mutation,
}

/// How many ticks a request lives, at most.
pub(crate) const LIFE: u8 = 1;

/// Three voters, two replicas, two deletes at once; nothing fails.
pub(crate) const QUIET: Scenario = Scenario {
    name: "quiet",
    voters: 3,
    learners: 0,
    scales: false,
    gates: 2,
    requests: 2,
    failures: 0,
    ailments: &[],
    bypasses: false,
    hidden: 0,
    torn: false,
    halves: false,
    boots: false,
    removals: 0,
    rollout: false,
    all_at_once: false,
    max_unavailable: 1,
    reports: false,
    replacement: false,
    recreation: false,
    outages: false,
    pace: 1,
    settle_time: 2,
    mutation: Mutation::None,
};

/// Members fail and recover, one at a time, pods are deleted past the gate, and looks miss a member.
pub(crate) const FAILURES: Scenario = Scenario {
    name: "failures",
    failures: 1,
    ailments: &[Phase::Crashed, Phase::Hung],
    bypasses: true,
    hidden: 1,
    ..QUIET
};

/// Two members fail at once, so that quorum is lost, and comes back.
pub(crate) const OUTAGE: Scenario = Scenario {
    name: "outage",
    failures: 2,
    ailments: &[Phase::Crashed, Phase::Cut],
    ..QUIET
};

/// The same, with members that take part for a while before they listen.
pub(crate) const LISTENING: Scenario = Scenario {
    name: "listening",
    boots: true,
    ailments: &[Phase::Crashed],
    ..OUTAGE
};

/// The same while a rollout is at work, whose steps are fenced by nothing there.
pub(crate) const LISTENING_ROLLOUT: Scenario = Scenario {
    name: "listening rollout",
    rollout: true,
    failures: 1,
    ..LISTENING
};

/// Any number of members fail at once, and nodes are lost for good.
pub(crate) const DISASTER: Scenario = Scenario {
    name: "disaster",
    failures: 3,
    ailments: &[Phase::Crashed, Phase::Lost, Phase::Cut],
    ..QUIET
};

/// A node is lost for good, and only a delete brings its member back.
pub(crate) const LOST_NODE: Scenario = Scenario {
    name: "lost node",
    failures: 1,
    ailments: &[Phase::Lost],
    ..QUIET
};

/// A member is down, and another one answers at its address.
pub(crate) const REUSED_ADDRESS: Scenario = Scenario {
    name: "reused address",
    failures: 1,
    ailments: &[Phase::Impersonated],
    ..QUIET
};

/// Each member is seen at another moment, and things go on in between.
pub(crate) const TORN_LOOKS: Scenario = Scenario {
    name: "torn looks",
    torn: true,
    ..QUIET
};

/// The same, with members that fail while others are looked at.
pub(crate) const TORN_FAILING: Scenario = Scenario {
    name: "torn failing",
    failures: 1,
    ailments: &[Phase::Crashed],
    ..TORN_LOOKS
};

/// Pods are seen at one moment, and what members answer at another; a member fails, or its pod is deleted past the gate, in between.
pub(crate) const HALVES: Scenario = Scenario {
    name: "halves",
    halves: true,
    failures: 1,
    ailments: &[Phase::Crashed],
    bypasses: true,
    ..QUIET
};

/// The same with two that fail, and that take part before they listen.
pub(crate) const HALVES_LISTENING: Scenario = Scenario {
    name: "halves listening",
    failures: 2,
    boots: true,
    ..HALVES
};

/// A learner is promoted at any moment, also while its pod is on its way out.
pub(crate) const LEARNER: Scenario = Scenario {
    name: "learner",
    learners: 1,
    ..QUIET
};

/// Somebody removes a voter from etcd, and adds it again as a learner, which is promoted.
pub(crate) const REMOVAL: Scenario = Scenario {
    name: "removal",
    voters: 4,
    removals: 1,
    ..QUIET
};

/// The owner scales out to a fourth member, and in again, with one delete at a time.
pub(crate) const SCALING_BESIDE_ONE: Scenario = Scenario {
    name: "scaling beside one",
    scales: true,
    gates: 1,
    requests: 1,
    ..QUIET
};

/// The same with two deletes, and one judgement at a time.
pub(crate) const SCALING: Scenario = Scenario {
    name: "scaling",
    requests: 2,
    ..SCALING_BESIDE_ONE
};

/// The same with two judgements at a time, and reports, which write the latch too.
pub(crate) const REPORTED_SCALING: Scenario = Scenario {
    name: "reported scaling",
    reports: true,
    gates: 2,
    ..SCALING
};

/// The same with members that fail.
pub(crate) const SCALING_FAILING: Scenario = Scenario {
    name: "scaling failing",
    gates: 2,
    failures: 1,
    ailments: &[Phase::Crashed],
    ..SCALING
};

/// The rollout driver at work among strangers.
pub(crate) const ROLLOUT: Scenario = Scenario {
    name: "rollout",
    rollout: true,
    ..QUIET
};

/// The same, with looks that miss members, all but one at worst.
pub(crate) const BLIND_ROLLOUT: Scenario = Scenario {
    name: "blind rollout",
    hidden: 2,
    ..ROLLOUT
};

/// The same, with members that fail, so that the rollout is to repair a lost quorum.
pub(crate) const TROUBLED_ROLLOUT: Scenario = Scenario {
    name: "troubled rollout",
    failures: 2,
    ailments: &[Phase::Crashed, Phase::Cut],
    ..ROLLOUT
};

/// Two members may be out at once, of three: the majority still needs two of them.
pub(crate) const TWO_OUT: Scenario = Scenario {
    name: "two out",
    max_unavailable: 2,
    ..ROLLOUT
};

/// Two members may be out at once, of five, and strangers are at work.
pub(crate) const TWO_OUT_OF_FIVE: Scenario = Scenario {
    name: "two out of five",
    voters: 5,
    ..TWO_OUT
};

/// Members fail, two at once, and those that do not serve are replaced in one cycle, as far as they may go.
pub(crate) const ALL_AT_ONCE: Scenario = Scenario {
    name: "all at once",
    all_at_once: true,
    failures: 2,
    ailments: &[Phase::Crashed],
    ..ROLLOUT
};

/// The same of five, with two that may be out.
pub(crate) const ALL_AT_ONCE_OF_FIVE: Scenario = Scenario {
    name: "all of five at once",
    voters: 5,
    max_unavailable: 2,
    ..ALL_AT_ONCE
};

/// A volume is replaced.
pub(crate) const REPLACEMENT: Scenario = Scenario {
    name: "replacement",
    replacement: true,
    ..QUIET
};

/// What is seen of the cluster is written into the budget, between permissions and settlements.
pub(crate) const REPORTS: Scenario = Scenario {
    name: "reports",
    reports: true,
    ..QUIET
};

/// The same while a voter is removed, and comes back as a learner: the latch is written by reports too.
pub(crate) const REPORTED_REMOVAL: Scenario = Scenario {
    name: "reported removal",
    reports: true,
    ..REMOVAL
};

/// The budget is deleted and created again.
pub(crate) const RECREATION: Scenario = Scenario {
    name: "recreation",
    recreation: true,
    ..QUIET
};

/// The gate is out of force for a while. One judgement at a time: what it may overlook is no other judgement.
pub(crate) const OUT_OF_FORCE: Scenario = Scenario {
    name: "out of force",
    outages: true,
    gates: 1,
    ..QUIET
};

/// The same with two judgements at a time.
pub(crate) const OUT_OF_FORCE_FOR_TWO: Scenario = Scenario {
    name: "out of force for two",
    gates: 2,
    ..OUT_OF_FORCE
};

/// The same with a rollout, which asks the gate also while nobody else does.
pub(crate) const ROLLOUT_OUT_OF_FORCE: Scenario = Scenario {
    name: "rollout out of force",
    outages: true,
    ..ROLLOUT
};

/// One replica's clock runs at twice the pace of the others.
pub(crate) const SKEWED_CLOCKS: Scenario = Scenario {
    name: "skewed clocks",
    pace: 2,
    settle_time: 3,
    ..RECREATION
};

/// Five voters.
pub(crate) const FIVE: Scenario = Scenario {
    name: "five",
    voters: 5,
    ..QUIET
};

/// Five voters, two of which fail.
pub(crate) const FIVE_FAILING: Scenario = Scenario {
    name: "five failing",
    voters: 5,
    failures: 2,
    ..FAILURES
};

/// Three replicas, and three deletes at once.
pub(crate) const THREE: Scenario = Scenario {
    name: "three replicas",
    gates: 3,
    requests: 3,
    ..QUIET
};

/// The same, with failures.
pub(crate) const THREE_FAILING: Scenario = Scenario {
    name: "three failing",
    gates: 3,
    requests: 3,
    ..FAILURES
};

impl Scenario {
    /// What the owner of the rollout chose.
    pub(crate) fn strategy(&self) -> Strategy {
        Strategy {
            all_at_once: self.all_at_once,
            max_unavailable: self.max_unavailable,
        }
    }

    /// The members there are at most.
    pub(crate) fn members(&self) -> usize {
        self.replicas() + usize::from(self.scales)
    }

    /// The replicas that the StatefulSet asks for in the beginning.
    pub(crate) fn replicas(&self) -> usize {
        usize::from(self.voters + self.learners)
    }

    /// The member that comes and goes by scaling.
    pub(crate) fn spare(&self) -> Option<usize> {
        self.scales.then_some(self.replicas())
    }

    /// The same with a mutation.
    pub(crate) fn mutated(self, mutation: Mutation) -> Self {
        let settle_time = match mutation {
            Mutation::ShortSettleTime => LIFE,
            _ => self.settle_time,
        };
        Self {
            settle_time,
            mutation,
            ..self
        }
    }
}
