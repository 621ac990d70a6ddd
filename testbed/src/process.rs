//! Background processes that outlive the program that started them, and are found again by their
//! pid file.
//!
//! Another process may reuse a pid. So a pid file also has the start time of the process, and a
//! process with another start time is never signalled.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpgid};
use serde::{Deserialize, Serialize};

use crate::eventually::eventually;

/// The identity of a process, which differs from later processes with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pid: i32,
    /// The start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    started: u64,
}

impl Identity {
    /// The process that has this pid now. `None` if there is none, or only a zombie.
    pub fn read(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command's name is in parentheses, and may contain spaces and parentheses itself.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        if matches!(fields.next()?, "Z" | "X") {
            return None;
        }
        let started = fields.nth(18)?.parse().ok()?;
        Some(Self { pid, started })
    }

    /// The identity of this process.
    pub fn myself() -> Result<Self> {
        Self::read(std::process::id()).context("/proc does not show this process")
    }

    /// The pid.
    pub fn pid(self) -> i32 {
        self.pid
    }

    /// Whether this very process still runs.
    pub fn is_running(self) -> bool {
        u32::try_from(self.pid).ok().and_then(Self::read) == Some(self)
    }

    /// Sends a signal. A process that is gone already is no error.
    pub fn signal(self, signal: Signal) -> Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        match kill(Pid::from_raw(self.pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => {
                Err(error).with_context(|| format!("cannot send {signal} to pid {}", self.pid))
            }
        }
    }
}

impl Identity {
    /// Sends SIGKILL to the process and to its process group, if it leads one.
    fn kill_group(self) -> Result<()> {
        let pid = Pid::from_raw(self.pid);
        if self.is_running() && getpgid(Some(pid)) == Ok(pid) {
            match killpg(pid, Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("cannot kill the group of pid {pid}"));
                }
            }
        }
        self.signal(Signal::SIGKILL)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid, self.started)
    }
}

impl FromStr for Identity {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (pid, started) = text.trim().split_once(' ').context("not `PID STARTTIME`")?;
        Ok(Self {
            pid: pid.parse()?,
            started: started.parse()?,
        })
    }
}

/// A named background process with a pid file and a log file.
#[derive(Clone, Debug)]
pub struct Background {
    name: String,
    pid_file: PathBuf,
    log_file: PathBuf,
}

impl Background {
    /// The process `name`, with the pid file `<run>/<name>.pid` and the log `<logs>/<name>.log`.
    pub fn new(name: impl Into<String>, run: &Path, logs: &Path) -> Self {
        let name = name.into();
        Self {
            pid_file: run.join(format!("{name}.pid")),
            log_file: logs.join(format!("{name}.log")),
            name,
        }
    }

    /// The process's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The log, with standard output and standard error.
    pub fn log_file(&self) -> &Path {
        &self.log_file
    }

    /// The identity of the process, if it runs.
    pub fn running(&self) -> Option<Identity> {
        running_in(&self.pid_file)
    }

    /// Whether the process runs with exactly this command.
    pub fn runs(&self, command: &Command) -> bool {
        self.running().is_some()
            && fs::read_to_string(self.command_file())
                .is_ok_and(|line| line == command_line(command))
    }

    /// Starts `command` in a new process group, detached from the terminal. Its output is appended
    /// to the log.
    ///
    /// # Errors
    ///
    /// Fails if the process runs already, or cannot be started.
    pub fn spawn(&self, mut command: Command) -> Result<Identity> {
        if let Some(identity) = self.running() {
            bail!("{} runs already, with pid {}", self.name, identity.pid());
        }
        for file in [&self.pid_file, &self.log_file] {
            if let Some(directory) = file.parent() {
                fs::create_dir_all(directory)
                    .with_context(|| format!("cannot create {}", directory.display()))?;
            }
        }
        let log = self.open_log()?;
        let line = command_line(&command);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        let child = command.spawn().with_context(|| {
            format!(
                "cannot start {} ({})",
                self.name,
                command.get_program().to_string_lossy()
            )
        })?;
        let identity = Identity::read(child.id())
            .with_context(|| format!("{} ended at once{}", self.name, self.last_words()))?;
        fs::write(self.command_file(), line)?;
        fs::write(&self.pid_file, identity.to_string())
            .with_context(|| format!("cannot write {}", self.pid_file.display()))?;
        Ok(identity)
    }

