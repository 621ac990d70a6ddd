//! Defragmentation of the members' databases, one after the other.
//!
//! A member that defragments answers nothing until it is done, and its leader stalls the whole
//! cluster (measured on etcd 3.4 to 3.7). So a defragmentation is a disruption like any other: it
//! takes a grant, one member at a time, and only while every voter serves.
//!
//! The server goes on when the client gives up, and each repeated call queues another run
//! (measured). So there is exactly one call per grant, and it settles by proof: the member serves
//! and nothing is in flight.
//!
//! [`next`] is a function without a memory, like [`next_step`](super::next_step). The order of a
//! run: followers first, then the leader, after it has handed over to a follower that is done.

mod allowed;
mod due;
mod input;
mod nospace;
mod refusal;
mod run;
mod step;

pub use due::{Due, due};
pub use input::{Call, DefragmentationInput, LastRun, MemberFacts, Mode, Settings};
pub use nospace::{Disarm, disarm};
pub use refusal::Refusal;
pub use run::{next, progress};
pub use step::{Next, Step};
