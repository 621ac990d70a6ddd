//! The etcd versions that are tested, and where their binaries are.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::paths::Cache;
use quorumgate_testbed::versions::{self, Origin, Release, Software};

/// A minor version of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    V3_4,
    V3_5,
    V3_6,
    V3_7,
}

impl Version {
    /// As etcd reports the minor version of a patch release, with the dot that follows.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::V3_4 => "3.4.",
            Self::V3_5 => "3.5.",
            Self::V3_6 => "3.6.",
            Self::V3_7 => "3.7.",
        }
    }

    /// The etcd binary. A missing one is a failure: nothing is skipped here.
    pub(crate) fn binary(self) -> Result<PathBuf> {
        let release = self.release()?;
        let cache = Cache::from_env()?;
        let (directory, remedy) = match release.origin {
            Origin::GoModule { .. } => (
                cache.binaries(release),
                "`make testbed` builds it, as `make test` does".to_owned(),
            ),
            Origin::Package { name, directory } => (
                directory.into(),
                format!("`apt-get install {name}` brings it"),
            ),
        };
        let binary = directory.join("etcd");
        ensure!(binary.exists(), "{} is missing: {remedy}", binary.display());
        Ok(binary)
    }

    fn release(self) -> Result<&'static Release> {
        let minor = self.prefix().trim_end_matches('.');
        versions::find(Software::Etcd, minor).context("the test bed knows every version we support")
    }
}
