//! What is true of an etcd cluster, and what may be taken from it. Pure: no clock, no IO, no async.
//!
//! The invariant: among the voters that count, those that serve and have no grant make a majority, or became fewer by something
//! that nobody was asked about. [`decide`] keeps it for one disruption; the ledger keeps it for any number of them at once.

mod circumstances;
mod decide;
mod disruption;
pub mod evidence;
mod grants;
mod id;
mod latch;
pub mod pod;
mod policy;
mod snapshot;
mod verdict;

pub use circumstances::{
    Circumstances, DisruptionBudget, Override, OverrideOn, Scope, Teardown, Temperature,
};
pub use decide::{decide, decide_early, majority};
pub use disruption::{Actor, Disruption, Grace, Kind, TargetPod};
pub use grants::{Cause, Grant, Grants, Permitted};
pub use id::{ClusterId, ClusterRef, MemberId, Ordinal, PodName, PodUid};
pub use latch::Latch;
pub use policy::{EvidenceMode, Policy, SmallCluster};
pub use snapshot::{Body, Condition, Member, MemberPod, Observation, Role, Sizes, Snapshot};
pub use verdict::{Basis, Count, Permission, Reason, Verdict, Waiver};
