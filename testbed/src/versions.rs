//! The releases that the test bed can build, each with the Go module that pins it.

use anyhow::{Context as _, Result};

/// The software of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Software {
    /// kube-apiserver, kube-controller-manager, kube-scheduler and kubectl.
    Kubernetes,
    /// etcd and etcdctl.
    Etcd,
}

impl Software {
    /// The name used for directories and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::Etcd => "etcd",
        }
    }
}

/// The source of a release's binaries.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// A build of a Go module in this repository.
    GoModule {
        /// The directory below `testbed/go`, and the name of the build directory in the cache.
        directory: &'static str,
        /// The content of its `go.mod`.
        go_mod: &'static str,
        /// The content of its `go.sum`.
        go_sum: &'static str,
    },
    /// A package of the operating system.
    Package {
        /// The name of the Debian package.
        name: &'static str,
        /// The directory of the package's binaries.
        directory: &'static str,
    },
}

/// A version of a piece of software.
#[derive(Clone, Copy, Debug)]
pub struct Release {
    /// The software.
    pub software: Software,
    /// The version without a leading `v`, such as `1.37.1`.
    pub version: &'static str,
    /// The source of the binaries.
    pub origin: Origin,
}

macro_rules! go_module {
    ($directory:literal) => {
        Origin::GoModule {
            directory: $directory,
            go_mod: include_str!(concat!("../go/", $directory, "/go.mod")),
            go_sum: include_str!(concat!("../go/", $directory, "/go.sum")),
        }
    };
}

/// All releases that the test bed knows, the newest of each software first.
pub const RELEASES: &[Release] = &[
    Release {
        software: Software::Kubernetes,
        version: "1.37.1",
        origin: go_module!("kubernetes-1.37"),
    },
    Release {
        software: Software::Kubernetes,
        version: "1.33.13",
        origin: go_module!("kubernetes-1.33"),
    },
    Release {
        software: Software::Etcd,
        version: "3.7.3",
        origin: go_module!("etcd-3.7"),
    },
    Release {
        software: Software::Etcd,
        version: "3.6.16",
        origin: go_module!("etcd-3.6"),
    },
    Release {
        software: Software::Etcd,
        version: "3.5.35",
        origin: go_module!("etcd-3.5"),
    },
    Release {
        software: Software::Etcd,
        version: "3.4",
        origin: Origin::Package {
            name: "etcd-server",
            directory: "/usr/bin",
        },
    },
];

/// The release of `software` with this version. A minor version such as `3.6` stands for its newest
/// known patch release.
pub fn find(software: Software, version: &str) -> Result<&'static Release> {
    let wanted = version.strip_prefix('v').unwrap_or(version);
    let is_meant = |release: &&Release| {
        release.version == wanted
            || release
                .version
                .strip_prefix(wanted)
                .is_some_and(|patch| patch.starts_with('.'))
    };
    of(software).find(is_meant).with_context(|| {
        let known: Vec<_> = of(software).map(|release| release.version).collect();
        format!(
            "{} {version} is not known here; known are {}",
            software.name(),
            known.join(", ")
        )
    })
}

/// The releases of one software, newest first.
pub fn of(software: Software) -> impl Iterator<Item = &'static Release> {
    RELEASES
        .iter()
        .filter(move |release| release.software == software)
}

/// The Kubernetes release to use: `$QUORUMGATE_KUBERNETES`, else the newest.
pub fn default_kubernetes() -> Result<&'static Release> {
    match std::env::var("QUORUMGATE_KUBERNETES") {
        Ok(version) if !version.is_empty() => find(Software::Kubernetes, &version),
        _ => find(Software::Kubernetes, "1.37"),
    }
}

/// The default etcd release, which is the newest.
pub fn default_etcd() -> Result<&'static Release> {
    find(Software::Etcd, "3.7")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_go_module_requires_the_version_it_is_named_for() {
        for release in RELEASES {
            let Origin::GoModule {
                directory, go_mod, ..
            } = release.origin
            else {
                continue;
            };
            let module = match release.software {
                Software::Kubernetes => "k8s.io/kubernetes",
                Software::Etcd => "go.etcd.io/etcd/server/v3",
            };
            let requirement = format!("{module} v{}", release.version);
            assert!(
                go_mod.contains(&requirement),
                "{directory}/go.mod lacks {requirement}"
            );
        }
    }

    #[test]
    fn a_minor_version_names_its_patch_release() {
        assert_eq!(find(Software::Etcd, "3.6").unwrap().version, "3.6.16");
        assert_eq!(
            find(Software::Kubernetes, "v1.37.1").unwrap().version,
            "1.37.1"
        );
        assert_eq!(find(Software::Etcd, "3.4").unwrap().version, "3.4");
    }

    #[test]
    fn an_unknown_version_is_refused_with_the_known_ones() {
        let error = find(Software::Etcd, "3.60").unwrap_err().to_string();
        assert!(
            error.contains("3.60") && error.contains("3.6.16"),
            "{error}"
        );
    }
}
