//! Facts from the etcd-backup-restore beside a member: how the data was initialised, by its
//! metrics, and which snapshots the backup store has.
//!
//! Both are only read ([`Page`]). Whatever else it serves acts, or consumes what it tells.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::Instant;
use tracing::warn;

use super::super::Run;
use super::super::look::Look;
use crate::etcd::{Lines, Page, metric};
use crate::members::{Facts, InitialisationCounts, Snapshots, Stored, UnixTime};
use crate::observe::{SidecarStarts, starts};
use crate::quorum::PodName;

/// The time for a page of metrics.
const METRICS: Duration = Duration::from_millis(1500);

/// The time for the latest snapshots, for which the backup store is listed.
const LISTING: Duration = Duration::from_secs(10);

/// The time until a page that could not be read is asked for again.
const AGAIN: Duration = Duration::from_secs(30);

/// The failures after which the metrics of a member that has joined are given up until etcd's
/// container starts again: a network policy may keep the gate from that port for ever.
const MOST_FAILURES: u32 = 5;

/// The facts that were read from the containers beside the members, from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Sidecars {
    initialised: HashMap<PodName, Initialised>,
    listed: Option<Listed>,
}

/// The metrics of one start of etcd's container.
#[derive(Debug)]
struct Initialised {
    starts: SidecarStarts,
    /// The counts when etcd's container started. `None` if nobody looked then.
    before: Option<InitialisationCounts>,
    /// The counts when the metrics were last read.
    last: Option<InitialisationCounts>,
    /// Whether they were read after the initialisation had ended.
    is_complete: bool,
    /// When they may be asked for again after a failure.
    again: Option<Instant>,
    /// The failures since the member has joined.
    failures: u32,
}

/// The answer to the last question for the latest snapshots.
#[derive(Debug)]
struct Listed {
    /// The revisions in the snapshot Leases for which it was asked.
    leases: Snapshots,
    answer: Result<Snapshots, String>,
    again: Option<Instant>,
}

impl Initialised {
    /// The entry for these starts, given the entry for earlier ones.
    fn of(starts: SidecarStarts, earlier: Option<Self>) -> Self {
        let same_counts = |earlier: &Self| {
            (&earlier.starts.pod, earlier.starts.sidecar) == (&starts.pod, starts.sidecar)
        };
        let before = if starts.is_first {
            Some(InitialisationCounts::default())
        } else {
            earlier.filter(same_counts).and_then(|earlier| earlier.last)
        };
        Self {
            starts,
            before,
            last: None,
            is_complete: false,
            again: None,
            failures: 0,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        !self.is_complete && self.again.is_none_or(|again| now >= again)
    }

    /// The counts since etcd's container started.
    fn counts(&self) -> Option<InitialisationCounts> {
        self.last?.since(self.before.as_ref()?)
    }
}

impl Sidecars {
    /// Reads the metrics of every member that initialises, and once more when it has joined: then
    /// nothing is counted any more until etcd's container starts again.
    pub(super) async fn read_metrics(&mut self, run: &Run, look: &Look) {
        let now = run.clock.instant();
        self.initialised
            .retain(|pod, _| look.world.pod(pod).is_some());
        for pod in &look.snapshot.pods {
            let named = look.world.etcd_container();
            let object = look.world.pod(&pod.name);
            let Some(starts) = object.and_then(|object| starts(object, named)) else {
                continue;
            };
            let earlier = self.initialised.remove(&pod.name);
            let entry = match earlier {
                Some(entry) if entry.starts == starts => entry,
                earlier => Initialised::of(starts, earlier),
            };
            self.initialised.insert(pod.name.clone(), entry);
        }
        let due = self.initialised.iter();
        let due = due.filter(|(_, entry)| entry.is_due(now));
        let reads = due.map(|(pod, _)| async move { (pod.clone(), counts(run, look, pod).await) });
        for (pod, read) in join_all(reads).await {
            let Some(entry) = self.initialised.get_mut(&pod) else {
                continue;
            };
            let member = look.snapshot.member(&pod);
            let has_joined = member.is_some_and(|member| member.sizes.is_some());
            match read {
                Ok(Some(counts)) => {
                    entry.last = Some(counts);
                    entry.is_complete = has_joined;
                    entry.again = None;
                }
                Ok(None) => entry.is_complete = true,
                // While it initialises, every look asks: its end is what the look waits for.
                Err(_) if !has_joined => {}
                Err(why) => {
                    entry.again = Some(now + AGAIN);
                    entry.failures += 1;
                    entry.is_complete = entry.failures >= MOST_FAILURES;
                    if entry.is_complete {
                        warn!(cluster = %look.page.cluster, member = %pod, why, "how its data was initialised could not be read from backup-restore, so that a restoration would not be shown");
                    }
                }
            }
        }
    }

    /// Adds to `facts` what was counted since etcd's container started.
    pub(super) fn add(&self, facts: &mut Facts, pod: &PodName) {
        let counts = self.initialised.get(pod).and_then(Initialised::counts);
        if let Some(counts) = counts {
            facts.initialised(&counts);
        }
    }

