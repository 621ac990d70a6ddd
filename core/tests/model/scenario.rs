//! The scenarios: what a run of the model covers, and how far.

use crate::decision::Strategy;
use crate::mutations::Mutation;
use crate::state::Phase;

/// The bounds of one run. They bound how much happens at once, and not how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says whether something may happen"
)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) voters: u8,
    pub(crate) learners: u8,
    /// Whether the owner scales out by one member, and in again.
    pub(crate) scales: bool,
    /// The number of replicas of the gate: that many decisions and that many settlers are under way
    /// at once.
    pub(crate) gates: usize,
    /// The number of deletes under way at once.
    pub(crate) requests: usize,
    /// Whether strangers delete pods.
    pub(crate) strangers: bool,
    /// The number of members that fail at once.
    pub(crate) failures: u32,
    /// The kinds of failures.
    pub(crate) ailments: &'static [Phase],
    /// Whether pods are also deleted past the gate or past the ledger.
    pub(crate) bypasses: bool,
    /// The number of running members that a look may miss at once.
    pub(crate) hidden: u32,
    /// Whether a look sees each member at another moment.
    pub(crate) torn: bool,
    /// Whether a look sees the pods at one moment, and the answers at another.
    pub(crate) halves: bool,
    /// Whether members take part for a while before they listen.
    pub(crate) boots: bool,
    /// Whether containers run for a while before etcd takes part in them.
    pub(crate) initialises: bool,
    /// Whether a network policy rejects the gate's connections to all members for a while, and
    /// readiness probes fail for another reason.
    pub(crate) rejections: bool,
    /// Whether members without a quorum accept connections and answer nothing, as etcd up to 3.5
    /// does after a restart.
    pub(crate) mute: bool,
    /// The most voters that are removed from etcd.
    pub(crate) removals: u8,
    /// Whether the rollout driver runs.
    pub(crate) rollout: bool,
    /// Whether the driver takes outdated members that do not serve in one cycle, as far as they may
    /// go.
    pub(crate) all_at_once: bool,
    /// The number of members that the driver may have out at once.
    pub(crate) max_unavailable: u8,
    /// Whether the reporter runs.
    pub(crate) reports: bool,
    /// Whether members are replaced.
    pub(crate) replacement: bool,
    /// Whether the members have their data in their pods, with which it goes.
    pub(crate) in_pods: bool,
    /// Whether somebody asks that a member be replaced whose volume is well.
    pub(crate) requested: bool,
    /// The number of volumes that are lost at once.
    pub(crate) losses: u32,
    /// Whether writes are acknowledged, by no more members than needed.
    pub(crate) writes: bool,
    /// Whether members are defragmented.
    pub(crate) defragmentation: bool,
    /// Whether the budget is deleted and created again.
    pub(crate) recreation: bool,
    /// Whether the gate is out of force for a while, and pods are deleted unasked.
    pub(crate) outages: bool,
    /// The ticks of the fastest replica's clock in one tick of the others.
    pub(crate) pace: u8,
    /// The number of ticks, by its own clock, for which a replica waits before it settles a delete
    /// that never happened.
    pub(crate) settle_time: u8,
    pub(crate) mutation: Mutation,
}

/// The most ticks that a request lives.
pub(crate) const LIFE: u8 = 1;

/// Three voters, two replicas, two deletes at once, and no failures.
pub(crate) const QUIET: Scenario = Scenario {
    name: "quiet",
    voters: 3,
    learners: 0,
    scales: false,
    gates: 2,
    requests: 2,
    strangers: true,
    failures: 0,
    ailments: &[],
    bypasses: false,
    hidden: 0,
    torn: false,
    halves: false,
    boots: false,
    initialises: false,
    rejections: false,
    mute: false,
    removals: 0,
    rollout: false,
    all_at_once: false,
    max_unavailable: 1,
    reports: false,
    replacement: false,
    in_pods: false,
    requested: false,
    losses: 0,
    writes: false,
    defragmentation: false,
    recreation: false,
    outages: false,
    pace: 1,
    settle_time: 2,
    mutation: Mutation::None,
};

/// Members fail and recover, one at a time. Pods are deleted past the gate, and looks miss a
/// member.
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

/// As [`OUTAGE`], with members that take part for a while before they listen.
pub(crate) const LISTENING: Scenario = Scenario {
    name: "listening",
    boots: true,
    ailments: &[Phase::Crashed],
    ..OUTAGE
};

/// As [`LISTENING`], during a rollout. No precondition fences its steps there.
pub(crate) const LISTENING_ROLLOUT: Scenario = Scenario {
    name: "listening rollout",
    rollout: true,
    failures: 1,
    ..LISTENING
};

