//! The actions of the model: everything that can happen.

use crate::halves::Half;
use crate::set::Set;
use crate::state::{Force, Listed, Phase};

/// An action. It has one effect, so that every order of effects is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A delete of a member's pod arrives, and the API server calls the webhook.
    Delete(usize),
    /// The call, its answer or the caller is lost, or the replica crashes. Everything recorded
    /// stays.
    Lose(usize),
    /// The API server calls the webhook once more for the same delete.
    CallAgain(usize),
    /// A replica reads the ledger.
    Read(usize),
    /// The replica looks at all members except these, and decides.
    Look(usize, Set),
    /// The replica looks at one member. Once it has seen all, it decides.
    LookAt(usize, usize),
    /// The replica gathers this half of the evidence.
    LookAtHalf(usize, Half),
    /// The replica gathers the other half, and decides.
    LookAtOtherHalf(usize),
    /// By mutation: the replica decides again on its old evidence.
    DecideAgain(usize),
    /// The replica writes, and answers.
    Record(usize),
    /// The API server carries the delete out.
    Execute(usize),
    /// A settler reads the ledger.
    SettlerReads(usize),
    /// The settler looks at the pods.
    SettlerLooks(usize),
    /// The settler writes.
    SettlerWrites(usize),
    /// The settler crashes.
    SettlerCrashes(usize),
    /// The reporter reads the ledger.
    ReporterReads,
    /// The reporter looks at all members except these.
    ReporterLooks(Set),
    /// The reporter writes.
    ReporterWrites,
    /// The reporter crashes.
    ReporterCrashes,
    /// The rollout driver reads the ledger.
    DriverReads,
    /// The driver looks at all members except these, and asks for the step that its plan names.
    DriverPlans(Set),
    /// The driver asks for the next step of its cycle.
    DriverGoesOn,
    /// The driver crashes.
    DriverCrashes,
    /// The template changes, so that every pod is outdated.
    TemplateChanges,
    /// A request by the annotation that this member be replaced.
    ReplacementAsked(usize),
    /// The replacer reads the ledger and looks, and chooses the step that the plan names.
    ReplacerPlans,
    /// The judge looks, and permits the replacer's step.
    ReplacerJudges,
    /// The replacer writes.
    ReplacerWrites,
    /// The replacer crashes.
    ReplacerCrashes,
    /// etcd removes the member that is replaced.
    RemovalTakesEffect,
    /// The removal is lost.
    RemovalLost,
    /// The replacer's call takes effect.
    CallTakesEffect,
    /// The replacer's call is lost, or the replacer crashes before it.
    CallLost,
    /// The volume of a member fails under it.
    VolumeFails(usize),
    /// The pod and the claim of a member are gone.
    VolumeGone(usize),
    /// A write is acknowledged, once these members have it.
    Written(Set),
    /// A member has caught up with the others.
    Replicated(usize),
    /// A replica asks to defragment this member.
    Defragment(usize),
    /// The replica judges once more, and renews its grant.
    DefragmentationRenews,
    /// The replica makes the call.
    DefragmentationBegins,
    /// The replica settles its grant, as the call has returned and the member takes part.
    DefragmentationSettles,
    /// The replica crashes. The member goes on if the call was made.
    DefragmentationCrashes,
    /// The process of a deleted pod ends, and the pod object goes.
    Ends(usize),
    /// The StatefulSet controller creates the next pod.
    Created(usize),
    /// The container runs, and etcd takes no part yet.
    Runs(usize),
    /// A network policy rejects the gate on all members, and readiness probes fail.
    Rejected,
    /// The gate is let through again, and readiness probes pass.
    LetThrough,
    /// The member's etcd begins to talk to its peers.
    Boots(usize),
    /// The member's etcd listens.
    Starts(usize),
    /// A member fails.
    Fails(usize, Phase),
    /// A member recovers.
    Recovers(usize),
    /// A pod is deleted past the gate.
    Bypassed(usize),
    /// A voter is removed from etcd.
    Removed(usize),
    /// A removed voter joins again, as a learner.
    Joins(usize),
    /// The StatefulSet grows. The owner is to add the new member in this role.
    ScaleOut(Listed),
    /// The owner adds the new member, before it runs.
    Added(usize),
    /// The owner removes the member again.
    MemberRemoved(usize),
    /// The owner asks for one replica less, with or without an announcement.
    ScaleIn { announced: bool },
    /// The scale-in is stored.
    ScaledIn,
    /// The scale-in is lost.
    ScaleInLost,
    /// A learner becomes a voter.
    Promoted(usize),
    /// The budget is deleted.
    BudgetDeleted,
    /// The budget is created again.
    BudgetCreated,
    /// The API servers stop asking the gate, for this reason.
    OutOfForce(Force),
    /// The API servers ask the gate again.
    InForce,
    /// A delete of a pod passes unasked.
    DeleteUnasked(usize),
    /// The guard reads the ledger.
    GuardReads,
    /// The guard reads whether the gate is in force.
    GuardLooks,
    /// The guard writes down what it read.
    GuardWrites,
    /// The guard crashes.
    GuardCrashes,
    /// Time passes.
    Tick,
}
