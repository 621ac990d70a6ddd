//! The Kubernetes half of a judgement: the cluster of a pod, and the API server's objects for that
//! cluster.
//!
//! All objects are read uncached, after the ledger. Facts from the last reading only help to
//! request more at once ([`Observer`]); no decision is based on them. The mapping of objects to
//! facts is pure. [`ClusterView`] keeps the objects, so that one reading gives the facts for any
//! pod of the cluster.

mod advice;
mod belonging;
mod bound_node;
mod claim_names;
mod claim_note;
mod claims;
mod client_urls;
mod cluster_of_pod;
mod containers;
mod contents;
mod data_on;
mod disruption_budget;
mod endpoints;
mod enrolment;
mod error;
mod etcd_container;
mod find;
mod held_data;
mod identities;
mod index;
mod initial_state;
mod intents;
mod lease;
mod ledgerless;
mod look;
mod member_claim;
mod member_facts;
mod member_volume;
mod memory;
mod mounts;
mod needed;
mod nodes;
mod observer;
mod overrides;
mod owner;
mod peer_tls;
mod pods;
mod preflight;
mod reach;
mod read_limits;
mod reads;
mod retention;
mod self_joining;
mod set_surroundings;
mod settings;
mod sidecar;
mod sights;
mod start_guard;
mod teardown;
mod trial;
mod view;
mod ways;

pub use advice::{advice, name_a_user};
pub use belonging::{controlled_by, giver_of, is_stateful_set, named_after};
pub use bound_node::bound_to;
pub use claim_note::ClaimNote;
pub use claims::{ClaimIdentity, PodData};
pub use cluster_of_pod::Identity;
pub use containers::etcd_history;
pub use enrolment::{are_of_druid, is_enrolled, labels_enrol, labels_opt_out, opts_out};
pub use error::ObserveError;
pub use etcd_container::EtcdContainer;
pub use held_data::guarded_since;
pub use index::{DisruptionBudgetNames, Index};
pub use initial_state::{
    Change, InitialState, finds_others_elsewhere, joining, joining_those, starting_alone,
};
pub use intents::Intents;
pub use ledgerless::Ledgerless;
pub use look::{ClusterLook, EarlyOr, PodLook};
pub use member_claim::MemberClaim;
pub use observer::{Observer, Sources};
pub use pods::is_held;
pub use retention::{ends_claims_with_pods, takes_data};
pub use self_joining::leaves_by;
pub use set_surroundings::{SetOwner, SetSurroundings};
pub use sidecar::{SidecarStarts, SnapshotLeases, snapshot_leases, starts};
pub use sights::{SetSeen, Sights};
pub use start_guard::{StartGuard, data_in_pods, finding, membership, membership_in_doubt};
pub use teardown::{first_ordinal, kept_ordinals, replicas};
pub use trial::{FailedWay, Trial};
pub use view::{Ages, ClusterView};
pub use ways::in_use::words as words_of_way;

#[cfg(test)]
mod tests;
