//! Where things are kept: what is built once (the cache), and what runs (the state of one control plane).

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::versions::Release;

/// Binaries and build directories; survives `testbed down`.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// `$QUORUMGATE_CACHE`, else `$XDG_CACHE_HOME/quorumgate`, else `~/.cache/quorumgate`.
    pub fn from_env() -> Result<Self> {
        let root = directory_from_env("QUORUMGATE_CACHE")
            .or_else(|| directory_from_env("XDG_CACHE_HOME").map(|cache| cache.join("quorumgate")))
            .or_else(|| directory_from_env("HOME").map(|home| home.join(".cache/quorumgate")))
            .context("no cache directory: set QUORUMGATE_CACHE, XDG_CACHE_HOME or HOME")?;
        Ok(Self {
            root: std::path::absolute(root)?,
        })
    }

    /// A cache at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The cache directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory with the binaries of one release, whether they are built yet or not.
    pub fn binaries(&self, release: &Release) -> PathBuf {
        self.root
            .join(release.software.name())
            .join(release.version)
    }
}

/// The state of one control plane and its nodes; removed by `testbed down`.
///
/// Each Kubernetes version has a state of its own, so that two versions can be up side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    root: PathBuf,
}

impl State {
    /// `$QUORUMGATE_TESTBED/<version>`, else `<cache>/testbed/<version>`.
    pub fn from_env(cache: &Cache, kubernetes: &Release) -> Result<Self> {
        let root =
            directory_from_env("QUORUMGATE_TESTBED").unwrap_or_else(|| cache.root.join("testbed"));
        Ok(Self {
            root: std::path::absolute(root)?.join(kubernetes.version),
        })
    }

    /// The state at `root`, exactly.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The state directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Taken exclusively by whoever starts or stops processes of this state. Outside of the directory, because
    /// `down` removes the directory while it holds the lock.
    pub fn lock_file(&self) -> PathBuf {
        let mut path = self.root.clone().into_os_string();
        path.push(".lock");
        path.into()
    }

    /// Certificate authority and service account key.
    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// Kubeconfigs, one per user they were issued for.
    pub fn kubeconfigs(&self) -> PathBuf {
        self.root.join("kubeconfigs")
    }

    /// The administrator's kubeconfig: what to set `KUBECONFIG` to.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.kubeconfig("admin")
    }

    /// The kubeconfig issued for `user`. Colons, which separate the paths in `KUBECONFIG`, become underscores.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.kubeconfigs()
            .join(format!("{}.yaml", user.replace(':', "_")))
    }

    /// The kubeconfig of one node's agent (`system:node:NAME`).
    pub fn node_kubeconfig(&self, node: &str) -> PathBuf {
        self.kubeconfig(&format!("system:node:{node}"))
    }

    /// Pid files of the control plane.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Logs of the control plane.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Data of the control plane's own etcd.
    pub fn etcd_data(&self) -> PathBuf {
        self.root.join("etcd")
    }

    /// Every request to pods, evictions, StatefulSets, claims and nodes' Leases' owners, one JSON event per line.
    pub fn audit_log(&self) -> PathBuf {
        self.root.join("logs/audit.log")
    }

    /// One directory per node.
    pub fn nodes(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// The directory of one node: `kubelet.pid` and `kubelet.log`, and whatever its agent keeps.
    pub fn node(&self, name: &str) -> PathBuf {
        self.nodes().join(name)
    }

    /// One directory per sandbox: who owns it, and files of its test.
    pub fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }
}

fn directory_from_env(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}
