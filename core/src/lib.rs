//! The pure core of quorumgate: functions of data, without a clock, IO or async.

pub mod plan;
pub mod quorum;
