//! What is true of an etcd cluster, and what may be taken from it. Pure: no clock, no IO, no async.
//!
//! The invariant: among the voters that count, those that serve and have no grant make a majority, or became fewer by something
//! that nobody was asked about. [`decide()`] keeps it for one disruption; the ledger keeps it for any number of them at once.

mod agreement;
mod answers;
mod assemble;
mod circumstances;
mod condition;
mod decide;
mod disruption;
pub mod evidence;
mod grants;
mod id;
mod latch;
mod leader;
mod loss;
mod mapping;
mod membership;
pub mod pod;
mod policy;
mod process;
mod readiness;
mod settlement;
mod snapshot;
mod succession;
mod switch;
mod tolerance;
mod verdict;
mod why;

pub use circumstances::{
    Circumstances, DisruptionBudget, Override, OverrideOn, Scope, Teardown, Temperature,
};
pub use condition::Condition;
pub use decide::{decide, decide_early, decide_without_ledger};
pub use disruption::{Actor, Disruption, Grace, InPlace, Kind, TargetPod};
pub use grants::{Cause, Grant, Grants, Permitted};
pub use id::{ClusterId, ClusterRef, MemberId, Ordinal, PodName, PodUid};
pub use latch::Latch;
pub use leader::leader_to_move;
pub use membership::Membership;
pub use policy::{EvidenceMode, Policy, SmallCluster};
pub use process::ProcessState;
pub use settlement::{
    Defragmentation, Incarnation, Look, Replacement, Seen, Settlement, settlement,
};
pub use snapshot::{Member, MemberPod, Observation, Role, Sizes, Snapshot};
pub use succession::{LeaderMove, OpenMove, Succession, rests, succession};
pub use switch::Switch;
pub use tolerance::{Tolerance, majority};
pub use verdict::{Basis, Count, NotServing, Permission, Reason, Verdict, Waiver};
pub use why::Why;
