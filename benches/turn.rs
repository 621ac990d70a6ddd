//! The turn of one side in a round: calls on several connections, and what they cost the side.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;

use crate::caller::Caller;
use crate::reviews::Reviews;
use crate::round::Round;

/// A server that answers reviews.
pub(crate) trait Serves {
    /// A new connection.
    async fn connected(&self) -> Result<Caller>;

    /// The processor time of its threads since its start, in seconds.
    fn processor_time(&self) -> Result<f64>;
}

/// The calls of one turn and their cost.
pub(crate) struct Turn {
    pub(crate) round: Round,
    pub(crate) calls: f64,
    /// The duration in seconds.
    pub(crate) took: f64,
    /// The processor time of the server in seconds.
    pub(crate) processor: f64,
}

impl Turn {
    /// Calls on every connection concurrently, one call after another on each, for this long.
    pub(crate) async fn take(
        side: &impl Serves,
        reviews: &Reviews,
        connections: usize,
        length: Duration,
    ) -> Result<Self> {
        let mut callers = try_join_all((0..connections).map(|_| side.connected())).await?;
        let before = side.processor_time()?;
        let start = Instant::now();
        let calling = callers.iter_mut().map(|caller| async move {
            let (mut calls, mut reviews) = (Vec::new(), reviews.clone());
            while start.elapsed() < length {
                let request = reviews.next();
                let sent = Instant::now();
                caller.call(request).await?;
                calls.push(sent.elapsed());
            }
            anyhow::Ok(calls)
        });
        let calls = try_join_all(calling).await?.concat();
        Ok(Self {
            calls: u32::try_from(calls.len())?.into(),
            round: Round::from_calls(calls),
            took: start.elapsed().as_secs_f64(),
            processor: side.processor_time()? - before,
        })
    }
}
