//! Cryptography: the provider that this process uses everywhere, and certificates and keys from PEM
//! files.
//!
//! The library's errors of PEM quote the line that cannot be parsed, and a private key that lost
//! its line breaks is one such line. The errors here describe the problem and quote nothing, also
//! where a certificate was expected: the file may hold a key.

mod certificate;
mod validity;

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) use certificate::Certificate;
pub(crate) use validity::Validity;

/// The provider that this process uses everywhere.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Every certificate in the file, in its order; possibly none.
pub(crate) fn certificates(file: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemProblem> {
    CertificateDer::pem_slice_iter(file)
        .collect::<Result<_, _>>()
        .map_err(PemProblem::from)
}

/// The first private key in the file.
pub(crate) fn private_key(file: &[u8]) -> Result<PrivateKeyDer<'static>, PemProblem> {
    PrivateKeyDer::from_pem_slice(file).map_err(PemProblem::from)
}

/// Why a file is not PEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PemProblem {
    /// The file has no section of the wanted kind.
    #[error("there is no such section in it")]
    Nothing,
    /// The line that begins a section is malformed.
    #[error("a section begins wrongly; does it have its line breaks?")]
    Beginning,
    /// A section has no end.
    #[error("a section does not end; does it have its line breaks?")]
    End,
    /// The content of a section is not base64.
    #[error("a section is not base64")]
    Base64,
    /// Any other problem.
    #[error("it cannot be read")]
    Unreadable,
}

impl From<pem::Error> for PemProblem {
    fn from(error: pem::Error) -> Self {
        match error {
            pem::Error::NoItemsFound => Self::Nothing,
            pem::Error::IllegalSectionStart { .. } => Self::Beginning,
            pem::Error::MissingSectionEnd { .. } => Self::End,
            pem::Error::Base64Decode(_) => Self::Base64,
            _ => Self::Unreadable,
        }
    }
}
