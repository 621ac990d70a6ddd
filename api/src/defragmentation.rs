//! When the gate defragments members, and the record of the latest runs.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::duration::Bounds;
use super::{BadField, QuorumDisruptionBudgetSpec, WindowSpec};

/// When the members' databases are defragmented. A defragmentation is a disruption like any other:
/// it takes a grant, one member at a time, and only while every voter serves.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefragmentationSpec {
    /// Whether the gate defragments members: `Off`; `Report`, which says in the condition
    /// `Defragmented` what is due, and makes one run for each new value of the annotation
    /// `quorumgate.io/defragment`; or `Auto`, which also defragments what is due. Default: `Off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DefragmentationMode")]
    #[schemars(extend("default" = "Off"))]
    pub mode: Option<DefragmentationMode>,
    /// The least that a defragmentation has to free, such as 200Mi. Default: 200Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bytes_schema")]
    #[schemars(extend("default" = "200Mi"))]
    pub min_reclaim: Option<String>,
    /// The least share of the database, in percent, that a defragmentation has to free. Default:
    /// 45.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    #[schemars(extend("default" = 45))]
    pub min_percent: Option<i32>,
    /// The share of the quota, in percent, above which a defragmentation is due if it frees 32Mi.
    /// Default: 80.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    #[schemars(extend("default" = 80))]
    pub quota_pressure_percent: Option<i32>,
    /// The hours of the day in which a defragmentation may begin by itself. One that is
    /// asked for, or that ends a NOSPACE alarm, begins at any time. Default: the whole day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WindowSpec")]
    pub window: Option<WindowSpec>,
    /// The longest time that the defragmentation of one member may be expected to take, from 10s to
    /// 6h. It is also the time, with a settle time more, after which a permission is given up
    /// whose replica is gone. Default: 15m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timeout_schema")]
    #[schemars(extend("default" = "15m"))]
    pub timeout: Option<String>,
}

/// Whether the gate defragments members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum DefragmentationMode {
    /// Never, also not when it is asked for.
    #[default]
    Off,
    /// When it is asked for. What is due is only reported.
    Report,
    /// Whenever it is due.
    Auto,
}

/// The latest defragmentation of a member by the gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefragmentationStatus {
    /// Name of the member's pod.
    pub member: String,
    /// The reason why the member was due.
    pub reason: String,
    /// When the call was made.
    pub start_time: Time,
    /// When the member served again. Absent while it runs, and where nobody saw its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// How long the call took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_milliseconds: Option<i64>,
    /// Size of the database before.
    pub size_before_bytes: i64,
    /// Size of the database after, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_after_bytes: Option<i64>,
    /// Value of the annotation that asked for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The error, if the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The budget's choices about defragmentation, with the default of every field that is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defragmentation {
    /// See [`DefragmentationSpec::mode`].
    pub mode: DefragmentationMode,
    /// See [`DefragmentationSpec::min_reclaim`], in bytes.
    pub min_reclaim: u64,
    /// See [`DefragmentationSpec::min_percent`].
    pub min_percent: u8,
    /// See [`DefragmentationSpec::quota_pressure_percent`].
    pub quota_pressure: u8,
    /// See [`DefragmentationSpec::window`]. One that cannot be read is closed.
    pub window: Option<WindowSpec>,
    /// See [`DefragmentationSpec::timeout`].
    pub timeout: Duration,
}

const TIMEOUT: Bounds = Bounds {
    field: "spec.defragmentation.timeout",
    least: "10s",
    most: "6h",
};

fn timeout_schema(generator: &mut SchemaGenerator) -> Schema {
    TIMEOUT.schema(generator)
}

fn bytes_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 12,
        "pattern": "^[0-9]{1,9}(Ki|Mi|Gi)$",
    })
}

impl QuorumDisruptionBudgetSpec {
    /// The budget's choices about defragmentation.
    pub fn defragmentation(&self) -> Result<Defragmentation, BadField> {
        let spec = &self.defragmentation;
        Ok(Defragmentation {
            mode: spec.mode.unwrap_or_default(),
            min_reclaim: spec.min_reclaim.as_deref().map_or(Ok(200 << 20), |text| {
                bytes(text).ok_or_else(|| BadField {
                    field: "spec.defragmentation.minReclaim",
                    problem: format!("{text:?} is not an amount like 200Mi"),
                })
            })?,
            min_percent: percent("spec.defragmentation.minPercent", spec.min_percent, 45)?,
            quota_pressure: percent(
                "spec.defragmentation.quotaPressurePercent",
                spec.quota_pressure_percent,
                80,
            )?,
            window: spec.window.clone(),
            timeout: TIMEOUT.read(spec.timeout.as_ref(), Duration::from_mins(15))?,
        })
    }
}

fn percent(field: &'static str, given: Option<i32>, default: u8) -> Result<u8, BadField> {
    let Some(given) = given else {
        return Ok(default);
    };
    let percent = u8::try_from(given).ok();
    percent
        .filter(|percent| (1..=100).contains(percent))
        .ok_or_else(|| BadField {
            field,
            problem: "must be from 1 to 100".into(),
        })
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "Ki" => 10,
        "Mi" => 20,
        "Gi" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_they_are_written() {
        assert_eq!(bytes("200Mi"), Some(200 << 20));
        assert_eq!(bytes("64Ki"), Some(64 << 10));
        for wrong in ["", "200", "Mi", "1.5Gi", "200M"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }
}
