//! The life of each member as an `EtcdMember` records it (DEP-04 of etcd-druid).
//!
//! - [`State`] is a state with its sub-state, [`TransitionReason`] the code of a transition,
//!   [`TABLE`] the table of permitted transitions.
//! - [`derive()`] works out the next [`Status`] from the recorded one and from the [`MemberInput`]
//!   of one observation. A transition that the table does not permit is refused as a value.
//! - [`resources()`] says which `EtcdMember`s are to exist.
//!
//! No decision about a disruption reads an `EtcdMember`: the resource is for people, alerts and
//! other controllers. What is not known is absent, never zero.

mod derive;
mod input;
mod path;
mod resources;
mod state;
mod status;
mod transition;

pub use derive::{Derived, derive};
pub use input::{
    Etcd, Exit, InitialisationCounts, Listing, MemberInput, PreviousSizes, Restoration, StageResult,
};
pub use path::Impossible;
pub use resources::{NewMember, Resources, resources};
pub use state::State;
pub use status::{
    LastDefragmentation, LastRestoration, Mismatch, RestorationStatus, RestorationType, RunStatus,
    Snapshots, Status, Stored,
};
pub use transition::{Row, TABLE, Transition, TransitionReason, UnixTime, is_permitted};

/// The annotation on the `EtcdMember` of a member that joins a running cluster (DEP-04,
/// "Deterministic Etcd Member Creation/Restart During Scale-Up").
///
/// The annotation is set when the `EtcdMember` is created and removed when the member is promoted.
pub const CREATE_AS_LEARNER: &str = "druid.gardener.cloud/create-as-learner";
