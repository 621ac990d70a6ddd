//! The one way to a yes: read the ledger, gather evidence that is younger, decide, record, answer.
//!
//! The webhooks and the rollout ask here alike, so a rollout can never take what the webhook would refuse.

mod judging;
mod question;

pub use judging::Judging;
pub use question::{Answer, Asker, DryRun, Question, Refusal, Yes};
