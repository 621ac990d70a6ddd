//! Whether a mutating webhook may read anything for a request.

/// The circumstances that say it.
#[derive(Clone, Copy)]
pub(super) struct Reads<'a> {
    /// Whether the request has a place.
    pub(super) has_place: bool,
    /// Whether a namespace is under the gate, by the watches.
    pub(super) is_gated: &'a (dyn Fn(&str) -> Option<bool> + Sync),
}

/// The reason why nothing is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoRead {
    /// Too many requests are read for.
    #[error("as many requests are being answered as can be")]
    NoPlace,
    /// The API server asks about no such namespace, or asks for the first time.
    #[error("the namespace is not known to be under the gate yet")]
    NotGated,
}

impl Reads<'_> {
    /// Whether to read for a request in this namespace. Where the watches cannot tell, a read may.
    pub(super) fn allowed_in(self, namespace: &str) -> Result<(), NoRead> {
        if (self.is_gated)(namespace) == Some(false) {
            Err(NoRead::NotGated)
        } else if self.has_place {
            Ok(())
        } else {
            Err(NoRead::NoPlace)
        }
    }
}
