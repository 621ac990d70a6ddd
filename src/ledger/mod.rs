//! The durable half of grants: compare-and-swap on the status of a cluster's budget.
//!
//! A [`Page`] is one reading of a budget, with its resourceVersion. A write sends the whole status
//! at that resourceVersion. If somebody else wrote in between, the write is refused, and the writer
//! begins again by reading. So any number of replicas share one budget, and none of their writes is
//! lost.
//!
//! A grant counts only once the API server has accepted it and has raised the resourceVersion
//! ([`Recorded`]). A write that changes nothing would be no fence against a judgement that runs at
//! the same time. An admitted change of a StatefulSet needs no fence: it takes nothing from what
//! others may be granted, and a write that changes nothing shows that it is on record already.

mod due;
mod error;
mod locks;
mod log_end;
mod page;
mod recorded;
mod seen;
mod sets_gone;
mod status_update;
mod store;
mod wire;

pub use due::{Due, due};
pub use error::LedgerError;
pub use locks::{LedgerGuard, LedgerLocks};
pub use log_end::read_log_end;
pub use page::{BudgetUid, Page};
pub use recorded::Recorded;
pub use seen::Seen;
pub use status_update::{
    Announced, OwnerSeen, SetFound, SetSeen, StandingSet, StatusUpdate, write_tolerance,
};
pub use store::{Ledger, Settled};
pub use wire::trust_record;

#[cfg(test)]
mod tests;
