//! Does what the plan says, on the replica that leads.
//!
//! A replica that does not lead looks too, and stands in when something stays undone: the leader
//! may be of a release, or started with options, that makes no certificates. Two that act at once
//! do no harm, since every write names the version that was read.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kube::Error;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::held::{FORMER, FORMER_PATHS, Stored, is_believed};
use super::make;
use super::objects::{Found, Objects};
use super::plan::{self, Since, State, Step};
use super::root::{Root, roots_in};
use super::wishes::Wishes;
use crate::clock::Clock;
use crate::serve::certificate::Certificate;
use crate::telemetry::events::{Notice, Notices, Severity};
use crate::telemetry::metrics::{MadeCertificate, Metrics};

/// The pause between two looks of the leader, unless a webhook configuration changes.
const PERIOD: Duration = Duration::from_secs(5);
/// The pause between two looks of a replica that does not lead.
const PERIOD_OF_OTHERS: Duration = Duration::from_secs(10);
/// How long something may stay undone before another replica than the leader does it.
const STAND_IN: Duration = Duration::from_secs(15);
/// The pause before the look after a step.
const MOMENT: Duration = Duration::from_millis(20);
/// So many writes to the webhook configurations within [`CONTESTED`] are no renewal: somebody
/// else writes the same fields.
const REWRITES: usize = 6;
const CONTESTED: Duration = Duration::from_secs(60);
/// The time limit of a look and its step.
const PATIENCE: Duration = Duration::from_secs(30);

/// Keeps the certificates and the bundles as they should be.
pub struct Keeper {
    objects: Objects,
    wishes: Wishes,
    clock: Clock,
    metrics: Arc<Metrics>,
    signals: Signals,
    /// The certificate that this replica serves.
    certificate: Arc<Certificate>,
    /// Since when some webhook has been seen not to trust it.
    distrusted: Option<Instant>,
    /// The authority that every webhook was seen to trust.
    trusted: Seen<Root>,
    /// The word by which every webhook was seen to call.
    called: Seen<String>,
    /// Since when something has been seen undone.
    undone: Option<Instant>,
    stands_in: bool,
    /// The last times at which the webhook configurations were written, the newest last.
    rewrites: VecDeque<Instant>,
    notices: Arc<dyn Notices>,
}

/// The signals that a keeper wakes up for.
pub struct Signals {
    /// Whether this replica leads.
    pub leading: watch::Receiver<bool>,
    /// Notified when a webhook configuration of the gate changes.
    pub configurations: Arc<Notify>,
}

/// Something that was seen to hold, and since when.
struct Seen<T>(Option<(T, Instant)>);

impl<T> Seen<T> {
    /// For how long this has been seen to hold without a break.
    fn since<Q: ?Sized + PartialEq + ToOwned<Owned = T>>(
        &mut self,
        value: Option<&Q>,
        now: Instant,
    ) -> Duration
    where
        T: Borrow<Q>,
    {
        let known = self
            .0
            .take()
            .filter(|(known, _)| value == Some(known.borrow()));
        self.0 = known.or_else(|| Some((value?.to_owned(), now)));
        self.0.as_ref().map_or(Duration::ZERO, |(_, since)| {
            now.saturating_duration_since(*since)
        })
    }
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Api(#[from] Error),
    #[error("a certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
}

impl Keeper {
    /// A keeper of these objects.
    pub fn new(
        objects: Objects,
        wishes: Wishes,
        clock: Clock,
        metrics: Arc<Metrics>,
        signals: Signals,
        certificate: Arc<Certificate>,
        notices: Arc<dyn Notices>,
    ) -> Self {
        Self {
            objects,
            wishes,
            clock,
            metrics,
            signals,
            certificate,
            distrusted: None,
            trusted: Seen(None),
            called: Seen(None),
            undone: None,
            stands_in: false,
            rewrites: VecDeque::new(),
            notices,
        }
    }

    /// Looks and acts for ever.
    pub async fn run(mut self) {
        loop {
            let pause = match tokio::time::timeout(PATIENCE, self.round()).await {
                Ok(Ok(pause)) => pause,
                Ok(Err(Trouble::Api(Error::Api(status)))) if status.code == 409 => {
                    debug!("certificates written by another replica at the same time");
                    MOMENT
                }
                Ok(Err(error)) => {
                    warn!(%error, "cannot maintain the gate's certificates");
                    PERIOD
                }
                Err(_) => {
                    warn!("cannot maintain the gate's certificates in time");
                    PERIOD
                }
            };
            let Signals {
                leading,
                configurations,
            } = &mut self.signals;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                Ok(()) = leading.changed() => {}
                () = configurations.notified() => {}
            }
        }
    }

