//! Faults of the files of the serving certificate.

use std::io;
use std::path::PathBuf;

use jiff::Timestamp;

use crate::crypto::PemProblem;

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// A file could not be read.
    #[error("{path} cannot be read", path = .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// A file is not PEM.
    #[error("{path} is not PEM: {why}", path = .0.display(), why = .1)]
    Pem(PathBuf, PemProblem),
    /// The file contains no certificate.
    #[error("{path} contains no certificate", path = .0.display())]
    NoCertificate(PathBuf),
    /// The file contains no private key.
    #[error("{path} contains no private key", path = .0.display())]
    NoKey(PathBuf),
    /// The certificate cannot be parsed.
    #[error("the certificate in {path} cannot be read: {why}", path = .0.display(), why = .1)]
    Certificate(PathBuf, String),
    /// The key is of a kind that TLS cannot use.
    #[error("the key in {path} cannot be used", path = .0.display())]
    Key(PathBuf, #[source] rustls::Error),
    /// The key belongs to another certificate.
    #[error("the key in {key} does not belong to the certificate in {certificate}",
        key = .key.display(), certificate = .certificate.display())]
    Mismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// The authorities of callers cannot be used to verify certificates.
    #[error("the authorities in {path} cannot be used: {why}", path = .0.display(), why = .1)]
    Authorities(PathBuf, String),
    /// The certificate has expired.
    #[error("the certificate in {path} expired at {since}", path = .0.display(), since = .1)]
    Expired(PathBuf, Timestamp),
    /// The certificate is not valid yet.
    #[error("the certificate in {path} is not valid before {from}", path = .0.display(), from = .1)]
    NotYet(PathBuf, Timestamp),
}
