//! What is wrong with a PEM file, in words that repeat none of it: the library quotes the line it stumbled over, and a key whose line breaks
//! got lost is one such line. What should be a certificate may be a key, too.

use rustls::pki_types::pem;

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
