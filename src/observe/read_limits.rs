//! Time limits for readings that an override or a teardown does not need.
//!
//! A call that fails is known at once. A call that hangs (for instance in a webhook that converts
//! objects, on a node without power) would use up the time of the whole judgement, and requests
//! that depend on the pod alone would wait too. So such a reading has a time limit, after which it
//! counts as failed.

use std::time::Duration;

use tokio::time::timeout;

use super::error::ObserveError;

/// The limit for objects that a judgement can do without: an owner, a node, the Secrets of a client
/// certificate.
const SOON: Duration = Duration::from_secs(1);

/// The limit for objects that an ordinary judgement needs. It allows for an API server that is
/// slow.
const IN_TIME: Duration = Duration::from_secs(2);

/// The time limit has passed.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer within {} s", SOON.as_secs())]
pub(super) struct Late;

/// Waits at most a second, for objects that a judgement can do without.
pub(super) async fn soon<T>(reading: impl Future<Output = T>) -> Result<T, Late> {
    timeout(SOON, reading).await.map_err(|_| Late)
}

/// Waits at most two seconds, for objects that only overrides and teardowns can do without.
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