    /// The latest snapshots, asked for once for each change of the revisions in the snapshot Leases
    /// and again where that failed. The error says for people why there is no answer.
    pub(super) async fn latest(
        &mut self,
        run: &Run,
        look: &Look,
        leader: &PodName,
        leases: &Snapshots,
    ) -> Result<Snapshots, String> {
        let now = run.clock.instant();
        let known = self.listed.as_ref().filter(|listed| {
            listed.leases == *leases && listed.again.is_none_or(|again| now < again)
        });
        if let Some(known) = known {
            return known.answer.clone();
        }
        let answer = latest(run, look, leader).await;
        self.listed = Some(Listed {
            leases: leases.clone(),
            answer: answer.clone(),
            again: answer.is_err().then(|| now + AGAIN),
        });
        answer
    }
}

/// The counts of the container beside this member. `None` if there is no such container.
async fn counts(
    run: &Run,
    look: &Look,
    pod: &PodName,
) -> Result<Option<InitialisationCounts>, String> {
    let observer = &run.observer;
    let endpoint = observer
        .sidecar(&look.page.cluster, &look.world, pod)
        .await?;
    let Some(endpoint) = endpoint else {
        return Ok(None);
    };
    let mut counts = InitialisationCounts::default();
    let mut lines = Lines::new(|line: &str| count(&mut counts, line));
    let read = observer
        .prober()
        .get(&endpoint, Page::Metrics, METRICS, |part| lines.take(part))
        .await;
    read.map_err(|why| why.to_string())?;
    lines.end();
    Ok(Some(counts))
}

/// Takes a line of the metrics over. The labels stand in the order of their names, as in every page
/// that a client library of Prometheus writes.
fn count(counts: &mut InitialisationCounts, line: &str) {
    const RESTORED: &str =
        r#"etcdbr_restoration_duration_seconds_sum{restore="single_node",succeeded="true"}"#;
    const NOT_RESTORED: &str =
        r#"etcdbr_restoration_duration_seconds_sum{restore="single_node",succeeded="false"}"#;
    let fields = [
        (
            r#"etcdbr_validation_duration_seconds_count{succeeded="true"}"#,
            &mut counts.validated,
        ),
        (
            r#"etcdbr_validation_duration_seconds_count{succeeded="false"}"#,
            &mut counts.not_validated,
        ),
        (
            r#"etcdbr_restoration_duration_seconds_count{restore="single_node",succeeded="true"}"#,
            &mut counts.restored,
        ),
        (
            r#"etcdbr_restoration_duration_seconds_count{restore="single_node",succeeded="false"}"#,
            &mut counts.not_restored,
        ),
        (
            r#"etcdbr_restoration_duration_seconds_count{restore="single_member",succeeded="true"}"#,
            &mut counts.given_up,
        ),
        (
            r#"etcdbr_restoration_duration_seconds_count{restore="single_member",succeeded="false"}"#,
            &mut counts.not_given_up,
        ),
    ];
    for (name, field) in fields {
        if let Some(value) = metric(line, name) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count; what is no count becomes 0 or the largest one"
            )]
            let value = value as u64;
            *field = value;
        }
    }
    for name in [RESTORED, NOT_RESTORED] {
        let seconds = metric(line, name);
        let took = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        counts.restoring = counts.restoring.saturating_add(took.unwrap_or_default());
    }
}

async fn latest(run: &Run, look: &Look, leader: &PodName) -> Result<Snapshots, String> {
    let observer = &run.observer;
    let endpoint = observer
        .sidecar(&look.page.cluster, &look.world, leader)
        .await?;
    let endpoint = endpoint.ok_or("there is no container backup-restore beside the leader")?;
    let mut page = Vec::new();
    let read = observer
        .prober()
        .get(&endpoint, Page::LatestSnapshots, LISTING, |part| {
            page.extend_from_slice(part);
        })
        .await;
    let path = Page::LatestSnapshots.path();
    read.map_err(|why| format!("{path} at {}: {why}", endpoint.address))?;
    snapshots(&page).map_err(|why| format!("{path} at {}: {why}", endpoint.address))
}

/// The answer of etcd-backup-restore. It has no sizes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    full_snapshot: Option<AnsweredSnapshot>,
    delta_snapshots: Option<Vec<AnsweredSnapshot>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnsweredSnapshot {
    created_on: Timestamp,
    snap_name: String,
    start_revision: u64,
    last_revision: u64,
}

fn snapshots(page: &[u8]) -> Result<Snapshots, serde_json::Error> {
    let answer: Answer = serde_json::from_slice(page)?;
    let deltas = answer.delta_snapshots.into_iter().flatten();
    Ok(Snapshots {
        last_full: answer.full_snapshot.map(stored),
        last_delta: deltas.max_by_key(|delta| delta.last_revision).map(stored),
        accumulated_delta_size: None,
    })
}

