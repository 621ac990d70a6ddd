//! The annotation of an override, by which a person lifts the gate's refusals for a limited time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::names;

/// The longest time ahead for which an override is valid, so that a forgotten one ends by itself.
const FARTHEST: SignedDuration = SignedDuration::from_hours(24);

/// The override in an object's annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OverrideState {
    /// There is none.
    None,
    /// The override is valid until this time, as written.
    Valid(String),
    /// The override is not valid: in the past, too far ahead, or not a time.
    Ignored {
        /// The written text.
        written: String,
        /// The reason why it is not valid.
        why: &'static str,
    },
}

/// The override in these annotations at `now`.
pub fn standing(annotations: Option<&BTreeMap<String, String>>, now: Timestamp) -> OverrideState {
    let Some(written) = annotations.and_then(|a| a.get(names::OVERRIDE_UNTIL)) else {
        return OverrideState::None;
    };
    let ignored = |why| OverrideState::Ignored {
        written: written.clone(),
        why,
    };
    match written.parse::<Timestamp>() {
        Err(_) => ignored("it is not a time in RFC 3339, like 2026-01-31T12:00:00Z"),
        Ok(until) if until <= now => ignored("it has passed"),
        Ok(until) if until.duration_since(now) > FARTHEST => ignored("it is more than 24 h ahead"),
        Ok(_) => OverrideState::Valid(written.clone()),
    }
}
