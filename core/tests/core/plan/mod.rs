//! Tests of the rollout planner.

mod dep_06;
mod dep_07;
mod druid;
mod hundred_members;
mod max_unavailable;
mod options;
mod order;
mod properties;
mod rolling_update;
mod scene;
mod simulation;
mod waits;
