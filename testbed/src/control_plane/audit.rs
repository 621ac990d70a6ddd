//! The API server's audit log: who asked for what, and what the answer was.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

/// Everything that changes pods and what owns them; deletes and evictions with their options.
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

/// One request, when it was answered.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// Unique per request.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// `get`, `delete`, `create`, ...
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// Who asked.
    pub user: AuditUser,
    /// What for.
    #[serde(default)]
    pub object_ref: ObjectRef,
    /// What the answer was.
    #[serde(default)]
    pub response_status: ResponseStatus,
    /// The request's body, where the policy records it: `DeleteOptions`, `Eviction`.
    #[serde(default)]
    pub request_object: Value,
    /// Annotations, also those of admission webhooks (`<configuration's webhook name>/<key>`).
    #[serde(default)]
    pub annotations: std::collections::BTreeMap<String, String>,
    /// When the request came, RFC 3339 with microseconds.
    pub request_received_timestamp: jiff::Timestamp,
    /// When this event was made.
    pub stage_timestamp: jiff::Timestamp,
}

/// Who asked.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct AuditUser {
    /// Such as `system:node:NAME`.
    #[serde(default)]
    pub username: String,
    /// Its groups.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// What a request was for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ObjectRef {
    /// Plural, such as `pods`.
    pub resource: String,
    /// Such as `eviction`; empty for the object itself.
    pub subresource: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name; empty for collections.
    pub name: String,
}

/// How a request was answered.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResponseStatus {
    /// The HTTP status code.
    pub code: u16,
    /// The reason, where it was refused.
    pub reason: String,
    /// The message, where it was refused.
    pub message: String,
}

/// The audit log from some moment on.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
    from: u64,
}

impl AuditLog {
    /// What is logged from now on.
    pub fn from_now(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            from: path.metadata().map_or(0, |file| file.len()),
        }
    }

    /// All that is logged.
    pub fn from_start(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            from: 0,
        }
    }

    /// The events so far whose object is in `namespace`, in the order of their answers.
    ///
    /// The API server writes an event before it answers; there is nothing to wait for.
    pub fn events(&self, namespace: &str) -> Result<Vec<AuditEvent>> {
        let mut file = File::open(&self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        file.seek(SeekFrom::Start(self.from))?;
        let needle = format!("\"namespace\":\"{namespace}\"");
        let mut events = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line?;
            // Most lines are other tests'; a line still being written is a later look's.
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