    /// Looks, and takes a step if it is this replica's turn. Returns when to look again.
    async fn round(&mut self) -> Result<Duration, Trouble> {
        let leads = *self.signals.leading.borrow_and_update();
        let idle = if leads { PERIOD } else { PERIOD_OF_OTHERS };
        let found = self.objects.read().await?;
        let state = found.state();
        let now = self.clock.instant();
        self.verify(&state, now);
        let root = state.authority.here().map(|authority| &authority.root);
        let since = Since {
            trusted: self.trusted.since(root.filter(|_| state.is_trusted()), now),
            called: self.called.since(state.settled_word(), now),
        };
        let step = plan::next(&state, &self.wishes, since, self.clock.now());
        match &step {
            Step::Nothing => {
                self.undone = None;
                self.stands_in = false;
                return Ok(idle);
            }
            Step::Wait(rest) => {
                self.undone = None;
                return Ok(idle.min(*rest));
            }
            _ => {}
        }
        let undone = *self.undone.get_or_insert(now);
        if !leads && !self.stands_in {
            if now.saturating_duration_since(undone) < STAND_IN {
                return Ok(PERIOD);
            }
            warn!("maintaining the gate's certificates, because the leader does not");
            self.stands_in = true;
        }
        self.take(&step, &found, &state).await?;
        if matches!(step, Step::WriteBundle(_) | Step::WritePaths(_)) {
            self.rewritten(&found, now);
        }
        Ok(MOMENT)
    }

    /// Notes a write to the webhook configurations. Tells where somebody else keeps writing the
    /// same fields, as a tool does that is to make the cluster what a repository says.
    fn rewritten(&mut self, found: &Found, now: Instant) {
        self.rewrites.push_back(now);
        if self.rewrites.len() < REWRITES {
            return;
        }
        let first = self.rewrites.pop_front();
        if first.is_none_or(|first| now.saturating_duration_since(first) > CONTESTED) {
            return;
        }
        self.rewrites.clear();
        let Some((regarding, writer)) = found.contested() else {
            return;
        };
        warn!(
            writer,
            "found another writer of caBundle or paths of the webhook configurations"
        );
        self.notices.notify(Notice {
            regarding,
            severity: Severity::Warning,
            reason: "Contested".to_owned(),
            action: "WriteWebhooks",
            note: format!(
                "caBundle or clientConfig.service.path is written by {writer} and by quorumgate in turns; calls fail meanwhile: have that tool ignore the two fields"
            ),
        });
    }

    /// Verifies the certificate that this replica serves as API servers do, by what they trust. The
    /// replica is not ready while they refuse it, unless that is about to change.
    fn verify(&mut self, state: &State, now: Instant) {
        let Some(chain) = self.certificate.chain() else {
            return;
        };
        let time = self.clock.now();
        let is_believed = |bundle: &Vec<u8>| is_believed(&chain, &roots_in(bundle), time);
        if state.bundles.iter().all(is_believed) {
            if self.distrusted.take().is_some() {
                info!("API servers trust the serving certificate again");
            }
            return self.certificate.refused_by_callers(None);
        }
        let distrusted = *self.distrusted.get_or_insert(now);
        if now.saturating_duration_since(distrusted) >= PERIOD {
            if self.certificate.validity().is_ok() {
                warn!("API servers refuse the serving certificate; this replica is not ready");
            }
            let why = "API servers do not trust the authority of the serving certificate: it is not in the caBundle of each webhook";
            self.certificate.refused_by_callers(Some(why.to_owned()));
        }
    }

    async fn take(&self, step: &Step, found: &Found, state: &State) -> Result<(), Trouble> {
        let now = self.clock.now();
        match step {
            Step::MakeAuthority { former, why } => {
                report(&self.objects.names().authority, &state.authority);
                let data = make::authority(&self.wishes, former, now)?;
                self.objects.write_authority(found, data).await?;
                self.metrics.certificate_made(MadeCertificate::Authority);
                let former = former.len();
                info!(%why, former, "authority generated");
            }
            Step::Remember { former } => {
                let pem: String = former.iter().map(Root::pem).collect();
                let data = [(FORMER.to_owned(), k8s_openapi::ByteString(pem.into_bytes()))];
                self.objects.write_authority(found, data.into()).await?;
                info!("authority of what is in use stays trusted until it ends");
            }
            Step::WriteBundle(bundle) => {
                self.objects.write_bundle(found, bundle).await?;
                info!("webhook authorities written");
            }
            Step::MakeServing { why } => {
                report(&self.objects.names().serving, &state.serving);
                let Stored::Here(authority) = &state.authority else {
                    return Ok(());
                };
                let data = make::serving(&self.wishes, authority, &state.words(), now)?;
                self.objects.write_serving(found, data).await?;
                self.metrics.certificate_made(MadeCertificate::Serving);
                info!(%why, "serving certificate generated");
            }
            Step::WritePaths(word) => {
                self.objects.write_paths(found, word).await?;
                info!("webhook paths written");
            }
            Step::ForgetPaths => {
                let none = [(FORMER_PATHS.to_owned(), k8s_openapi::ByteString::default())];
                self.objects.write_serving(found, none.into()).await?;
                info!("former webhook paths not answered any more");
            }
            Step::Wait(_) | Step::Nothing => {}
        }
        Ok(())
    }
}

/// Says what is wrong with a Secret that is about to be made anew.
fn report<T>(secret: &str, stored: &Stored<T>) {
    if let Stored::Unusable(why) = stored {
        warn!(secret, %why, "cannot use the Secret; generating its content again");
    }
}

#[cfg(test)]
mod tests;
