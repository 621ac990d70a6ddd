//! The API server's audit log: each request with its user and its answer.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

/// The audit policy: all changes of pods and of their owners, deletes and evictions with their
/// options.
pub(super) const POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Request
    verbs: [delete, deletecollection]
    resources:
      - group: ""
        resources: [pods, persistentvolumeclaims]
      - group: apps
        resources: [statefulsets]
  - level: Request
    verbs: [create]
    resources:
      - group: ""
        resources: [pods/eviction]
  - level: Metadata
    verbs: [create, update, patch]
    resources:
      - group: ""
        resources: [pods, pods/binding, pods/status, pods/resize, persistentvolumeclaims]
      - group: apps
        resources: [statefulsets, statefulsets/scale]
  - level: Metadata
    verbs: [create, update, patch, delete]
    resources:
      - group: quorumgate.io
  - level: None
"#;

/// A request, recorded when it was answered.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// The unique id of the request.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// The verb, such as `get`, `delete` or `create`.
    pub verb: String,
    /// The path and the query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// The user.
    pub user: AuditUser,
    /// The object.
    #[serde(default)]
    pub object_ref: ObjectRef,
    /// The answer.
    #[serde(default)]
    pub response_status: ResponseStatus,
    /// The request's body, if the policy records it: `DeleteOptions`, `Eviction`.
    #[serde(default)]
    pub request_object: Value,
    /// The annotations, with those of admission webhooks (`<configuration's webhook name>/<key>`).
    #[serde(default)]
    pub annotations: std::collections::BTreeMap<String, String>,
    /// The time of the request, RFC 3339 with microseconds.
    pub request_received_timestamp: jiff::Timestamp,
    /// The time of this event.
    pub stage_timestamp: jiff::Timestamp,
}

/// The user of a request.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct AuditUser {
    /// The user name, such as `system:node:NAME`.
    #[serde(default)]
    pub username: String,
    /// The groups of the user.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// The object of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ObjectRef {
    /// The resource in the plural, such as `pods`.
    pub resource: String,
    /// The subresource, such as `eviction`. Empty for the object itself.
    pub subresource: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name. Empty for collections.
    pub name: String,
}

/// The answer to a request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResponseStatus {
    /// The HTTP status code.
    pub code: u16,
    /// The reason of a refusal.
    pub reason: String,
    /// The message of a refusal.
    pub message: String,
}

/// The audit log from some moment on.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
    from: u64,
}

impl AuditLog {
    /// The log from now on.
    pub fn from_now(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            from: path.metadata().map_or(0, |file| file.len()),
        }
    }

    /// The whole log.
    pub fn from_start(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            from: 0,
        }
    }

    /// The events so far whose object is in `namespace`, in the order of their answers.
    ///
    /// The API server writes an event before it answers, so there is no need to wait.
    pub fn events(&self, namespace: &str) -> Result<Vec<AuditEvent>> {
        let mut file = File::open(&self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        file.seek(SeekFrom::Start(self.from))?;
        let needle = format!("\"namespace\":\"{namespace}\"");
        let mut events = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line?;
            // Most lines are of other tests. A line that is still being written is complete for a
            // later call.
            if !line.contains(&needle) {
                continue;
            }
            let Ok(event) = serde_json::from_str::<AuditEvent>(&line) else {
                continue;
            };
            if event.object_ref.namespace == namespace {
                events.push(event);
            }
        }
        Ok(events)
    }
}
