//! The Kubernetes half of a judgement: whose a pod is, and what the API server says of its cluster.
//!
//! Everything is read uncached, after the ledger. What was seen the last time only serves to ask for more at once
//! ([`Observer`]): it is never an answer. The mapping of objects to facts is pure; [`World`] keeps the objects, so that one reading
//! gives the facts for any pod of the cluster.

mod containers;
mod disruption_budget;
mod endpoints;
mod enrolment;
mod error;
mod hints;
mod identify;
mod lease;
mod ledgerless;
mod mounts;
mod nodes;
mod observer;
mod overrides;
mod owner;
mod patience;
mod peer_tls;
mod pods;
mod reach;
mod reads;
mod scope;
mod secrets;
mod set_surroundings;
mod settings;
mod teardown;
mod volumes;
mod wants;
mod world;

pub use containers::which_is_etcd;
pub use enrolment::{is_enrolled, labels_enrol, opts_out};
pub use error::ObserveError;
pub use identify::Identity;
pub use ledgerless::Ledgerless;
pub use observer::Observer;
pub use overrides::{Standing, standing};
pub use scope::{is_stateful_set, named_after};
pub use set_surroundings::{SetOwner, SetSurroundings};
pub use volumes::{Access, Transport};
pub use wants::access;
pub use world::{Ages, World};

#[cfg(test)]
mod tests;
