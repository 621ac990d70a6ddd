//! The client of etcd: probes ([`Prober`]), and the few calls that change something ([`Admin`]).
//!
//! Members are reached by address, with the member's TLS server name, over connections that stay
//! open while they are needed ([`Connections`]). Nothing here judges: every answer and every
//! failure is passed on as [`crate::quorum::evidence`]. Only [`admin`] changes anything in etcd.

pub mod admin;
mod alarm;
mod ask;
mod attention;
mod connect;
mod connection;
mod data;
mod endpoint;
mod external;
mod failure;
mod fault;
mod lines;
mod metrics;
mod obstacle;
mod page;
mod probe;
mod read_after_hangup;
mod time_limit;
mod tls;
mod tls_error;
mod verifier;

pub use admin::{Admin, AdminError};
pub use attention::{WatchedMember, same as same_watched};
pub use connect::Connections;
pub use endpoint::Endpoint;
pub use failure::Failure;
pub use lines::{Lines, value as metric};
pub use metrics::MemberMetrics;
pub use obstacle::Obstacle;
pub use page::HttpPage;
pub use probe::Prober;
pub use time_limit::TimeLimit;
pub use tls::{TlsIdentity, User};
pub use tls_error::TlsError;
