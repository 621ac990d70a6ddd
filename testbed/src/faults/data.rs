//! Faults in a member's data.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::signal::Signal;

use super::PodFaults;

/// The number of bytes overwritten at the start of each file: both meta pages of the database, and
/// the first records of the log.
const DAMAGE: usize = 16 << 10;

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

/// Exchanges the data of two members, and kills both. The node starts each on the other's data, as
/// if their volumes had been confused. `volumes` are the directories of their volumes on this
/// machine.
///
/// # Errors
///
/// Fails if one of them does not run, and then changes nothing.
pub fn swap_data(members: [&PodFaults; 2], volumes: [&Path; 2]) -> Result<()> {
    let [one, other] = members;
    let processes = [one.running_etcd()?, other.running_etcd()?].concat();
    for process in &processes {
        process.signal(Signal::SIGSTOP)?;
    }
    let swapped = exchange(volumes);
    let signal = if swapped.is_ok() {
        Signal::SIGKILL
    } else {
        Signal::SIGCONT
    };
    for process in &processes {
        // A process that its node killed meanwhile needs nothing.
        let _ = process.signal(signal);
    }
    swapped
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
    let command_line = fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
    let argument = command_line
        .split('\0')
        .find_map(|word| word.strip_prefix("--data-dir="));
    let directory = argument.context("etcd runs without --data-dir")?;
    Ok(Path::new(&format!("/proc/{pid}/root")).join(directory.trim_start_matches('/')))
}

fn overwrite(file: &Path) -> Result<()> {
    ensure!(file.is_file(), "{} is no file", file.display());
    let opened = OpenOptions::new().write(true).open(file);
    let opened = opened.with_context(|| format!("cannot open {}", file.display()))?;
    opened.write_all_at(&[0xA5; DAMAGE], 0)?;
    Ok(())
}
