//! The durable half of grants: compare-and-swap on the status of a cluster's budget.
//!
//! One page is one reading of a budget, with its resourceVersion. Whatever is written goes out as the whole status at that
//! resourceVersion: if anybody wrote in between, nothing happens and the writer begins again from the reading. So any number
//! of replicas, settlers and status writers share one budget without losing each other's words.
//!
//! A yes is only a yes once the API server accepted it *and* raised the resourceVersion ([`Recorded`]): a write that changes
//! nothing would be no fence against a judgement that runs at the same time.

mod error;
mod force;
mod page;
mod recorded;
mod sets_gone;
mod settlement;
mod store;
mod temperature;
mod turnstile;
mod watch;
mod webhooks;
mod wire;
mod witness;

pub use error::LedgerError;
pub use force::WHILE_IT_WARNS;
pub use page::{BudgetUid, Page};
pub use recorded::Recorded;
pub use settlement::{Due, due};
pub use store::Ledger;
pub use temperature::temperature;
pub use turnstile::{Pass, Turnstile};
pub use watch::Seen;
pub use witness::{Witness, write_tolerance};

#[cfg(test)]
mod tests;
