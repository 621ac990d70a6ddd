//! A model of the gate, which runs the shipped code through every order of events.
//!
//! A model checker (stateright) explores every state that can be reached, and asks in each whether
//! the promise holds.
//!
//! Shipped code in the model: `quorum::Snapshot::assemble` and `quorum::decide` with the expected
//! voters, `quorum::Grants`, `quorum::settlement`, `quorum::TrustRecord` with what a replica
//! watches, `plan::next_step`, `plan::replacement::next` and `guard`, the decisions about claims,
//! and of `quorum::stateful_set` the functions `decide` and `Listed::among`. Each is called once
//! for every question that comes up, and its answer is remembered.
//!
//! Everything else is modelled: the API server, etcd, the kubelets, and the order of effects.
//!
//! - `state` defines the state, and says why it is finite.
//! - `properties` defines what has to hold, and why that is the promise.
//! - `action` lists what may happen.
//! - `scenario` bounds how much of it happens at once.
//! - `mutations` lists the errors that the model is given to see that it finds them.
//!
//! Assumptions about the world:
//!
//! - A request lives for less than the settle time on every clock (`LIFE`).
//! - A pod's resourceVersion has risen when a member that was down takes part again. That fences
//!   the gate's own steps.
//! - A look takes less time than a member that it saw down needs to come back. (Between the two
//!   halves of a look, in `halves`, it may take longer.)
//! - Where members run before they listen, the pod's report on its container is as new as the
//!   answer of its port. A process that has just ended is not taken for one that is about to
//!   listen.
//! - Without a quorum no member names a leader.
//! - Whether a member defragments can be read from its metrics by whoever settles a grant, and the
//!   call is made within a request's life after the grant was renewed (`defragmentation`).
//! - A pod that is on its way out because it is no member is not added to etcd. etcd guards changes
//!   of membership.
//! - A pod is created with the gate in force, so the identity guard is asked (`volumes`). A volume
//!   that is lost shows at once.
//! - An owner that scales out adds its new members in one way: as learners, or as voters within the
//!   grace of a scale-out (`scaling`).
//! - Every replica's watch shows at once that the gate is out of force. Some replica writes that
//!   down within a settle time, and no replica starts before that (`outage`).
//!
//! A decision after a move of leadership is one more call of the webhook: its grant stands, and
//! everything is read again.
//!
//! Not modelled: which member leads, `evidence: Readiness`, overrides, forced deletes,
//! `PodDisruptionBudget`s, teardown other than by a scale-in, clusters of one and two,
//! scaling by more than one member, and rollouts with a partition or by eviction.
//! They have tests of their own.
//!
//! The output of a run says of each scenario whether all its states were seen or only those that
//! are reached first, breadth first. `QUORUMGATE_MODEL_STEPS=100000000 make model` takes that many
//! steps in each of the latter.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::panic,
    reason = "a test that cannot go on has failed, what its own fixtures hold is known, and how far it went is to be read"
)]

mod action;
mod appearance;
mod decision;
mod defragmentation;
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
mod trust;
mod truth;
mod volumes;
