//! Why a ledger could not be read or written. Each of them ends in "wait", never in "allow".

use crate::quorum::ClusterRef;

/// Why a ledger could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The API server does not know budgets: their definition is missing.
    #[error("the definition of QuorumDisruptionBudgets is missing from the API server")]
    NoDefinition,
    /// The budget says something that this version cannot take responsibility for.
    #[error("the budget {cluster} cannot be read as a ledger: {problem}")]
    Unreadable {
        /// The budget.
        cluster: ClusterRef,
        /// What is wrong with it.
        problem: String,
    },
    /// Somebody else wrote it since it was read: begin again from the reading.
    #[error("the budget was changed by somebody else in the meantime")]
    Conflict,
    /// It was deleted since it was read.
    #[error("the budget was deleted in the meantime")]
    Gone,
    /// The write was accepted and is no fence, because it changed nothing.
    #[error("the budget took the write without a new resourceVersion")]
    NoFence,
    /// The API server stored something other than what was written: its definition of budgets is older than this version.
    #[error(
        "the API server did not keep what was written to the budget; its definition is out of date"
    )]
    NotKept,
    /// The reading failed.
    #[error("could not read the budget")]
    Read(#[source] kube::Error),
    /// The write failed; whether it took place is not known.
    #[error("could not write the budget")]
    Write(#[source] kube::Error),
}

impl LedgerError {
    /// Whether beginning again from the reading may help at once.
    pub fn begin_again(&self) -> bool {
        match self {
            Self::Conflict | Self::Gone | Self::NoFence => true,
            Self::NoDefinition
            | Self::Unreadable { .. }
            | Self::NotKept
            | Self::Read(_)
            | Self::Write(_) => false,
        }
    }

    /// Whether trying again later will not help either, until somebody mends the definition or the budget.
    pub fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::NoDefinition | Self::Unreadable { .. } | Self::NotKept
        )
    }

    pub(super) fn reading(cluster: &ClusterRef, error: kube::Error) -> Self {
        match error {
            kube::Error::SerdeError(problem) => Self::Unreadable {
                cluster: cluster.clone(),
                problem: problem.to_string(),
            },
            other if no_such_resource(&other) => Self::NoDefinition,
            other => Self::Read(other),
        }
    }

    pub(super) fn listing(error: kube::Error) -> Self {
        if no_such_resource(&error) {
            Self::NoDefinition
        } else {
            Self::Read(error)
        }
    }

    pub(super) fn writing(cluster: &ClusterRef, error: kube::Error) -> Self {
        if no_such_resource(&error) {
            return Self::NoDefinition;
        }
        match error {
            kube::Error::SerdeError(problem) => Self::Unreadable {
                cluster: cluster.clone(),
                problem: problem.to_string(),
            },
            kube::Error::Api(status) if status.is_conflict() => Self::Conflict,
            kube::Error::Api(status) if status.is_not_found() => Self::Gone,
            other => Self::Write(other),
        }
    }
}

/// Whether the API server has no such kind of object: it answers that with a bare 404, where a missing object's 404 names it.
pub(super) fn no_such_resource(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 404 && status.details.is_none(),
        _ => false,
    }
}
