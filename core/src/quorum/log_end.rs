//! The end of a cluster's log, which never goes back while its data is there.
//!
//! A member that serves as leader has everything that any member ever committed. So its commit
//! index is at least that which was seen earlier under the same cluster id, whoever led then. It is
//! lower only where the data of a majority is gone or older: emptied volumes of members that start
//! again under their ids, or an older copy of a data directory.

use std::fmt;

use super::id::ClusterId;

/// The smallest and the largest step by which the record of a log's end moves, in raft entries. In
/// between it moves by a sixteenth, so that a busy cluster's budget is not written all the time.
const SMALLEST_STEP: u64 = 100;
const LARGEST_STEP: u64 = 10_000;

/// The end of the log of a cluster, as its leader reported it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    /// The id of the cluster.
    pub cluster: ClusterId,
    /// The last raft index that is known to be committed.
    pub index: u64,
}

impl LogEnd {
    /// Whether `seen` belongs on record in the place of `recorded`.
    ///
    /// ```
    /// use quorumgate_core::quorum::{ClusterId, LogEnd};
    ///
    /// let at = |cluster, index| LogEnd { cluster: ClusterId(cluster), index };
    /// assert!(at(1, 7).replaces(None));
    /// assert!(at(1, 200).replaces(Some(at(1, 100))));
    /// assert!(!at(1, 101).replaces(Some(at(1, 100))), "a step too small");
    /// assert!(!at(1, 8).replaces(Some(at(1, 100))), "it went back");
    /// assert!(at(2, 8).replaces(Some(at(1, 100))), "another cluster");
    /// ```
    pub fn replaces(self, recorded: Option<Self>) -> bool {
        recorded.is_none_or(|recorded| {
            let next = recorded.index.saturating_add(recorded.step());
            self.cluster != recorded.cluster || self.index >= next
        })
    }

    /// The number of later entries after which the record moves on. Of a loss of fewer the record
    /// knows nothing.
    pub fn step(self) -> u64 {
        (self.index / 16).clamp(SMALLEST_STEP, LARGEST_STEP)
    }
}

/// The data of a cluster went back, or is that of another cluster. `Display` completes the sentence
/// "data is lost: …".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WentBack {
    /// The id of the cluster on record.
    pub cluster: ClusterId,
    /// The id of the cluster as which the members serve.
    pub serves_as: ClusterId,
    /// The index that was on record.
    pub reached: u64,
    /// The index that the leader reported when that was found.
    pub is: u64,
}

impl fmt::Display for WentBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster,
            serves_as,
            reached,
            is,
        } = self;
        if cluster == serves_as {
            write!(
                f,
                "the log of cluster {cluster} reached entry {reached}, and its leader has {is}"
            )
        } else {
            write!(
                f,
                "the members serve as cluster {serves_as}, which nobody announced, and cluster \
                 {cluster} is on record, whose log reached entry {reached}"
            )
        }
    }
}

impl WentBack {
    /// Whether one look is enough to say so: the cluster is another one, or less than half of the
    /// log is left. A leader that was elected a moment ago may report a little less than its
    /// predecessor did, until it has committed the first entry of its term.
    ///
    /// ```
    /// use quorumgate_core::quorum::{ClusterId, WentBack};
    ///
    /// let (cluster, serves_as) = (ClusterId(1), ClusterId(1));
    /// let lost = |is| WentBack { cluster, serves_as, reached: 5000, is };
    /// assert!(lost(8).is_plain() && !lost(4990).is_plain());
    /// ```
    pub fn is_plain(self) -> bool {
        let is_other = self.serves_as != self.cluster;
        is_other || self.reached >= SMALLEST_STEP && self.is < self.reached / 2
    }
}

