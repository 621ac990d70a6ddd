//! The election of a leader. One replica writes observations, though all could: this only saves
//! work, and no safety depends on it.
//!
//! A replica takes the Lease over when its record has not changed for its whole duration on the
//! replica's own monotonic clock. The times in the record are for people: clocks of replicas are
//! never compared.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::named;
use crate::telemetry::metrics::Metrics;

/// The time for which a Lease is valid after its last observed change.
const DURATION: Duration = Duration::from_secs(15);
/// The period at which the Lease is read, and renewed by its holder.
const PERIOD: Duration = Duration::from_secs(3);
/// The time without a renewal after which the holder stops leading. Others take over after
/// [`DURATION`].
const RENEW_WITHIN: Duration = Duration::from_secs(8);

/// Whether this replica leads.
#[derive(Debug)]
pub(super) struct Leading(watch::Receiver<bool>);

impl Leading {
    /// A copy that reports only changes from now on.
    pub(super) fn begun_now(&self) -> Self {
        let mut follow = self.0.clone();
        follow.mark_unchanged();
        Self(follow)
    }

    /// Whether this replica leads now.
    pub(super) fn now(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when that changes. Never returns once the candidate has ended.
    pub(super) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A record as it was first seen: its holder, its version, and the time by this replica's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SeenRecord {
    holder: Option<String>,
    version: Option<String>,
    since: Instant,
}

/// The action that the Lease calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    /// Create the Lease, since there is none.
    Create,
    /// Renew the Lease, which this replica holds.
    Renew,
    /// Take the Lease, which has no holder, or whose holder has not renewed it for its duration.
    Take,
    /// Wait, since another replica holds the Lease.
    Wait,
}

fn evaluate(seen: Option<&SeenRecord>, me: &str, now: Instant) -> Move {
    let Some(seen) = seen else {
        return Move::Create;
    };
    match seen.holder.as_deref() {
        None | Some("") => Move::Take,
        Some(holder) if holder == me => Move::Renew,
        Some(_) if now.saturating_duration_since(seen.since) >= DURATION => Move::Take,
        Some(_) => Move::Wait,
    }
}

/// A replica that takes part in the election.
pub(super) struct Candidate {
    leases: Api<Lease>,
    name: String,
    me: String,
    clock: Clock,
    leading: watch::Sender<bool>,
    metrics: Arc<Metrics>,
    seen: Option<SeenRecord>,
    renewed: Option<Instant>,
}

impl Candidate {
    /// A candidate with the name `identity` for the Lease `name`, and the handle that tells whether
    /// it leads. `leading` is told, too.
    pub(super) fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: &str,
        clock: Clock,
        metrics: Arc<Metrics>,
        leading: watch::Sender<bool>,
    ) -> (Self, Leading) {
        let follow = leading.subscribe();
        let candidate = Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            me: identity.to_owned(),
            clock,
            leading,
            metrics,
            seen: None,
            renewed: None,
        };
        (candidate, Leading(follow))
    }

    /// Takes part in the election until cancelled. Then releases the Lease, so that another replica
    /// need not wait.
    pub(super) async fn run(mut self, cancel: CancellationToken) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while cancel.run_until_cancelled(ticks.tick()).await.is_some() {
            match tokio::time::timeout(PERIOD, self.round()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => warn!(%error, "cannot read the leader election Lease"),
                Err(_) => warn!("cannot read the leader election Lease in time"),
            }
            self.note(self.clock.instant());
        }
        self.release().await;
    }

    async fn round(&mut self) -> Result<(), Error> {
        let current = named::get_opt(&self.leases, named::OF_OBJECT, &self.name).await?;
        let now = self.clock.instant();
        self.look(current.as_ref(), now);
        let written = match evaluate(self.seen.as_ref(), &self.me, now) {
            Move::Create => {
                let lease = self.record(None);
                self.leases.create(&PostParams::default(), &lease).await
            }
            Move::Renew | Move::Take => {
                let lease = self.record(current);
                self.leases
                    .replace(&self.name, &PostParams::default(), &lease)
                    .await
            }
            Move::Wait => {
                self.renewed = None;
                return Ok(());
            }
        };
        match written {
            Ok(lease) => {
                self.look(Some(&lease), now);
                self.renewed = Some(now);
                Ok(())
            }
            // Another replica was faster. The next read shows which one.
            Err(Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Records what was read. The time of a record starts again only if the record changed.
    fn look(&mut self, lease: Option<&Lease>, now: Instant) {
        self.seen = lease.map(|lease| {
            let version = lease.metadata.resource_version.clone();
            match self.seen.take() {
                Some(seen) if seen.version == version => seen,
                _ => SeenRecord {
                    holder: lease.spec.as_ref().and_then(|s| s.holder_identity.clone()),
                    version,
                    since: now,
                },
            }
        });
    }

    /// The Lease with this replica as its holder, at the version that was read.
    fn record(&self, current: Option<Lease>) -> Lease {
        let mut lease = current.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            ..Lease::default()
        });
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        let now = MicroTime(self.clock.now());
        if spec.holder_identity.as_deref() != Some(self.me.as_str()) {
            let free = spec.holder_identity.as_deref().unwrap_or("").is_empty();
            let first = spec.lease_transitions.is_none() && free;
            let transitions = spec.lease_transitions.unwrap_or(0);
            spec.lease_transitions = Some(transitions.saturating_add(i32::from(!first)));
            spec.acquire_time = Some(now.clone());
        }
        spec.holder_identity = Some(self.me.clone());
        spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
        spec.renew_time = Some(now);
        lease
    }

    /// Leads as long as the last renewal is recent, whatever the latest attempt returned.
    fn note(&self, now: Instant) {
        let leads = self
            .renewed
            .is_some_and(|renewed| now.saturating_duration_since(renewed) < RENEW_WITHIN);
        let changed = self.leading.send_if_modified(|leading| {
            let changed = *leading != leads;
            *leading = leads;
            changed
        });
        if changed {
            self.metrics.clusters.leads(leads);
            info!(leader = leads, identity = %self.me, "leadership changed");
        }
    }

    async fn release(&mut self) {
        self.leading.send_replace(false);
        self.metrics.clusters.leads(false);
        if self.renewed.is_none() {
            return;
        }
        let give_back = async {
            let mut lease = named::get(&self.leases, named::OF_OBJECT, &self.name).await?;
            let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
            if spec.holder_identity.as_deref() != Some(self.me.as_str()) {
                return Ok(());
            }
            spec.holder_identity = Some(String::new());
            let params = PostParams::default();
            self.leases
                .replace(&self.name, &params, &lease)
                .await
                .map(drop)
        };
        match tokio::time::timeout(PERIOD, give_back).await {
            Ok(Ok(())) => info!("leader election Lease released"),
            Ok(Err(error)) => warn!(%error, "cannot release the leader election Lease"),
            Err(_) => warn!("cannot release the leader election Lease in time"),
        }
    }
}

#[cfg(test)]
mod tests;
