//! As whom the gate asks members, where etcd wants a user and a password.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A user of etcd's own authentication. Without it the user is the common name of the client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthSpec {
    /// The Secret of the namespace with name and password.
    pub secret: UserSecret,
}

/// A Secret with a user's name and password, such as one of type `kubernetes.io/basic-auth`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserSecret {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key of the user's name. Default: `username`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub username_key: Option<String>,
    /// The key of the password. Default: `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub password_key: Option<String>,
}
