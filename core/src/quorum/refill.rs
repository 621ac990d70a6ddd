//! Whether a member began without its data, by the word of its own process.
//!
//! An emptied member that comes back under its id ends at once while a leader knows what it had
//! (`tocommit is out of range`). Another leader gives it everything again, within less time than
//! there is between two looks, and only the process tells (measured on etcd 3.5 to 3.7).

/// The work of a member's process since it started, by its metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// The puts, deletes and transactions that it applied to its data
    /// (`etcd_server_apply_duration_seconds_count`). Before etcd 3.5 always 0.
    pub applied: u64,
    /// The snapshots of all data that it received from other members
    /// (`etcd_network_snapshot_receive_success`).
    pub received: u64,
    /// The last entry that it knows to be committed (`etcd_server_proposals_committed_total`).
    pub committed: u64,
}

/// The entries behind its last snapshot that a leader keeps for members which lag. Fewer with
/// `--snapshot-catchup-entries`, and none after a restart.
const KEPT: u64 = 5_000;
/// The entries that may be committed while a page of metrics is made.
const MEANWHILE: u64 = 100;

impl Work {
    /// Whether the process began without data that it had, for it did more than that needs. `had`:
    /// the last entry that the member had applied a while before. Where the log is shorter than
    /// that, another cluster began, and nothing is known.
    ///
    /// A process applies each entry once, and those that its data has already not at all. It needs
    /// a snapshot only if the leader does not keep the entries that it lacks.
    ///
    /// ```
    /// use quorumgate_core::quorum::Work;
    ///
    /// let refilled = Work { applied: 600, received: 0, committed: 614 };
    /// assert!(refilled.lacked_data(600) && !refilled.lacked_data(10));
    /// let by_snapshot = Work { applied: 0, received: 1, committed: 20_000 };
    /// assert!(by_snapshot.lacked_data(19_000) && !by_snapshot.lacked_data(600));
    /// let anew = Work { applied: 9, received: 0, committed: 20 };
    /// assert!(!anew.lacked_data(50_000));
    /// ```
    pub fn lacked_data(self, had: u64) -> bool {
        self.committed.checked_sub(had).is_some_and(|entries| {
            self.applied > entries + MEANWHILE || self.received > 0 && entries < KEPT
        })
    }
}
