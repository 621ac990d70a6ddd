//! A container: a process with a root file system, a group and a process group of its own.
//!
//! Three processes take part. The agent (`launch`) writes the instructions and starts
//! `container-init`. That process (`init`) builds the file system, starts the command, waits for it
//! and records how it ended. So a container outlives its agent, and its exit code is never lost.
//! `exec` joins a running container for probes and hooks.

pub mod exec;
pub mod init;
pub mod launch;
mod root;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::layout::{ContainerDir, replace};
use crate::process::Identity;

/// The instructions for `container-init`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The unique name of this attempt, which is the status' `containerID`.
    pub id: String,
    /// The number of restarts before this attempt.
    pub attempt: i32,
    /// The image in the spec.
    pub image: String,
    /// The fingerprint of the resources it was started with.
    pub resources: String,
    /// The command and its arguments, expanded.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// The working directory.
    pub working_dir: PathBuf,
    /// The host name.
    pub hostname: String,
    /// The group id, if the agent is root.
    pub gid: Option<u32>,
    /// The mounts, in the order in which they are made.
    pub mounts: Vec<Mount>,
}

/// A bind mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The file or directory of the host.
    pub source: PathBuf,
    /// The absolute path in the container.
    pub target: PathBuf,
    /// Whether the mount is read-only.
    pub read_only: bool,
}

/// A started attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The unique name of the attempt.
    pub id: String,
    /// The number of restarts before it.
    pub attempt: i32,
    /// The image it was started from.
    pub image: String,
    /// The fingerprint of the resources it was started with.
    pub resources: String,
    /// The process that waits for the container.
    pub init: Identity,
    /// The container's own process, leader of its process group.
    pub process: Identity,
    /// The time of its start.
    pub started_at: Timestamp,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The unique name of the attempt.
    pub id: String,
    /// The exit code as a runtime reports it: 128 plus the signal for a killed process.
    pub exit_code: i32,
    /// The time of the start. `None` if it could not be started.
    pub started_at: Option<Timestamp>,
    /// The time of the end.
    pub finished_at: Timestamp,
    /// The reason why it could not be started.
    pub start_error: Option<String>,
}

/// Reads one of the files above. `None` if it does not exist.
pub fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Writes one of the files above, as a whole or not at all.
pub fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    replace(path, &serde_json::to_vec(value)?)
}

/// The attempt that is recorded in a container's directory, if it still runs.
pub fn running(dir: &ContainerDir) -> io::Result<Option<Run>> {
    let run: Option<Run> = read(&dir.run())?;
    let ended: Option<Exit> = read(&dir.exit())?;
    Ok(run.filter(|run| {
        ended.as_ref().is_none_or(|exit| exit.id != run.id) && run.process.is_running()
    }))
}
