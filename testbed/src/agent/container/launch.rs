//! The start of an attempt by the agent, and the wait for its end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::{Exit, Run, Spec, read, write};
use crate::agent::layout::ContainerDir;
use crate::agent::process::{self, signal_group};

/// Starts `spec`. Returns the run, or the reason why it could not be started.
pub async fn launch(
    program: &Path,
    dir: &ContainerDir,
    spec: &Spec,
) -> anyhow::Result<Result<Run, Exit>> {
    fs::create_dir_all(dir.path()).context("container directory")?;
    keep_last(dir)?;
    write(&dir.spec(), spec).context("container spec")?;
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.log())?;
    let mut child = Command::new(program)
        .arg("container-init")
        .arg(dir.path())
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::from(log))
        .process_group(0)
        .spawn()
        .context("cannot start container-init")?;
    // container-init prints one line once the command runs, and closes the pipe in any case.
    let said = child.stdout.take().context("no pipe from container-init")?;
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line).await?;
    tokio::spawn(async move { child.wait().await });
    if !line.is_empty() {
        let run: Run = read(&dir.run())?.context("container-init recorded no run")?;
        return Ok(Ok(run));
    }
    let exit = read::<Exit>(&dir.exit())?.filter(|exit| exit.id == spec.id);
    Ok(Err(exit.unwrap_or_else(|| Exit {
        id: spec.id.clone(),
        exit_code: 128,
        started_at: None,
        finished_at: Timestamp::now(),
        start_error: Some("container-init ended without a word".to_owned()),
    })))
}

/// Waits for the end of a run, which an earlier agent may have started. Returns how it ended.
pub async fn ended(dir: &ContainerDir, run: &Run) -> io::Result<Exit> {
    process::ended(run.init).await?;
    if let Some(exit) = read::<Exit>(&dir.exit())?.filter(|exit| exit.id == run.id) {
        return Ok(exit);
    }
    // container-init itself was killed. No process waits for the command any more, so the command
    // has to end.
    signal_group(run.process, Signal::SIGKILL)?;
    tokio::time::timeout(Duration::from_secs(5), process::ended(run.process))
        .await
        .ok();
    let exit = Exit {
        id: run.id.clone(),
        exit_code: 137,
        started_at: Some(run.started_at),
        finished_at: Timestamp::now(),
        start_error: None,
    };
    write(&dir.exit(), &exit)?;
    Ok(exit)
}

/// The end of the previous attempt becomes the status' `lastState`.
fn keep_last(dir: &ContainerDir) -> io::Result<()> {
    match fs::rename(dir.exit(), dir.last()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// The program with the subcommands `container-init` and `container-exec`, which is this one.
///
/// After a rebuild the running binary is unlinked. `/proc/self/exe` still opens it, but a child
/// would not find it under that name. So the path is resolved if it exists.
pub fn own_program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    if path.exists() {
        return Ok(path);
    }
    Ok(PathBuf::from(format!("/proc/{}/exe", std::process::id())))
}
