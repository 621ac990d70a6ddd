//! Certificates and keys in PEM files, and what is wrong with one in words that repeat none of it: the library quotes the line it stumbled
//! over, and a key whose line breaks got lost is one such line. What should be a certificate may be a key, too.

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Every certificate in a file, in its order; there may be none.
pub(crate) fn certificates(file: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemProblem> {
    CertificateDer::pem_slice_iter(file)
        .collect::<Result<_, _>>()
        .map_err(PemProblem::from)
}

/// The first private key in a file.
pub(crate) fn private_key(file: &[u8]) -> Result<PrivateKeyDer<'static>, PemProblem> {
    PrivateKeyDer::from_pem_slice(file).map_err(PemProblem::from)
}

/// Why a file is not PEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PemProblem {
    /// No section of the kind that is wanted.
    #[error("there is no such section in it")]
    Nothing,
    /// The line that begins a section is not one.
    #[error("a section begins wrongly; does it have its line breaks?")]
    Beginning,
    /// A section never ends.
    #[error("a section does not end; does it have its line breaks?")]
    End,
    /// A section's content is no base64.
    #[error("a section is not base64")]
    Base64,
    /// Anything else.
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
