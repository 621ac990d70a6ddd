//! Where and how one member is reached.

use std::sync::Arc;

use super::TlsIdentity;
use crate::quorum::evidence::Target;

/// The client endpoint of one member, with all that a connection needs.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Whose it is. Connections are kept per target, so a new incarnation of a pod never inherits one.
    pub target: Target,
    /// `address:port`: the pod's IP, so that no DNS is needed. The URL of a voter without a pod may carry a host name.
    pub address: String,
    /// The name that the member's certificate has to carry; `None`: its address.
    pub server_name: Option<String>,
    /// Whom to trust and who we are; `None`: without TLS.
    pub tls: Option<Arc<TlsIdentity>>,
}
