//! Faults in force on a node, in `faults.json`. Tests write the file, and the agent reads it before
//! each decision.
//!
//! The file needs no agent: a fault can be set before a node starts, and stays over its restarts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::layout::{NodeDir, replace};

/// The faults of a pod, in this and every later incarnation.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fault of its own, and they do not exclude each other"
)]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodFaults {
    /// No container is started, so that the pod stays in `ContainerCreating`.
    pub hold: bool,
    /// All containers exit at once, so that the pod goes into `CrashLoopBackOff`.
    pub crash: bool,
    /// The container of this name exits at once. When the fault begins all containers are killed,
    /// and the others start again.
    pub crash_container: Option<String>,
    /// The pod is rejected when it is created next, or when its node is back from a power loss: the
    /// pod has failed, and no container is started.
    pub reject: bool,
    /// The readiness probes are reported as failing.
    pub unready: bool,
}

type All = BTreeMap<String, PodFaults>;

/// The faults of a pod.
pub fn of(node: &NodeDir, namespace: &str, pod: &str) -> PodFaults {
    let all = read(node).unwrap_or_else(|error| {
        tracing::warn!(%error, "faults.json");
        All::new()
    });
    all.get(&format!("{namespace}/{pod}"))
        .cloned()
        .unwrap_or_default()
}

/// Changes the faults of a pod.
pub fn change(
    node: &NodeDir,
    namespace: &str,
    pod: &str,
    edit: impl FnOnce(&mut PodFaults),
) -> io::Result<()> {
    fs::create_dir_all(node.path())?;
    let lock = File::create(node.path().join("faults.lock"))?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
    let mut all = read(node)?;
    let key = format!("{namespace}/{pod}");
    edit(all.entry(key.clone()).or_default());
    if all.get(&key) == Some(&PodFaults::default()) {
        all.remove(&key);
    }
    replace(&node.faults(), &serde_json::to_vec_pretty(&all)?)
}

fn read(node: &NodeDir) -> io::Result<All> {
    match fs::read(node.faults()) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(All::new()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_kept_per_pod_until_they_are_mended() {
        let state = tempfile::tempdir().unwrap();
        let node = NodeDir::new(state.path(), "n1");
        assert_eq!(of(&node, "ns", "a-0"), PodFaults::default());
        change(&node, "ns", "a-0", |f| f.hold = true).unwrap();
        change(&node, "ns", "a-1", |f| f.crash = true).unwrap();
        assert!(of(&node, "ns", "a-0").hold && !of(&node, "ns", "a-0").crash);
        change(&node, "ns", "a-0", |f| f.hold = false).unwrap();
        assert_eq!(of(&node, "ns", "a-0"), PodFaults::default());
        assert!(of(&node, "ns", "a-1").crash);
    }
}