    /// Sends SIGTERM, and SIGKILL after `grace`. Returns when the process is gone, at once if it
    /// was gone before.
    pub async fn stop(&self, grace: Duration) -> Result<()> {
        let Some(identity) = self.running() else {
            return self.forget();
        };
        identity.signal(Signal::SIGTERM)?;
        // A frozen process does not handle SIGTERM.
        identity.signal(Signal::SIGCONT)?;
        if gone(identity, grace).await.is_err() {
            self.kill().await?;
        }
        self.forget()
    }

    /// Sends SIGKILL to the process and its group. Returns when the process is gone.
    pub async fn kill(&self) -> Result<()> {
        let Some(identity) = self.running() else {
            return self.forget();
        };
        identity.kill_group()?;
        gone(identity, Duration::from_secs(10))
            .await
            .with_context(|| format!("{} (pid {}) survived SIGKILL", self.name, identity.pid()))?;
        self.forget()
    }

    /// Sends SIGKILL to the process and its group without waiting, for code that cannot wait.
    pub fn kill_now(&self) -> Result<()> {
        match self.running() {
            Some(identity) => identity.kill_group(),
            None => Ok(()),
        }
    }

    /// Sends SIGSTOP: the process hangs, and its connections stay open.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Sends SIGCONT, which undoes [`freeze`](Self::freeze).
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// Fails if the process does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.running()
            .with_context(|| format!("{} does not run", self.name))?
            .signal(signal)
    }

    /// The end of the log for an error message: empty, or a headline and the last lines.
    pub fn last_words(&self) -> String {
        const LINES: usize = 12;
        let text = fs::read(&self.log_file).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        if lines.is_empty() {
            return String::new();
        }
        let end = lines
            .get(lines.len().saturating_sub(LINES)..)
            .unwrap_or_default();
        format!(
            "; the end of {}:\n  {}",
            self.log_file.display(),
            end.join("\n  ")
        )
    }

    fn open_log(&self) -> Result<File> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log_file)
            .with_context(|| format!("cannot write {}", self.log_file.display()))
    }

    fn command_file(&self) -> PathBuf {
        self.pid_file.with_extension("cmd")
    }

    fn forget(&self) -> Result<()> {
        match fs::remove_file(&self.pid_file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.pid_file.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Sends SIGKILL to every process with a pid file below `directory`, and to the process group that
/// it leads. Returns the relative paths of their pid files when all are gone.
///
/// Agents (`kubelet.pid`) are killed before the processes that they would start again.
pub async fn kill_all_below(directory: &Path) -> Result<Vec<String>> {
    let mut killed = Vec::new();
    loop {
        let before = killed.len();
        let mut files = Vec::new();
        pid_files(directory, &mut files)?;
        files.sort_by_key(|file| {
            (
                file.file_name() != Some("kubelet.pid".as_ref()),
                file.clone(),
            )
        });
        for file in files {
            let Some(identity) = running_in(&file) else {
                continue;
            };
            identity.kill_group()?;
            gone(identity, Duration::from_secs(10))
                .await
                .with_context(|| {
                    format!(
                        "pid {} ({}) survived SIGKILL",
                        identity.pid(),
                        file.display()
                    )
                })?;
            let name = file
                .strip_prefix(directory)
                .unwrap_or(&file)
                .with_extension("");
            killed.push(name.display().to_string());
        }
        // An agent may have started a process after the last scan and before its own end.
        if killed.len() == before {
            return Ok(killed);
        }
    }
}

fn running_in(pid_file: &Path) -> Option<Identity> {
    let identity: Identity = fs::read_to_string(pid_file).ok()?.parse().ok()?;
    identity.is_running().then_some(identity)
}

fn pid_files(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot list {}", directory.display()));
        }
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            pid_files(&entry.path(), found)?;
        } else if entry.path().extension() == Some("pid".as_ref()) {
            found.push(entry.path());
        }
    }
    Ok(())
}

