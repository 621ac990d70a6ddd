//! The watch over members that do not serve, while a driver waits between two looks.
//!
//! A look costs the API server a dozen requests, so a driver looks less and less often while it
//! waits. Most waits end with an event, which wakes the driver at once. There is no event for a
//! member that serves again. So members that did not serve at the last look are probed by
//! themselves, and often. An answer that differs is a reason for a look. A member that is down
//! costs a refused connection.
//!
//! After a long time without any change of a pod the members are probed less often, until something
//! changes: the start of a container is an event, and a member that is down for hours deserves no
//! more.

use std::time::Duration;

use kube::ResourceExt as _;
use tokio::time::Instant;

use crate::etcd::{Prober, WatchedMember, same_watched};
use crate::reconcile::look::Look;

/// The pause between two probes of a member after a recent change.
const KEEN: Duration = Duration::from_millis(50);
/// The time after a change for which it counts as recent. A member needs less to start, unless it
/// has much to replay.
const FRESH: Duration = Duration::from_secs(120);
/// The pause between two probes later.
const DULL: Duration = Duration::from_secs(1);

/// The last change of a cluster's members.
#[derive(Debug, Default)]
pub(super) struct Attention {
    seen: Option<LastLook>,
    /// The time limit of a member's answer.
    round_limit: Duration,
    /// The pause between two probes.
    pause: Duration,
}

#[derive(Debug)]
struct LastLook {
    /// The UIDs and versions of the pods.
    pods: Vec<(Option<String>, Option<String>)>,
    /// The members that did not serve.
    watched: Vec<WatchedMember>,
    /// Since when all of that has been unchanged.
    since: Instant,
}

impl Attention {
    /// Records the result of a look.
    pub(super) fn take_in(&mut self, look: &Look, round_limit: Duration, now: Instant) {
        let pods = look.view.pods().iter();
        let pods = pods.map(|pod| (pod.uid(), pod.resource_version()));
        let asked = look.view.endpoints().iter().zip(&look.round.probes);
        let watched =
            asked.filter_map(|(endpoint, probe)| WatchedMember::from_probe(endpoint, probe));
        self.note(pods.collect(), watched.collect(), now);
        self.round_limit = round_limit;
    }

    fn note(
        &mut self,
        pods: Vec<(Option<String>, Option<String>)>,
        watched: Vec<WatchedMember>,
        now: Instant,
    ) {
        let before = self.seen.take();
        let stands = |seen: &LastLook| seen.pods == pods && same_watched(&seen.watched, &watched);
        let since = before.filter(stands).map_or(now, |seen| seen.since);
        self.pause = pause(now.saturating_duration_since(since));
        self.seen = Some(LastLook {
            pods,
            watched,
            since,
        });
    }

    /// Returns when a member that did not serve at the last look answers differently.
    pub(super) async fn until_otherwise(&self, prober: &Prober) {
        let watched = self.seen.as_ref().map(|seen| seen.watched.as_slice());
        let watched = watched.unwrap_or_default();
        prober
            .until_otherwise(watched, self.pause, self.round_limit)
            .await;
    }
}

/// The pause between two probes after a time without changes.
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
        // The container starts once more.
        assert_eq!(after("2", 3600), KEEN);
        assert_eq!(after("2", 3719), KEEN);
        assert_eq!(after("2", 3720), DULL);
    }
}
