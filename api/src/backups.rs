//! How old the backups of a cluster may be.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::Bounds;
use super::{BadField, QuorumDisruptionBudgetSpec};

/// When the backups of a cluster count as too old.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupsSpec {
    /// The age of the latest snapshot, full or delta, from which on the condition `BackupsRecent`
    /// is false, from 1m to 8760h. Only where the Leases of etcd-backup-restore tell that age.
    /// Default: 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "max_age_schema")]
    #[schemars(extend("default" = "24h"))]
    pub max_age: Option<String>,
}

const MAX_AGE: Bounds = Bounds {
    field: "spec.backups.maxAge",
    least: "1m",
    most: "8760h",
};

const DEFAULT_MAX_AGE: Duration = Duration::from_hours(24);

fn max_age_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    MAX_AGE.schema(generator)
}

impl QuorumDisruptionBudgetSpec {
    /// The age from which on the latest snapshot is too old.
    pub fn max_age_of_backups(&self) -> Result<Duration, BadField> {
        MAX_AGE.read(self.backups.max_age.as_ref(), DEFAULT_MAX_AGE)
    }
}
