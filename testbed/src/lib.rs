//! A local Kubernetes without containers, for tests, benchmarks and the demo.
//!
//! A real etcd, kube-apiserver, kube-controller-manager and kube-scheduler run as background processes on
//! loopback; nodes are agent processes that run pods as plain processes. Start with [`Bed::up`], take a
//! [`Sandbox`] (a namespace with nodes of its own) from it, and wait for things with [`eventually()`].
//!
//! What is built once lives in the cache ([`paths::Cache`]), what runs in the state directory ([`paths::State`]).
//! Everything that runs is found again by its pid file, so that a crash of a test or of a person's shell never
//! leaves processes that `testbed down` cannot stop.

pub mod agent;
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
