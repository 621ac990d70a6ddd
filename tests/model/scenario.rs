//! What a run of the model covers, and how far.

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
    /// Whether members take part for a while before they listen.
    pub(crate) boots: bool,
    /// Voters that somebody removes from etcd, at most.
    pub(crate) removals: u8,
    /// Whether the rollout driver is at work.
    pub(crate) rollout: bool,
    /// Whether volumes are replaced.
    pub(crate) replacement: bool,
    /// Whether the budget is deleted and created again.
    pub(crate) recreation: bool,
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
    gates: 2,
    requests: 2,
    failures: 0,
    ailments: &[],
    bypasses: false,
    hidden: 0,
    torn: false,
    boots: false,
    removals: 0,
    rollout: false,
    replacement: false,
    recreation: false,
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

/// A volume is replaced.
pub(crate) const REPLACEMENT: Scenario = Scenario {
    name: "replacement",
    replacement: true,
    ..QUIET
};

/// The budget is deleted and created again.
pub(crate) const RECREATION: Scenario = Scenario {
    name: "recreation",
    recreation: true,
    ..QUIET
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
    /// The members there are at most.
    pub(crate) fn members(&self) -> usize {
        usize::from(self.voters + self.learners)
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
