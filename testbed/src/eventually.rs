//! The way to wait for a condition: check again and again until the condition holds or a deadline
//! has passed.

use std::time::Duration;

use anyhow::{Result, anyhow};
use kube::runtime::utils::Backoff;
use tokio::time::{Instant, sleep, timeout_at};

/// The shortest pause of [`eventually`] between two checks.
const SHORTEST: Duration = Duration::from_millis(50);
/// The longest one. Four tests that ask every 50 ms take a third of two processors.
const LONGEST: Duration = Duration::from_millis(200);

/// The pause after a check when the condition has been waited for so long: a tenth of it.
fn pause(waited: Duration) -> Duration {
    (waited / 10).clamp(SHORTEST, LONGEST)
}

/// The back-off of a watch that returns as soon as the API server does, as kube-proxy's and those
/// of tests do.
#[derive(Debug)]
pub struct AtOnce;

impl Iterator for AtOnce {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(100))
    }
}

impl Backoff for AtOnce {
    fn reset(&mut self) {}
}

/// The result of a check: the condition holds, or does not hold yet for some reason.
pub trait Observation {
    /// The value once the condition holds.
    type Value;

    /// The value, or the reason why there is none yet (`None` if there is nothing to say).
    fn settle(self) -> Result<Self::Value, Option<anyhow::Error>>;
}

impl Observation for bool {
    type Value = ();

    fn settle(self) -> Result<(), Option<anyhow::Error>> {
        if self { Ok(()) } else { Err(None) }
    }
}

impl<T> Observation for Option<T> {
    type Value = T;

    fn settle(self) -> Result<T, Option<anyhow::Error>> {
        self.ok_or(None)
    }
}

impl<T, E: Into<anyhow::Error>> Observation for Result<T, E> {
    type Value = T;

    fn settle(self) -> Result<T, Option<anyhow::Error>> {
        self.map_err(|error| Some(error.into()))
    }
}

/// Checks every 50 ms, later every 200 ms, until `look` answers `true`, `Some` or `Ok`, and returns
/// the value.
///
/// `what` completes the sentence "waited in vain until …". A check that hangs ends at the deadline
/// too.
///
/// # Errors
///
/// Fails when `within` has passed. The message has `what` and the error of the last check.
pub async fn eventually<O, F, L>(
    within: Duration,
    what: impl AsRef<str>,
    mut look: L,
) -> Result<O::Value>
where
    O: Observation,
    F: Future<Output = O>,
    L: FnMut() -> F,
{
    let began = Instant::now();
    let deadline = began + within;
    let mut last = None;
    loop {
        match timeout_at(deadline, look()).await.map(Observation::settle) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(why)) => last = why.or(last),
            Err(_) => last = last.or_else(|| Some(anyhow!("the last look did not come back"))),
        }
        let pause = pause(began.elapsed());
        if Instant::now() + pause > deadline {
            let waited = format!("waited {within:?} in vain until {}", what.as_ref());
            return Err(match last {
                Some(why) => why.context(waited),
                None => anyhow!(waited),
            });
        }
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test(start_paused = true)]
    async fn the_value_is_returned_once_it_exists() {
        let looks = Cell::new(0);
        let value = eventually(Duration::from_secs(1), "three looks", async || {
            looks.set(looks.get() + 1);
            (looks.get() == 3).then_some("there")
        });
        assert_eq!(value.await.unwrap(), "there");
    }

    #[test]
    fn the_longer_the_wait_the_longer_the_pause() {
        let after = |seconds| pause(Duration::from_secs_f64(seconds)).as_millis();
        assert_eq!([0.0, 1.0, 1.5, 60.0].map(after), [50, 100, 150, 200]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_names_the_condition_and_the_last_error() {
        let error = eventually(Duration::from_secs(1), "pigs fly", async || {
            Err::<(), _>(anyhow!("no wings"))
        });
        let message = format!("{:#}", error.await.unwrap_err());
        assert_eq!(message, "waited 1s in vain until pigs fly: no wings");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_ends_at_the_deadline() {
        let error = eventually(Duration::from_secs(1), "it answers", async || {
            std::future::pending::<bool>().await
        });
        assert!(format!("{:#}", error.await.unwrap_err()).contains("did not come back"));
    }
}
