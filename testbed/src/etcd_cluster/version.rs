//! The etcd versions that a cluster can run.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::versions::{self, Software};

/// A minor version of etcd. Its patch release is the one that the test bed builds or that the
/// system has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EtcdVersion {
    /// Debian's package.
    V3_4,
    /// Built from source.
    V3_5,
    /// Built from source.
    V3_6,
    /// Built from source; the default.
    #[default]
    V3_7,
}

impl EtcdVersion {
    /// Every supported version, oldest first.
    pub const ALL: [Self; 4] = [Self::V3_4, Self::V3_5, Self::V3_6, Self::V3_7];

    /// The container image of the version. The node agent puts the etcd with this tag on PATH.
    pub fn image(self) -> Result<String> {
        let version = match self {
            Self::V3_4 => "3.4.23",
            Self::V3_5 => built("3.5")?,
            Self::V3_6 => built("3.6")?,
            Self::V3_7 => built("3.7")?,
        };
        Ok(format!("etcd:{version}"))
    }

    /// The path that answers 200 while the member has a quorum. Debian's 3.4.23 is older than
    /// `/readyz`.
    pub(crate) fn quorum_path(self) -> &'static str {
        match self {
            Self::V3_4 => "/health",
            Self::V3_5 | Self::V3_6 | Self::V3_7 => "/readyz",
        }
    }

    /// Whether etcd has an option to skip fsync. Processes that are killed lose no data without
    /// fsync, and tests on busy machines see fewer unwanted elections.
    pub(crate) fn can_skip_fsync(self) -> bool {
        self >= Self::V3_5
    }
}

/// The patch release of a minor version that `testbed build` builds.
fn built(minor: &str) -> Result<&'static str> {
    Ok(versions::find(Software::Etcd, minor)?.version)
}
