//! The things that happen.

use crate::set::Set;
use crate::state::Phase;

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
    /// The rollout driver reads the ledger.
    DriverReads,
    /// It looks, and its plan names a step, which it asks for.
    DriverPlans(Set),
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
    /// A learner becomes a voter.
    Promoted(usize),
    /// The budget is deleted.
    BudgetDeleted,
    /// It is created again.
    BudgetCreated,
    /// Time passes.
    Tick,
}
