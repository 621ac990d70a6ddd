//! Whether what the gate says is binding.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether what the gate refuses is refused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[clap(rename_all = "PascalCase")]
pub enum Enforcement {
    /// It is.
    #[default]
    Enforce,
    /// It is judged, reported and allowed. Permissions may be open that nobody knows of, so after a change to `Enforce` the ledger is cold for
    /// a settle time.
    Warn,
}

impl Enforcement {
    /// Whether refusals are only reported.
    pub fn only_warns(self) -> bool {
        self == Self::Warn
    }
}
