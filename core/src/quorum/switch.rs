//! Which way something is switched.

/// Which way something is switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Switch {
    /// It was off.
    On,
    /// It was on.
    Off,
}
