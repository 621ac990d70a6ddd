//! Certificates of authorities, as a `caBundle` lists them.

use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::CertificateDer;

use crate::crypto::{self, Validity};

/// How long before its making a certificate is valid already. Whoever checks it may have a clock
/// that is five minutes behind, and the maker's may be wrong, too.
pub(super) const BACKDATED: SignedDuration = SignedDuration::from_mins(10);

/// The certificate of an authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Root {
    certificate: CertificateDer<'static>,
    validity: Validity,
}

impl Root {
    /// Reads a certificate. The error says why it is not an authority's.
    pub(super) fn new(certificate: CertificateDer<'static>) -> Result<Self, String> {
        let validity = Validity::parse(&certificate)?;
        let (_, parsed) =
            x509_parser::parse_x509_certificate(&certificate).map_err(|error| error.to_string())?;
        if !parsed.is_ca() {
            return Err("it is not the certificate of an authority".to_owned());
        }
        Ok(Self {
            certificate,
            validity,
        })
    }

    pub(super) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(super) fn validity(&self) -> Validity {
        self.validity
    }

    pub(super) fn has_ended(&self, now: Timestamp) -> bool {
        self.validity.until <= now
    }

    /// The certificate as PEM.
    pub(super) fn pem(&self) -> String {
        let block = pem::Pem::new("CERTIFICATE", self.certificate.to_vec());
        let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        pem::encode_config(&block, lines)
    }
}

/// Every authority in a PEM text. What is no certificate of an authority is left out.
pub(super) fn roots_in(pem: &[u8]) -> Vec<Root> {
    let certificates = crypto::certificates(pem).unwrap_or_default();
    let roots = certificates.into_iter().map(Root::new);
    roots.filter_map(Result::ok).collect()
}

/// Whether a certificate is to be replaced: two thirds of its life are over, or it would live much
/// longer than is wished for now.
pub(super) fn is_due(validity: Validity, lifetime: SignedDuration, now: Timestamp) -> bool {
    let Validity { from, until } = validity;
    let life = until.duration_since(from) - BACKDATED;
    let rest = until.duration_since(now);
    rest <= life / 3 || rest > lifetime + BACKDATED
}
