//! A model of the gate, checked state by state: the shipped code in a world in which everything happens that can, in every order.
//!
//! Shipped, and driven here: `quorum::Snapshot::assemble` and `quorum::decide` with the latch, `quorum::Grants`, `quorum::settlement`,
//! `ledger::temperature` and `plan::next_step`. Each is asked once for every question that comes up, and its answer remembered.
//! Modelled, because it is what an API server, etcd, a kubelet or the order of effects does: everything else. `state` says what there is
//! and why it is finite, `properties` what has to hold and why that is the promise, `action` what may happen, `scenario` how much of it at
//! once, `mutations` what the model is told to do wrong in order to see that it notices.
//!
//! What is assumed of the world:
//! - A request lives for less than the settle time on anybody's clock (`LIFE`).
//! - A pod's resourceVersion has risen when a member that was down takes part again: that fences the gate's own steps.
//! - A look takes less time than a member that it saw down needs to come back.
//! - Without a quorum no member names a leader.
//! - Nobody adds a pod to etcd that is on its way out because it is no member: changes of membership are etcd's to guard.
//!
//! A judgement after a move of leadership is one more call of the webhook: its grant stands, and everything is read again.
//!
//! Not modelled: which member leads, `evidence: Readiness`, overrides, forced deletes, `PodDisruptionBudget`s, teardown, clusters of
//! one and two, defragmentation. They have tests of their own.
//!
//! Nor are scale-out and scale-in, a gate that is out of force for a while, what the report writes, the Kubernetes and etcd halves of one
//! member seen at different moments, and rollouts of several members at once.
//!
//! `exhaustive` names the scenarios that are explored to their end, and those of which the states are that are reached first, breadth
//! first; what a run prints says so for each. `QUORUMGATE_MODEL_STEPS=100000000 cargo test --test model -- --nocapture` goes as many steps in each, and tells how far it came.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, what its own fixtures hold is known, and how far it went is to be read"
)]

mod action;
mod appearance;
mod decision;
mod driver;
mod exhaustive;
mod exploration;
mod ledger;
mod memo;
mod model;
mod mutations;
mod permission;
mod possible;
mod properties;
mod races;
mod replacement;
mod replica;
mod scenario;
mod set;
mod settler;
mod state;
mod symmetry;
mod truth;
