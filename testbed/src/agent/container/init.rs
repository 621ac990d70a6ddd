//! `testbed container-init DIR`, which builds the container's file system, starts its command,
//! waits for it, and records its end.
//!
//! The code runs before any async runtime, because only a process with a single thread can enter a
//! user namespace.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::Context;
use jiff::Timestamp;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, setgid, setgroups};

use super::{Exit, Run, Spec, read, root, write};
use crate::agent::layout::ContainerDir;
use crate::agent::process::signal_group;
use crate::process::Identity;

/// Runs the container that is described in `dir` to its end.
pub fn run(dir: &Path) -> anyhow::Result<()> {
    let dir = ContainerDir::at(dir.to_owned());
    let spec: Spec = read(&dir.spec())?.context("no container spec")?;
    // The directory may be out of reach after the change of the root, so a handle is kept.
    let held = File::open(dir.path()).context("container directory")?;
    let held_dir = ContainerDir::at(PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())));
    let log = File::options()
        .create(true)
        .append(true)
        .open(dir.log())
        .context("log")?;

    let started = isolate(&dir, &spec).and_then(|()| spawn(&spec, &log));
    let exit = match started {
        Ok((child, started_at)) => supervise(&held_dir, &spec, child, started_at)?,
        Err(error) => Exit {
            id: spec.id.clone(),
            exit_code: 128,
            started_at: None,
            finished_at: Timestamp::now(),
            start_error: Some(format!("{error:#}")),
        },
    };
    write(&held_dir.exit(), &exit).context("recording the exit")
}

/// Sets namespaces, mounts, host name and group.
fn isolate(dir: &ContainerDir, spec: &Spec) -> anyhow::Result<()> {
    if !Uid::effective().is_root() {
        become_root_in_user_namespace()?;
    }
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS).context("unshare")?;
    root::enter(&dir.path().join("root"), &spec.mounts).context("root file system")?;
    nix::unistd::sethostname(&spec.hostname).context("host name")?;
    if let Some(gid) = spec.gid {
        setgroups(&[]).context("setgroups")?;
        setgid(Gid::from_raw(gid)).context("setgid")?;
    }
    Ok(())
}

/// Enters a user namespace as its root, as `unshare --map-root-user` does.
fn become_root_in_user_namespace() -> anyhow::Result<()> {
    let (uid, gid) = (Uid::effective(), Gid::effective());
    unshare(CloneFlags::CLONE_NEWUSER).context("unshare of the user namespace")?;
    std::fs::write("/proc/self/setgroups", "deny").context("setgroups")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1")).context("uid map")?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1")).context("gid map")
}

fn spawn(spec: &Spec, log: &File) -> anyhow::Result<(Child, Timestamp)> {
    let (program, arguments) = spec.argv.split_first().context("no command")?;
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(&spec.env)
        .current_dir(&spec.working_dir)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        .spawn()
        .with_context(|| format!("exec {program:?} in {}", spec.working_dir.display()))?;
    Ok((child, Timestamp::now()))
}

fn supervise(
    dir: &ContainerDir,
    spec: &Spec,
    mut child: Child,
    started_at: Timestamp,
) -> anyhow::Result<Exit> {
    let run = Run {
        id: spec.id.clone(),
        attempt: spec.attempt,
        image: spec.image.clone(),
        resources: spec.resources.clone(),
        init: Identity::myself()?,
        process: child_identity(child.id())?,
        started_at,
    };
    write(&dir.run(), &run).context("recording the run")?;
    std::fs::write(dir.init_pid(), run.init.to_string())?;
    std::fs::write(dir.process_pid(), run.process.to_string())?;
    announce()?;
    let status = child.wait()?;
    // Other processes in the command's group end with the command, as in a container.
    signal_group(run.process, Signal::SIGKILL)?;
    Ok(Exit {
        id: run.id,
        exit_code: exit_code(status),
        started_at: Some(started_at),
        finished_at: Timestamp::now(),
        start_error: None,
    })
}

/// The identity of a child that may have ended already. `Identity::read` would reap the child and
/// lose its exit code.
fn child_identity(pid: u32) -> anyhow::Result<Identity> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("unreadable /proc stat")?;
    let started = fields.split(' ').nth(19).context("unreadable /proc stat")?;
    format!("{pid} {started}").parse()
}

/// Notifies the agent that the command runs. An agent that is gone does not matter.
fn announce() -> io::Result<()> {
    match io::stdout()
        .write_all(b"started\n")
        .and_then(|()| io::stdout().flush())
    {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
