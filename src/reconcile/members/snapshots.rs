//! The latest snapshots in the backup store, by the etcd-backup-restore beside the leader.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::Instant;

use crate::etcd::HttpPage;
use crate::members::{Snapshots, Stored, UnixTime};
use crate::quorum::PodName;
use crate::reconcile::look::Look;
use crate::reconcile::run::Run;

/// The time for the latest snapshots, for which the backup store is listed.
const LISTING: Duration = Duration::from_secs(10);

/// The time until a page that could not be read is asked for again.
const AGAIN: Duration = Duration::from_secs(30);

/// The latest snapshots, from one look to the next.
#[derive(Debug, Default)]
pub(super) struct LatestSnapshots {
    listed: Option<Listed>,
}

/// The answer to the last question for the latest snapshots.
#[derive(Debug)]
struct Listed {
    /// The revisions in the snapshot Leases for which it was asked.
    leases: Snapshots,
    answer: Result<Snapshots, String>,
    again: Option<Instant>,
}

impl LatestSnapshots {
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

async fn latest(run: &Run, look: &Look, leader: &PodName) -> Result<Snapshots, String> {
    let observer = &run.observer;
    let endpoint = observer
        .sidecar(&look.page.cluster, &look.view, leader)
        .await?;
    let endpoint = endpoint.ok_or("there is no container backup-restore beside the leader")?;
    let mut page = Vec::new();
    let read = observer
        .prober()
        .get(&endpoint, HttpPage::LatestSnapshots, LISTING, |part| {
            page.extend_from_slice(part);
        })
        .await;
    let path = HttpPage::LatestSnapshots.path();
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
