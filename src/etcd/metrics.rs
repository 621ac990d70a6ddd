//! The metrics of a member that no call answers with: whether it is defragmenting, and its quota.
//!
//! While a member defragments, `/metrics` answers, and nothing else that says how the member is.

use std::time::Duration;

use super::lines::{Lines, value};
use super::{Endpoint, Page, Prober};
use crate::quorum::evidence::Unanswered;

const DEFRAGMENTING: &str = "etcd_disk_defrag_inflight";
const QUOTA: &str = "etcd_server_quota_backend_bytes";

/// The metrics of a member that matter here. A metric that the member does not have is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemberMetrics {
    /// `etcd_disk_defrag_inflight`.
    pub defragmenting: Option<bool>,
    /// `etcd_server_quota_backend_bytes`.
    pub quota: Option<u64>,
}

impl Prober {
    /// Reads the metrics of the member at `endpoint`, over a connection of its own.
    pub async fn metrics(
        &self,
        endpoint: &Endpoint,
        limit: Duration,
    ) -> Result<MemberMetrics, Unanswered> {
        let mut found = MemberMetrics::default();
        let mut lines = Lines::new(|line: &str| found.take(line));
        self.get(endpoint, Page::Metrics, limit, |part| lines.take(part))
            .await?;
        lines.end();
        Ok(found)
    }
}

impl MemberMetrics {
    fn take(&mut self, line: &str) {
        if let Some(value) = value(line, DEFRAGMENTING) {
            self.defragmenting = Some(value > 0.0);
        }
        if let Some(quota) = value(line, QUOTA).filter(|quota| *quota > 0.0) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a number of bytes"
            )]
            let bytes = quota as u64;
            self.quota = Some(bytes);
        }
    }
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
            etcd_server_quota_backend_bytes 2.147483648e+09\n";
        let expected = MemberMetrics {
            defragmenting: Some(true),
            quota: Some(2 << 30),
        };
        assert_eq!(parse(page, page.len()), expected);
        for size in [1, 2, 7, 64] {
            assert_eq!(parse(page, size), expected, "in parts of {size} bytes");
        }
        assert_eq!(parse("up 1\n", 3), MemberMetrics::default());
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
