//! The way in which the members of a cluster are asked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the gate asks the members: where, and by which certificates. The gate finds it out, tries it
/// in the background, and records the first by which a member answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Way {
    /// Whether members are asked by TLS (`https`) or in plaintext (`http`).
    pub scheme: Scheme,
    /// The port for clients.
    #[schemars(with = "i32")]
    pub port: u16,
    /// Source of the port.
    pub port_from: PortSource,
    /// The container of etcd, where it is certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Place of the authority that vouches for the members. Absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AuthoritySource")]
    pub authority: Option<AuthoritySource>,
    /// Place of the client certificate of the gate. Absent where the members ask for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "IdentitySource")]
    pub identity: Option<IdentitySource>,
    /// Names that a member's certificate may have besides the names of its pod, with `{pod}` and
    /// `{namespace}` for those of the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_names: Vec<String>,
    /// The settings, volumes or fields that this comes from, in words.
    pub source: String,
}

/// A scheme of client URLs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// TLS.
    Https,
    /// Plaintext.
    Http,
}

/// Source of the client port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PortSource {
    /// `spec.members.clientPort`.
    Budget,
    /// A client URL in etcd's settings. A pod whose settings name another port is asked there.
    #[serde(rename = "ClientURL")]
    ClientUrl,
    /// A port of the container with `client` in its name.
    ContainerPort,
    /// etcd's default.
    Default,
}

/// An object with certificates of authorities.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthoritySource {
    /// Kind of the object.
    pub kind: SourceKind,
    /// Name of the object, in the namespace of the budget.
    pub name: String,
    /// Key of the certificates in the object. Absent: every certificate in it that may sign others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A kind of objects with certificates or settings.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum SourceKind {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
}

/// A Secret with a client certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentitySource {
    /// Name of the Secret.
    pub secret: String,
    /// Key of the certificate.
    pub cert_key: String,
    /// Name of the Secret with the private key, where it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_secret: Option<String>,
    /// Key of the private key.
    pub key_key: String,
}

impl SourceKind {
    /// The name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }
}

impl IdentitySource {
    /// Name of the Secret with the private key.
    pub fn key_secret(&self) -> &str {
        self.key_secret.as_deref().unwrap_or(&self.secret)
    }
}
