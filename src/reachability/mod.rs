//! Keeps the gate reachable: the replicas themselves say which of them API servers are to call.
//!
//! The gate fails closed, so a call that goes to a dead replica is an eviction that fails. Kubernetes takes a replica on a lost node out of its
//! Service when the node is `NotReady`, which is 50 s later by default. Replicas that probe each other know within two seconds. So the Service
//! has no selector, and each replica keeps one EndpointSlice of it ([`keeper`]), by one rule ([`rule`]). Where it has one, Kubernetes keeps the
//! endpoints; what either leaves behind for the other is taken out ([`leftover`]).

mod keeper;
mod leftover;
mod page;
mod probe;
mod rule;
mod slice;
mod trouble;

pub use keeper::Keeper;
pub use page::{View, beside};
pub use slice::Myself;
