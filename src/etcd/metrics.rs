//! The metrics of a member that no call answers with: whether it is defragmenting, its quota, and
//! the work of its process.
//!
//! While a member defragments, `/metrics` answers, and nothing else that says how the member is.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::endpoint::Endpoint;
use super::lines::{Lines, value};
use super::page::HttpPage;
use super::probe::Prober;
use crate::quorum::Work;
use crate::quorum::evidence::Unanswered;

const DEFRAGMENTING: &str = "etcd_disk_defrag_inflight";
const QUOTA: &str = "etcd_server_quota_backend_bytes";
const MEMORY: &str = "process_resident_memory_bytes";
const STARTED: &str = "process_start_time_seconds";
/// The labels follow: `op`, `success` and `version`.
const APPLIED: &str = "etcd_server_apply_duration_seconds_count{op=\"";
/// The operations of [`APPLIED`] on keys. Those of others happen again at each start.
const ON_KEYS: [&str; 3] = ["Put", "DeleteRange", "Txn"];
/// The label follows: `From`.
const RECEIVED: &str = "etcd_network_snapshot_receive_success{";
const COMMITTED: &str = "etcd_server_proposals_committed_total";

/// The metrics of a member that matter here. A metric that the member does not have is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemberMetrics {
    /// `etcd_disk_defrag_inflight`.
    pub defragmenting: Option<bool>,
    /// `etcd_server_quota_backend_bytes`.
    pub quota: Option<u64>,
    /// `process_resident_memory_bytes`.
    pub memory: Option<u64>,
    /// The age of the process: from `process_start_time_seconds` to the date of the answer, so both
    /// are of the member's own clock.
    pub age: Option<Duration>,
    /// The work of the process.
    pub work: Work,
}

impl Prober {
    /// Reads the metrics of the member at `endpoint`, over a connection of its own.
    pub async fn metrics(
        &self,
        endpoint: &Endpoint,
        limit: Duration,
    ) -> Result<MemberMetrics, Unanswered> {
        let mut found = MemberMetrics::default();
        let mut started = None;
        let mut lines = Lines::new(|line: &str| {
            found.take(line);
            started = value(line, STARTED).or(started);
        });
        let got = self.get(endpoint, HttpPage::Metrics, limit, |part| lines.take(part));
        let dated = got.await?;
        lines.end();
        found.age = dated.zip(started).and_then(|(now, start)| age(now, start));
        Ok(found)
    }
}

/// How far the start of a process may lie after the date of its answer: `Date` has whole seconds,
/// and so has the time of boot by which Linux tells starts.
const ROUNDING: SignedDuration = SignedDuration::from_secs(2);

/// The time from `start`, in seconds since 1970, until `now`.
fn age(now: Timestamp, start: f64) -> Option<Duration> {
    let start = Timestamp::from_duration(SignedDuration::try_from_secs_f64(start).ok()?).ok()?;
    let age = now.duration_since(start);
    Duration::try_from(age)
        .ok()
        .or_else(|| (age > -ROUNDING).then_some(Duration::ZERO))
}

impl MemberMetrics {
    fn take(&mut self, line: &str) {
        if let Some(value) = value(line, DEFRAGMENTING) {
            self.defragmenting = Some(value > 0.0);
        }
        self.quota = whole(line, QUOTA).or(self.quota);
        self.memory = whole(line, MEMORY).or(self.memory);
        let applied = line.strip_prefix(APPLIED).and_then(|of| of.split_once('"'));
        if let Some((_, rest)) = applied.filter(|(op, _)| ON_KEYS.contains(op)) {
            self.work.applied = self.work.applied.saturating_add(count(rest));
        }
        let received = line.strip_prefix(RECEIVED).map_or(0, count);
        self.work.received = self.work.received.saturating_add(received);
        self.work.committed = whole(line, COMMITTED).unwrap_or(self.work.committed);
    }
}

/// The number behind the labels of a counter.
fn count(labels: &str) -> u64 {
    let number = labels
        .rsplit_once("} ")
        .and_then(|(_, n)| n.trim().parse::<f64>().ok());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a counter of events"
    )]
    let count = number.unwrap_or_default() as u64;
    count
}

/// The whole number that the line gives the metric of this name, if it is more than none.
fn whole(line: &str, name: &str) -> Option<u64> {
    let number = value(line, name).filter(|number| *number > 0.0)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of bytes or entries"
    )]
    let whole = number as u64;
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_are_read_and_not_their_descriptions() {
        let page = "# HELP etcd_disk_defrag_inflight Whether or not defrag is active.\n\
            # TYPE etcd_disk_defrag_inflight gauge\n\
            etcd_disk_defrag_inflight 1\n\
            etcd_server_quota_backend_bytes_other 3\n\
            etcd_server_quota_backend_bytes 2.147483648e+09\n\
            process_resident_memory_bytes 4.194304e+06\n\
            etcd_server_apply_duration_seconds_count{op=\"Put\",success=\"true\",version=\"v3\"} 600\n\
            etcd_server_apply_duration_seconds_count{op=\"Txn\",success=\"false\",version=\"v3\"} 2\n\
            etcd_server_apply_duration_seconds_count{op=\"unknown\",success=\"true\",version=\"v3\"} 300\n\
            etcd_server_apply_duration_seconds_count{op=\"ClusterMemberAttrSet\",success=\"true\",version=\"v3\"} 5\n\
            etcd_network_snapshot_receive_success{From=\"2e1259d415f2a040\"} 1\n\
            etcd_server_proposals_committed_total 614\n";
        let expected = MemberMetrics {
            defragmenting: Some(true),
            quota: Some(2 << 30),
            memory: Some(4 << 20),
            age: None,
            work: Work {
                applied: 602,
                received: 1,
                committed: 614,
            },
        };
        assert_eq!(parse(page, page.len()), expected);
        for size in [1, 2, 7, 64] {
            assert_eq!(parse(page, size), expected, "in parts of {size} bytes");
        }
        assert_eq!(parse("up 1\n", 3), MemberMetrics::default());
    }

    #[test]
    fn the_age_of_a_process_is_by_the_clock_of_its_node() {
        let now = "2026-11-28T02:00:10Z".parse::<Timestamp>().unwrap();
        let start = |seconds: f64| age(now, 1.795_831_2e9 + seconds);
        assert_eq!(start(0.0), Some(Duration::from_secs(10)));
        assert_eq!(start(9.5), Some(Duration::from_millis(500)));
        let just_started = "a date has whole seconds";
        assert_eq!(start(10.7), Some(Duration::ZERO), "{just_started}");
        assert_eq!(start(12.0), None, "it has not started yet");
        assert_eq!(age(now, f64::NAN), None);
    }

    /// The metrics of a page that arrives in parts of so many bytes.
    fn parse(page: &str, size: usize) -> MemberMetrics {
        let mut found = MemberMetrics::default();
        let mut lines = Lines::new(|line: &str| found.take(line));
        for part in page.as_bytes().chunks(size) {
            lines.take(part);
        }
        lines.end();
        found
    }
}
