//! The serving certificate and the authorities of callers, read from files and reloaded when their
//! content changes. Where the gate makes its own certificates, certificate and key are offered
//! instead, as a Secret holds them.
//!
//! The content is compared by polling. A mounted Secret changes when a symbolic link is swapped,
//! and a file watch misses every such change but the first. A new pair that cannot be used never
//! replaces the one in use: the problem is reported once, and the files are tried again when they
//! change again.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;

use super::callers::Callers;
use super::unusable::Unusable;
use crate::clock::Clock;
use crate::crypto::{self, PemProblem, Validity};
use crate::telemetry::metrics::Metrics;

/// Interval between two reads of the files. The kubelet takes up to a minute to update a mounted
/// Secret, so this adds little.
pub const POLL: Duration = Duration::from_secs(5);

/// The files of the certificate, of its key and of the authorities of callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// PEM file of the certificate chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// PEM file of the private key.
    pub key: PathBuf,
    /// The callers to accept; `None` accepts every caller.
    pub callers: Option<Callers>,
}

/// The bytes of the files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authorities: Option<Vec<u8>>,
}

struct InUse {
    key: Arc<CertifiedKey>,
    callers: Option<Arc<dyn ClientCertVerifier>>,
    validity: Validity,
    content: Content,
}

/// The result of one check of the files.
#[derive(Debug)]
pub enum Reload {
    /// The files hold what is in use.
    Same,
    /// The files held something new, which is in use from now on.
    Replaced,
    /// The files hold something new that cannot be used; the pair before stays in use.
    Kept(Unusable),
    /// The files hold the same unusable content as at the last check.
    StillUnusable,
}

/// The serving certificate and its files.
pub struct Certificate {
    files: Files,
    in_use: ArcSwapOption<InUse>,
    refused_by_callers: ArcSwapOption<String>,
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
    /// Reads the files for the first time. Anything wrong with them is an error here.
    pub fn open(files: Files, clock: Clock, metrics: Arc<Metrics>) -> Result<Self, Unusable> {
        let content = files.read()?;
        let in_use = files.parse(content, clock.now())?;
        metrics.certificate_in_use(in_use.validity.until);
        let certificate = Self::awaited(files, clock, metrics);
        certificate.in_use.store(Some(Arc::new(in_use)));
        Ok(certificate)
    }

    /// A certificate that is still to be offered. Until then every handshake fails.
    pub fn awaited(files: Files, clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self {
            files,
            in_use: ArcSwapOption::empty(),
            refused_by_callers: ArcSwapOption::empty(),
            refused: Mutex::new(None),
            clock,
            metrics,
        }
    }

    /// Whether there is a certificate in use.
    pub fn is_there(&self) -> bool {
        self.in_use.load().is_some()
    }

    /// The time at which the certificate in use expires.
    pub fn not_after(&self) -> Option<Timestamp> {
        let in_use = self.in_use.load();
        in_use.as_ref().map(|in_use| in_use.validity.until)
    }

    /// The chain of the certificate in use, its own certificate first.
    pub fn chain(&self) -> Option<Vec<CertificateDer<'static>>> {
        let in_use = self.in_use.load();
        in_use.as_ref().map(|in_use| in_use.key.cert.clone())
    }

    /// Notes that API servers refuse the certificate in use, and why; or that they do not.
    pub fn refused_by_callers(&self, why: Option<String>) {
        self.refused_by_callers.store(why.map(Arc::new));
    }

    /// Fails, with the reason in words, where API servers refuse the handshake: there is no
    /// certificate yet, the one in use is not valid now, or they trust another authority.
    pub fn validity(&self) -> Result<(), String> {
        let in_use = self.in_use.load();
        let Some(in_use) = in_use.as_ref() else {
            return Err("there is no serving certificate yet".to_owned());
        };
        let (now, Validity { from, until }) = (self.clock.now(), in_use.validity);
        if now >= until {
            return Err(format!("the serving certificate expired at {until}"));
        }
        if now < from {
            return Err(format!(
                "the serving certificate is not valid before {from}"
            ));
        }
        match self.refused_by_callers.load().as_ref() {
            Some(why) => Err(why.to_string()),
            None => Ok(()),
        }
    }

    /// Reads the files, and takes their content into use if it is new and usable.
    pub fn reload(&self) -> Reload {
        self.take(self.files.read())
    }

    /// Takes a certificate and its key into use, both PEM, if they are new and usable.
    pub async fn offer(self: Arc<Self>, [certificate, key]: [Vec<u8>; 2]) {
        self.check(move |this| {
            let authorities = this.files.authorities();
            this.take(authorities.map(|authorities| Content {
                certificate,
                key,
                authorities,
            }))
        })
        .await;
    }

    fn take(&self, content: Result<Content, Unusable>) -> Reload {
        let content = match content {
            Ok(content) => content,
            Err(error) => return self.refuse(None, error),
        };
        let before = self.in_use.load();
        if before
            .as_ref()
            .is_some_and(|before| before.content == content)
        {
            *self.refused() = None;
            return Reload::Same;
        }
        match self.files.parse(content.clone(), self.clock.now()) {
            Ok(fresh) => {
                self.metrics.certificate_in_use(fresh.validity.until);
                if before.is_some() {
                    self.metrics.certificate_reloaded();
                }
                self.in_use.store(Some(Arc::new(fresh)));
                *self.refused() = None;
                Reload::Replaced
            }
            Err(error) => self.refuse(Some(content), error),
        }
    }

    /// Remembers unusable content, so that it is reported once. `None` stands for files that could
    /// not be read.
    fn refuse(&self, content: Option<Content>, error: Unusable) -> Reload {
        let content = content.unwrap_or_default();
        let mut refused = self.refused();
        if refused.as_ref() == Some(&content) {
            return Reload::StillUnusable;
        }
        *refused = Some(content);
        self.metrics.certificate_failed();
        Reload::Kept(error)
    }

    fn refused(&self) -> std::sync::MutexGuard<'_, Option<Content>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the files at an interval of `every`, until `cancelled`. Panics where a check panics.
    pub async fn watch(self: Arc<Self>, every: Duration, cancelled: CancellationToken) {
        loop {
            tokio::select! {
                () = cancelled.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
            Arc::clone(&self).check(Self::reload).await;
        }
    }

    /// Runs a check where it may read files, and logs its result. Panics where the check panics.
    async fn check(self: Arc<Self>, check: impl FnOnce(&Self) -> Reload + Send + 'static) {
        let this = Arc::clone(&self);
        // A mounted volume may hang; the runtime's threads must not hang with it.
        match tokio::task::spawn_blocking(move || check(&this)).await {
            Ok(reload) => self.log(&reload),
            // A check that panics once panics every time: the certificate would expire
            // unnoticed. The panic ends this task, which the supervisor notices.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime ends.
            Err(_) => {}
        }
    }

    fn log(&self, reload: &Reload) {
        let not_after = self.not_after().map(tracing::field::display);
        match reload {
            Reload::Same | Reload::StillUnusable => {}
            Reload::Replaced => {
                tracing::info!(not_after, "serving certificate replaced");
            }
            Reload::Kept(why) => {
                let cause = std::error::Error::source(why).map(tracing::field::display);
                tracing::error!(%why, cause, not_after, "cannot use the new serving certificate; keeping the old one");
            }
        }
    }

    /// The callers to accept; `None` accepts every caller.
    pub(super) fn callers(&self) -> Option<&Callers> {
        self.files.callers.as_ref()
    }

    /// The verifier for the authorities in use.
    pub(super) fn caller_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        self.in_use.load().as_ref()?.callers.clone()
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.in_use.load().as_ref().map(|it| Arc::clone(&it.key))
    }
}

