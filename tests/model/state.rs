//! The state of the model: what is true, what the API server holds, and what is under way.
//!
//! It is finite although requests, failures and replacements never end, because nothing is counted that is only ever compared:
//!
//! - **A resourceVersion** is compared with the present one. Whoever holds a page that somebody has written over can do nothing with it but
//!   meet a conflict and begin again, so it is put back to the reading at once (`Budget::put`).
//! - **A UID** is compared with that of the pod that stands: one bit.
//! - **A sequence number** says whether a cause is still the one that somebody watched: a new number is an age that begins anew.
//! - **An age** is compared with the settle time, and stops there. Replicas start their stopwatches when they first see a cause, at the
//!   earliest when it is written, and may settle later than they could. So the earliest possible stopwatch is the only one to explore,
//!   and a replica that crashed and forgot what it watched does nothing that a slow one does not.
//!
//! What is left of a replica is then that so many judgements, and so many settlers, may be under way at once.

use std::cmp::Ordering;

use crate::appearance::Look;
use crate::halves::{Half, Sight};
use crate::ledger::Open;
use crate::set::Set;
use crate::steps::Steps;

/// The most members, requests and replicas that a scenario has.
pub(crate) const MEMBERS: usize = 5;
pub(crate) const REQUESTS: usize = 3;
pub(crate) const REPLICAS: usize = 3;

/// Everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) members: [Member; MEMBERS],
    /// The replicas that the StatefulSet asks for.
    pub(crate) replicas: u8,
    /// As what its owner adds new members.
    pub(crate) joins_as: Listed,
    /// Whether it was admitted that it asks for one less, and not stored yet.
    pub(crate) scales_in: bool,
    /// Members that were added to etcd and never ran: nobody knows their names.
    pub(crate) unstarted: Set,
    /// The budget, while there is one.
    pub(crate) budget: Option<Budget>,
    pub(crate) requests: [Option<Request>; REQUESTS],
    pub(crate) settlers: [Settler; REPLICAS],
    pub(crate) reporter: Reporter,
    pub(crate) force: Force,
    /// How long ago replicas last saw the gate out of force, while that matters.
    pub(crate) lapsed_for: Option<u8>,
    /// Whether the guard has yet to take up an outage that it was told of.
    pub(crate) unwritten: bool,
    pub(crate) guard: Guard,
    pub(crate) driver: Driver,
    pub(crate) replacement: Option<Replacement>,
    /// Whether a permission was ever recorded that the truth at its look did not bear out: see `properties`.
    pub(crate) unfounded: bool,
}

/// One member of the StatefulSet, as it truly is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) listed: Listed,
    pub(crate) phase: Phase,
    /// Whether its pod has an older revision than the StatefulSet.
    pub(crate) outdated: bool,
    /// Whom its absence is owed to.
    pub(crate) out: Out,
}

/// What etcd's member list says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Listed {
    No,
    Learner,
    Voter,
}

/// What its pod and process do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The scenario has no such member.
    Absent,
    /// It takes part.
    Up,
    /// Its pod has a `deletionTimestamp`; its process still runs, for as long as it likes.
    Ending,
    /// There is no pod of its name.
    Missing,
    /// Its new pod has not started etcd yet.
    Starting,
    /// Its etcd runs and talks to its peers; its client port still refuses, and its pod has not changed.
    Booting,
    /// Its process ended, and its kubelet says so.
    Crashed,
    /// Its process hangs, or its host does: nobody hears of it.
    Hung,
    /// Its node is gone. Only a delete brings it back.
    Lost,
    /// It runs without contact to the others.
    Cut,
    /// It is down, and another member answers at its address.
    Impersonated,
}

/// Whom an absence is owed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Out {
    /// It is not out, or by something that nobody was asked about.
    NotByUs,
    /// It took part when a permitted disruption took it. These others failed after the permission's look, so that it could not know.
    Taken(Set),
}

