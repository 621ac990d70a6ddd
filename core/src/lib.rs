//! The pure core of quorumgate: functions of data, without a clock, IO or async.
//!
//! - [`quorum`] says which members of an etcd cluster serve, and decides whether a member may be
//!   taken out.
//! - [`plan`] says which step a rollout takes next.

pub mod plan;
pub mod quorum;
