//! Client certificates: which callers the webhook listener accepts.
//!
//! A caller has to show a certificate that one of the configured authorities signed and, where
//! names are configured, that carries one of them. The check is off by default, since an API server
//! shows a client certificate only where its admission configuration names one. Every handshake is
//! checked against the authorities in use at that moment, and no TLS session is resumed, so a
//! certificate whose authority was removed is refused at the next handshake.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, Error, RootCertStore};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::unusable::Unusable;
use crate::crypto;

/// The callers to accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callers {
    /// PEM file of the authorities that sign the callers' certificates.
    pub authorities: PathBuf,
    /// Accepted common names or DNS names. Empty: every certificate of the authorities is accepted.
    pub names: Vec<String>,
}

impl Callers {
    /// The verifier for the authorities in `file`, the content of [`Callers::authorities`].
    pub(super) fn verifier(&self, file: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, Unusable> {
        let unusable = |why: &dyn fmt::Display| {
            Unusable::Authorities(self.authorities.clone(), why.to_string())
        };
        let mut roots = RootCertStore::empty();
        let authorities = crypto::certificates(file);
        for authority in authorities.map_err(|why| Unusable::Pem(self.authorities.clone(), why))? {
            roots.add(authority).map_err(|error| unusable(&error))?;
        }
        if roots.is_empty() {
            return Err(Unusable::NoCertificate(self.authorities.clone()));
        }
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto::provider())
            .build()
            .map_err(|error| unusable(&error))
    }

    pub(super) fn check_name(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        if self.names.is_empty() {
            return Ok(());
        }
        let unreadable = |_| Error::InvalidCertificate(CertificateError::BadEncoding);
        let (_, certificate) = X509Certificate::from_der(certificate).map_err(unreadable)?;
        if names(&certificate).any(|name| self.names.iter().any(|wanted| wanted == name)) {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }
}

/// The common names and the DNS names of a certificate.
fn names<'a>(certificate: &'a X509Certificate<'_>) -> impl Iterator<Item = &'a str> {
    let common = certificate.subject().iter_common_name();
    let common = common.filter_map(|name| name.as_str().ok());
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternative.into_iter().flat_map(|extension| {
        let names = extension.value.general_names.iter();
        names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(*name),
            _ => None,
        })
    });
    common.chain(alternative)
}
