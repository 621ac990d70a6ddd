//! The endpoints of the gate's own Service: which replicas API servers call.
//!
//! The gate's webhooks fail closed, so a call to a dead replica is an eviction that fails.
//! Kubernetes takes the replicas of a lost node out of a Service when the node is `NotReady`, by
//! default 50 s after it was lost. Replicas that probe each other know within two seconds. So the
//! Service has no selector, and each replica writes one EndpointSlice of it ([`worker`]). A replica
//! that no longer answers is *struck*: another replica sets its endpoint to not ready, by the rule
//! in [`rule`]. Where the Service has a selector, Kubernetes writes the endpoints and the replicas
//! write none. [`leftover`] takes out what the one side leaves behind for the other when the
//! selector comes or goes.

mod call;
mod leftover;
mod page;
mod probe;
mod rule;
mod slice;
mod worker;

pub use page::{PeerPage, beside};
pub use slice::Myself;
pub use worker::EndpointWorker;
