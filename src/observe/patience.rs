//! How long a reading may take that an override or a teardown does without.
//!
//! A call that fails is told at once. One that hangs (a webhook that converts objects on a node that lost power) would use up the time of
//! the whole judgement, and what goes by the pod alone would wait as well. So such a reading ends in time for that, and counts as one
//! that failed.

use std::time::Duration;

use tokio::time::timeout;

use super::ObserveError;

/// For what a judgement goes on without: an owner, a node, the Secrets of a client certificate.
const SOON: Duration = Duration::from_secs(1);

/// For what an ordinary judgement cannot do without. An API server that is slow and not silent is waited for.
const IN_TIME: Duration = Duration::from_secs(2);

/// It took too long.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer within {} s", SOON.as_secs())]
pub(super) struct Late;

/// Waits a second for what can be done without.
pub(super) async fn soon<T>(reading: impl Future<Output = T>) -> Result<T, Late> {
    timeout(SOON, reading).await.map_err(|_| Late)
}

/// Waits two seconds for what only overrides and teardowns can do without.
pub(super) async fn in_time<T>(
    what: &'static str,
    reading: impl Future<Output = Result<T, ObserveError>>,
) -> Result<T, ObserveError> {
    let read = timeout(IN_TIME, reading).await;
    read.unwrap_or(Err(ObserveError::Late {
        what,
        after: IN_TIME,
    }))
}
