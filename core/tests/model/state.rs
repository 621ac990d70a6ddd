//! The state of the model: the truth, the objects in the API server, and everything under way.
//!
//! Requests, failures and replacements never end. The state is finite all the same, because values
//! that are only ever compared are not counted:
//!
//! - **A resourceVersion** is compared with the present one. A holder of an old reading can only
//!   meet a conflict and begin again. So that holder is put back to the reading at once
//!   (`Budget::put`).
//! - **A UID** is compared with that of the existing pod: one bit.
//! - **A sequence number** says whether a cause is still the one that a settler watched. A new
//!   number is an age that begins anew.
//! - **An age** is compared with the settle time, and stops there. Replicas start their stopwatches
//!   when they first see a cause, at the earliest when it is written, and may settle later than
//!   they could. So the earliest possible stopwatch is the only one to explore. A replica that
//!   crashed and forgot what it watched does nothing that a slow one does not.
//!
//! - **An id** of a member is that on record with its volume, or a newer one: one bit. When the
//!   newer one is recorded, it takes the other's place.
//!
//! All that is left of the replicas is the number of decisions and of settlers that may be under
//! way at once.

use std::cmp::Ordering;

use crate::appearance::Look;
use crate::halves::{Half, Sight};
use crate::ledger::Open;
use crate::replacement::{Call, Record, Removal, Replacer};
use crate::set::Set;
use crate::steps::Steps;
use crate::trust::{Recorded, Webhooks};

/// The most members, requests and replicas that a scenario has.
pub(crate) const MEMBERS: usize = 5;
pub(crate) const REQUESTS: usize = 3;
pub(crate) const REPLICAS: usize = 3;

/// The whole state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct State {
    pub(crate) members: [Member; MEMBERS],
    /// The replicas that the StatefulSet asks for.
    pub(crate) replicas: u8,
    /// The role in which the owner adds new members.
    pub(crate) joins_as: Listed,
    /// Whether a scale-in by one was admitted and is not stored yet.
    pub(crate) scales_in: bool,
    /// The members that were added to etcd and never ran, so that their names are not known.
    pub(crate) unstarted: Set,
    /// The budget, while there is one.
    pub(crate) budget: Option<Budget>,
    pub(crate) requests: [Option<Request>; REQUESTS],
    pub(crate) settlers: [Settler; REPLICAS],
    pub(crate) reporter: Reporter,
    pub(crate) force: Force,
    /// Whether a network policy rejects the gate's connections to all members, while their
    /// readiness probes fail for another reason.
    pub(crate) is_rejected: bool,
    /// How long ago replicas last saw the gate out of force, while that matters.
    pub(crate) outage_ago: Option<u8>,
    /// Whether the guard has yet to take up an outage that it was told of.
    pub(crate) unwritten: bool,
    pub(crate) guard: Guard,
    pub(crate) driver: Driver,
    pub(crate) replacer: Replacer,
    /// The removal of a member that the replacer asked etcd for, while it may take effect.
    pub(crate) removal: Option<Removal>,
    /// Another call of the replacer, while it may take effect.
    pub(crate) call: Option<Call>,
    /// The member whose replacement somebody asks for by its id.
    pub(crate) asked: Option<u8>,
    /// The member that the gate removed while it took part, until it takes part again, with those
    /// that failed after the look of the permission.
    pub(crate) removed: Option<(u8, Set)>,
    /// The members that have the last acknowledged write on their volumes.
    pub(crate) holders: Set,
    /// Whether the members have their data in their pods.
    pub(crate) in_pods: bool,
    pub(crate) defragmentation: Option<Defragmentation>,
    /// Whether a permission was ever recorded whose reason was not true at its look (see
    /// `properties`).
    pub(crate) unfounded: bool,
    /// Whether a change of the member list ever took the quorum (see `properties`).
    pub(crate) outvoted: bool,
}

/// The truth about a member of the StatefulSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) listed: Listed,
    pub(crate) phase: Phase,
    /// Whether the pod has an older revision than the StatefulSet.
    pub(crate) outdated: bool,
    /// The reason why the member is out.
    pub(crate) out: Out,
    pub(crate) volume: Volume,
    /// Whether etcd's entry has a newer id than the one that is recorded with the volume.
    pub(crate) renewed: bool,
    /// Whether the member started without data, and has yet to catch up.
    pub(crate) behind: bool,
}

/// The claim and the volume of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Volume {
    /// The volume on record.
    Own,
    /// The same, and its claim is terminating: it goes with the pod.
    Going,
    /// The volume has failed. Nothing can run on it.
    Failed,
    /// The volume has failed, and its claim is terminating.
    FailedGoing,
    /// There is no claim.
    None,
    /// A new claim, whose volume is empty.
    Blank,
    /// A new claim, and the member has started on it.
    New,
    /// A new claim with the data of a member that was removed. etcd never starts on it.
    Stale,
}

