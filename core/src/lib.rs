//! The pure core of quorumgate: functions of data, without a clock, IO or async.
//!
//! - [`quorum`] says which members of an etcd cluster serve, and decides whether a member may be
//!   taken out.
//! - [`plan`] says which step a rollout, a defragmentation or a replacement takes next.
//! - [`members`] says how the life of each member is recorded.
// A new variant is a new fact: every decision has to say what it makes of it.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod members;
pub mod plan;
pub mod quorum;
