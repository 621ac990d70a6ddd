//! The files of a node's agent: the state that it must find again after a restart, and files for
//! faults and for people.
//!
//! ```text
//! <state>/nodes/<node>/agent.pid, agent.log  the agent's own
//! <state>/nodes/<node>/lock                  held by the agent while it runs
//! <state>/nodes/<node>/ip                    the node's address
//! <state>/nodes/<node>/faults.json           faults in force
//! <state>/nodes/<node>/logs/                 logs of pods that are gone
//! <state>/nodes/<node>/host/                 directories of the node (`hostPath`)
//! <state>/nodes/<node>/pods/<ns>_<name>_<uid>/
//!   ip, gid                                  address and group of this incarnation
//!   hosts, resolv.conf                       mounted into every container
//!   volumes/<volume>/
//!   containers/<container>/
//!     spec.json                              the instructions for `container-init`
//!     run.json, exit.json                    the current attempt: its processes, its end
//!     last.json                              the end of the attempt before
//!     process.pid                            the container's process, leader of its process group
//!     init.pid                               the process that waits for it
//!     log                                    standard output and error, all attempts
//! ```

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The directory of one node.
#[derive(Clone, Debug)]
pub struct NodeDir(PathBuf);

impl NodeDir {
    /// The directory of `node` below the state directory of the test bed.
    pub fn new(state: &Path, node: &str) -> Self {
        Self(state.join("nodes").join(node))
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The directory of all pods.
    pub fn pods(&self) -> PathBuf {
        self.0.join("pods")
    }

    /// The lock that the agent holds while it runs, so that a node never has two agents.
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// The node's own address.
    pub fn ip(&self) -> PathBuf {
        self.0.join("ip")
    }

    /// The faults in force, which stay over restarts of the agent.
    pub fn faults(&self) -> PathBuf {
        self.0.join("faults.json")
    }

    /// The directory for logs of containers whose pods are gone.
    pub fn old_logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    /// A directory of the node's own file system.
    pub fn host(&self, path: &Path) -> PathBuf {
        self.0
            .join("host")
            .join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The directory of one incarnation of a pod.
    pub fn pod(&self, namespace: &str, name: &str, uid: &str) -> PodDir {
        PodDir(self.pods().join(format!("{namespace}_{name}_{uid}")))
    }

    /// All existing pod directories, each with the UID of its pod.
    pub fn all_pods(&self) -> io::Result<Vec<(PodDir, String)>> {
        let entries = match fs::read_dir(self.pods()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some((_, uid)) = name.rsplit_once('_') {
                found.push((PodDir(entry.path()), uid.to_owned()));
            }
        }
        Ok(found)
    }

    /// The directories of all incarnations of a pod that were on this node.
    pub fn incarnations(&self, namespace: &str, name: &str) -> io::Result<Vec<PodDir>> {
        let prefix = format!("{namespace}_{name}_");
        let mut dirs = self.all_pods()?;
        dirs.retain(|(dir, _)| {
            dir.0
                .file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with(&prefix))
        });
        Ok(dirs.into_iter().map(|(dir, _)| dir).collect())
    }
}

/// The directory of one incarnation of a pod.
#[derive(Clone, Debug)]
pub struct PodDir(PathBuf);

impl PodDir {
    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file with the pod's address.
    pub fn ip(&self) -> PathBuf {
        self.0.join("ip")
    }

    /// The file with the group id of all processes of the pod.
    pub fn gid(&self) -> PathBuf {
        self.0.join("gid")
    }

    /// The pod's `/etc/hosts`.
    pub fn hosts(&self) -> PathBuf {
        self.0.join("hosts")
    }

    /// The pod's `/etc/resolv.conf`.
    pub fn resolv_conf(&self) -> PathBuf {
        self.0.join("resolv.conf")
    }

    /// The directory of a volume that is deleted with the pod.
    pub fn volume(&self, volume: &str) -> PathBuf {
        self.0.join("volumes").join(volume)
    }

    /// The directory of one container.
    pub fn container(&self, container: &str) -> ContainerDir {
        ContainerDir(self.0.join("containers").join(container))
    }

    /// The directories of all containers that were ever started in this pod.
    pub fn containers(&self) -> io::Result<Vec<ContainerDir>> {
        match fs::read_dir(self.0.join("containers")) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            entries => entries?.map(|e| Ok(ContainerDir(e?.path()))).collect(),
        }
    }
}

/// The directory of one container.
#[derive(Clone, Debug)]
pub struct ContainerDir(PathBuf);

impl ContainerDir {
    /// The container directory with this path.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The container's name.
    pub fn name(&self) -> String {
        self.0
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// The instructions for `container-init`.
    pub fn spec(&self) -> PathBuf {
        self.0.join("spec.json")
    }

    /// The current attempt.
    pub fn run(&self) -> PathBuf {
        self.0.join("run.json")
    }

    /// The end of the current attempt.
    pub fn exit(&self) -> PathBuf {
        self.0.join("exit.json")
    }

    /// The end of the attempt before.
    pub fn last(&self) -> PathBuf {
        self.0.join("last.json")
    }

    /// The pid file of the container's process.
    pub fn process_pid(&self) -> PathBuf {
        self.0.join("process.pid")
    }

    /// The pid file of the process that waits for the container. Its name sorts first. So a power
    /// loss, which kills all processes of a node in the order of their pid files, kills it before
    /// it can record an exit, and leaves that as a trace.
    pub fn init_pid(&self) -> PathBuf {
        self.0.join("init.pid")
    }

    /// The standard output and error of all attempts.
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }
}

/// Replaces a file as a whole, so that a reader sees the old content or the new one.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    fs::write(&next, content)?;
    fs::rename(&next, path)
}

/// Overwrites the existing file, so that bind mounts of it have the new content.
pub fn write_in_place(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    file.write_all(content)?;
    file.set_len(content.len() as u64)
}
