//! The names and the properties that the certificates are to have.

use std::time::Duration;

/// The names of the two Secrets, after the gate's own name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretNames {
    /// The Secret of the authority, with its key. Only the replica that signs reads it.
    pub authority: String,
    /// The Secret of the serving certificate, which every replica reads.
    pub serving: String,
}

impl SecretNames {
    /// The names for a gate of this name.
    pub fn for_gate(gate: &str) -> Self {
        Self {
            authority: format!("{gate}-authority"),
            serving: format!("{gate}-serving"),
        }
    }
}

/// The properties that the certificates are to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wishes {
    /// DNS names and IP addresses at which API servers call the gate.
    pub names: Vec<String>,
    /// The lifetime of an authority.
    pub authority: Duration,
    /// The lifetime of a serving certificate, at most half of the authority's.
    pub serving: Duration,
}

impl Wishes {
    /// Why these cannot be had, if so.
    pub fn problem(&self) -> Option<String> {
        let Self {
            authority, serving, ..
        } = self;
        // When an authority is replaced, after two thirds of its life, nothing is in use any more
        // that the one before it signed.
        (*serving > *authority / 2).then(|| {
            format!("a serving certificate may live at most half as long as its authority: {serving:?} are more than half of {authority:?}")
        })
    }
}
