//! Faults of the certificates and of the key that members are asked with.

use crate::crypto::PemProblem;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The CA bundle is empty.
    #[error("no CA certificate in the CA bundle")]
    NoAuthority,
    /// A CA bundle is not PEM.
    #[error("the CA bundle is not PEM")]
    AuthorityPem(#[source] PemProblem),
    /// A CA certificate is malformed.
    #[error("a CA certificate is malformed: {0}")]
    Authority(String),
    /// The file of the client certificate contains none.
    #[error("no certificate where the client certificate should be")]
    NoClientCertificate,
    /// The client certificate is not PEM.
    #[error("the client certificate is not PEM")]
    ClientCertificatePem(#[source] PemProblem),
    /// The client certificate is one of an authority, whose key is for signing.
    #[error(
        "the client certificate {0:?} is one of an authority (it may sign others), and the gate does not present it"
    )]
    ClientIsAuthority(String),
    /// The client certificate is malformed.
    #[error("the client certificate is malformed: {0}")]
    ClientCertificate(String),
    /// The key is missing or not PEM.
    #[error("the client key cannot be read")]
    Key(#[source] PemProblem),
    /// The key does not belong to the certificate, or is of an unknown kind.
    #[error("the client certificate and its key cannot be used")]
    ClientPair(#[source] rustls::Error),
    /// The TLS library cannot be set up; seen only in broken builds.
    #[error("TLS cannot be set up")]
    Provider(#[source] rustls::Error),
}
