//! Faults in a member's data.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_client::Client;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::signal::Signal;

use super::PodFaults;
use crate::eventually;
use crate::free_ports::free_ports;
use crate::process::Identity;

/// The number of bytes overwritten at the start of each file: both meta pages of the database, and
/// the first records of the log.
const DAMAGE: usize = 16 << 10;
/// The time limit until a new cluster of one member serves, on a busy machine.
const STARTED: Duration = Duration::from_secs(60);

impl PodFaults {
    /// Destroys the member's database and write-ahead log and kills it, so that it cannot start any
    /// more.
    pub fn corrupt_data(&self) -> Result<()> {
        let processes = self.running_etcd()?;
        for process in &processes {
            process.signal(Signal::SIGSTOP)?;
            let data = data_directory(process.pid())?;
            overwrite(&data.join("member/snap/db"))?;
            let wal = data.join("member/wal");
            for entry in fs::read_dir(&wal).with_context(|| format!("no {}", wal.display()))? {
                overwrite(&entry?.path())?;
            }
            process.signal(Signal::SIGKILL)?;
        }
        Ok(())
    }
}

/// The fate of a member whose data was altered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Altered {
    /// The member is killed, and the node starts it again.
    Restarts,
    /// The member goes on, within less time than an election takes.
    GoesOn,
}

impl PodFaults {
    /// Stops the member, and puts other bytes in the place of `bytes` in its database, wherever
    /// they are. Pages have no checksums, so etcd serves a value that was altered.
    ///
    /// # Errors
    ///
    /// Fails if the database does not have them, such as before the next commit.
    pub fn alter_data(&self, bytes: &[u8], others: &[u8], then: Altered) -> Result<()> {
        ensure!(bytes.len() == others.len(), "the pages have no more room");
        for process in self.running_etcd()? {
            process.signal(Signal::SIGSTOP)?;
            let altered = data_directory(process.pid())
                .and_then(|data| replace(&data.join("member/snap/db"), bytes, others));
            let signal = match (&altered, then) {
                (Ok(()), Altered::Restarts) => Signal::SIGKILL,
                (Ok(()), Altered::GoesOn) | (Err(_), _) => Signal::SIGCONT,
            };
            process.signal(signal)?;
            altered?;
        }
        Ok(())
    }
}

impl PodFaults {
    /// Makes the data of a new cluster, which knows this member alone, in an empty directory. Its
    /// layout is that of the member's volume.
    pub async fn data_of_another_cluster(&self, volume: &Path) -> Result<()> {
        let process = *self.running_etcd()?.first().context("no etcd runs")?;
        let name = argument(process.pid(), "--name=")?;
        let url = argument(process.pid(), "--initial-advertise-peer-urls=")?;
        let data = argument(process.pid(), "--data-dir=")?;
        let data = Path::new(&data).file_name().context("no directory")?;
        let [clients, peers] = free_ports()?;
        let mut etcd = tokio::process::Command::new(format!("/proc/{}/exe", process.pid()));
        etcd.arg(format!("--name={name}"))
            .arg(format!("--data-dir={}", volume.join(data).display()))
            .arg(format!("--listen-client-urls=http://{clients}"))
            .arg(format!("--advertise-client-urls=http://{clients}"))
            .arg(format!("--listen-peer-urls=http://{peers}"))
            .arg(format!("--initial-advertise-peer-urls={url}"))
            .arg(format!("--initial-cluster={name}={url}"))
            .arg("--initial-cluster-token=another")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut etcd = etcd.kill_on_drop(true).spawn()?;
        eventually(STARTED, "another cluster serves", || async {
            let mut client = Client::connect([clients.to_string()], None).await?;
            client.put("whose", "another cluster's", None).await?;
            anyhow::Ok(())
        })
        .await?;
        Ok(etcd.kill().await?)
    }
}

/// Copies the data directories of members, all at one moment, into directories of their pods'
/// names.
///
/// # Errors
///
/// Fails if one of the members does not run.
pub fn copy_data(members: &[(&str, &PodFaults)], to: &Path) -> Result<()> {
    stopped(members, Signal::SIGCONT, |pod, data| {
        run(Command::new("cp").arg("-a").arg(data).arg(to.join(pod)))
    })
}

