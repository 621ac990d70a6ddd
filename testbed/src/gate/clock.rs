//! A wall clock that goes wrong, for one process.
//!
//! The process gets the time from libfaketime, which it is started with, and which reads from a file how far the clock is off. Time that
//! passes (the monotonic clock) stays what it is: no machine gets that wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// Where Debian has the library, per architecture.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// One clock.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    file: PathBuf,
    library: PathBuf,
}

impl Clock {
    /// A clock that is right.
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

    /// So many seconds ahead; seen within a second.
    pub(super) fn set(&self, seconds: i64) -> Result<()> {
        // Replaced as a whole, since it is read at any time.
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{seconds:+}\n"))?;
        fs::rename(&next, &self.file)
            .with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// The process that is started goes by it.
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
