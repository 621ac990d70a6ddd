//! The status of an `EtcdMember`: exactly the fields of DEP-04 ("API"), with both `status` and
//! `reason` in `lastDefragmentation`.

use super::state::State;
use super::transition::{Transition, UnixTime};
use crate::quorum::{ClusterId, MemberId};

/// The most transitions that are kept. The oldest go first.
pub(super) const MOST_TRANSITIONS: usize = 50;

/// The status of an `EtcdMember`. A field that is not known is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// `id`: the member id.
    pub id: Option<MemberId>,
    /// `clusterID`: the id of the cluster that the member answers for.
    pub cluster_id: Option<ClusterId>,
    /// `peerTLSEnabled`.
    pub peer_tls_enabled: Option<bool>,
    /// `dbSize`, in bytes.
    pub db_size: Option<u64>,
    /// `dbSizeInUse`, in bytes.
    pub db_size_in_use: Option<u64>,
    /// `snapshots`.
    pub snapshots: Snapshots,
    /// `lastRestoration`.
    pub last_restoration: Option<LastRestoration>,
    /// `lastDefragmentation`.
    pub last_defragmentation: Option<LastDefragmentation>,
    /// `volumeMismatches`, the oldest first.
    pub volume_mismatches: Vec<Mismatch>,
    /// `transitions`, the oldest first.
    pub transitions: Vec<Transition>,
}

impl Status {
    /// The present state. `None` before the first transition.
    pub fn state(&self) -> Option<State> {
        self.transitions.last().map(|last| last.state)
    }
}

/// `snapshots`: the backups that the leading sidecar has uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshots {
    /// `lastFull`.
    pub last_full: Option<Stored>,
    /// `lastDelta`.
    pub last_delta: Option<Stored>,
    /// `accumulatedDeltaSize`, in bytes. etcd-backup-restore reports no sizes, so that nothing
    /// fills this field yet.
    pub accumulated_delta_size: Option<u64>,
}

/// A full or delta snapshot in the backup store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    /// `timestamp`.
    pub timestamp: Option<UnixTime>,
    /// `name`: the name of the file.
    pub name: Option<String>,
    /// `size`, in bytes.
    pub size: Option<u64>,
    /// `startRevision`.
    pub start_revision: Option<u64>,
    /// `endRevision`. The snapshot Leases tell nothing else.
    pub end_revision: Option<u64>,
}

/// `lastRestoration`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastRestoration {
    /// `type`.
    pub from: RestorationType,
    /// `status`.
    pub status: RestorationStatus,
    /// `reason`.
    pub reason: Option<String>,
    /// `message`.
    pub message: Option<String>,
    /// `startTime`.
    pub start_time: UnixTime,
    /// `endTime`.
    pub end_time: Option<UnixTime>,
}

/// The source of restored data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString)]
pub enum RestorationType {
    /// The backup.
    FromSnapshot,
    /// The leader, which a learner follows.
    FromLeader,
}

/// The progress of a restoration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString)]
pub enum RestorationStatus {
    /// The restoration failed. The sidecar tries again by itself.
    Failed,
    /// The restoration is done.
    Success,
    /// The restoration runs.
    #[strum(serialize = "In-Progress")]
    InProgress,
}

/// `lastDefragmentation`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastDefragmentation {
    /// `startTime`.
    pub start_time: UnixTime,
    /// `endTime`; absent while the defragmentation runs.
    pub end_time: Option<UnixTime>,
    /// `status`; absent while the defragmentation runs.
    pub status: Option<RunStatus>,
    /// `reason`: why the member was defragmented, as a slug.
    pub reason: Option<String>,
    /// `message`.
    pub message: Option<String>,
    /// `initialDBSize`, in bytes.
    pub initial_db_size: Option<u64>,
    /// `finalDBSize`, in bytes.
    pub final_db_size: Option<u64>,
}

/// The result of a defragmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString)]
pub enum RunStatus {
    /// The call returned without an error.
    Succeeded,
    /// The call returned an error, or nobody knows how it ended.
    Failed,
}

/// An entry of `volumeMismatches`, one per volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// `identifiedAt`.
    pub identified_at: UnixTime,
    /// `fixedAt`; absent while the wrong volume is mounted.
    pub fixed_at: Option<UnixTime>,
    /// `volumeID`: the wrong volume.
    pub volume_id: String,
    /// `numRestarts`: the restarts of etcd's container with this volume.
    pub num_restarts: u32,
}