/// Empties the data directories of members, or fills them with an earlier copy, and kills all. The
/// nodes start them on what is there.
///
/// # Errors
///
/// Fails if one of the members does not run.
pub fn lose_data(members: &[(&str, &PodFaults)], copies: Option<&Path>) -> Result<()> {
    stopped(members, Signal::SIGKILL, |pod, data| {
        fs::remove_dir_all(data)?;
        match copies {
            Some(copies) => run(Command::new("cp").arg("-a").arg(copies.join(pod)).arg(data)),
            None => Ok(()),
        }
    })
}

/// Does something to the data directories of members while all are stopped, and then sends each a
/// signal.
fn stopped(
    members: &[(&str, &PodFaults)],
    afterwards: Signal,
    change: impl Fn(&str, &Path) -> Result<()>,
) -> Result<()> {
    let mut running = Vec::new();
    for (pod, member) in members {
        let process = *member.running_etcd()?.first().context("no etcd runs")?;
        running.push((*pod, process));
    }
    let processes: Vec<Identity> = running.iter().map(|(_, process)| *process).collect();
    while_stopped(&processes, afterwards, || {
        running
            .iter()
            .try_for_each(|(pod, process)| change(pod, &data_directory(process.pid())?))
    })
}

/// Does something while all these processes are stopped, and then sends each a signal. They go on
/// if it fails.
fn while_stopped(
    processes: &[Identity],
    afterwards: Signal,
    change: impl FnOnce() -> Result<()>,
) -> Result<()> {
    for process in processes {
        process.signal(Signal::SIGSTOP)?;
    }
    let changed = change();
    let signal = if changed.is_ok() {
        afterwards
    } else {
        Signal::SIGCONT
    };
    for process in processes {
        // A process that its node killed meanwhile needs nothing.
        let _ = process.signal(signal);
    }
    changed
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Exchanges what is in two volumes, and kills the members on them. The node starts each on the
/// other's data, as if the volumes had been confused. `volumes` are directories on this machine.
///
/// # Errors
///
/// Fails if one of the members does not run, and then changes nothing.
pub fn swap_data(members: &[&PodFaults], volumes: [&Path; 2]) -> Result<()> {
    let processes: Result<Vec<_>> = members.iter().map(|one| one.running_etcd()).collect();
    let processes = processes?.concat();
    while_stopped(&processes, Signal::SIGKILL, || exchange(volumes))
}

/// Exchanges what is in two directories, each entry at once. The directories stay, since pods have
/// them mounted.
fn exchange([one, other]: [&Path; 2]) -> Result<()> {
    let entries = fs::read_dir(one).with_context(|| format!("no {}", one.display()))?;
    for entry in entries {
        let name = entry?.file_name();
        let pair = [one.join(&name), other.join(&name)];
        renameat2(
            AT_FDCWD,
            &pair[0],
            AT_FDCWD,
            &pair[1],
            RenameFlags::RENAME_EXCHANGE,
        )
        .with_context(|| format!("cannot exchange {} and its like", pair[0].display()))?;
    }
    Ok(())
}

/// Replaces bytes of a file in place.
fn replace(file: &Path, bytes: &[u8], others: &[u8]) -> Result<()> {
    let content = fs::read(file)?;
    let opened = OpenOptions::new().write(true).open(file)?;
    let windows = content.windows(bytes.len()).enumerate();
    let mut places = windows.filter(|(_, window)| *window == bytes).peekable();
    ensure!(places.peek().is_some(), "{} lacks them", file.display());
    for (place, _) in places {
        opened.write_all_at(others, u64::try_from(place)?)?;
    }
    Ok(())
}

/// The data directory of an etcd process, through its own mount namespace.
pub(super) fn data_directory(pid: i32) -> Result<PathBuf> {
    let directory = argument(pid, "--data-dir=")?;
    Ok(Path::new(&format!("/proc/{pid}/root")).join(directory.trim_start_matches('/')))
}

/// The rest of the process's argument that begins so.
fn argument(pid: i32, flag: &str) -> Result<String> {
    let command_line = fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
    let mut words = command_line.split('\0');
    let argument = words.find_map(|word| word.strip_prefix(flag));
    Ok(argument
        .with_context(|| format!("etcd runs without {flag}"))?
        .to_owned())
}

fn overwrite(file: &Path) -> Result<()> {
    ensure!(file.is_file(), "{} is no file", file.display());
    let opened = OpenOptions::new().write(true).open(file);
    let opened = opened.with_context(|| format!("cannot open {}", file.display()))?;
    opened.write_all_at(&[0xA5; DAMAGE], 0)?;
    Ok(())
}
