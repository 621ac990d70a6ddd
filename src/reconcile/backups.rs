//! The age of a cluster's backups, where Leases tell it, and restorations that fail.
//!
//! The etcd-backup-restore that leads renews a Lease for full snapshots and one for delta
//! snapshots. The renewal of the first is the time of the snapshot, or in older versions the time
//! at which the Lease was written. That of the second says until when everything was saved: it is
//! renewed at each turn that succeeds, also where nothing was new.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Api;
use tokio::time::Instant;
use tracing::warn;

use super::condition::{ConditionText, put};
use super::initialisations::Initialisations;
use super::look::Look;
use super::run::Run;
use crate::api::condition;
use crate::named;
use crate::observe::snapshot_leases;
use crate::quorum::ClusterRef;

/// The time until the Leases are read again.
const AGAIN: Duration = Duration::from_secs(60);

/// The backups of one cluster, from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Backups {
    read: Option<Instant>,
    known: Known,
    initialisations: Initialisations,
}

#[derive(Debug, Default)]
enum Known {
    /// The Leases could not be read yet.
    #[default]
    Nothing,
    /// There are no Leases.
    NoLease,
    /// The Leases were read.
    Renewed(Renewals),
}

/// The latest renewals of the Leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Renewals {
    full: Option<Timestamp>,
    delta: Option<Timestamp>,
    /// The creation of the first Lease.
    since: Timestamp,
}

impl Renewals {
    /// The renewals of these Leases. `None` if there is no Lease.
    fn new(full: Option<&Lease>, delta: Option<&Lease>) -> Option<Self> {
        let made = |lease: &Lease| Some(lease.metadata.creation_timestamp.as_ref()?.0);
        let renewed = |lease: &Lease| {
            let spec = lease.spec.as_ref()?;
            // Without a revision no snapshot was taken. Of the deltas 0 says that none is needed.
            spec.holder_identity.as_ref()?;
            Some(spec.renew_time.as_ref()?.0)
        };
        Some(Self {
            full: full.and_then(renewed),
            delta: delta.and_then(renewed),
            since: full.into_iter().chain(delta).filter_map(made).min()?,
        })
    }

    fn latest(&self) -> Option<Timestamp> {
        self.full.max(self.delta)
    }
}

impl Backups {
    /// The initialisations of the members' data.
    pub(super) fn initialisations(&self) -> &Initialisations {
        &self.initialisations
    }

    /// Reads how members are initialised, and the Leases, if there may be some and they were not
    /// read lately.
    pub(super) async fn read(&mut self, run: &Run, look: &Look) {
        self.initialisations.read_metrics(run, look).await;
        let Some(names) = look.view.stateful_set().and_then(snapshot_leases) else {
            self.known = Known::NoLease;
            return;
        };
        let now = run.clock.instant();
        let is_recent = |at: Instant| now.saturating_duration_since(at) < AGAIN;
        if self.read.is_some_and(is_recent) {
            return;
        }
        self.read = Some(now);
        let leases: Api<Lease> = Api::namespaced(run.client.clone(), &look.page.cluster.namespace);
        match tokio::try_join!(
            named::get_opt(&leases, named::OF_OBJECT, &names.full),
            named::get_opt(&leases, named::OF_OBJECT, &names.delta)
        ) {
            Ok((full, delta)) => {
                let renewals = Renewals::new(full.as_ref(), delta.as_ref());
                self.known = renewals.map_or(Known::NoLease, Known::Renewed);
            }
            Err(error) => {
                warn!(cluster = %look.page.cluster, %error, "cannot read the Leases of the snapshots: the age of the backups is unknown");
            }
        }
    }

    /// The times of the latest snapshots, each with its kind.
    pub(super) fn times(&self) -> Vec<(&'static str, Timestamp)> {
        let Known::Renewed(renewals) = &self.known else {
            return Vec::new();
        };
        let kinds = [("full", renewals.full), ("delta", renewals.delta)];
        let known = kinds.into_iter().filter_map(|(kind, at)| Some((kind, at?)));
        known.collect()
    }

    /// Shows restorations that fail in a condition, and the age in another one, which goes where no
    /// Lease tells of backups any more.
    pub(super) fn show(
        &self,
        cluster: &ClusterRef,
        conditions: &mut Vec<Condition>,
        max_age: Duration,
        generation: Option<i64>,
        now: &Time,
    ) {
        self.initialisations
            .show(conditions, cluster, generation, now);
        let renewals = match &self.known {
            Known::Nothing => return,
            Known::NoLease => {
                conditions.retain(|shown| shown.type_ != condition::BACKUPS_RECENT);
                return;
            }
            Known::Renewed(renewals) => renewals,
        };
        let (is, reason, message) = said(renewals, max_age, now.0);
        let shown = Condition {
            type_: condition::BACKUPS_RECENT.into(),
            status: is.into(),
            reason: reason.into(),
            message,
            last_transition_time: now.clone(),
            observed_generation: generation,
        };
        put(conditions, shown);
    }
}

