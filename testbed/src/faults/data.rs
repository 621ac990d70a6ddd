//! Faults in a member's data.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
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
