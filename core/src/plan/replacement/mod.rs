//! Replacement of a member: its volume is given up, and the member joins again with an empty one.
//!
//! The identity of an etcd member is in its volume. A member that starts with an empty volume under
//! its old identity may come back silently without its data, or form an empty cluster with others
//! (measured on etcd 3.4 to 3.7; etcd issue 12227). So the old id is removed from etcd before the
//! volume goes, and the member is added as a learner before it starts.
//!
//! [`next`] is a function without a memory. It reads etcd's member list, the pods, the claims and
//! the ids on record, and returns the next step. So a gate that ends between any two effects loses
//! nothing: the next one goes on from what it sees.
//!
//! [`guard()`] decides how a pod of a running cluster may start.

mod allowed;
mod begin;
mod guard;
mod input;
mod membership_by;
mod refusal;
mod run;
mod step;

pub(super) use begin::like_those_of_others;
pub(super) use guard::named_like_the_others;
pub use guard::{
    Guard, Hold, Start, all_are_elsewhere, expected_in, guard, initial_cluster, may_start,
};
pub use input::{ClaimFacts, CrashLoop, Exit, Mode, Place, Proof, Record, ReplacementInput};
pub use membership_by::MembershipBy;
pub use refusal::Refusal;
pub use run::{disarm, next, progress};
pub use step::{Next, Step};
