//! Versions of etcd, and the defects of some that the gate steps around.

use std::str::FromStr;

/// A version of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{major}.{minor}.{patch}")]
pub struct Version {
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
    /// The patch version.
    pub patch: u32,
}

/// A defect of etcd, and the versions that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[display("{what}")]
pub struct Defect {
    /// The ranges of versions with the defect: the first one with it, and the first one without.
    ranges: &'static [(Version, Version)],
    /// The defect in words.
    what: &'static str,
}

impl Defect {
    /// A member that ends while it defragments may come back with inconsistent data.
    pub const CRASH_IN_DEFRAGMENTATION: Self = Self {
        ranges: &[(version(3, 5, 0), version(3, 5, 6))],
        what: "a crash during a defragmentation may leave inconsistent data (fixed in 3.5.6)",
    };

    /// A snapshot of the leader that is applied during a defragmentation may be lost.
    pub const SNAPSHOT_RACE: Self = Self {
        ranges: &[
            (version(3, 0, 0), version(3, 4, 38)),
            (version(3, 5, 0), version(3, 5, 23)),
            (version(3, 6, 0), version(3, 6, 5)),
        ],
        what: "a snapshot that is applied during a defragmentation may corrupt the data (fixed in 3.4.38, 3.5.23 and 3.6.5)",
    };

    /// The promotion of a learner is not persisted (etcd issue 19557).
    pub const PROMOTION_NOT_PERSISTED: Self = Self {
        ranges: &[(version(3, 5, 1), version(3, 5, 20))],
        what: "the promotion of a learner is not persisted, which breaks the upgrade to 3.6 (etcd issue 19557, fixed in 3.5.20)",
    };

    /// Whether this version has the defect.
    pub fn affects(&self, version: Version) -> bool {
        let within = |(first, fixed): &(Version, Version)| (*first..*fixed).contains(&version);
        self.ranges.iter().any(within)
    }
}

const fn version(major: u32, minor: u32, patch: u32) -> Version {
    Version {
        major,
        minor,
        patch,
    }
}

impl FromStr for Version {
    type Err = std::num::ParseIntError;

    /// Reads the version of a status, for example `3.6.16` or `3.6.0-rc.1`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let release = text.split(['-', '+']).next().unwrap_or_default();
        let mut parts = release.splitn(3, '.');
        let mut next = || parts.next().unwrap_or_default().parse();
        Ok(version(next()?, next()?, next()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(defect: Defect, version: &str) -> bool {
        defect.affects(version.parse().unwrap())
    }

    #[test]
    fn versions_are_read_as_etcd_reports_them() {
        let read: Version = "3.6.0-rc.1".parse().unwrap();
        assert_eq!(read.to_string(), "3.6.0");
        for wrong in ["", "3", "3.6", "3.6.x", "v3.6.1"] {
            assert!(wrong.parse::<Version>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_defect_ends_with_the_version_that_fixed_it() {
        let crash = Defect::CRASH_IN_DEFRAGMENTATION;
        let versions = ["3.4.38", "3.5.0", "3.5.5", "3.5.6", "3.6.0"];
        assert_eq!(
            versions.map(|v| has(crash, v)),
            [false, true, true, false, false]
        );
        let race = Defect::SNAPSHOT_RACE;
        let (old, fixed) = (
            ["3.4.34", "3.5.22", "3.6.4"],
            ["3.4.38", "3.5.23", "3.6.5", "3.7.0"],
        );
        assert!(old.iter().all(|v| has(race, v)) && !fixed.iter().any(|v| has(race, v)));
        let promotion = Defect::PROMOTION_NOT_PERSISTED;
        let versions = ["3.5.0", "3.5.1", "3.5.19", "3.5.20"];
        assert_eq!(
            versions.map(|v| has(promotion, v)),
            [false, true, true, false]
        );
    }
}
