//! The proof of a recorded permission.

use super::page::Page;

/// Proof that the API server accepted a grant, or an admitted change of a StatefulSet. Only a write
/// of the ledger makes one:
///
/// ```compile_fail,E0451
/// use quorumgate::ledger::Recorded;
///
/// let forged = Recorded { seq: 7 };
/// ```
#[derive(Debug)]
#[must_use]
pub struct Recorded {
    seq: u64,
}

impl Recorded {
    /// The number of the latest grant in the ledger after the write.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The proof that lies in the page after the write.
    pub(super) fn by(after: &Page) -> Self {
        Self {
            seq: after.grants.last_seq(),
        }
    }
}
