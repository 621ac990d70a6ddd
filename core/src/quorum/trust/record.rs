//! The record of trust in a budget's status, and how events change it.

use std::time::Duration;

use super::watch::TrustWatch;
use super::webhooks::WebhookHistory;

/// Whether a ledger is known to hold every open grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The ledger holds every open grant.
    Trusted,
    /// The ledger is new, or disruptions may have passed without a grant. Grants that the ledger
    /// does not show may be open.
    Untrusted {
        /// The time that this replica still has to watch the ledger. `None` during an outage of
        /// the gate, because that time does not count.
        remaining: Option<Duration>,
    },
}

/// Why the ledger of a budget with `enforcement: Warn` is not trusted.
const REFUSALS_PASS: &str = "what was refused was allowed (enforcement: Warn)";
const WITHOUT_A_GRANT: &str = "a disruption passed without a grant";
const OTHER_WEBHOOKS: &str =
    "the webhook configurations were made anew, or changed while nobody looked";

/// The record of trust in a budget's status, with the facts about the budget that it depends on.
///
/// The record of a budget that was just created is the default: not trusted, in epoch 0.
///
/// ```
/// use quorumgate_core::quorum::{TrustEvent, TrustRecord};
///
/// let created = TrustRecord { budget: "uid-1".into(), ..TrustRecord::default() };
/// let trusted = created.after(TrustEvent::Watched);
/// assert!(trusted.is_trusted());
///
/// let out = trusted.after(TrustEvent::OutOfForce { because: "no webhooks" });
/// assert!(out.suspended && !out.is_trusted());
/// assert_eq!(out.epoch, 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrustRecord {
    /// The UID of the budget in which the record stands. A budget that is created again is another
    /// one, and so is one with a copied status.
    pub budget: String,
    /// Whether refusals of this budget are only reported (`enforcement: Warn`).
    pub only_warns: bool,
    /// The UID of the budget whose ledger a replica has recorded as trusted.
    pub trusted_in: Option<String>,
    /// How often the ledger has lost its trust. It has to be watched anew each time.
    pub epoch: i64,
    /// Whether disruptions pass without a grant at present, so that watching does not count.
    pub suspended: bool,
    /// The identity of the webhook configurations by which the gate was last in force.
    pub in_force_by: Option<String>,
    /// Why the ledger last lost its trust.
    pub because: Option<String>,
}

/// An event that concerns the trust of a ledger.
#[derive(Debug, Clone, Copy)]
pub enum TrustEvent<'a> {
    /// A replica has watched the ledger for a settle time.
    Watched,
    /// A disruption passed without a grant.
    Ungranted,
    /// The API server does not ask the gate, or did not a moment ago.
    OutOfForce {
        /// The part that is missing, for people.
        because: &'a str,
    },
    /// The API server asks the gate.
    InForce {
        /// The identity of the webhook configurations by which it asks.
        by: &'a str,
        /// The configurations that the replica that says so has seen in force.
        history: &'a WebhookHistory,
    },
}

impl TrustRecord {
    /// Whether a replica has recorded that this very ledger is trusted.
    pub fn is_trusted(&self) -> bool {
        self.trusted_in.as_deref() == Some(&self.budget)
    }

    /// The record after an event.
    #[must_use]
    pub fn after(&self, event: TrustEvent<'_>) -> Self {
        match event {
            TrustEvent::Watched if self.suspended || self.only_warns => self.clone(),
            TrustEvent::Watched => Self {
                trusted_in: Some(self.budget.clone()),
                because: None,
                ..self.clone()
            },
            // Disruptions pass without a grant for as long as refusals are only reported.
            TrustEvent::InForce { .. } | TrustEvent::Ungranted if self.only_warns => Self {
                because: Some(REFUSALS_PASS.to_owned()),
                ..self.suspended(REFUSALS_PASS)
            },
            TrustEvent::Ungranted => self.distrusted(Some(WITHOUT_A_GRANT.to_owned())),
            TrustEvent::OutOfForce { because } => self.suspended(because),
            TrustEvent::InForce { by, history } => Self {
                suspended: false,
                in_force_by: Some(by.to_owned()),
                ..self.resumed(by, history)
            },
        }
    }

    /// Whether nothing is left to record while the gate is in force by these webhook
    /// configurations, or out of force (`None`).
    pub fn is_settled(&self, in_force_by: Option<&str>) -> bool {
        // A record that stays the same names the same configurations, whatever their history.
        let history = &WebhookHistory::default();
        let event = in_force_by.map_or(TrustEvent::OutOfForce { because: "" }, |by| {
            TrustEvent::InForce { by, history }
        });
        (self.suspended || self.is_trusted()) && self.after(event) == *self
    }

    /// Whether the ledger is trusted by a replica that has seen `watch` and `history`.
    ///
    /// A replica goes by what it has seen itself, whether that is recorded or not: the record of an
    /// outage may come when the outage is over, and configurations may have been made anew while no
    /// replica ran.
    ///
    /// While refusals are only reported, they are to be those that there would be with every grant
    /// known. So such a ledger is judged as if it were trusted. It is kept suspended meanwhile, and
    /// so it is not trusted once refusals count again.
    pub fn trust(
        &self,
        watch: &TrustWatch,
        history: &WebhookHistory,
        now: Duration,
        settle_time: Duration,
    ) -> Trust {
        if self.only_warns {
            return Trust::Trusted;
        }
        let recorded = self.in_force_by.as_deref();
        let gap = recorded.is_some_and(|by| history.shows_gap_since(by));
        if self.suspended || gap || watch.is_outside() {
            return Trust::Untrusted { remaining: None };
        }
        match watch.remaining(self.epoch, self.is_trusted(), settle_time, now) {
            Duration::ZERO => Trust::Trusted,
            remaining => Trust::Untrusted {
                remaining: Some(remaining),
            },
        }
    }

    /// The record while disruptions pass without a grant. The first reason stays.
    fn suspended(&self, because: &str) -> Self {
        if self.suspended {
            return self.clone();
        }
        Self {
            suspended: true,
            ..self.distrusted(Some(because.to_owned()))
        }
    }

    /// The record when the gate is in force by `by`. After an outage the ledger has to be watched
    /// anew, and so it does if there may have been one.
    fn resumed(&self, by: &str, history: &WebhookHistory) -> Self {
        let recorded = self.in_force_by.as_deref();
        if recorded.is_some_and(|recorded| history.shows_gap_between(recorded, by)) {
            self.distrusted(Some(OTHER_WEBHOOKS.to_owned()))
        } else if self.suspended {
            self.distrusted(self.because.clone())
        } else {
            self.clone()
        }
    }

    /// The record of a ledger that has lost its trust: the only place where a new epoch begins.
    fn distrusted(&self, because: Option<String>) -> Self {
        Self {
            trusted_in: None,
            epoch: self.epoch.saturating_add(1),
            because,
            ..self.clone()
        }
    }
}
