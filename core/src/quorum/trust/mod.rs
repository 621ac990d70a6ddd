//! The trust of a ledger: whether the ledger is known to hold every open grant.
//!
//! A disruption may be under way that the ledger does not show. It was permitted by an earlier
//! budget of the cluster, or it passed during an outage of the gate (the API server did not ask),
//! or an override let it pass while nothing could be recorded. Its request ends within the settle
//! time, which is far longer than any API request lives. So a ledger is trusted once a replica has
//! watched it for a settle time without such an event.
//!
//! - [`TrustRecord`] is what the budget's status says. It changes by a [`TrustEvent`].
//! - [`TrustWatch`] is what one replica has seen of the ledger, by its own clock.
//! - [`WebhookHistory`] tells whether the gate was in force at all times since a record was made.
//! - [`TrustRecord::trust`] is the conclusion from all three.

mod record;
mod watch;
mod webhooks;

#[cfg(test)]
mod tests;

pub use record::{Trust, TrustEvent, TrustRecord};
pub use watch::TrustWatch;
pub use webhooks::WebhookHistory;
