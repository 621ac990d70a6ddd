//! End-to-end tests: a real API server asks the gate about real etcd members.
//!
//! All tests share one control plane. Each test has its own namespace, nodes, etcd cluster and
//! replicas of the gate. `make e2e` runs all tests, `make e2e TESTS=name` those with this name.

#![expect(
    clippy::large_futures,
    reason = "a test is one future on a thread of its own; boxing its parts has no use"
)]

mod asking;
mod authentication;
mod backups;
mod budgets;
mod bystanders;
mod certificates;
mod chaos;
mod chart;
mod claims;
mod conformance;
mod copies;
mod count;
mod data_lost;
mod defragmentation;
mod deletes;
mod drains;
mod evidence;
mod examples;
mod extremes;
mod foreign;
mod gate_faults;
mod gitops;
mod handover;
mod ipv6;
mod leadership;
mod load;
mod manifests;
mod members;
mod nodes;
mod order;
mod ordinals;
mod other_hook;
mod out_of_force;
mod plugin;
mod privilege;
mod quorum_lost;
mod reachable;
mod recovery;
mod rejected;
mod relabelled;
mod replacement;
mod restarts;
mod retention;
mod rollouts;
mod scale_out;
mod security;
mod sequences;
mod shapes;
mod sizes;
mod strategy;
mod taints;
mod teardown;
mod traces;
mod unreadable_owner;
mod versions;
mod vigil;
mod warn;
mod world;
