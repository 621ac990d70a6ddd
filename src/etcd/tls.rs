//! The credentials for one etcd cluster: authorities, a client certificate, a user with a password,
//! or all of them.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::causes::causes;
use crate::crypto::{self, PemProblem};
use crate::quorum::evidence::Unanswered;

/// The authorities that sign the members' certificates, with an optional client certificate; or a
/// user; or both.
///
/// The Secrets have to be parsed only once per content: two identities with the same fingerprint
/// share connections.
pub struct TlsIdentity {
    config: Option<Arc<ClientConfig>>,
    user: Option<User>,
    fingerprint: [u8; 32],
    validity: Option<Validity>,
}

/// A user of etcd's own authentication.
#[derive(Clone)]
pub struct User {
    name: String,
    password: String,
}

impl User {
    /// A user with a password.
    pub fn new(name: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            password: password.into(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn password(&self) -> &str {
        &self.password
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The time in which a client certificate is valid.
#[derive(Debug, Clone, Copy)]
struct Validity {
    from: Timestamp,
    until: Timestamp,
}

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
    #[error("a CA certificate is malformed")]
    Authority(#[source] rustls::Error),
    /// The file of the client certificate contains none.
    #[error("no certificate where the client certificate should be")]
    NoClientCertificate,
    /// The client certificate is not PEM.
    #[error("the client certificate is not PEM")]
    ClientCertificatePem(#[source] PemProblem),
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

impl TlsIdentity {
    /// Parses PEM bundles. `authorities` are bundles with any number of CA certificates each.
    /// `client` is a certificate chain and its private key; `None` where members ask for none.
    pub fn parse(authorities: &[&[u8]], client: Option<(&[u8], &[u8])>) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(crypto::provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Provider)?
            .with_root_certificates(roots(authorities)?);
        let (mut config, validity) = match client {
            None => (builder.with_no_client_auth(), None),
            Some((certificate, key)) => {
                let chain = chain(certificate)?;
                let validity = validity(&chain)?;
                let key = crypto::private_key(key).map_err(TlsError::Key)?;
                let config = builder
                    .with_client_auth_cert(chain, key)
                    .map_err(TlsError::ClientPair)?;
                (config, Some(validity))
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A resumed session would not show our certificate again, so it would not prove that a new
        // connection works.
        config.resumption = Resumption::disabled();
        Ok(Self {
            config: Some(Arc::new(config)),
            user: None,
            fingerprint: fingerprint(authorities, client),
            validity,
        })
    }

    /// A user without TLS. The password is sent in plain text.
    pub fn of_user(user: User) -> Self {
        let nobody = Self {
            config: None,
            user: None,
            fingerprint: [0; 32],
            validity: None,
        };
        nobody.with_user(user)
    }

    /// The same identity with this user.
    #[must_use]
    pub fn with_user(self, user: User) -> Self {
        Self {
            fingerprint: fingerprint(
                &[&self.fingerprint],
                Some((user.name.as_bytes(), user.password.as_bytes())),
            ),
            user: Some(user),
            ..self
        }
    }

    /// Whether connections use TLS.
    pub fn uses_tls(&self) -> bool {
        self.config.is_some()
    }

    /// When the client certificate expires; `None` without one.
    pub fn expires(&self) -> Option<Timestamp> {
        self.validity.map(|validity| validity.until)
    }

    /// The SHA-256 of everything that was parsed: equal content has an equal fingerprint.
    pub fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    pub(super) fn config(&self) -> Option<Arc<ClientConfig>> {
        self.config.clone()
    }

    pub(super) fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// Fails where the client certificate is not valid at `now`. etcd itself would only say "bad
    /// certificate".
    pub(super) fn check_validity(&self, now: Timestamp) -> Result<(), Unanswered> {
        match self.validity {
            Some(validity) if now > validity.until => Err(Unanswered::Tls(format!(
                "client certificate expired on {}",
                validity.until
            ))),
            Some(validity) if now < validity.from => Err(Unanswered::Tls(format!(
                "client certificate is not valid before {}",
                validity.from
            ))),
            Some(_) | None => Ok(()),
        }
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fingerprint =
            u64::from_be_bytes(self.fingerprint.first_chunk().copied().unwrap_or_default());
        f.debug_struct("TlsIdentity")
            .field("fingerprint", &format_args!("{fingerprint:016x}"))
            .field("expires", &self.expires())
            .finish_non_exhaustive()
    }
}

impl From<TlsError> for Unanswered {
    fn from(error: TlsError) -> Self {
        Self::Tls(causes(&error))
    }
}

fn roots(authorities: &[&[u8]]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for bundle in authorities {
        for certificate in crypto::certificates(bundle).map_err(TlsError::AuthorityPem)? {
            roots.add(certificate).map_err(TlsError::Authority)?;
        }
    }
    if roots.is_empty() {
        return Err(TlsError::NoAuthority);
    }
    Ok(roots)
}

fn chain(certificate: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = crypto::certificates(certificate).map_err(TlsError::ClientCertificatePem)?;
    if chain.is_empty() {
        return Err(TlsError::NoClientCertificate);
    }
    Ok(chain)
}

/// The time in which all certificates of the chain are valid.
fn validity(chain: &[CertificateDer<'_>]) -> Result<Validity, TlsError> {
    let malformed = |error: &dyn fmt::Display| TlsError::ClientCertificate(error.to_string());
    let mut validity = Validity {
        from: Timestamp::MIN,
        until: Timestamp::MAX,
    };
    for der in chain {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|e| malformed(&e))?;
        let dates = certificate.validity();
        let at = |seconds| Timestamp::from_second(seconds).map_err(|e| malformed(&e));
        validity.from = validity.from.max(at(dates.not_before.timestamp())?);
        validity.until = validity.until.min(at(dates.not_after.timestamp())?);
    }
    Ok(validity)
}

fn fingerprint(authorities: &[&[u8]], client: Option<(&[u8], &[u8])>) -> [u8; 32] {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    // Each part is preceded by its length, so that different contents never give the same bytes.
    let mut part = |bytes: &[u8]| {
        context.update(&bytes.len().to_be_bytes());
        context.update(bytes);
    };
    for bundle in authorities {
        part(bundle);
    }
    if let Some((certificate, key)) = client {
        part(b"client");
        part(certificate);
        part(key);
    }
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(context.finish().as_ref());
    fingerprint
}

#[cfg(test)]
mod tests;