/// Whether the data went back since the record was made, or the members serve as another cluster.
/// A restore makes a new cluster; that its data is the right one, only a person knows.
pub(super) fn went_back(seen: Option<LogEnd>, recorded: Option<LogEnd>) -> Option<WentBack> {
    let (seen, recorded) = (seen?, recorded?);
    let is_other = seen.cluster != recorded.cluster;
    (is_other || seen.index < recorded.index).then_some(WentBack {
        cluster: recorded.cluster,
        serves_as: seen.cluster,
        reached: recorded.index,
        is: seen.index,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::evidence::{Probe, Unanswered};
    use crate::quorum::{Observation, Snapshot, example};

    fn observed(index: u64) -> Observation {
        let mut observation = example::healthy("etcd", 3);
        for probe in &mut observation.round.probes {
            probe.status.as_mut().unwrap().raft_index = index;
        }
        let id = Snapshot::assemble(&observation).cluster_id;
        observation.recorded_cluster = id;
        observation
    }

    #[test]
    fn a_leader_with_less_than_was_committed_shows_that_data_is_lost() {
        let before = Snapshot::assemble(&observed(5000)).log_end;
        assert_eq!(before.map(|end| end.index), Some(5000));
        let mut wiped = observed(8);
        wiped.recorded_log_end = before;
        let fell = Snapshot::assemble(&wiped)
            .went_back
            .expect("less than before");
        assert_eq!((fell.reached, fell.is), (5000, 8));
        let mut same = observed(5000);
        same.recorded_log_end = before;
        assert_eq!(Snapshot::assemble(&same).went_back, None);
    }

    #[test]
    fn a_follower_that_lags_and_a_leader_that_does_not_serve_show_nothing() {
        let before = Snapshot::assemble(&observed(5000)).log_end;
        let mut lags = observed(5001);
        lags.recorded_log_end = before;
        lags.round.probes[2].status.as_mut().unwrap().raft_index = 10;
        assert_eq!(Snapshot::assemble(&lags).went_back, None);
        // Nobody knows what a leader has that does not serve.
        let mut silent = observed(8);
        silent.recorded_log_end = before;
        for probe in &mut silent.round.probes {
            probe.read = Err(Unanswered::Deadline);
        }
        assert_eq!(Snapshot::assemble(&silent).went_back, None);
        let mut none = observed(8);
        none.recorded_log_end = before;
        let target = none.round.probes[0].target.clone();
        none.round.probes[0] = Probe::unanswered(target, Unanswered::Deadline);
        let leads = Snapshot::assemble(&none);
        assert!(
            leads.log_end.is_none(),
            "the leader did not answer: {leads:?}"
        );
    }

    #[test]
    fn another_cluster_in_the_place_of_the_recorded_one_is_a_loss_until_accepted() {
        let before = Snapshot::assemble(&observed(5000)).log_end;
        let mut other = observed(9000);
        other.recorded_log_end = before.map(|end| LogEnd {
            cluster: ClusterId(0x77),
            ..end
        });
        let lost = Snapshot::assemble(&other).went_back;
        let lost = lost.expect("it is another cluster");
        assert!(lost.is_plain(), "one look is enough");
        let says = "and cluster 77 is on record, whose log reached entry 5000";
        assert!(lost.to_string().ends_with(says), "{lost}");
        // In doubt, which cluster it is, nothing is lost.
        other.recorded_cluster = Some(ClusterId(0x77));
        for n in [1, 2] {
            let target = other.round.probes[n].target.clone();
            other.round.probes[n] = Probe::unanswered(target, Unanswered::Deadline);
        }
        assert_eq!(Snapshot::assemble(&other).went_back, None);
    }

    /// A loss on record stays one while the new log grows, until a person accepts it.
    #[test]
    fn a_recorded_loss_stays_whatever_the_log_reaches() {
        let lost = WentBack {
            cluster: ClusterId(1),
            serves_as: ClusterId(1),
            reached: 5000,
            is: 8,
        };
        let mut grown = observed(9000);
        grown.recorded_loss = Some(lost);
        assert_eq!(Snapshot::assemble(&grown).went_back, Some(lost));
    }
}
