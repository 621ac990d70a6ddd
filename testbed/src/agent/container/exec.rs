//! `testbed container-exec DIR -- COMMAND`, which runs a command inside a running container, for
//! probes and hooks.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, setgid, setgroups};

use super::{Run, Spec, read};
use crate::agent::layout::ContainerDir;
use crate::agent::process::signal_group;
use crate::process::Identity;

/// Replaces this process by `command` inside the container that is recorded in `dir`. Returns only
/// on failure.
pub fn run(dir: &Path, command: &[String]) -> anyhow::Result<()> {
    let dir = ContainerDir::at(dir.to_owned());
    let spec: Spec = read(&dir.spec())?.context("no container spec")?;
    let run: Run = read(&dir.run())?.context("the container was never started")?;
    if !run.process.is_running() {
        bail!("the container does not run");
    }
    let namespace = |kind: &str| {
        File::open(format!("/proc/{}/ns/{kind}", run.process.pid()))
            .with_context(|| format!("{kind} namespace"))
    };
    let (mounts, names) = (namespace("mnt")?, namespace("uts")?);
    if !Uid::effective().is_root() {
        setns(namespace("user")?, CloneFlags::CLONE_NEWUSER).context("joining user namespace")?;
    }
    setns(names, CloneFlags::CLONE_NEWUTS).context("joining the host name")?;
    setns(mounts, CloneFlags::CLONE_NEWNS).context("joining the mounts")?;
    if let Some(gid) = spec.gid {
        setgroups(&[])?;
        setgid(Gid::from_raw(gid))?;
    }
    let (program, arguments) = command.split_first().context("no command")?;
    let error = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(&spec.env)
        .current_dir(&spec.working_dir)
        .exec();
    Err(error).with_context(|| format!("exec {program:?}"))
}

/// Runs `command` in the container, from the agent. Fails if the command cannot be run, ends with
/// another code than 0, or takes longer than `limit`, after which its process group is killed.
pub async fn exec(
    program: &Path,
    dir: &ContainerDir,
    command: &[String],
    limit: Duration,
) -> anyhow::Result<()> {
    let child = tokio::process::Command::new(program)
        .arg("container-exec")
        .arg(dir.path())
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let group = child.id().and_then(Identity::read);
    match tokio::time::timeout(limit, child.wait_with_output()).await {
        Ok(output) => {
            let output = output?;
            if output.status.success() {
                return Ok(());
            }
            let said = [output.stdout, output.stderr].concat();
            bail!(
                "{}: {}",
                output.status,
                String::from_utf8_lossy(&said).trim()
            );
        }
        Err(_elapsed) => {
            if let Some(group) = group {
                signal_group(group, Signal::SIGKILL)?;
            }
            bail!(
                "command {command:?} timed out after {} s",
                limit.as_secs_f64()
            );
        }
    }
}
