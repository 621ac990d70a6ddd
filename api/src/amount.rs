//! A number of members, absolute or as a percentage of the replicas.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::{Schema, SchemaGenerator, json_schema};

use super::BadField;

/// A number of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// An absolute number.
    Members(u32),
    /// A percentage of the replicas.
    Percent(u32),
}

impl Amount {
    pub(super) fn read(
        field: &'static str,
        text: Option<&IntOrString>,
    ) -> Result<Option<Self>, BadField> {
        let amount = match text {
            None => return Ok(None),
            Some(IntOrString::Int(members)) => u32::try_from(*members)
                .ok()
                .filter(|members| *members >= 1)
                .map(Self::Members),
            Some(IntOrString::String(share)) => share
                .strip_suffix('%')
                .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .filter(|percent| (1..=100).contains(percent))
                .map(Self::Percent),
        };
        amount.map(Some).ok_or_else(|| BadField {
            field,
            problem: "must be a number of members from 1, or a percentage from 1% to 100%".into(),
        })
    }
}

/// The schema of a number from 1, or a percentage from 1% to 100%.
pub(super) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 4,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? self >= 1 : self.matches('^(100|[1-9][0-9]?)%$')",
            "message": "must be a number of members from 1, or a percentage from 1% to 100%",
        }],
    })
}
