//! The gate end to end: a real API server asks it about real etcd members.
//!
//! Each test has a namespace, nodes, an etcd cluster and replicas of the gate of its own, on one shared control plane. Run them
//! with `make e2e`, or one of them with `make e2e TESTS=name`.

mod deletes;
mod drains;
mod teardown;
mod world;
