//! The tested etcd versions and their binaries.

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
    /// The start of the version that etcd reports, up to the dot after the minor version.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::V3_4 => "3.4.",
            Self::V3_5 => "3.5.",
            Self::V3_6 => "3.6.",
            Self::V3_7 => "3.7.",
        }
    }

    /// The path of the etcd binary. Fails without one: no test is skipped for lack of it.
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