/// The member's entry in etcd's member list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Listed {
    No,
    Learner,
    Voter,
}

/// The state of the member's pod and process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The scenario has no such member.
    Absent,
    /// The member takes part.
    Up,
    /// The pod has a `deletionTimestamp`. The process still runs, for any length of time.
    Ending,
    /// There is no pod of the member's name.
    Missing,
    /// The new pod waits for the scheduling gate of the identity guard.
    Held,
    /// The new pod has not started etcd yet.
    Starting,
    /// The container runs, and etcd takes no part yet: a wrapper initialises the data, or etcd
    /// reads it. The client port refuses.
    Initialising,
    /// etcd runs and talks to its peers. Its client port still refuses, and its pod has not
    /// changed.
    Booting,
    /// The process ended, and the kubelet says so.
    Crashed,
    /// The process or its host hangs, and nothing answers.
    Hung,
    /// The member defragments its database, and answers nothing until it is done.
    Busy,
    /// The node is gone. Only a delete brings the member back.
    Lost,
    /// The member runs without contact to the others.
    Cut,
    /// The member is down, and another one answers at its address.
    Impersonated,
}

/// The reason why a member is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Out {
    /// The member is not out, or was taken out by something that asked nobody.
    NotByUs,
    /// A permitted disruption took the member while it took part. These others failed after the
    /// permission's look, which could not know of them.
    Taken(Set),
}

/// The `QuorumDisruptionBudget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) grants: [Grant; MEMBERS],
    pub(crate) expected: Expected,
    /// The last scale-in that was admitted.
    pub(crate) scale_in: Option<ScaleIn>,
    /// The replacement that is under way.
    pub(crate) record: Option<Record>,
    pub(crate) trust: Recorded,
}

/// The size that the cluster is known to have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Expected {
    /// The most voters seen.
    pub(crate) voters: u8,
    /// The replicas at that time; 0 before the first look.
    pub(crate) replicas: u8,
    /// Whether the replicas grew a short while ago.
    pub(crate) growing: bool,
}

/// A scale-in on record: the pods with ordinals from `to` on and below `from` may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScaleIn {
    pub(crate) from: u8,
    pub(crate) to: u8,
    /// Whether it was right to admit it.
    pub(crate) founded: bool,
}

/// The open grant of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Grant {
    pub(crate) delete: Option<Cause>,
    /// The time since the number of the permission to replace was first seen.
    pub(crate) replace: Option<u8>,
    /// The time since others first saw the number of the permission to defragment.
    pub(crate) defragment: Option<u8>,
}

/// A permission to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Cause {
    /// Whether the incarnation in the permission is the pod that exists now.
    pub(crate) stands: bool,
    /// The time since its sequence number was first seen.
    pub(crate) age: u8,
    pub(crate) rollout: bool,
}

/// A delete that an API server carries out, or the first half of one of the rollout driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) target: u8,
    /// Whether the incarnation in the request is the pod that exists now.
    pub(crate) stands: bool,
    /// The time since the request began.
    pub(crate) age: u8,
    pub(crate) by: By,
    pub(crate) at: At,
}

/// The asker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum By {
    Stranger,
    /// The driver asks for its grant. No delete is under way yet.
    Driver,
    /// The driver's own delete. It succeeds only while the pod object is the one that the driver
    /// looked at.
    Step {
        untouched: bool,
    },
}

/// The progress of a request. Between any two effects there is a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum At {
    /// Nothing has been read for the request.
    Called,
    /// A replica has read the ledger, and the reading is up to date.
    Page,
    /// The replica has seen some members, and knows which of them have failed since.
    Looking { seen: Set, excused: Set, look: Look },
    /// The replica has one half of the evidence. Some pods were replaced since, and some members
    /// have failed.
    Half {
        first: Half,
        look: Look,
        replaced: Set,
        excused: Set,
    },
    /// The replica has looked at the cluster and decided: yes.
    Decided(Permit),
    /// By mutation: the race was lost, and the old evidence is used with a new reading.
    Again(Permit),
    /// The write was accepted and the answer is out. The API server may delete.
    Answered(Permit),
    /// The gate was out of force and was not asked. The API server may delete.
    Unasked,
}

/// A permission, and the facts about the moment of its look that are needed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Permit {
    /// The members that have failed since the look.
    pub(crate) excused: Set,
    /// Whether there was no quorum at the look, nor could the target's return have made one.
    pub(crate) harmless: bool,
    /// Whether the members that ran made the majority without the target.
    pub(crate) spared: bool,
    /// Whether the reason of the decision was true.
    pub(crate) founded: bool,
    /// Whether a grant is to be recorded before the answer.
    pub(crate) recorded: bool,
    /// The expected voters to record, and the replicas at that time.
    pub(crate) expected: (u8, u8),
    /// Whether a person announced that the member is to go, whatever the others do.
    pub(crate) announced: bool,
    /// By mutation: the result of the look.
    pub(crate) look: Sight,
}

