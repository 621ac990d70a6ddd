//! Talking to etcd: asking members what is true of them ([`Prober`]), and the few calls that change something ([`Admin`]).
//!
//! Members are reached by address, with the TLS server name of the member, over connections that are kept ([`Connections`]).
//! Nothing here judges: each answer and each failure is handed on as [`crate::quorum::evidence`]. Nothing outside [`admin`]
//! changes anything in etcd.

pub mod admin;
mod alarm;
mod ask;
mod attention;
mod connect;
mod connection;
mod elsewhere;
mod endpoint;
mod failure;
mod last_word;
mod pace;
mod probe;
mod tls;
mod witness;

pub use admin::{Admin, AdminError};
pub use attention::{Watched, same as same_watched};
pub use connect::Connections;
pub use endpoint::Endpoint;
pub use pace::Pace;
pub use probe::Prober;
pub use tls::{TlsError, TlsIdentity, User};
