//! The credentials for one etcd cluster: authorities, a client certificate, a user with a password,
//! or all of them.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;

use super::obstacle::Obstacle;
use super::tls_error::TlsError;
use super::verifier::{Trust, Verifier};
use crate::causes::causes;
use crate::crypto::{self, Certificate, Validity};
use crate::quorum::evidence::Unanswered;

/// The authorities that sign the members' certificates, with an optional client certificate; or a
/// user; or both.
///
/// The Secrets have to be parsed only once per content: two identities with the same fingerprint
/// share connections.
pub struct TlsIdentity {
    tls: Option<Tls>,
    user: Option<User>,
    fingerprint: [u8; 32],
    /// The subject of the client certificate, and when it is valid.
    client: Option<(String, Validity)>,
}

/// The parts of TLS that all members of a cluster share.
struct Tls {
    config: Arc<ClientConfig>,
    trust: Arc<Trust>,
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

impl TlsIdentity {
    /// Parses PEM bundles. `authorities` are bundles with any number of CA certificates each.
    /// `client` is a certificate chain and its private key; `None` where members ask for none.
    pub fn parse(authorities: &[&[u8]], client: Option<(&[u8], &[u8])>) -> Result<Self, TlsError> {
        let trust = Arc::new(Trust::parse(authorities)?);
        let builder = ClientConfig::builder_with_provider(crypto::provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Provider)?
            .dangerous()
            // Replaced for each member by one that knows the member's names.
            .with_custom_certificate_verifier(Arc::new(Verifier::new(
                Arc::clone(&trust),
                Vec::new(),
                None,
            )));
        let (mut config, client_of) = match client {
            None => (builder.with_no_client_auth(), None),
            Some((certificate, key)) => {
                let chain = chain(certificate)?;
                let of = identity(&chain)?;
                let key = crypto::private_key(key).map_err(TlsError::Key)?;
                let config = builder
                    .with_client_auth_cert(chain, key)
                    .map_err(TlsError::ClientPair)?;
                (config, Some(of))
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A resumed session would not show our certificate again, so it would not prove that a new
        // connection works.
        config.resumption = Resumption::disabled();
        Ok(Self {
            tls: Some(Tls {
                config: Arc::new(config),
                trust,
            }),
            user: None,
            fingerprint: fingerprint(authorities, client),
            client: client_of,
        })
    }

    /// A configuration that trusts nobody and shows nothing, to learn whether a peer serves TLS.
    pub(super) fn of_nobody() -> Result<Arc<ClientConfig>, TlsError> {
        let verifier = Verifier::new(Arc::default(), Vec::new(), None);
        let builder = ClientConfig::builder_with_provider(crypto::provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Provider)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        Ok(Arc::new(builder.with_no_client_auth()))
    }

    /// A user without TLS. The password is sent in plain text.
    pub fn of_user(user: User) -> Self {
        let nobody = Self {
            tls: None,
            user: None,
            fingerprint: [0; 32],
            client: None,
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
        self.tls.is_some()
    }

    /// When the client certificate expires; `None` without one.
    pub fn expires(&self) -> Option<Timestamp> {
        self.client.as_ref().map(|(_, validity)| validity.until)
    }

    /// The SHA-256 of everything that was parsed: equal content has an equal fingerprint.
    pub fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    /// The configuration for a connection to the member that may have these names, at this
    /// address.
    pub(super) fn config(&self, names: &[String], address: IpAddr) -> Option<Arc<ClientConfig>> {
        let Tls { config, trust } = self.tls.as_ref()?;
        let verifier = Verifier::new(Arc::clone(trust), names.to_vec(), Some(address));
        let mut config = ClientConfig::clone(config);
        config
            .dangerous()
            .set_certificate_verifier(Arc::new(verifier));
        Some(Arc::new(config))
    }

    pub(super) fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// Fails where the client certificate is not valid at `now`. etcd itself would only say "bad
    /// certificate".
    pub(super) fn check_validity(&self, now: Timestamp) -> Result<(), Obstacle> {
        match &self.client {
            Some((subject, validity)) if now > validity.until => Err(Obstacle::ClientExpired {
                subject: subject.clone(),
                since: validity.until,
            }),
            Some((subject, validity)) if now < validity.from => Err(Obstacle::Other(format!(
                "the gate's client certificate {subject:?} is not valid before {}",
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

fn chain(certificate: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = crypto::certificates(certificate).map_err(TlsError::ClientCertificatePem)?;
    if chain.is_empty() {
        return Err(TlsError::NoClientCertificate);
    }
    Ok(chain)
}

/// The subject of the chain's first certificate, and the time in which all are valid. The key of a
/// certificate that may sign others is not for a client, so it is not even read.
fn identity(chain: &[CertificateDer<'_>]) -> Result<(String, Validity), TlsError> {
    let read = chain.iter().map(Certificate::parse);
    let read: Vec<Certificate> = read
        .collect::<Result<_, _>>()
        .map_err(TlsError::ClientCertificate)?;
    let leaf = read.first().ok_or(TlsError::NoClientCertificate)?;
    if leaf.may_sign {
        return Err(TlsError::ClientIsAuthority(leaf.subject.clone()));
    }
    let validity = read.iter().fold(leaf.validity, |all, one| Validity {
        from: all.from.max(one.validity.from),
        until: all.until.min(one.validity.until),
    });
    Ok((leaf.subject.clone(), validity))
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
