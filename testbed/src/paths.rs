//! Directories: the cache for binaries, and the state of one control plane.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::versions::Release;

/// The directory of binaries and builds, which survives `testbed down`.
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

/// The directory of one control plane and its nodes, which `testbed down` removes.
///
/// Each Kubernetes version has a state of its own, so that two versions can run side by side.
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

    /// The state in exactly this directory.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The state directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file that is locked to start or stop processes of this state. The file is outside of the
    /// directory, because `down` removes the directory while it holds the lock.
    pub fn lock_file(&self) -> PathBuf {
        let mut path = self.root.clone().into_os_string();
        path.push(".lock");
        path.into()
    }

    /// The directory of the certificate authority and the service account key.
    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// The directory of kubeconfigs, one for each user.
    pub fn kubeconfigs(&self) -> PathBuf {
        self.root.join("kubeconfigs")
    }

    /// The administrator's kubeconfig, for the variable `KUBECONFIG`.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.kubeconfig("admin")
    }

    /// The kubeconfig of `user`. Colons, which separate paths in `KUBECONFIG`, become underscores
    /// in its name.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.kubeconfigs()
            .join(format!("{}.yaml", user.replace(':', "_")))
    }

    /// The kubeconfig of one node's agent (`system:node:NAME`).
    pub fn node_kubeconfig(&self, node: &str) -> PathBuf {
        self.kubeconfig(&format!("system:node:{node}"))
    }

    /// The directory of the control plane's pid files.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// The directory of the control plane's logs.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// The data directory of the control plane's etcd.
    pub fn etcd_data(&self) -> PathBuf {
        self.root.join("etcd")
    }

    /// The audit log: every request that the audit policy covers, one JSON event per line.
    pub fn audit_log(&self) -> PathBuf {
        self.root.join("logs/audit.log")
    }

    /// The directory with one directory per node.
    pub fn nodes(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// The directory of one node: `kubelet.pid`, `kubelet.log` and the files of its agent.
    pub fn node(&self, name: &str) -> PathBuf {
        self.nodes().join(name)
    }

    /// The directory with one directory per sandbox, which has its owner and the files of its test.
    pub fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }
}

fn directory_from_env(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}
