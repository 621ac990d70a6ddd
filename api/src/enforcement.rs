//! Whether refusals are enforced or only reported.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Treatment of disruptions that endanger the quorum.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[clap(rename_all = "PascalCase")]
pub enum Enforcement {
    /// The disruption is refused.
    #[default]
    Enforce,
    /// The disruption is allowed and reported. What is allowed so is not recorded, so after a
    /// change to `Enforce` the ledger is not trusted for a settle time (2 minutes by default), and
    /// disruptions wait for it.
    Warn,
}

impl Enforcement {
    /// Whether refusals are only reported.
    pub fn only_warns(self) -> bool {
        self == Self::Warn
    }
}