async fn gone(identity: Identity, within: Duration) -> Result<()> {
    eventually(within, "the process is gone", async || {
        !identity.is_running()
    })
    .await?;
    // If the process is a child of this one, this call reaps it. Otherwise it fails, which does no
    // harm.
    let _ = waitpid(Pid::from_raw(identity.pid), Some(WaitPidFlag::WNOHANG));
    Ok(())
}

fn command_line(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn a_background_process_is_found_again_by_its_pid_file_and_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let started = Background::new("sleeper", dir.path(), dir.path());
        let identity = started.spawn(shell("exec sleep 60")).unwrap();
        let found = Background::new("sleeper", dir.path(), dir.path());
        assert_eq!(found.running(), Some(identity));
        found.stop(Duration::from_secs(5)).await.unwrap();
        assert!(!identity.is_running());
        assert_eq!(started.running(), None);
    }

    #[tokio::test]
    async fn a_process_that_ignores_sigterm_is_killed_after_its_grace() {
        let dir = tempfile::tempdir().unwrap();
        let stubborn = Background::new("stubborn", dir.path(), dir.path());
        let identity = stubborn
            .spawn(shell(
                "trap '' TERM; echo deaf; while :; do sleep 0.05; done",
            ))
            .unwrap();
        eventually(Duration::from_secs(5), "the trap is set", async || {
            stubborn.last_words().contains("deaf")
        })
        .await
        .unwrap();
        stubborn.stop(Duration::from_millis(200)).await.unwrap();
        assert!(!identity.is_running());
    }

    #[tokio::test]
    async fn a_frozen_process_can_be_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let frozen = Background::new("frozen", dir.path(), dir.path());
        let identity = frozen.spawn(shell("exec sleep 60")).unwrap();
        frozen.freeze().unwrap();
        frozen.stop(Duration::from_secs(5)).await.unwrap();
        assert!(!identity.is_running());
    }

    #[tokio::test]
    async fn whatever_has_a_pid_file_below_a_directory_is_killed_with_its_process_group() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("some/where");
        let parent = Background::new("parent", &deep, &deep);
        let identity = parent.spawn(shell("sleep 60 & echo $!; wait")).unwrap();
        let child = eventually(
            Duration::from_secs(5),
            "the child's pid is told",
            async || {
                fs::read_to_string(parent.log_file())
                    .ok()?
                    .trim()
                    .parse()
                    .ok()
                    .and_then(Identity::read)
            },
        )
        .await
        .unwrap();
        let killed = kill_all_below(dir.path()).await.unwrap();
        assert_eq!(killed, ["some/where/parent"]);
        assert!(!identity.is_running());
        gone(child, Duration::from_secs(5)).await.unwrap();
    }

    #[test]
    fn a_reused_pid_is_not_taken_for_the_process() {
        let myself = Identity::myself().unwrap();
        let earlier = Identity {
            started: myself.started - 1,
            ..myself
        };
        assert!(myself.is_running());
        assert!(!earlier.is_running());
        earlier.signal(Signal::SIGKILL).unwrap();
    }

    #[test]
    fn a_process_that_runs_is_not_started_twice() {
        let dir = tempfile::tempdir().unwrap();
        let once = Background::new("once", dir.path(), dir.path());
        once.spawn(shell("exec sleep 60")).unwrap();
        assert!(once.spawn(shell("exec sleep 60")).is_err());
        assert!(once.runs(&shell("exec sleep 60")));
        assert!(!once.runs(&shell("exec sleep 61")));
        once.kill_now().unwrap();
    }
}
