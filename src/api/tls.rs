//! The Secrets for TLS connections to the members.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Secrets, in the budget's namespace, for TLS connections to the members. Where this is absent,
/// the gate uses the Secrets behind the StatefulSet's volumes `etcd-ca` and `etcd-client-tls`, or
/// behind the paths that etcd's flags and variables name (`--trusted-ca-file`, `--cert-file`,
/// `ETCD_…`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsSpec {
    /// The authority that signed the members' server certificates.
    pub ca_secret: CaSecret,
    /// The client certificate of the gate. Where etcd's authentication is on, its common name is
    /// the user. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ClientSecret")]
    pub client_secret: Option<ClientSecret>,
}

/// A Secret with the certificate of an authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaSecret {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key of the PEM bundle in the Secret. Default: `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// A Secret with a client certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientSecret {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key of the PEM certificate chain in the Secret. Default: `tls.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cert_key: Option<String>,
    /// Key of the PEM private key in the Secret. Default: `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key_key: Option<String>,
}
