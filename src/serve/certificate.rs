//! The serving certificate, and the authorities of those who may call: read from files, and read again when their content changes.
//!
//! Content is compared by polling. Mounted Secrets change by a symbolic link that is swapped, which file watches miss from the
//! second time on. A pair that is not usable never replaces one that is; it is reported, and tried again when it changes.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};
use tokio_util::sync::CancellationToken;

use super::callers::{Callers, Doorkeeper};
use crate::clock::Clock;
use crate::pem::{self, PemProblem};
use crate::telemetry::metrics::Metrics;

/// How often the files are read. A Secret takes a minute to reach a mounted volume, so this adds little.
pub const POLL: Duration = Duration::from_secs(5);

/// Where a certificate and its key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate chain, PEM, the server's own first.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Who may call; `None` for everybody.
    pub callers: Option<Callers>,
}

/// Why a pair of files cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// A file could not be read.
    #[error("{path} cannot be read", path = .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// A file is not PEM.
    #[error("{path} is not PEM: {why}", path = .0.display(), why = .1)]
    Pem(PathBuf, PemProblem),
    /// There is no certificate in it.
    #[error("{path} contains no certificate", path = .0.display())]
    NoCertificate(PathBuf),
    /// There is no private key in it.
    #[error("{path} contains no private key", path = .0.display())]
    NoKey(PathBuf),
    /// The certificate is not one.
    #[error("the certificate in {path} cannot be read: {why}", path = .0.display(), why = .1)]
    Certificate(PathBuf, String),
    /// The key is of a kind that cannot be used.
    #[error("the key in {path} cannot be used", path = .0.display())]
    Key(PathBuf, #[source] rustls::Error),
    /// The key is another certificate's.
    #[error("the key in {key} does not belong to the certificate in {certificate}",
        key = .0.key.display(), certificate = .0.certificate.display())]
    Mismatch(Files),
    /// Callers cannot be verified with these.
    #[error("the authorities in {path} cannot be used: {why}", path = .0.display(), why = .1)]
    Authorities(PathBuf, String),
    /// It is over.
    #[error("the certificate in {path} expired at {since}", path = .0.display(), since = .1)]
    Expired(PathBuf, Timestamp),
    /// It has not begun.
    #[error("the certificate in {path} is not valid before {from}", path = .0.display(), from = .1)]
    NotYet(PathBuf, Timestamp),
}

/// What the files held, byte by byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authorities: Option<Vec<u8>>,
}

struct InUse {
    key: Arc<CertifiedKey>,
    callers: Option<Arc<dyn ClientCertVerifier>>,
    not_after: Timestamp,
    content: Content,
}

/// What came of a look at the files.
#[derive(Debug)]
pub enum Look {
    /// They hold what is in use.
    Same,
    /// They hold something new, which is in use from now on.
    Replaced,
    /// They hold something that cannot be used; what was in use still is.
    Kept(Unusable),
    /// The same as at the last look, which cannot be used.
    StillUnusable,
}

/// The certificate in use.
pub struct Certificate {
    files: Files,
    in_use: ArcSwap<InUse>,
    refused: Mutex<Option<Content>>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("files", &self.files)
            .field("not_after", &self.not_after())
            .finish_non_exhaustive()
    }
}

impl Certificate {
    /// Reads the files for the first time. Whatever is wrong with them is an error here.
    pub fn open(files: Files, clock: Clock, metrics: Arc<Metrics>) -> Result<Self, Unusable> {
        let content = files.read()?;
        let in_use = files.understand(content, clock.now())?;
        metrics.certificate_in_use(in_use.not_after);
        Ok(Self {
            files,
            in_use: ArcSwap::from_pointee(in_use),
            refused: Mutex::new(None),
            clock,
            metrics,
        })
    }

    /// When the certificate in use ends.
    pub fn not_after(&self) -> Timestamp {
        self.in_use.load().not_after
    }

    /// Whether the certificate in use can be served, in words where it cannot.
    pub fn validity(&self) -> Result<(), String> {
        let not_after = self.not_after();
        if self.clock.now() < not_after {
            Ok(())
        } else {
            Err(format!("the serving certificate expired at {not_after}"))
        }
    }

    /// Looks at the files, and takes what they hold into use where it can be.
    pub fn look(&self) -> Look {
        let content = match self.files.read() {
            Ok(content) => content,
            Err(error) => return self.refuse(None, error),
        };
        if content == self.in_use.load().content {
            *self.refused() = None;
            return Look::Same;
        }
        match self.files.understand(content.clone(), self.clock.now()) {
            Ok(fresh) => {
                self.metrics.certificate_in_use(fresh.not_after);
                self.metrics.certificate_reloaded();
                self.in_use.store(Arc::new(fresh));
                *self.refused() = None;
                Look::Replaced
            }
            Err(error) => self.refuse(Some(content), error),
        }
    }

