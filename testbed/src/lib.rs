//! A local Kubernetes without containers, for tests, benchmarks and the demo.
//!
//! A real etcd, kube-apiserver, kube-controller-manager and kube-scheduler run as background
//! processes on loopback. Nodes are agent processes that run pods as plain processes. A test begins
//! with [`Bed::up`], takes a [`Sandbox`] (a namespace with nodes of its own) from it, and waits for
//! conditions with [`eventually()`].
//!
//! Binaries are in the cache ([`paths::Cache`]), running control planes in the state directory
//! ([`paths::State`]). Every process has a pid file, so that `testbed down` can stop it even after
//! a crash of the test or of the shell that started it.

pub mod agent;
pub mod backup_restore;
pub mod balancer;
pub mod bed;
pub mod builder;
pub mod cli;
pub mod control_plane;
pub mod etcd_cluster;
pub mod eventually;
mod executable;
pub mod faults;
mod free_ports;
pub mod gate;
pub mod kubeconfig;
pub mod kubectl;
pub mod member;
pub mod node;
pub mod paths;
pub mod pki;
pub mod process;
pub mod sandbox;
mod status;
mod teardown;
pub mod versions;
pub mod write_command;
pub mod writer;

pub use bed::Bed;
pub use eventually::eventually;
pub use node::Node;
pub use sandbox::Sandbox;
