//! Verifies the certificate of a member: its chain and its names, each by itself.
//!
//! The chain has to end at a trusted authority, and one name of the certificate has to be among
//! those that the member may have. A certificate that is byte for byte a trusted one passes without
//! either, as it does for etcd: such a certificate may even have `CA:TRUE`, which the chain's rules
//! rule out for a server.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use super::obstacle::Obstacle;
use super::tls_error::TlsError;
use crate::crypto::{self, Certificate};

/// The end of the names that Kubernetes gives to Services and pods, before the cluster's domain.
const SERVICE: &str = ".svc";

/// Most names of a certificate that are compared.
const MOST_NAMES: usize = 100;

/// The certificates that are trusted.
#[derive(Debug)]
pub(super) struct Trust {
    /// The authorities.
    roots: RootCertStore,
    /// Every trusted certificate, whether or not it may sign others.
    exact: Vec<CertificateDer<'static>>,
}

impl Trust {
    /// Parses PEM bundles.
    pub(super) fn parse(bundles: &[&[u8]]) -> Result<Self, TlsError> {
        let mut trust = Self::default();
        for bundle in bundles {
            for der in crypto::certificates(bundle).map_err(TlsError::AuthorityPem)? {
                let read = Certificate::parse(&der).map_err(TlsError::Authority)?;
                // One that may not sign is trusted for itself, and vouches for no other.
                if read.may_sign {
                    let root = trust.roots.add(der.clone());
                    root.map_err(|error| TlsError::Authority(error.to_string()))?;
                }
                trust.exact.push(der);
            }
        }
        if trust.exact.is_empty() {
            return Err(TlsError::NoAuthority);
        }
        Ok(trust)
    }
}

impl Default for Trust {
    fn default() -> Self {
        Self {
            roots: RootCertStore::empty(),
            exact: Vec::new(),
        }
    }
}

/// Verifies the certificate of one member.
#[derive(Debug)]
pub(super) struct Verifier {
    trust: Arc<Trust>,
    algorithms: WebPkiSupportedAlgorithms,
    /// The names that the member may have. One that ends in `.svc` stands for the same name in any
    /// cluster domain too.
    names: Vec<String>,
    /// The address at which the member is asked.
    address: Option<IpAddr>,
}

impl Verifier {
    pub(super) fn new(trust: Arc<Trust>, names: Vec<String>, address: Option<IpAddr>) -> Self {
        Self {
            trust,
            algorithms: crypto::provider().signature_verification_algorithms,
            names,
            address,
        }
    }

    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Obstacle> {
        let read = Certificate::parse(leaf).map_err(Obstacle::Other)?;
        if let Some(expired) = expired(&read, now) {
            return Err(expired);
        }
        if self.trust.exact.iter().any(|trusted| trusted == leaf) {
            return Ok(());
        }
        let parsed = ParsedCertificate::try_from(leaf);
        let parsed = parsed.map_err(|error| Obstacle::Other(error.to_string()))?;
        let (roots, algorithms) = (&self.trust.roots, self.algorithms.all);
        verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms)
            .map_err(|error| match error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => Obstacle::Issuer {
                issuer: read.issuer.clone(),
            },
            other => {
                // The library does not say which certificate of the chain has expired.
                let mut chain = intermediates
                    .iter()
                    .filter_map(|der| Certificate::parse(der).ok());
                let expired = chain.find_map(|read| expired(&read, now));
                expired.unwrap_or_else(|| Obstacle::Other(other.to_string()))
            }
        })?;
        if self.names_match(&read) {
            return Ok(());
        }
        let address = self.address.iter().map(ToString::to_string);
        Err(Obstacle::Names {
            asked: self.names.iter().cloned().chain(address).collect(),
            found: read.names,
        })
    }

    fn names_match(&self, read: &Certificate) -> bool {
        let presented = read.names.iter().take(MOST_NAMES);
        presented.into_iter().any(|presented| {
            if let Ok(address) = presented.parse::<IpAddr>() {
                return self.address == Some(address);
            }
            let short = presented.split_once(".svc.");
            let short = short.map(|(before, _)| format!("{before}{SERVICE}"));
            self.names.iter().any(|name| {
                let in_any_domain = |short: &String| name.ends_with(SERVICE) && covers(short, name);
                covers(presented, name) || short.as_ref().is_some_and(in_any_domain)
            })
        })
    }
}

/// Whether a name in a certificate covers this name. A wildcard stands for the first label.
fn covers(presented: &str, name: &str) -> bool {
    let same = |one: &str, other: &str| !one.is_empty() && one.eq_ignore_ascii_case(other);
    match presented.strip_prefix("*.") {
        None => same(presented, name),
        Some(rest) => name
            .split_once('.')
            .is_some_and(|(label, tail)| !label.is_empty() && same(rest, tail)),
    }
}

fn expired(certificate: &Certificate, now: UnixTime) -> Option<Obstacle> {
    let now = i64::try_from(now.as_secs()).ok();
    let now = now.and_then(|now| Timestamp::from_second(now).ok())?;
    Some(Obstacle::Expired {
        since: certificate.expired_since(now)?,
        subject: certificate.subject.clone(),
    })
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.verify(end_entity, intermediates, now) {
            Ok(()) => Ok(ServerCertVerified::assertion()),
            Err(obstacle) => {
                let other = CertificateError::Other(OtherError(Arc::new(obstacle)));
                Err(Error::InvalidCertificate(other))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