    /// Reports a pair once. Files that cannot be read are like an empty pair.
    fn refuse(&self, content: Option<Content>, error: Unusable) -> Look {
        let content = content.unwrap_or_default();
        let mut refused = self.refused();
        if refused.as_ref() == Some(&content) {
            return Look::StillUnusable;
        }
        *refused = Some(content);
        self.metrics.certificate_failed();
        Look::Kept(error)
    }

    fn refused(&self) -> std::sync::MutexGuard<'_, Option<Content>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the files again and again, until it is cancelled.
    pub async fn watch(self: Arc<Self>, every: Duration, cancelled: CancellationToken) {
        loop {
            tokio::select! {
                () = cancelled.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
            let this = Arc::clone(&self);
            // A mounted volume may hang; the runtime's threads must not hang with it.
            match tokio::task::spawn_blocking(move || this.look()).await {
                Ok(look) => self.tell(&look),
                // A look that breaks once breaks every time: nobody would renew the certificate, and nobody would know.
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // The runtime ends.
                Err(_) => return,
            }
        }
    }

    fn tell(&self, look: &Look) {
        let not_after = self.not_after();
        match look {
            Look::Same | Look::StillUnusable => {}
            Look::Replaced => {
                tracing::info!(%not_after, "the serving certificate was replaced");
            }
            Look::Kept(why) => {
                let cause = std::error::Error::source(why).map(tracing::field::display);
                tracing::error!(%why, cause, %not_after, "the new serving certificate cannot be used; the one before stays");
            }
        }
    }

    /// A TLS configuration that serves whatever certificate is in use when a handshake comes, and asks callers for theirs where
    /// [`Files::callers`] says so.
    pub fn server_config(self: Arc<Self>) -> Result<ServerConfig, rustls::Error> {
        let versions = &[&version::TLS13, &version::TLS12];
        let builder =
            ServerConfig::builder_with_provider(provider()).with_protocol_versions(versions)?;
        let builder = match self.files.callers.clone() {
            None => builder.with_no_client_auth(),
            Some(callers) => builder.with_client_cert_verifier(Arc::new(Doorkeeper {
                callers,
                certificate: Arc::clone(&self),
            })),
        };
        let mut config = builder.with_cert_resolver(self);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A resumed session would not show its certificate again. API servers keep their connections, and resume none.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// What checks callers now.
    pub(super) fn caller_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        self.in_use.load().callers.clone()
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.in_use.load().key))
    }
}

impl Files {
    fn read(&self) -> Result<Content, Unusable> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|error| Unusable::Read(path.to_owned(), error))
        };
        Ok(Content {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            authorities: match &self.callers {
                Some(callers) => Some(read(&callers.authorities)?),
                None => None,
            },
        })
    }

    fn understand(&self, content: Content, now: Timestamp) -> Result<InUse, Unusable> {
        let chain = self.chain(&content.certificate)?;
        let own = chain
            .first()
            .ok_or_else(|| Unusable::NoCertificate(self.certificate.clone()))?;
        let not_after = self.check_validity(own, now)?;
        let key = self.private_key(&content.key)?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => Unusable::Mismatch(self.clone()),
            rustls::Error::InvalidCertificate(why) => {
                Unusable::Certificate(self.certificate.clone(), why.to_string())
            }
            other => Unusable::Key(self.key.clone(), other),
        })?;
        let callers = match (&self.callers, &content.authorities) {
            (Some(callers), Some(pem)) => Some(callers.understand(pem)?),
            (None, _) | (_, None) => None,
        };
        Ok(InUse {
            key: Arc::new(key),
            callers,
            not_after,
            content,
        })
    }

    fn chain(&self, file: &[u8]) -> Result<Vec<CertificateDer<'static>>, Unusable> {
        pem::certificates(file).map_err(|why| Unusable::Pem(self.certificate.clone(), why))
    }

    fn private_key(&self, file: &[u8]) -> Result<PrivateKeyDer<'static>, Unusable> {
        pem::private_key(file).map_err(|why| match why {
            PemProblem::Nothing => Unusable::NoKey(self.key.clone()),
            other => Unusable::Pem(self.key.clone(), other),
        })
    }

    fn check_validity(&self, own: &[u8], now: Timestamp) -> Result<Timestamp, Unusable> {
        let unreadable = |why: String| Unusable::Certificate(self.certificate.clone(), why);
        let (_, parsed) = x509_parser::parse_x509_certificate(own)
            .map_err(|error| unreadable(error.to_string()))?;
        let instant = |at: x509_parser::time::ASN1Time| {
            Timestamp::from_second(at.timestamp()).map_err(|error| unreadable(error.to_string()))
        };
        let validity = parsed.validity();
        let (from, until) = (instant(validity.not_before)?, instant(validity.not_after)?);
        if now >= until {
            return Err(Unusable::Expired(self.certificate.clone(), until));
        }
        if now < from {
            return Err(Unusable::NotYet(self.certificate.clone(), from));
        }
        Ok(until)
    }
}

/// The one provider of cryptography in this process.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

#[cfg(test)]
mod tests;
