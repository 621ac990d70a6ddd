//! The parts of a certificate that decide what it is for.

use jiff::Timestamp;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_X509_COMMON_NAME;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Name, X509Version};

use super::validity::Validity;

/// A certificate, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// The subject: its common name where it has one.
    pub(crate) subject: String,
    /// The issuer: its common name where it has one.
    pub(crate) issuer: String,
    /// Whether the certificate may sign others, so that it is one of an authority.
    pub(crate) may_sign: bool,
    /// Whether subject and issuer are the same.
    pub(crate) is_self_issued: bool,
    /// Whether clients may show it. A certificate that names no usage may be used for any.
    pub(crate) is_for_clients: bool,
    /// The DNS names and IP addresses.
    pub(crate) names: Vec<String>,
    /// When it is valid.
    pub(crate) validity: Validity,
    subject_der: Vec<u8>,
    issuer_der: Vec<u8>,
    key_der: Vec<u8>,
}

impl Certificate {
    /// Reads a certificate. The error says why it cannot be read.
    pub(crate) fn parse(der: &CertificateDer<'_>) -> Result<Self, String> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        let (subject, issuer) = (parsed.subject(), parsed.issuer());
        let is_self_issued = subject.as_raw() == issuer.as_raw();
        let usage = parsed.extended_key_usage().ok().flatten();
        Ok(Self {
            subject: common_name(subject),
            issuer: common_name(issuer),
            may_sign: may_sign(&parsed, is_self_issued),
            is_self_issued,
            is_for_clients: usage.is_none_or(|usage| usage.value.client_auth || usage.value.any),
            names: names(&parsed),
            validity: Validity::parse(der)?,
            subject_der: subject.as_raw().to_vec(),
            issuer_der: issuer.as_raw().to_vec(),
            key_der: parsed.public_key().raw.to_vec(),
        })
    }

    /// Whether this certificate names `other` as its issuer.
    pub(crate) fn is_issued_by(&self, other: &Self) -> bool {
        self.issuer_der == other.subject_der
    }

    /// Whether this private key is the certificate's.
    pub(crate) fn has_key(&self, key: &PrivateKeyDer<'_>) -> bool {
        let key = any_supported_type(key).ok();
        let public = key.as_ref().and_then(|key| key.public_key());
        public.is_some_and(|public| public.as_ref() == self.key_der)
    }

    /// The time since when the certificate has expired at `now`.
    pub(crate) fn expired_since(&self, now: Timestamp) -> Option<Timestamp> {
        (now > self.validity.until).then_some(self.validity.until)
    }
}

/// Whether the certificate is one of an authority. One of version 1 says nothing of that, and is
/// where it issued itself.
fn may_sign(certificate: &X509Certificate<'_>, is_self_issued: bool) -> bool {
    let constraints = certificate.basic_constraints().ok().flatten();
    let signs = certificate.key_usage().ok().flatten();
    let signs = signs.is_some_and(|usage| usage.value.key_cert_sign());
    match constraints {
        Some(constraints) => constraints.value.ca || signs,
        None => signs || (certificate.version() == X509Version::V1 && is_self_issued),
    }
}

fn common_name(name: &X509Name<'_>) -> String {
    let mut named = name.iter_by_oid(&OID_X509_COMMON_NAME);
    let common = named.next().and_then(|name| name.as_str().ok());
    common.map_or_else(|| name.to_string(), str::to_owned)
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let extensions = certificate.extensions().iter();
    let alternative = extensions.filter_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
        _ => None,
    });
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes),
        _ => None,
    };
    alternative.flatten().filter_map(name).collect()
}

fn address(bytes: &[u8]) -> Option<String> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes)
            .ok()
            .map(|v4| std::net::Ipv4Addr::from(v4).to_string()),
        _ => <[u8; 16]>::try_from(bytes)
            .ok()
            .map(|v6| std::net::Ipv6Addr::from(v6).to_string()),
    }
}
