//! What is asked of the judge, and what it answers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::ledger::Page;
use crate::observe::World;
use crate::quorum::{Actor, Basis, ClusterRef, Grace, Kind, PodName, PodUid, Reason, Waiver};

/// One disruption of one pod, as a request brought it.
#[derive(Debug, Clone)]
pub struct Question {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: PodName,
    /// The pod's metadata as the request showed it (`oldObject`), where it did. An eviction shows none.
    pub shown: Option<Box<ObjectMeta>>,
    /// What would be done.
    pub kind: Kind,
    /// Who asks.
    pub asker: Asker,
    /// Whether the pod gets its grace period.
    pub grace: Grace,
    /// The UID the request insists on.
    pub precondition: Option<PodUid>,
    /// Whether anything may be written.
    pub dry_run: DryRun,
    /// When the answer has to be there.
    pub deadline: tokio::time::Instant,
    /// What the asker chose this pod by, where it has to be so still.
    pub seen: Option<Sighting>,
}

/// What a rollout's step was chosen by. Its rules reach farther than the judge's, who knows nothing of `maxUnavailable` or of
/// who is updated: where any of this has changed, it may be another one's turn, or nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// The latest permission that was ever recorded.
    pub last_seq: u64,
    /// The generation of the budget's spec.
    pub budget: Option<i64>,
    /// The generation of the StatefulSet's.
    pub stateful_set: Option<i64>,
}

impl Sighting {
    /// What is seen of it now.
    pub fn of(page: &Page, world: &World) -> Self {
        let set = world.stateful_set();
        Self {
            last_seq: page.grants.last_seq(),
            budget: page.budget().metadata.generation,
            stateful_set: set.and_then(|set| set.metadata.generation),
        }
    }
}

impl Question {
    /// The incarnation that the request showed.
    pub fn shown_uid(&self) -> Option<PodUid> {
        let uid = self.shown.as_ref()?.uid.as_deref()?;
        Some(uid.into())
    }
}

/// Who asks: a username for the record, and what it means for the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The username.
    pub name: String,
    /// What the rules make of it.
    pub actor: Actor,
}

/// Whether anything may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRun {
    /// Decide and write nothing.
    Yes,
    /// Record what is allowed.
    No,
}

impl From<bool> for DryRun {
    /// Whether it is a dry run.
    fn from(dry_run: bool) -> Self {
        if dry_run { Self::Yes } else { Self::No }
    }
}

/// The judge's answer.
#[derive(Debug)]
#[must_use]
pub struct Answer {
    /// The cluster it is about; `None` where the pod belongs to none.
    pub cluster: Option<ClusterRef>,
    /// Yes or no.
    pub outcome: Result<Yes, Refusal>,
    /// Serving voters without a grant, minus the majority, as judged; `None` where no member was looked at.
    pub headroom: Option<i64>,
    /// What the asker should know besides (leadership that could not be moved, weaker evidence, an override in use).
    pub warnings: Vec<String>,
}

/// A yes, and what it stands on.
#[derive(Debug)]
pub enum Yes {
    /// Nothing is taken from a cluster.
    Waived(Waiver),
    /// A grant was recorded. The proof can only come from an accepted write to the ledger.
    Recorded {
        /// What the grant stands on.
        basis: Basis,
        /// The accepted write.
        proof: crate::ledger::Recorded,
    },
    /// An override or a teardown passed although nothing could be recorded; the ledger, where there is one, turns cold.
    Ungranted,
    /// It would be allowed; nothing was written.
    DryRun(Basis),
    /// It would be refused, and passes because the budget's refusals are only reported (`enforcement: Warn`); the ledger is cold meanwhile.
    Warned(Refusal),
}

impl Answer {
    /// The same where refusals are only reported. That there is no such pod, or that it changed, is no refusal.
    pub(super) fn only_warning(self) -> Self {
        let outcome = match self.outcome {
            Err(refusal @ (Refusal::Wait(_) | Refusal::Deny(_))) => Ok(Yes::Warned(refusal)),
            outcome => outcome,
        };
        Self { outcome, ..self }
    }
}

/// A no, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Ask again later: 429.
    Wait(Reason),
    /// Not like this: 403.
    Deny(Reason),
    /// There is no such pod: 404 (evictions only; a delete shows its pod).
    NoSuchPod,
    /// What the asker chose by ([`Sighting`]) is no longer so: look again.
    Outdated,
}