/// The `QuorumDisruptionBudget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) grants: [Grant; MEMBERS],
    pub(crate) latched: Latched,
    /// The last scale-in that was admitted.
    pub(crate) scale_in: Option<ScaleIn>,
    /// For how long it has been watched while it is cold.
    pub(crate) cold_for: Option<u8>,
    /// Whether it says that the gate is out of force.
    pub(crate) suspended: bool,
    /// Whether it was last in force by other webhook configurations than those that stand.
    pub(crate) by_others: bool,
}

/// How large the cluster is known to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Latched {
    /// The most voters seen.
    pub(crate) voters: u8,
    /// The replicas under which they were seen; 0 where nobody has looked yet.
    pub(crate) replicas: u8,
    /// Whether those grew a short while ago.
    pub(crate) growing: bool,
}

/// A scale-in on record: the pods from `to` on and below `from` may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScaleIn {
    pub(crate) from: u8,
    pub(crate) to: u8,
    /// Whether it should have been admitted.
    pub(crate) founded: bool,
}

/// The open grant of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Grant {
    pub(crate) delete: Option<Cause>,
    pub(crate) replace: bool,
}

/// A permission to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Cause {
    /// Whether the incarnation that it names is the pod that stands.
    pub(crate) stands: bool,
    /// For how long its sequence number has been seen.
    pub(crate) age: u8,
    pub(crate) rollout: bool,
}

/// A delete that an API server carries out, or the half of one that the rollout driver prepares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) target: u8,
    /// Whether the incarnation that it shows is the pod that stands.
    pub(crate) stands: bool,
    /// For how long it has been under way.
    pub(crate) age: u8,
    pub(crate) by: By,
    pub(crate) at: At,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum By {
    Stranger,
    /// The driver asks the judge for its grant. No delete is under way yet.
    Driver,
    /// The driver's own delete. It goes through only while the pod's object is what the driver looked at.
    Step {
        untouched: bool,
    },
}

/// How far a request is: one variant between every two effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum At {
    /// Nobody has read anything for it.
    Called,
    /// A replica has read the ledger. Its page is the present one.
    Page,
    /// It has seen some members, and who of them has failed since.
    Looking { seen: Set, excused: Set, look: Look },
    /// It has one half of the evidence. These pods were replaced since, and these members have failed.
    Half {
        first: Half,
        look: Look,
        replaced: Set,
        excused: Set,
    },
    /// It has looked at the cluster, and decided: yes.
    Decided(Permit),
    /// By mutation: the race was lost, and its old evidence is to be used with a new page.
    Again(Permit),
    /// The write was accepted and the answer is out: the API server may delete.
    Answered(Permit),
    /// The gate was out of force, so nobody was asked: the API server may delete.
    Unasked,
}

/// A yes, and what is to be remembered of the moment in which it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Permit {
    /// Who has failed since the look.
    pub(crate) excused: Set,
    /// Whether there was no quorum at the look, nor could the target's return have made one.
    pub(crate) harmless: bool,
    /// Whether those that ran made the majority without the target.
    pub(crate) spared: bool,
    /// Whether what was decided was true.
    pub(crate) founded: bool,
    /// Whether it is to be recorded before it is said.
    pub(crate) recorded: bool,
    /// The latch as it is to be recorded: voters, and the replicas that they were seen under.
    pub(crate) latch: (u8, u8),
    /// Whether somebody announced that it is to go, whatever the others do.
    pub(crate) announced: bool,
    /// By mutation: what was seen.
    pub(crate) look: Sight,
}

/// A replica that takes back grants that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Settler {
    Idle,
    /// It has read the ledger. Its page is the present one.
    Page,
    /// It has looked at the pods: the deletes of these members have ended.
    Due(Set),
    /// By mutation: it has looked, and has yet to read. These pods were not there.
    LookedFirst(Set),
}

