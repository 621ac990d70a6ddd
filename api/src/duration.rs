//! Durations in a spec: `400ms`, `90s`, `1h30m`.

use std::time::Duration;

use schemars::{Schema, SchemaGenerator, json_schema};

use super::BadField;

/// The bounds of a duration field and its path.
pub(super) struct Bounds {
    pub(super) field: &'static str,
    pub(super) least: &'static str,
    pub(super) most: &'static str,
}

/// Longer than any sensible duration; bounds the cost of the schema's validation rule.
const MAX_LENGTH: u32 = 32;

impl Bounds {
    /// The schema of the field, which refuses by the same rules as [`Bounds::read`].
    pub(super) fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        let Self { field, least, most } = self;
        json_schema!({
            "type": "string",
            "maxLength": MAX_LENGTH,
            "x-kubernetes-validations": [{
                "rule": format!(
                    r"self.matches('^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('{least}') && duration(self) <= duration('{most}')"
                ),
                "message": format!("{field} must be a duration like 500ms, 90s or 1h30m, from {least} to {most}"),
            }],
        })
    }

    /// Parses the field, and returns `default` where it is absent.
    pub(super) fn read(
        &self,
        text: Option<&String>,
        default: Duration,
    ) -> Result<Duration, BadField> {
        let Self { field, least, most } = self;
        let Some(text) = text else {
            return Ok(default);
        };
        let bound = |text| parse(text).unwrap_or_default();
        parse(text)
            .filter(|duration| *duration >= bound(least) && *duration <= bound(most))
            .ok_or_else(|| BadField {
                field,
                problem: format!(
                    "{text:?} is not a duration like 500ms, 90s or 1h30m, from {least} to {most}"
                ),
            })
    }
}

/// Parses a sum of numbers with the units `ms`, `s`, `m` and `h`; `None` where `text` is no such
/// sum.
pub(super) fn parse(text: &str) -> Option<Duration> {
    if text.is_empty() {
        return None;
    }
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| c.is_ascii_alphabetic())?);
        let unit_end = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        sum = sum.checked_add(seconds(number, unit)?)?;
        rest = next;
    }
    Some(sum)
}

fn seconds(number: &str, unit: &str) -> Option<Duration> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}
