//! A model of the gate, checked state by state: the shipped code in a world in which everything happens that can, in every order.
//!
//! Shipped, and driven here: `quorum::Snapshot::assemble` and `quorum::decide` with the latch, `quorum::Grants`, `quorum::settlement`,
//! `ledger::temperature` with what a replica watches, `plan::next_step`, and of the webhook for StatefulSets `decide` and `listed_among`. Each is
//! asked once for every question that comes up, and its answer remembered.
//! Modelled, because it is what an API server, etcd, a kubelet or the order of effects does: everything else. `state` says what there is
//! and why it is finite, `properties` what has to hold and why that is the promise, `action` what may happen, `scenario` how much of it at
//! once, `mutations` what the model is told to do wrong in order to see that it notices.
//!
//! What is assumed of the world:
//! - A request lives for less than the settle time on anybody's clock (`LIFE`).
//! - A pod's resourceVersion has risen when a member that was down takes part again: that fences the gate's own steps.
//! - A look takes less time than a member that it saw down needs to come back. (Between its two halves, in `halves`, any may.)
//! - Where members run before they listen, what a pod says of its container is as new as what its port says: one whose process has just
//!   ended is not taken for one that is about to listen.
//! - Without a quorum no member names a leader.
//! - Nobody adds a pod to etcd that is on its way out because it is no member: changes of membership are etcd's to guard.
//! - An owner that scales out adds its new members in one way: as learners, or as voters within the grace of a scale-out (`scaling`).
//! - Every replica's watch shows at once that the gate is out of force, somebody writes that down within a settle time, and no replica begins
//!   before that (`outage`).
//!
//! A judgement after a move of leadership is one more call of the webhook: its grant stands, and everything is read again.
//!
//! Not modelled: which member leads, `evidence: Readiness`, overrides, forced deletes, `PodDisruptionBudget`s, teardown other than by a scale-in,
//! clusters of one and two, defragmentation, scaling by more than one member, and rollouts with a partition or by eviction. They have tests of
//! their own.
//!
//! What a run prints says of each scenario whether it was explored to its end, or which of its states were: those that are reached first, breadth
//! first. `QUORUMGATE_MODEL_STEPS=100000000 cargo test --test model -- --nocapture` goes as many steps in each of the latter.

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
mod halves;
mod ledger;
mod memo;
mod model;
mod mutations;
mod outage;
mod permission;
mod possible;
mod properties;
mod races;
mod replacement;
mod replica;
mod reporter;
mod scaling;
mod scenario;
mod set;
mod settler;
mod state;
mod steps;
mod symmetry;
mod truth;