/// Who shows in the budget what is seen of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Reporter {
    Idle,
    /// It has read the ledger. Its page is the present one. By mutation: these were the grants.
    Page(Option<Open>),
    /// It has looked.
    Seen {
        /// The latch with the voters that it saw.
        latch: (u8, u8),
        /// By mutation: the grants as they were.
        stale: Option<Open>,
    },
    /// It has written the latch, and has yet to write what people read.
    Testified,
}

/// Whether API servers ask the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Force {
    /// They do.
    In,
    /// Not all of them: the namespace has lost its label.
    Unlabelled,
    /// Not all of them: the webhook configurations are missing.
    Unconfigured,
}

/// Who writes down whether the gate is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Guard {
    Idle,
    /// It has read the ledger. Its page is the present one. Was it told of an outage that has yet to be written down?
    Page {
        lapse: bool,
    },
    /// It has seen that the gate is out of force.
    Out {
        lapse: bool,
    },
    /// It has seen that the gate is in force. Still by the same configurations?
    In {
        lapse: bool,
        still: bool,
    },
}

/// The rollout driver, before it has chosen a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Driver {
    Idle,
    /// It has read the ledger.
    Page,
    /// It has made a step, or asked for it, and these are to follow in the same cycle.
    Cycle(Steps),
}

/// The replacement of a member's volume, which has its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Replacement {
    pub(crate) target: u8,
    /// Who has failed since the look.
    pub(crate) excused: Set,
    /// Whether the member was taken already.
    pub(crate) done: bool,
}

impl State {
    /// The members that a scenario has.
    pub(crate) fn members(&self) -> impl Iterator<Item = (usize, &Member)> {
        let all = self.members.iter().enumerate();
        all.filter(|(_, member)| member.phase != Phase::Absent)
    }

    /// Those of which something holds.
    pub(crate) fn which(&self, holds: impl Fn(&Member) -> bool) -> Set {
        Set::of(self.members().filter(|(_, m)| holds(m)).map(|(n, _)| n))
    }

    /// The place of the first request slot that is free among `slots`.
    pub(crate) fn free_slot(&self, slots: usize) -> Option<usize> {
        self.requests[..slots].iter().position(Option::is_none)
    }
}

impl Budget {
    /// A budget that somebody just created.
    pub(crate) fn new(latched: Latched, cold_for: Option<u8>) -> Self {
        Self {
            grants: [Grant::default(); MEMBERS],
            latched,
            scale_in: None,
            cold_for,
            suspended: false,
            by_others: false,
        }
    }

    /// Those that have a grant.
    pub(crate) fn granted(&self) -> Set {
        let grants = self.grants.iter().enumerate();
        Set::of(grants.filter(|(_, grant)| grant.is_open()).map(|(n, _)| n))
    }
}

impl Latched {
    /// The latch after so many voters were seen under so many replicas.
    pub(crate) fn after(self, (voters, replicas): (u8, u8)) -> Self {
        let growing = match replicas.cmp(&self.replicas) {
            _ if self.replicas == 0 => false,
            Ordering::Less => false,
            Ordering::Equal => self.growing,
            Ordering::Greater => true,
        };
        Self {
            voters,
            replicas,
            growing,
        }
    }

    /// Whether the StatefulSet has just grown to these replicas, as far as its budget tells.
    pub(crate) fn is_young(self, replicas: u8) -> bool {
        let grew = self.replicas > 0 && replicas > self.replicas;
        grew || (self.growing && replicas == self.replicas)
    }
}

impl Grant {
    pub(crate) fn is_open(self) -> bool {
        self.delete.is_some() || self.replace
    }
}

impl Request {
    /// Its permission, where it has one or is about to.
    pub(crate) fn permit(&mut self) -> Option<&mut Permit> {
        match &mut self.at {
            At::Called | At::Page | At::Looking { .. } | At::Half { .. } | At::Unasked => None,
            At::Decided(permit) | At::Again(permit) | At::Answered(permit) => Some(permit),
        }
    }

    /// Whether a replica is busy with it.
    pub(crate) fn is_heard(&self) -> bool {
        !matches!(self.at, At::Called | At::Answered(_) | At::Unasked)
    }
}
