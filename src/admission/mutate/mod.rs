//! The webhooks that change requests. They decide nothing.

pub mod evictions;
mod patch;
pub mod pods;
pub(super) mod stateful_sets;
