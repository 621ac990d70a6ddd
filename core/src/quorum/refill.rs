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
}

/// The entries behind a leader's last snapshot that it keeps for members which lag, unless
/// `--snapshot-catchup-entries` says otherwise.
const KEPT: u64 = 5_000;

impl Work {
    /// Whether the process began without data that it had, for it did more than that needs.
    /// `entries`: those that the cluster committed since the member was last known to have all
    /// before.
    ///
    /// A process applies each entry once, and those that its data has already not at all. It needs
    /// a snapshot only if the leader does not keep the entries that it lacks.
    ///
    /// ```
    /// use quorumgate_core::quorum::Work;
    ///
    /// let refilled = Work { applied: 600, received: 0 };
    /// assert!(refilled.lacked_data(14) && !refilled.lacked_data(700));
    /// let by_snapshot = Work { applied: 0, received: 1 };
    /// assert!(by_snapshot.lacked_data(14) && !by_snapshot.lacked_data(20_000));
    /// ```
    pub fn lacked_data(self, entries: u64) -> bool {
        self.applied > entries || self.received > 0 && entries < KEPT
    }
}
