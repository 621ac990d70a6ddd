//! What goes wrong between a replica and the API server.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;

/// How long the API server may take for a call. Slower is as good as not at all: what was seen is too old to act on.
const PATIENCE: Duration = Duration::from_millis(450);

#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("the Kubernetes API did not answer within {} ms", PATIENCE.as_millis())]
    Late,
}

impl Trouble {
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// Whether somebody else wrote first, or took the object away.
    pub(super) fn is_lost_race(&self) -> bool {
        matches!(self.code(), Some(404 | 409))
    }
}

/// The answer to a call, or what is wrong with it.
pub(super) async fn in_time<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Trouble> {
    match timeout(PATIENCE, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Trouble::Late),
    }
}
