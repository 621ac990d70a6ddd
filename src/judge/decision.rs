//! The answer of the judge.

use crate::ledger::Recorded;
use crate::quorum::{Basis, ClusterRef, Reason, Waiver};

/// The decision about a request: a yes with its ground, or a refusal with its reason.
pub type Decision = Result<Allowed, Refused>;

/// The answer to a question: the decision, and what was learnt on the way.
#[derive(Debug)]
#[must_use]
pub struct Answer {
    /// The cluster in question. `None` if the pod belongs to none.
    pub cluster: Option<ClusterRef>,
    /// The decision.
    pub decision: Decision,
    /// The serving voters without a grant, minus the majority. `None` if no member was looked at.
    pub headroom: Option<i64>,
    /// Further notes for the asker: leadership that could not be moved, weaker evidence, an
    /// override in use.
    pub warnings: Vec<String>,
}

/// A yes. Only the judge makes one, so whoever holds one has asked the judge:
///
/// ```compile_fail,E0423
/// use quorumgate::judge::{Allowed, Ground};
///
/// let forged = Allowed(Ground::Ungranted);
/// ```
#[derive(Debug)]
pub struct Allowed(Ground);

/// The ground of a yes: the ledger's proof, or the reason why there is none.
#[derive(Debug)]
pub enum Ground {
    /// The ledger has the grant, or the admitted change of a StatefulSet, on record.
    Recorded(Basis, Recorded),
    /// The request takes nothing from a cluster.
    Waived(Waiver),
    /// The request would be recorded and allowed. Nothing was written.
    DryRun(Basis),
    /// An override or a teardown lets the pod go, although nothing could be recorded. A member may
    /// be out without a grant then, so the ledger, if there is one, loses its trust.
    Ungranted,
    /// The StatefulSet changes without a record, because there is no budget, or the budget cannot
    /// express the change, or an override or a teardown does not wait for it. The ledger keeps its
    /// trust, because the pods are judged one by one.
    Unrecorded,
    /// The request would be refused, and passes because refusals are only reported
    /// (`enforcement: Warn`). The ledger has no trust meanwhile.
    Warned(Refused),
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The same request may pass later: 429.
    Wait(Reason),
    /// The request has to be made in another way: 403.
    Deny(Reason),
    /// The pod does not exist: 404. An eviction does not show its pod; a delete does.
    NoSuchPod,
    /// The facts by which the asker chose the pod ([`super::SeenVersions`]) have changed.
    Outdated,
}

impl Answer {
    /// The refusal of a request that could not be judged, for the reason `what`.
    pub fn unavailable(what: impl Into<String>) -> Self {
        Self {
            cluster: None,
            decision: Err(Refused::unavailable(what)),
            headroom: None,
            warnings: Vec::new(),
        }
    }
}

impl Allowed {
    pub(super) fn on(ground: Ground) -> Self {
        Self(ground)
    }

    /// The yes of a judge that a test puts in the place of the real one. Nothing in the program
    /// calls this function; `tests/it/architecture.rs` makes sure of it.
    pub fn stand_in(ground: Ground) -> Self {
        Self(ground)
    }

    /// The ground of the yes.
    pub fn ground(&self) -> &Ground {
        &self.0
    }

    /// The ground of the yes, which is used up with it.
    pub fn into_ground(self) -> Ground {
        self.0
    }

    /// The ledger's proof, without which the gate does nothing by itself. `None` if the yes has
    /// another ground.
    pub fn recorded(&self) -> Option<&Recorded> {
        match &self.0 {
            Ground::Recorded(_, proof) => Some(proof),
            Ground::Waived(_)
            | Ground::Ungranted
            | Ground::Unrecorded
            | Ground::DryRun(_)
            | Ground::Warned(_) => None,
        }
    }

    /// The stable identifier of the ground, for metrics and audit annotations.
    pub fn slug(&self) -> &'static str {
        match &self.0 {
            Ground::Recorded(basis, _) | Ground::DryRun(basis) => basis.slug(),
            Ground::Waived(waiver) => waiver.slug(),
            Ground::Ungranted => "OverrideUngranted",
            Ground::Unrecorded => "Unrecorded",
            Ground::Warned(refused) => refused.slug(),
        }
    }
}

impl Refused {
    /// The refusal for something that could not be found out, written or finished in time.
    pub fn unavailable(what: impl Into<String>) -> Self {
        Self::Wait(unavailable(what))
    }

    /// The stable identifier of the reason, for metrics and audit annotations.
    pub fn slug(&self) -> &'static str {
        match self {
            Self::Wait(reason) | Self::Deny(reason) => reason.slug(),
            Self::NoSuchPod => "NoSuchPod",
            Self::Outdated => "Unavailable",
        }
    }
}

/// The reason to wait for something that could not be found out, written or finished in time. This
/// is the one place where an error becomes "wait"; `tests/it/architecture.rs` makes sure of it.
pub(super) fn unavailable(what: impl Into<String>) -> Reason {
    Reason::Unavailable { what: what.into() }
}
