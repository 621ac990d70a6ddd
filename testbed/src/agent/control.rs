//! A node's pods from outside its agent: look at them, and make things go wrong with them.
//!
//! Everything goes through the node's directory and signals, so all of it works, where it can mean anything, also while the
//! agent is down. Starting and stopping the node itself is [`crate::Node`]'s.

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
    /// The pods of the node of that name.
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

    /// Stops all processes of a pod in their tracks (`SIGSTOP`): they answer nothing and close nothing.
    pub fn freeze(&self, namespace: &str, pod: &str) -> io::Result<()> {
        self.signal(namespace, pod, None, Signal::SIGSTOP)
    }

    /// Lets a frozen pod go on.
    pub fn thaw(&self, namespace: &str, pod: &str) -> io::Result<()> {
        self.signal(namespace, pod, None, Signal::SIGCONT)
    }

    /// Signals the process groups of a pod's running containers, or of one of them. Errors: none of them runs.
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

    /// Group id of the processes of each incarnation of a pod that is on this node, where they have one of their own.
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

    /// Sets or mends faults of a pod, of this and later incarnations, and makes the agent take notice. A crash fault also
    /// kills what runs; a hold or a rejection takes effect when the pod is next created.
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

    /// Log files of a pod's containers, those of pods that are gone from this node first.
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

/// Copies the logs of a pod, on whichever nodes it has been, to standard output.
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
