//! Proof of a recorded yes.

use super::Page;

/// Proof that the API server accepted a grant. Nothing outside the ledger can make one.
#[derive(Debug)]
#[must_use]
pub struct Recorded {
    seq: u64,
}

impl Recorded {
    /// The sequence number of the yes.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The proof that lies in the page that followed the write.
    pub(super) fn by(after: &Page) -> Self {
        Self {
            seq: after.grants.last_seq(),
        }
    }
}
