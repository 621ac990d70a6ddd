//! What a rollout does next.

mod dep_06;
mod dep_07;
mod druid;
mod options;
mod order;
mod rolling_update;
mod scene;
mod waits;