/// A replica that removes causes of grants that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Settler {
    Idle,
    /// The settler has read the ledger, and the reading is up to date.
    Page,
    /// The settler has looked at the members. The deletes of the first ones and the
    /// defragmentations of the others have ended.
    Due(Set, Set),
    /// By mutation: the settler has looked and has yet to read. These pods were missing.
    LookedFirst(Set),
}

/// The replica that shows the state of the cluster in the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Reporter {
    Idle,
    /// The reporter has read the ledger, and the reading is up to date. By mutation: these were the
    /// grants.
    Page(Option<Open>),
    /// The reporter has looked.
    Seen {
        /// The expected voters, with those that the reporter saw.
        expected: (u8, u8),
        /// By mutation: the grants as they were.
        stale: Option<Open>,
    },
    /// The reporter has written the expected voters, and has yet to write the report for people.
    Updated,
}

/// Whether API servers ask the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Force {
    /// All API servers ask the gate.
    In,
    /// Some API servers do not: the namespace has lost its label.
    Unlabelled,
    /// Some API servers do not: the webhook configurations are missing.
    Unconfigured,
}

/// The replica that writes down whether the gate is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Guard {
    Idle,
    /// The guard has read the ledger, and the reading is up to date. The field says whether the
    /// guard was told of an outage that has yet to be written down.
    Page {
        outage: bool,
    },
    /// The guard has seen that the gate is out of force.
    Out {
        outage: bool,
    },
    /// The guard has seen that the gate is in force, and by which configurations.
    In {
        outage: bool,
        by: Webhooks,
    },
}

/// The rollout driver, before it has chosen a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Driver {
    Idle,
    /// The driver has read the ledger.
    Page,
    /// The driver has made a step, or asked for it, and these are to follow in the same cycle.
    Cycle(Steps),
}

/// The defragmentation of a member, by the one process that has the grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Defragmentation {
    pub(crate) target: u8,
    /// The members that have failed since the last look.
    pub(crate) excused: Set,
    pub(crate) stage: Stage,
}

/// The stage of a defragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// The grant is recorded.
    Granted,
    /// The grant was renewed this long ago, right before the call.
    Renewed { age: u8 },
    /// The call was made.
    Called,
}

impl Volume {
    /// Whether the claim is terminating.
    pub(crate) fn is_going(self) -> bool {
        matches!(self, Self::Going | Self::FailedGoing)
    }

    /// Whether etcd's process can begin on it, with data or without.
    pub(crate) fn is_usable(self) -> bool {
        !matches!(self, Self::Failed | Self::FailedGoing | Self::None)
    }

    /// Whether a member's data is on it.
    pub(crate) fn has_data(self) -> bool {
        self.is_usable() && !matches!(self, Self::Blank | Self::Stale)
    }
}

impl State {
    /// The members that a scenario has.
    pub(crate) fn members(&self) -> impl Iterator<Item = (usize, &Member)> {
        let all = self.members.iter().enumerate();
        all.filter(|(_, member)| member.phase != Phase::Absent)
    }

    /// The members that satisfy `holds`.
    pub(crate) fn which(&self, holds: impl Fn(&Member) -> bool) -> Set {
        Set::new(self.members().filter(|(_, m)| holds(m)).map(|(n, _)| n))
    }

    /// The place of the first request slot that is free among `slots`.
    pub(crate) fn free_slot(&self, slots: usize) -> Option<usize> {
        self.requests[..slots].iter().position(Option::is_none)
    }
}

impl Budget {
    /// A budget that was created just now.
    pub(crate) fn new(expected: Expected, untrusted_for: Option<u8>) -> Self {
        Self {
            grants: [Grant::default(); MEMBERS],
            expected,
            scale_in: None,
            record: None,
            trust: Recorded {
                untrusted_for,
                suspended: false,
                by_others: false,
            },
        }
    }

    /// The members that have a grant.
    pub(crate) fn granted(&self) -> Set {
        let grants = self.grants.iter().enumerate();
        Set::new(grants.filter(|(_, grant)| grant.is_open()).map(|(n, _)| n))
    }
}

impl Expected {
    /// The expected voters after so many voters were seen under so many replicas.
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
        self.delete.is_some() || self.replace.is_some() || self.defragment.is_some()
    }
}

impl Request {
    /// The permission of the request, if it has one or is about to.
    pub(crate) fn permit(&mut self) -> Option<&mut Permit> {
        match &mut self.at {
            At::Called | At::Page | At::Looking { .. } | At::Half { .. } | At::Unasked => None,
            At::Decided(permit) | At::Again(permit) | At::Answered(permit) => Some(permit),
        }
    }

    /// Whether a replica is working on the request.
    pub(crate) fn is_heard(&self) -> bool {
        !matches!(self.at, At::Called | At::Answered(_) | At::Unasked)
    }
}
