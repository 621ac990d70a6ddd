//! Fuzz target for certificates and keys as Secrets could hold them: three parts between zero
//! bytes, which are authority, certificate and key.

use std::fmt::Write as _;

use quorumgate::etcd::TlsIdentity;

use crate::memory::bounded;

pub(crate) fn run(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (authority, certificate, key) = (part(), part(), part());
    for client in [None, Some((certificate, key))] {
        let parsed = bounded(bytes.len(), || TlsIdentity::parse(&[authority], client));
        match parsed {
            Ok(identity) => assert!(client.is_none() || identity.expires().is_some()),
            Err(error) => says_nothing_of(&error, key),
        }
    }
}

/// Checks that an error contains no part of the key that is long enough to matter, with or without
/// line breaks.
fn says_nothing_of(error: &dyn std::error::Error, key: &[u8]) {
    let mut said = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(said, " {cause} {cause:?}");
        source = cause.source();
    }
    let key = String::from_utf8_lossy(key);
    for word in key.split_whitespace().filter(|word| word.len() > 30) {
        assert!(!said.contains(word), "{said}");
    }
}