impl Files {
    /// The names of what a Secret holds. They are not read, and appear in messages only.
    pub fn in_secret(secret: &str, callers: Option<Callers>) -> Self {
        let key = |key: &str| Path::new("secret").join(secret).join(key);
        Self {
            certificate: key("tls.crt"),
            key: key("tls.key"),
            callers,
        }
    }

    fn read(&self) -> Result<Content, Unusable> {
        Ok(Content {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            authorities: self.authorities()?,
        })
    }

    fn authorities(&self) -> Result<Option<Vec<u8>>, Unusable> {
        let file = self.callers.as_ref().map(|callers| &callers.authorities);
        file.map(|file| read(file)).transpose()
    }

    fn parse(&self, content: Content, now: Timestamp) -> Result<InUse, Unusable> {
        let chain = self.chain(&content.certificate)?;
        let own = chain
            .first()
            .ok_or_else(|| Unusable::NoCertificate(self.certificate.clone()))?;
        let validity = self.check_validity(own, now)?;
        let key = self.private_key(&content.key)?;
        let key =
            CertifiedKey::from_der(chain, key, &crypto::provider()).map_err(
                |error| match error {
                    rustls::Error::InconsistentKeys(_) => Unusable::Mismatch {
                        key: self.key.clone(),
                        certificate: self.certificate.clone(),
                    },
                    rustls::Error::InvalidCertificate(why) => {
                        Unusable::Certificate(self.certificate.clone(), why.to_string())
                    }
                    other => Unusable::Key(self.key.clone(), other),
                },
            )?;
        let callers = match (&self.callers, &content.authorities) {
            (Some(callers), Some(pem)) => Some(callers.verifier(pem)?),
            (None, _) | (_, None) => None,
        };
        Ok(InUse {
            key: Arc::new(key),
            callers,
            validity,
            content,
        })
    }

    fn chain(&self, file: &[u8]) -> Result<Vec<CertificateDer<'static>>, Unusable> {
        crypto::certificates(file).map_err(|why| Unusable::Pem(self.certificate.clone(), why))
    }

    fn private_key(&self, file: &[u8]) -> Result<PrivateKeyDer<'static>, Unusable> {
        crypto::private_key(file).map_err(|why| match why {
            PemProblem::Nothing => Unusable::NoKey(self.key.clone()),
            other => Unusable::Pem(self.key.clone(), other),
        })
    }

    fn check_validity(&self, own: &[u8], now: Timestamp) -> Result<Validity, Unusable> {
        let unreadable = |why: String| Unusable::Certificate(self.certificate.clone(), why);
        let Validity { from, until } = Validity::parse(own).map_err(unreadable)?;
        if now >= until {
            return Err(Unusable::Expired(self.certificate.clone(), until));
        }
        if now < from {
            return Err(Unusable::NotYet(self.certificate.clone(), from));
        }
        Ok(Validity { from, until })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Unusable> {
    std::fs::read(path).map_err(|error| Unusable::Read(path.to_owned(), error))
}

#[cfg(test)]
mod tests;
