//! The gate end to end: a real API server asks it about real etcd members.
//!
//! Each test has a namespace, nodes, an etcd cluster and replicas of the gate of its own, on one shared control plane. Run them
//! with `make e2e`, or one of them with `make e2e TESTS=name`.

#![expect(
    clippy::large_futures,
    reason = "a test is one future on a thread of its own; boxing its parts helps nobody"
)]

mod asking;
mod authentication;
mod budgets;
mod bystanders;
mod chaos;
mod conformance;
mod deletes;
mod drains;
mod evidence;
mod extremes;
mod foreign;
mod gate_faults;
mod handover;
mod leadership;
mod manifests;
mod nodes;
mod order;
mod other_hook;
mod out_of_force;
mod privilege;
mod quorum_lost;
mod reachable;
mod rejected;
mod relabelled;
mod restarts;
mod rollouts;
mod scale_out;
mod security;
mod sizes;
mod strategy;
mod taints;
mod teardown;
mod unreadable_owner;
mod versions;
mod vigil;
mod warn;
mod world;
