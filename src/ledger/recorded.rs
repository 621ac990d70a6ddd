//! Proof of a recorded yes.

use super::Page;

/// Proof that the API server accepted a grant. Nothing outside the ledger can make one.
#[derive(Debug)]
#[must_use]
pub struct Recorded {
    /// The sequence number of the yes.
    pub seq: u64,
    _only_by_a_write: (),
}

impl Recorded {
    /// The proof that lies in the page that followed the write.
    pub(super) fn by(after: &Page) -> Self {
        Self {
            seq: after.grants.last_seq(),
            _only_by_a_write: (),
        }
    }
}
