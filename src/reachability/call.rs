//! Failed calls of the worker to the API server.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;

/// The time limit of a call. A later answer would be too old to act upon.
const PATIENCE: Duration = Duration::from_millis(450);

#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("the Kubernetes API did not answer within {} ms", PATIENCE.as_millis())]
    Late,
}

impl CallError {
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// Whether another writer was first, or the object is gone.
    pub(super) fn is_lost_race(&self) -> bool {
        matches!(self.code(), Some(404 | 409))
    }
}

/// Makes a call within the time limit.
pub(super) async fn in_time<T>(
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    match timeout(PATIENCE, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(CallError::Late),
    }
}
