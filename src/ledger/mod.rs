//! The durable half of grants: compare-and-swap on the status of a cluster's budget.

/// Proof that the API server accepted a grant. Nothing outside this module can make one.
#[derive(Debug)]
pub struct Recorded {
    /// The sequence number of the yes.
    pub seq: u64,
    _only_by_a_write: (),
}