fn stored(answered: AnsweredSnapshot) -> Stored {
    Stored {
        timestamp: Some(UnixTime(answered.created_on.as_second())),
        name: Some(answered.snap_name),
        size: None,
        start_revision: Some(answered.start_revision),
        end_revision: Some(answered.last_revision),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page as etcd-backup-restore v0.43 writes it, shortened.
    const PAGE: &str = r#"# HELP etcdbr_restoration_duration_seconds Total latency distribution required to restore the etcd member.
# TYPE etcdbr_restoration_duration_seconds histogram
etcdbr_restoration_duration_seconds_bucket{restore="single_node",succeeded="true",le="0.005"} 0
etcdbr_restoration_duration_seconds_sum{restore="single_member",succeeded="true"} 3.5
etcdbr_restoration_duration_seconds_count{restore="single_member",succeeded="false"} 0
etcdbr_restoration_duration_seconds_count{restore="single_member",succeeded="true"} 4
etcdbr_restoration_duration_seconds_sum{restore="single_node",succeeded="false"} 2.25
etcdbr_restoration_duration_seconds_count{restore="single_node",succeeded="false"} 2
etcdbr_restoration_duration_seconds_sum{restore="single_node",succeeded="true"} 1.5
etcdbr_restoration_duration_seconds_count{restore="single_node",succeeded="true"} 1
etcdbr_validation_duration_seconds_sum{succeeded="true"} 0.5
etcdbr_validation_duration_seconds_count{succeeded="true"} 7
etcdbr_validation_duration_seconds_count{succeeded="false"} 3
"#;

    #[test]
    fn validations_and_restorations_are_told_apart_by_their_labels() {
        let mut counts = InitialisationCounts::default();
        for line in PAGE.lines() {
            count(&mut counts, line);
        }
        let expected = InitialisationCounts {
            validated: 7,
            not_validated: 3,
            restored: 1,
            not_restored: 2,
            given_up: 4,
            not_given_up: 0,
            restoring: Duration::from_millis(3750),
        };
        assert_eq!(counts, expected);
    }

    fn starts(etcd: i32, is_first: bool) -> SidecarStarts {
        SidecarStarts {
            pod: "u".into(),
            etcd,
            sidecar: 0,
            is_first,
        }
    }

    fn validated(times: u64) -> InitialisationCounts {
        InitialisationCounts {
            validated: times,
            ..InitialisationCounts::default()
        }
    }

    #[test]
    fn what_was_counted_before_etcds_container_started_again_does_not_count() {
        let mut first = Initialised::of(starts(0, true), None);
        first.last = Some(validated(1));
        assert_eq!(first.counts(), Some(validated(1)));
        let mut second = Initialised::of(starts(1, false), Some(first));
        assert_eq!(second.counts(), None, "nothing was read yet");
        second.last = Some(validated(3));
        assert_eq!(second.counts(), Some(validated(2)));
    }

    #[test]
    fn counts_without_a_known_beginning_tell_nothing() {
        let mut unseen = Initialised::of(starts(4, false), None);
        unseen.last = Some(validated(9));
        assert_eq!(unseen.counts(), None);
        let mut other = starts(5, false);
        other.sidecar = 1;
        let mut restarted = Initialised::of(other, Some(unseen));
        restarted.last = Some(validated(9));
        assert_eq!(restarted.counts(), None);
    }

    #[test]
    fn the_latest_full_and_delta_snapshot_are_those_of_the_answer() {
        let answer = br#"{"fullSnapshot":{"createdOn":"2026-11-25T01:02:03Z","immutabilityExpriyTime":"0001-01-01T00:00:00Z",
            "versionID":null,"kind":"Full","snapDir":"","snapName":"Full-00000000-00000007-1","prefix":"etcd/v2",
            "compressionSuffix":"","startRevision":0,"lastRevision":7,"isChunk":false,"isFinal":false},
            "deltaSnapshots":[{"createdOn":"2026-11-25T01:10:00Z","snapName":"Incr-8-9","startRevision":8,"lastRevision":9},
            {"createdOn":"2026-11-25T01:15:00.5Z","snapName":"Incr-10-12","startRevision":10,"lastRevision":12}]}"#;
        let snapshots = snapshots(answer).unwrap();
        let full = snapshots.last_full.unwrap();
        assert_eq!(full.name.as_deref(), Some("Full-00000000-00000007-1"));
        assert_eq!((full.start_revision, full.end_revision), (Some(0), Some(7)));
        assert_eq!(full.timestamp, Some(UnixTime(1_795_568_523)));
        let delta = snapshots.last_delta.unwrap();
        assert_eq!(delta.name.as_deref(), Some("Incr-10-12"));
        assert_eq!((delta.size, snapshots.accumulated_delta_size), (None, None));
    }

    #[test]
    fn an_empty_backup_store_has_no_snapshots() {
        let empty = snapshots(br#"{"fullSnapshot":null,"deltaSnapshots":null}"#).unwrap();
        assert_eq!(empty, Snapshots::default());
        assert!(snapshots(b"<html>").is_err());
    }
}
