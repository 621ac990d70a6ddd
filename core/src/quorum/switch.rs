//! The direction in which a setting changes.

/// The direction in which a setting changes, for example TLS between members in the pod template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Switch {
    /// From off to on.
    On,
    /// From on to off.
    Off,
}
