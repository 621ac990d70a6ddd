//! Which Secrets hold what the gate needs to speak TLS to the members.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Secrets of the namespace with which the gate speaks to the members. Where this is absent, the StatefulSet says it: by its volumes
/// `etcd-ca` and `etcd-client-tls`, or by etcd's flags and variables (`--trusted-ca-file`, `--cert-file`, `ETCD_…`) and the Secrets behind
/// these paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsSpec {
    /// The certificate authority that signed the members' server certificates.
    pub ca_secret: CaSecret,
    /// The certificate the gate shows; its common name is the etcd user where authentication is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ClientSecret")]
    pub client_secret: Option<ClientSecret>,
}

/// A Secret with a certificate authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaSecret {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key of the PEM bundle. Default: `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// A Secret with a client certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientSecret {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key of the PEM certificate chain. Default: `tls.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cert_key: Option<String>,
    /// The key of the PEM private key. Default: `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key_key: Option<String>,
}
