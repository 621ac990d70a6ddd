//! The certificates for TLS connections to the members.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dns::SUBDOMAIN;

/// Certificates, in the budget's namespace, for TLS connections to the members. What is absent the
/// gate finds by itself, from etcd's settings and from what the pods mount (`status.way`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.caSecret) && has(self.caConfigMap))").message("name the authority in caSecret or in caConfigMap, not in both"))]
pub struct TlsSpec {
    /// The authority that signed the members' server certificates, in a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CaSecret")]
    pub ca_secret: Option<CaSecret>,
    /// The authority that signed the members' server certificates, in a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CaConfigMap")]
    pub ca_config_map: Option<CaConfigMap>,
    /// The client certificate of the gate. Where etcd's authentication is on, its common name is
    /// the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ClientSecret")]
    pub client_secret: Option<ClientSecret>,
}

/// A Secret with the certificate of an authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaSecret {
    /// Name of the Secret.
    #[schemars(regex(pattern = SUBDOMAIN), length(min = 1, max = 253))]
    pub name: String,
    /// Key of the PEM bundle in the Secret. Default: `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[schemars(extend("default" = "ca.crt"))]
    pub key: Option<String>,
}

/// A ConfigMap with the certificate of an authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaConfigMap {
    /// Name of the ConfigMap.
    #[schemars(regex(pattern = SUBDOMAIN), length(min = 1, max = 253))]
    pub name: String,
    /// Key of the PEM bundle in the ConfigMap. Default: `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[schemars(extend("default" = "ca.crt"))]
    pub key: Option<String>,
}

/// A Secret with a client certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientSecret {
    /// Name of the Secret.
    #[schemars(regex(pattern = SUBDOMAIN), length(min = 1, max = 253))]
    pub name: String,
    /// Key of the PEM certificate chain in the Secret. Default: `tls.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[schemars(extend("default" = "tls.crt"))]
    pub cert_key: Option<String>,
    /// Key of the PEM private key in the Secret. Default: `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[schemars(extend("default" = "tls.key"))]
    pub key_key: Option<String>,
}