/// The report on the backups. Its words have times and no ages, since those change all the time.
fn said(renewals: &Renewals, max_age: Duration, now: Timestamp) -> ConditionText {
    let limit = SignedDuration::try_from(max_age).unwrap_or(SignedDuration::MAX);
    let is_over = |at: Timestamp| now.duration_since(at) > limit;
    let at = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let Some(latest) = renewals.latest() else {
        let since = at(renewals.since);
        return if is_over(renewals.since) {
            let text = format!(
                "no snapshot was taken since {since}, which is longer than spec.backups.maxAge ({limit:#})"
            );
            ("False", "NoSnapshot", text)
        } else {
            let text = format!("no snapshot was taken yet; its Leases were made at {since}");
            ("Unknown", "NotYet", text)
        };
    };
    let or_none = |time: Option<Timestamp>| time.map_or_else(|| "none".to_owned(), at);
    let (full, delta) = (or_none(renewals.full), or_none(renewals.delta));
    let text = format!("latest full snapshot: {full}, everything saved by deltas until: {delta}");
    if is_over(latest) {
        let text = format!("{text}; both are older than spec.backups.maxAge ({limit:#})");
        ("False", "TooOld", text)
    } else {
        ("True", "Recent", text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOUR: i64 = 3600;
    const DAY: Duration = Duration::from_hours(24);

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + hours * HOUR).unwrap()
    }

    fn renewals(full: Option<i64>, delta: Option<i64>) -> Renewals {
        Renewals {
            full: full.map(at),
            delta: delta.map(at),
            since: at(0),
        }
    }

    fn lease(holder: Option<&str>, renewed: Option<&str>) -> Lease {
        let lease = json!({
            "metadata": {"name": "l", "creationTimestamp": "2027-01-15T08:00:00Z"},
            "spec": {"holderIdentity": holder, "renewTime": renewed},
        });
        serde_json::from_value(lease).unwrap()
    }

    #[test]
    fn backups_are_as_old_as_the_latest_snapshot_of_either_kind() {
        for (full, delta, now, expected) in [
            (Some(1), Some(30), 53, ("True", "Recent")),
            (Some(1), Some(30), 55, ("False", "TooOld")),
            (Some(30), Some(1), 53, ("True", "Recent")),
            (Some(30), None, 54, ("True", "Recent")),
            (None, Some(30), 55, ("False", "TooOld")),
            // Another clock is ahead.
            (Some(60), None, 54, ("True", "Recent")),
        ] {
            let (is, reason, text) = said(&renewals(full, delta), DAY, at(now));
            assert_eq!((is, reason), expected, "{full:?} {delta:?} {now}: {text}");
        }
        let (.., text) = said(&renewals(Some(1), None), DAY, at(40));
        assert_eq!(
            text,
            "latest full snapshot: 2027-01-15T09:00:00Z, everything saved by deltas until: none; \
             both are older than spec.backups.maxAge (24h)"
        );
    }

    #[test]
    fn a_new_cluster_has_time_for_its_first_snapshot() {
        let said = |now| {
            let (is, reason, _) = said(&renewals(None, None), DAY, at(now));
            (is, reason)
        };
        assert_eq!(said(24), ("Unknown", "NotYet"));
        assert_eq!(said(25), ("False", "NoSnapshot"));
    }

    #[test]
    fn a_lease_that_no_snapshot_was_written_to_tells_of_none() {
        let (made, renewed) = (lease(None, None), "2027-01-15T10:00:00.000000Z");
        let of = |full, delta| Renewals::new(full, delta);
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some(&made), None), Some(renewals(None, None)));
        let held_by_none = lease(None, Some(renewed));
        assert_eq!(of(Some(&held_by_none), None), Some(renewals(None, None)));
        let (full, delta) = (
            lease(Some("7"), Some(renewed)),
            lease(Some("0"), Some(renewed)),
        );
        let both = Some(renewals(Some(2), Some(2)));
        assert_eq!(of(Some(&full), Some(&delta)), both);
    }

    #[test]
    fn the_condition_goes_with_the_leases_and_stays_while_they_cannot_be_read() {
        let mut backups = Backups {
            known: Known::Renewed(renewals(Some(1), None)),
            ..Backups::default()
        };
        let mut conditions = Vec::new();
        let mut show = |backups: &Backups| {
            let cluster = ClusterRef::new("db", "etcd");
            backups.show(&cluster, &mut conditions, DAY, Some(3), &Time(at(2)));
            let shown = conditions
                .iter()
                .map(|c| (c.type_.clone(), c.reason.clone()));
            shown.collect::<Vec<_>>()
        };
        let recent = [("BackupsRecent".to_owned(), "Recent".to_owned())];
        assert_eq!(show(&backups), recent);
        assert_eq!(backups.times(), [("full", at(1))]);
        backups.known = Known::Nothing;
        assert_eq!(show(&backups), recent);
        backups.known = Known::NoLease;
        assert_eq!(show(&backups), []);
        assert_eq!(backups.times(), []);
    }
}
