//! Does what the plan says, on the replica that leads.
//!
//! A replica that does not lead looks too, and stands in when something stays undone: the leader
//! may be of a release, or started with options, that makes no certificates. Two that act at once
//! do no harm, since every write names the version that was read.

use std::sync::Arc;
use std::time::Duration;

use kube::Error;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::held::{FORMER, Stored};
use super::objects::{Found, Objects};
use super::plan::{self, State, Step};
use super::root::Root;
use super::{Wishes, make};
use crate::clock::Clock;
use crate::telemetry::metrics::{MadeCertificate, Metrics};

/// The pause between two looks of the leader, unless a webhook configuration changes.
const PERIOD: Duration = Duration::from_secs(5);
/// The pause between two looks of a replica that does not lead.
const PERIOD_OF_OTHERS: Duration = Duration::from_secs(10);
/// How long something may stay undone before another replica than the leader does it.
const STAND_IN: Duration = Duration::from_secs(15);
/// The pause before the look after a step.
const MOMENT: Duration = Duration::from_millis(20);
/// The time limit of a look and its step.
const PATIENCE: Duration = Duration::from_secs(30);

/// Keeps the certificates and the bundles as they should be.
pub struct Keeper {
    objects: Objects,
    wishes: Wishes,
    clock: Clock,
    metrics: Arc<Metrics>,
    signals: Signals,
    /// The authority that every webhook was seen to trust, and since when.
    trusted: Option<(Root, Instant)>,
    /// Since when something has been seen undone.
    undone: Option<Instant>,
    stands_in: bool,
}

/// The signals that a keeper wakes up for.
pub struct Signals {
    /// Whether this replica leads.
    pub leading: watch::Receiver<bool>,
    /// Notified when a webhook configuration of the gate changes.
    pub configurations: Arc<Notify>,
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
    ) -> Self {
        Self {
            objects,
            wishes,
            clock,
            metrics,
            signals,
            trusted: None,
            undone: None,
            stands_in: false,
        }
    }

    /// Looks and acts for ever.
    pub async fn run(mut self) {
        loop {
            let pause = match tokio::time::timeout(PATIENCE, self.round()).await {
                Ok(Ok(pause)) => pause,
                Ok(Err(Trouble::Api(Error::Api(status)))) if status.code == 409 => {
                    debug!("another replica wrote the certificates at the same time");
                    MOMENT
                }
                Ok(Err(error)) => {
                    warn!(%error, "the gate's own certificates could not be looked after");
                    PERIOD
                }
                Err(_) => {
                    warn!("the gate's own certificates could not be looked after in time");
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
        let trusted_for = self.trusted_for(&state, now);
        let step = plan::next(&state, &self.wishes, trusted_for, self.clock.now());
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
            warn!(
                "the replica that leads does not look after the gate's own certificates, so this one does"
            );
            self.stands_in = true;
        }
        self.take(&step, &found, &state).await?;
        Ok(MOMENT)
    }

    /// For how long every webhook has been seen to trust the present authority.
    fn trusted_for(&mut self, state: &State, now: Instant) -> Duration {
        let root = state.authority.here().map(|authority| &authority.root);
        let Some(root) = root.filter(|_| state.is_trusted()) else {
            self.trusted = None;
            return Duration::ZERO;
        };
        match &self.trusted {
            Some((known, since)) if known == root => now.saturating_duration_since(*since),
            _ => {
                self.trusted = Some((root.clone(), now));
                Duration::ZERO
            }
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
                info!(%why, former, "made a new authority");
            }
            Step::Remember { former } => {
                let pem: String = former.iter().map(Root::pem).collect();
                let data = [(FORMER.to_owned(), k8s_openapi::ByteString(pem.into_bytes()))];
                self.objects.write_authority(found, data.into()).await?;
                info!("an authority that signed what is in use stays trusted until it ends");
            }
            Step::WriteBundle(bundle) => {
                self.objects.write_bundle(found, bundle).await?;
                info!("wrote the authorities into the webhook configurations");
            }
            Step::MakeServing { why } => {
                report(&self.objects.names().serving, &state.serving);
                let Stored::Here(authority) = &state.authority else {
                    return Ok(());
                };
                let data = make::serving(&self.wishes, authority, now)?;
                self.objects.write_serving(found, data).await?;
                self.metrics.certificate_made(MadeCertificate::Serving);
                info!(%why, "made a new serving certificate");
            }
            Step::Wait(_) | Step::Nothing => {}
        }
        Ok(())
    }
}

/// Says what is wrong with a Secret that is about to be made anew.
fn report<T>(secret: &str, stored: &Stored<T>) {
    if let Stored::Unusable(why) = stored {
        warn!(secret, %why, "the Secret cannot be used, so its content is made anew");
    }
}

#[cfg(test)]
mod tests;
