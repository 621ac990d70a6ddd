//! What a driver that waits attends to between two looks.
//!
//! A look costs the API server a dozen requests, so one that waits takes fewer of them the longer it waits. Most waits end with an event,
//! which wakes it at once. That a member serves again is no event: so those that did not serve at the last look are asked for nothing but
//! that, by themselves and often, and an answer that differs is a reason to look. One that is down costs a refused connection.
//!
//! One that has been out for long without anything happening to any pod costs as much, and is asked less often, until something happens:
//! a container that starts is an event, and a member that does not come back for hours is not worth more.

use std::time::Duration;

use kube::ResourceExt as _;
use tokio::time::Instant;

use crate::etcd::{Prober, Watched, same_watched};
use crate::reconcile::look::Look;

/// The pause between two questions to a member, as long as something is happening.
const KEEN: Duration = Duration::from_millis(50);
/// For so long after the last thing that happened something is: a member takes less to start, unless it has much to replay.
const FRESH: Duration = Duration::from_secs(120);
/// The pause after that.
const DULL: Duration = Duration::from_secs(1);

/// Remembers when something last happened to the members of a cluster.
#[derive(Debug, Default)]
pub(super) struct Attention {
    seen: Option<Seen>,
    /// How long a member may take to answer.
    patience: Duration,
    /// The pause between two questions.
    pause: Duration,
}

#[derive(Debug)]
struct Seen {
    /// The versions of the pods.
    pods: Vec<(Option<String>, Option<String>)>,
    /// Those that did not serve.
    watched: Vec<Watched>,
    /// Since when all of that has been so.
    since: Instant,
}

impl Attention {
    /// Takes in what a look showed.
    pub(super) fn take_in(&mut self, look: &Look, patience: Duration, now: Instant) {
        let pods = look.world.pods().iter();
        let pods = pods.map(|pod| (pod.uid(), pod.resource_version()));
        let asked = look.world.endpoints().iter().zip(&look.round.probes);
        let watched = asked.filter_map(|(endpoint, probe)| Watched::of(endpoint, probe));
        self.note(pods.collect(), watched.collect(), now);
        self.patience = patience;
    }

    fn note(
        &mut self,
        pods: Vec<(Option<String>, Option<String>)>,
        watched: Vec<Watched>,
        now: Instant,
    ) {
        let before = self.seen.take();
        let stands = |seen: &Seen| seen.pods == pods && same_watched(&seen.watched, &watched);
        let since = before.filter(stands).map_or(now, |seen| seen.since);
        self.pause = pause(now.saturating_duration_since(since));
        self.seen = Some(Seen {
            pods,
            watched,
            since,
        });
    }

    /// Returns when a member that did not serve at the last look answers otherwise.
    pub(super) async fn until_otherwise(&self, prober: &Prober) {
        let watched = self.seen.as_ref().map(|seen| seen.watched.as_slice());
        let watched = watched.unwrap_or_default();
        prober
            .until_otherwise(watched, self.pause, self.patience)
            .await;
    }
}

/// How long to pause between two questions when nothing has happened for so long.
fn pause(idle: Duration) -> Duration {
    if idle < FRESH { KEEN } else { DULL }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(version: &str) -> Vec<(Option<String>, Option<String>)> {
        vec![(Some("uid".to_owned()), Some(version.to_owned()))]
    }

    #[tokio::test]
    async fn a_member_that_is_out_for_long_is_asked_less_often_until_something_happens_to_a_pod() {
        let mut attention = Attention::default();
        let start = Instant::now();
        let mut after = |version: &str, seconds| {
            let now = start + Duration::from_secs(seconds);
            attention.note(pods(version), Vec::new(), now);
            attention.pause
        };
        assert_eq!(after("1", 0), KEEN);
        assert_eq!(after("1", 119), KEEN);
        assert_eq!(after("1", 120), DULL);
        // Its container starts once more.
        assert_eq!(after("2", 3600), KEEN);
        assert_eq!(after("2", 3719), KEEN);
        assert_eq!(after("2", 3720), DULL);
    }
}
