//! From when until when a certificate is valid.

use jiff::Timestamp;

/// The first and the last moment at which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

impl Validity {
    /// The validity of a certificate. The error says why it cannot be read.
    pub(crate) fn parse(certificate: &[u8]) -> Result<Self, String> {
        let (_, parsed) =
            x509_parser::parse_x509_certificate(certificate).map_err(|error| error.to_string())?;
        let instant = |at: x509_parser::time::ASN1Time| {
            Timestamp::from_second(at.timestamp()).map_err(|error| error.to_string())
        };
        let validity = parsed.validity();
        Ok(Self {
            from: instant(validity.not_before)?,
            until: instant(validity.not_after)?,
        })
    }
}
