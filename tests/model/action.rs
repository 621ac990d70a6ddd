//! The things that happen.

use crate::halves::Half;
use crate::set::Set;
use crate::state::{Force, Listed, Phase};

/// One thing that happens. Everything between two of them is one effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Somebody deletes a member's pod: the API server calls the webhook.
    Delete(usize),
    /// The call, its answer or the caller is lost, or the replica crashes: whatever was recorded stays.
    Lose(usize),
    /// The API server calls the webhook once more for the same delete.
    CallAgain(usize),
    /// A replica reads the ledger.
    Read(usize),
    /// It looks at the cluster, except at these members, and decides.
    Look(usize, Set),
    /// It looks at one member. When it has seen all, it decides.
    LookAt(usize, usize),
    /// It gathers this half of the evidence.
    LookAtHalf(usize, Half),
    /// It gathers the other half, and decides.
    LookAtOtherHalf(usize),
    /// By mutation: it decides on what it saw before.
    DecideAgain(usize),
    /// It writes, and answers.
    Record(usize),
    /// The API server deletes.
    Execute(usize),
    /// A settler reads the ledger.
    SettlerReads(usize),
    /// It looks at the pods.
    SettlerLooks(usize),
    /// It writes.
    SettlerWrites(usize),
    /// It crashes.
    SettlerCrashes(usize),
    /// The reporter reads the ledger.
    ReporterReads,
    /// It looks at the cluster, except at these members.
    ReporterLooks(Set),
    /// It writes.
    ReporterWrites,
    /// It crashes.
    ReporterCrashes,
    /// The rollout driver reads the ledger.
    DriverReads,
    /// It looks, and its plan names a step, which it asks for.
    DriverPlans(Set),
    /// It asks for the next step of its cycle.
    DriverGoesOn,
    /// It crashes.
    DriverCrashes,
    /// The template changes: every pod is outdated.
    TemplateChanges,
    /// A volume is to be replaced.
    Replace(usize),
    /// The replacement takes its member.
    ReplacementTakes,
    /// Its new voter serves.
    ReplacementEnds,
    /// The process of a pod that was deleted ends, and its object goes.
    Ends(usize),
    /// The StatefulSet controller creates the next pod.
    Created(usize),
    /// Its etcd begins to talk to its peers.
    Boots(usize),
    /// Its etcd listens.
    Starts(usize),
    /// A member fails.
    Fails(usize, Phase),
    /// It recovers.
    Recovers(usize),
    /// Its pod is deleted by somebody who is not asked.
    Bypassed(usize),
    /// A voter is removed from etcd.
    Removed(usize),
    /// It joins again, as a learner.
    Joins(usize),
    /// The StatefulSet grows, and its owner is to add the new member as this.
    ScaleOut(Listed),
    /// The owner adds the new member, before it runs.
    Added(usize),
    /// It removes the member again.
    MemberRemoved(usize),
    /// It asks for one replica less, with or without an announcement.
    ScaleIn { announced: bool },
    /// That is stored.
    ScaledIn,
    /// That is lost.
    ScaleInLost,
    /// A learner becomes a voter.
    Promoted(usize),
    /// The budget is deleted.
    BudgetDeleted,
    /// It is created again.
    BudgetCreated,
    /// The gate is not asked any more, for this reason.
    OutOfForce(Force),
    /// It is asked again.
    InForce,
    /// A pod's delete passes unasked.
    DeleteUnasked(usize),
    /// The guard reads the ledger.
    GuardReads,
    /// It reads whether the gate is in force.
    GuardLooks,
    /// It writes that down.
    GuardWrites,
    /// It crashes.
    GuardCrashes,
    /// Time passes.
    Tick,
}
