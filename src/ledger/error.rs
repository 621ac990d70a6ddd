//! Errors of reading and writing a ledger. Each of them ends in "wait", unless the request passes
//! whatever the ledger says: a teardown, an override, or any request under `enforcement: Warn`.

use crate::quorum::ClusterRef;

/// The reason why a ledger could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The API server does not know budgets, because their definition is missing.
    #[error("the definition of QuorumDisruptionBudgets is missing from the API server")]
    NoDefinition,
    /// The budget holds something that this version does not understand.
    #[error("the budget {cluster} cannot be read as a ledger: {problem}")]
    Unreadable {
        /// The budget.
        cluster: ClusterRef,
        /// The part that is not understood.
        problem: String,
    },
    /// The budget was written since it was read. The caller begins again by reading.
    #[error("the budget was changed by somebody else in the meantime")]
    Conflict,
    /// The budget was deleted since it was read.
    #[error("the budget was deleted in the meantime")]
    Gone,
    /// The write was accepted, but it changed nothing and so is no fence.
    #[error("the budget took the write without a new resourceVersion")]
    NoFence,
    /// The API server stored something else than was written, because its definition of budgets is
    /// older than this version.
    #[error(
        "the API server did not keep what was written to the budget; its definition is out of date"
    )]
    NotKept,
    /// The budget could not be read.
    #[error("could not read the budget")]
    Read(#[source] kube::Error),
    /// The write failed. Whether it took place is not known.
    #[error("could not write the budget")]
    Write(#[source] kube::Error),
}

impl LedgerError {
    /// Whether it may help to begin again by reading, at once.
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

    /// Whether all further attempts will fail until somebody repairs the definition or the budget.
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

/// Whether the API server has no such kind of object. The API server then answers a bare 404, while
/// its 404 for a missing object names the object.
pub(super) fn no_such_resource(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 404 && status.details.is_none(),
        _ => false,
    }
}
