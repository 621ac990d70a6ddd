//! A wall clock of one process that can be set.
//!
//! The process is started with libfaketime, which reads the offset of the clock from a file. The
//! monotonic clock is not changed: no machine gets that wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// The place of the library on Debian, per architecture.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// A clock.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    file: PathBuf,
    library: PathBuf,
}

impl Clock {
    /// A clock without an offset.
    pub(super) fn create(directory: &Path, name: &str) -> Result<Self> {
        let clock = Self {
            file: directory.join(format!("{name}.clock")),
            library: library().context(
                "clocks are set by libfaketime; install it with `apt-get install faketime`",
            )?,
        };
        fs::create_dir_all(directory)?;
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets the offset in seconds, which takes effect within a second.
    pub(super) fn set(&self, seconds: i64) -> Result<()> {
        // The file is replaced as a whole, since the process may read it at any time.
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{seconds:+}\n"))?;
        fs::rename(&next, &self.file)
            .with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// Makes the command use this clock.
    pub(super) fn give_to(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}

fn library() -> Option<PathBuf> {
    let entries = fs::read_dir(LIBRARIES).ok()?.flatten();
    let mut found = entries.map(|entry| entry.path().join(LIBRARY));
    found.find(|library| library.exists())
}
