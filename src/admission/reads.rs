//! Whether a mutating webhook may read anything for a request.

use super::places::{Place, Share};
use crate::quorum::PodName;

/// The circumstances that say it.
#[derive(Clone, Copy)]
pub(super) struct Reads<'a> {
    /// The place of the request, if it has one.
    pub(super) place: Option<&'a Place<'a>>,
    /// Whether a namespace is under the gate, by the watches.
    pub(super) is_gated: &'a (dyn Fn(&str) -> Option<bool> + Sync),
    /// Whether the watches show that a pod of a namespace is nobody's.
    pub(super) is_foreign: &'a (dyn Fn(&str, &PodName) -> bool + Sync),
}

/// The permission to read for a request, while this value lives.
#[derive(Debug)]
pub(super) struct MayRead<'a> {
    /// Whether the watches show that the namespace is under the gate.
    pub(super) is_gated: bool,
    _share: Share<'a>,
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

impl<'a> Reads<'a> {
    /// Whether to read for a request in this namespace. Where the watches cannot tell, a read may.
    pub(super) fn allowed_in(self, namespace: &str) -> Result<MayRead<'a>, NoRead> {
        let is_gated = (self.is_gated)(namespace);
        if is_gated == Some(false) {
            return Err(NoRead::NotGated);
        }
        // No tenant takes the places of the others.
        let share = self.place.and_then(|place| place.within(namespace));
        Ok(MayRead {
            is_gated: is_gated == Some(true),
            _share: share.ok_or(NoRead::NoPlace)?,
        })
    }
}
