//! The user for etcd's own authentication.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dns::SUBDOMAIN;

/// A user of etcd's own authentication, with a password. Where this is absent, etcd takes the
/// common name of the client certificate as the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthSpec {
    /// The Secret, in the budget's namespace, with the user's name and password.
    pub secret: UserSecret,
}

/// A Secret with a user's name and password, such as one of type `kubernetes.io/basic-auth`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserSecret {
    /// Name of the Secret.
    #[schemars(regex(pattern = SUBDOMAIN), length(min = 1, max = 253))]
    pub name: String,
    /// Key of the user's name in the Secret. Default: `username`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[schemars(extend("default" = "username"))]
    pub username_key: Option<String>,
    /// Key of the password in the Secret. Default: `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[schemars(extend("default" = "password"))]
    pub password_key: Option<String>,
}
