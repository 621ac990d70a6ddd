//! The decision about a change of a StatefulSet that takes pods away: a delete, or a write that
//! lowers or moves its ordinals.
//!
//! Such a change takes members without a question about each of them, so it is decided before it
//! starts. An admitted change is recorded in the budget, and its pods then go freely (rule 3).

mod change;
mod decide;
mod listed;
mod ordinals;

pub use change::{Change, Delete};
pub use decide::{Owner, StatefulSetInput, TeardownPolicy, decide};
pub use listed::Listed;
pub use ordinals::{Leaving, Ordinals, scale_in_lets_go};