/// As [`LISTENING`], with containers that run for a while before etcd takes part.
pub(crate) const INITIALISING: Scenario = Scenario {
    name: "initialising",
    initialises: true,
    ..LISTENING
};

/// A network policy rejects the gate on all members at once, while readiness fails for another
/// reason. Members that are created anew run for a while before they take part. One fails.
pub(crate) const REJECTED: Scenario = Scenario {
    name: "rejected",
    initialises: true,
    rejections: true,
    failures: 1,
    ailments: &[Phase::Crashed],
    ..QUIET
};

/// As [`REJECTED`], with five members, one request at a time, and members that take part before
/// they listen.
pub(crate) const REJECTED_OF_FIVE: Scenario = Scenario {
    name: "rejected of five",
    voters: 5,
    boots: true,
    gates: 1,
    requests: 1,
    ..REJECTED
};

/// As [`REJECTED`], during a rollout.
pub(crate) const REJECTED_ROLLOUT: Scenario = Scenario {
    name: "rejected rollout",
    rollout: true,
    failures: 0,
    requests: 1,
    gates: 1,
    ..REJECTED
};

/// As [`TROUBLED_ROLLOUT`], with members that answer nothing without a quorum, and with looks that
/// miss all members at worst.
pub(crate) const MUTE_ROLLOUT: Scenario = Scenario {
    name: "mute rollout",
    mute: true,
    hidden: 3,
    requests: 1,
    gates: 1,
    ..TROUBLED_ROLLOUT
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

/// A look sees each member at another moment, and the cluster changes in between.
pub(crate) const TORN_LOOKS: Scenario = Scenario {
    name: "torn looks",
    torn: true,
    ..QUIET
};

/// As [`TORN_LOOKS`], with members that fail during a look.
pub(crate) const TORN_FAILING: Scenario = Scenario {
    name: "torn failing",
    failures: 1,
    ailments: &[Phase::Crashed],
    ..TORN_LOOKS
};

/// A look sees the pods at one moment, and the answers at another. In between a member fails, or
/// its pod is deleted past the gate.
pub(crate) const HALVES: Scenario = Scenario {
    name: "halves",
    halves: true,
    failures: 1,
    ailments: &[Phase::Crashed],
    bypasses: true,
    ..QUIET
};

/// As [`HALVES`], with two members that fail, and that take part before they listen.
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

/// A voter is removed from etcd and added again as a learner, which is promoted.
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

/// As [`SCALING_BESIDE_ONE`], with two deletes, and one decision at a time.
pub(crate) const SCALING: Scenario = Scenario {
    name: "scaling",
    requests: 2,
    ..SCALING_BESIDE_ONE
};

/// As [`SCALING`], with two decisions at a time, and reports, which write the expected
/// voters too.
pub(crate) const REPORTED_SCALING: Scenario = Scenario {
    name: "reported scaling",
    reports: true,
    gates: 2,
    ..SCALING
};

/// As [`SCALING`], with members that fail.
pub(crate) const SCALING_FAILING: Scenario = Scenario {
    name: "scaling failing",
    gates: 2,
    failures: 1,
    ailments: &[Phase::Crashed],
    ..SCALING
};

/// The rollout driver among strangers.
pub(crate) const ROLLOUT: Scenario = Scenario {
    name: "rollout",
    rollout: true,
    ..QUIET
};

/// As [`ROLLOUT`], with looks that miss members, all but one at worst.
pub(crate) const BLIND_ROLLOUT: Scenario = Scenario {
    name: "blind rollout",
    hidden: 2,
    ..ROLLOUT
};

/// As [`ROLLOUT`], with members that fail, so that the rollout has to repair a lost quorum.
pub(crate) const TROUBLED_ROLLOUT: Scenario = Scenario {
    name: "troubled rollout",
    failures: 2,
    ailments: &[Phase::Crashed, Phase::Cut],
    ..ROLLOUT
};

/// Two members of three may be out at once. The majority still needs two of them.
pub(crate) const TWO_OUT: Scenario = Scenario {
    name: "two out",
    max_unavailable: 2,
    ..ROLLOUT
};

/// Two members of five may be out at once, among strangers.
pub(crate) const TWO_OUT_OF_FIVE: Scenario = Scenario {
    name: "two out of five",
    voters: 5,
    ..TWO_OUT
};

/// Members fail, two at once. Those that do not serve are replaced in one cycle, as far as they may
/// go.
pub(crate) const ALL_AT_ONCE: Scenario = Scenario {
    name: "all at once",
    all_at_once: true,
    failures: 2,
    ailments: &[Phase::Crashed],
    ..ROLLOUT
};

/// As [`ALL_AT_ONCE`], with five members of which two may be out.
pub(crate) const ALL_AT_ONCE_OF_FIVE: Scenario = Scenario {
    name: "all of five at once",
    voters: 5,
    max_unavailable: 2,
    ..ALL_AT_ONCE
};

/// Members are replaced by request, beside a delete.
pub(crate) const REPLACEMENT: Scenario = Scenario {
    name: "replacement",
    replacement: true,
    requested: true,
    gates: 1,
    requests: 1,
    ..QUIET
};

/// A volume is lost, and its member is replaced. Another member fails, beside a delete.
pub(crate) const REPLACEMENT_FAILING: Scenario = Scenario {
    name: "replacement failing",
    requested: false,
    failures: 1,
    ailments: &[Phase::Crashed],
    losses: 1,
    ..REPLACEMENT
};

/// Members are replaced by request, and others fail, so that replacements are given up.
pub(crate) const REPLACEMENT_GIVEN_UP: Scenario = Scenario {
    name: "replacement given up",
    failures: 1,
    ailments: &[Phase::Crashed],
    ..REPLACEMENT
};

/// Two volumes are lost at once, while writes are acknowledged.
pub(crate) const LOST_VOLUMES: Scenario = Scenario {
    name: "lost volumes",
    replacement: true,
    losses: 2,
    writes: true,
    gates: 1,
    requests: 1,
    strangers: false,
    ..QUIET
};

/// The members have their data in their pods, which are deleted while writes are acknowledged.
pub(crate) const DATA_IN_PODS: Scenario = Scenario {
    name: "data in pods",
    replacement: true,
    in_pods: true,
    writes: true,
    gates: 1,
    requests: 1,
    ..QUIET
};

/// As [`DATA_IN_PODS`], and members fail.
pub(crate) const DATA_IN_PODS_FAILING: Scenario = Scenario {
    name: "data in pods failing",
    failures: 1,
    ailments: &[Phase::Crashed],
    ..DATA_IN_PODS
};

/// A member of four is replaced, and another one fails meanwhile.
pub(crate) const REPLACEMENT_OF_FOUR: Scenario = Scenario {
    name: "replacement of four",
    voters: 4,
    replacement: true,
    requested: true,
    failures: 1,
    ailments: &[Phase::Crashed],
    gates: 1,
    requests: 1,
    strangers: false,
    ..QUIET
};

/// Members are defragmented, beside two deletes.
pub(crate) const DEFRAGMENTATION: Scenario = Scenario {
    name: "defragmentation",
    defragmentation: true,
    ..QUIET
};

/// As [`DEFRAGMENTATION`], with a member that fails, or that somebody defragments who asks nobody.
pub(crate) const DEFRAGMENTATION_FAILING: Scenario = Scenario {
    name: "defragmentation failing",
    defragmentation: true,
    failures: 1,
    ailments: &[Phase::Crashed, Phase::Busy],
    ..QUIET
};

/// Reports are written into the budget, between permissions and settlements.
pub(crate) const REPORTS: Scenario = Scenario {
    name: "reports",
    reports: true,
    ..QUIET
};

/// As [`REPORTS`], while a voter is removed and comes back as a learner. Reports write the
/// expected voters too.
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

/// The gate is out of force for a while. There is one decision at a time: what it may overlook is a
/// delete that passed unasked, and no second decision.
pub(crate) const OUT_OF_FORCE: Scenario = Scenario {
    name: "out of force",
    outages: true,
    gates: 1,
    ..QUIET
};

/// As [`OUT_OF_FORCE`], with two decisions at a time.
pub(crate) const OUT_OF_FORCE_FOR_TWO: Scenario = Scenario {
    name: "out of force for two",
    gates: 2,
    ..OUT_OF_FORCE
};

/// As [`OUT_OF_FORCE`], with a rollout, which asks the gate even while no API server does.
pub(crate) const ROLLOUT_OUT_OF_FORCE: Scenario = Scenario {
    name: "rollout out of force",
    outages: true,
    ..ROLLOUT
};

/// The clock of one replica runs at twice the pace of the others.
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

/// As [`THREE`], with failures.
pub(crate) const THREE_FAILING: Scenario = Scenario {
    name: "three failing",
    gates: 3,
    requests: 3,
    ..FAILURES
};

impl Scenario {
    /// The choices of the rollout's owner.
    pub(crate) fn strategy(&self) -> Strategy {
        Strategy {
            all_at_once: self.all_at_once,
            max_unavailable: self.max_unavailable,
        }
    }

    /// The most members that there are.
    pub(crate) fn members(&self) -> usize {
        self.replicas() + usize::from(self.scales)
    }

    /// The replicas that the StatefulSet asks for at the beginning.
    pub(crate) fn replicas(&self) -> usize {
        usize::from(self.voters + self.learners)
    }

    /// The member that comes and goes by scaling.
    pub(crate) fn spare(&self) -> Option<usize> {
        self.scales.then_some(self.replicas())
    }

    /// The same scenario with an error.
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
