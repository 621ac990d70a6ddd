//! The node agent against a real control plane, compared with the documented behaviour of a
//! kubelet.
#![expect(
    clippy::indexing_slicing,
    reason = "tests say what they expect by panicking"
)]

#[path = "node_agent/containers.rs"]
mod containers;
#[path = "node_agent/deletion.rs"]
mod deletion;
#[path = "node_agent/etcd.rs"]
mod etcd;
#[path = "node_agent/files.rs"]
mod files;
#[path = "node_agent/nodes.rs"]
mod nodes;
#[path = "node_agent/pods.rs"]
mod pods;
#[path = "node_agent/probes.rs"]
mod probes;
#[path = "node_agent/rejection.rs"]
mod rejection;
