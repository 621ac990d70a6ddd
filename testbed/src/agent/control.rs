//! The pods of a node, seen and disturbed from outside its agent.
//!
//! All operations use the node's directory and signals, so that they also work while the agent is
//! down, as far as that makes sense. [`crate::Node`] starts and stops the node itself.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::container::{self, Run};
use super::faults::{self, PodFaults};
use super::layout::{ContainerDir, NodeDir};
use super::process::signal_group;
use crate::node;
use crate::paths::State;

/// The pods of one node.
#[derive(Clone, Debug)]
pub struct NodePods {
    dir: NodeDir,
    state: State,
    node: String,
}

impl NodePods {
    /// The pods of the node with this name.
    pub fn new(state: &State, node: &str) -> Self {
        Self {
            dir: NodeDir::new(state.root(), node),
            state: state.clone(),
            node: node.to_owned(),
        }
    }

    /// The node's directory.
    pub fn dir(&self) -> &NodeDir {
        &self.dir
    }

    /// Stops all processes of a pod with `SIGSTOP`, so that they neither answer nor close anything.
    pub fn freeze(&self, namespace: &str, pod: &str) -> io::Result<()> {
        self.signal(namespace, pod, None, Signal::SIGSTOP)
    }

    /// Continues a frozen pod.
    pub fn thaw(&self, namespace: &str, pod: &str) -> io::Result<()> {
        self.signal(namespace, pod, None, Signal::SIGCONT)
    }

    /// Signals the process groups of a pod's running containers, or of one of them. Fails if none
    /// runs.
    pub fn signal(
        &self,
        namespace: &str,
        pod: &str,
        container: Option<&str>,
        signal: Signal,
    ) -> io::Result<()> {
        let mut runs = self.running(namespace, pod)?;
        runs.retain(|(name, _)| container.is_none_or(|wanted| wanted == name));
        if runs.is_empty() {
            let message = format!("no running container of {namespace}/{pod} on {}", self.node);
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        runs.into_iter()
            .try_for_each(|(_, run)| signal_group(run.process, signal))
    }

    /// The running containers of a pod, by name.
    pub fn running(&self, namespace: &str, pod: &str) -> io::Result<Vec<(String, Run)>> {
        let mut runs = Vec::new();
        for dir in self.dir.incarnations(namespace, pod)? {
            for container in dir.containers()? {
                if let Some(run) = container::running(&container)? {
                    runs.push((container.name(), run));
                }
            }
        }
        Ok(runs)
    }

    /// The group ids of all incarnations of a pod on this node that have one.
    pub fn gids(&self, namespace: &str, pod: &str) -> io::Result<Vec<u32>> {
        let dirs = self.dir.incarnations(namespace, pod)?;
        let texts = dirs
            .iter()
            .filter_map(|dir| fs::read_to_string(dir.gid()).ok());
        Ok(texts.filter_map(|text| text.trim().parse().ok()).collect())
    }

    /// The faults of a pod.
    pub fn faults(&self, namespace: &str, pod: &str) -> PodFaults {
        faults::of(&self.dir, namespace, pod)
    }

    /// Changes the faults of a pod for this and later incarnations, and notifies the agent. A crash
    /// fault also kills running containers. A hold or a rejection takes effect when the pod is next
    /// created.
    pub fn change_faults(
        &self,
        namespace: &str,
        pod: &str,
        edit: impl FnOnce(&mut PodFaults),
    ) -> io::Result<()> {
        faults::change(&self.dir, namespace, pod, edit)?;
        let faults = self.faults(namespace, pod);
        if faults.crash || faults.crash_container.is_some() {
            for (_, run) in self.running(namespace, pod)? {
                signal_group(run.process, Signal::SIGKILL)?;
            }
        }
        if let Some(agent) = node::agent(&self.state, &self.node).running() {
            match kill(Pid::from_raw(agent.pid()), Signal::SIGHUP) {
                Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// The log files of a pod's containers, those of deleted pods first.
    pub fn logs(&self, namespace: &str, pod: &str) -> io::Result<Vec<PathBuf>> {
        let prefix = format!("{namespace}_{pod}_");
        let mut found = Vec::new();
        for entry in fs::read_dir(self.dir.old_logs()).into_iter().flatten() {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                found.push(entry.path());
            }
        }
        found.sort();
        for dir in self.dir.incarnations(namespace, pod)? {
            found.extend(
                dir.containers()?
                    .iter()
                    .map(ContainerDir::log)
                    .filter(|l| l.exists()),
            );
        }
        Ok(found)
    }
}

/// Prints the logs of a pod from all nodes it has been on.
pub fn print_logs(state: &State, namespace: &str, pod: &str) -> anyhow::Result<ExitCode> {
    let mut found = false;
    for node in fs::read_dir(state.nodes()).into_iter().flatten() {
        let name = node?.file_name().to_string_lossy().into_owned();
        for log in NodePods::new(state, &name).logs(namespace, pod)? {
            found = true;
            io::copy(&mut fs::File::open(log)?, &mut io::stdout().lock())?;
        }
    }
    anyhow::ensure!(found, "no node has logs of {namespace}/{pod}");
    Ok(ExitCode::SUCCESS)
}
