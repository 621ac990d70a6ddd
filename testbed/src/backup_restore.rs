//! A stand-in for etcd-backup-restore: the container beside a member that initialises its data,
//! tells by metrics how that went, and lists the snapshots of a backup store.
//!
//! It has no store and never touches the data. A test says what it reports, by [`BackupRestore`],
//! and reads from the same directory every request that it has received.

mod server;

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use tokio::time::interval;

use crate::Sandbox;

/// The pause between two looks for etcd's wish to be initialised.
const PAUSE: Duration = Duration::from_millis(200);

/// The way in which a stand-in initialises the data, as etcd-backup-restore v0.43 counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The data is valid.
    #[default]
    Valid,
    /// The data is invalid, and is restored from the backup.
    Restored,
    /// The data is invalid, and cannot be restored. etcd does not start.
    NotRestored,
    /// The data is invalid, and is removed together with the membership.
    GivenUp,
}

impl Outcome {
    const ALL: [(&'static str, Self); 4] = [
        ("valid", Self::Valid),
        ("restored", Self::Restored),
        ("not-restored", Self::NotRestored),
        ("given-up", Self::GivenUp),
    ];

    fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(_, outcome)| *outcome == self);
        named.map_or("valid", |(name, _)| name)
    }

    fn read(directory: &Path, pod: &str) -> Self {
        let text = fs::read_to_string(directory.join(format!("{pod}.outcome")));
        let text = text.unwrap_or_default();
        let known = Self::ALL.iter().find(|(name, _)| *name == text);
        known.map_or(Self::Valid, |(_, outcome)| *outcome)
    }
}

/// The stand-ins of a sandbox, as a test sees them.
#[derive(Clone, Debug)]
pub struct BackupRestore {
    directory: PathBuf,
}

impl BackupRestore {
    /// The stand-ins of this sandbox.
    pub fn new(sandbox: &Sandbox) -> Self {
        let directory = sandbox.directory().join("backup-restore");
        Self { directory }
    }

    pub(crate) fn into_directory(self) -> PathBuf {
        self.directory
    }

    /// Says how the next initialisations of this pod's data end.
    pub fn initialises(&self, pod: &str, outcome: Outcome) -> Result<()> {
        write(&self.directory, &format!("{pod}.outcome"), outcome.name())
    }

    /// Says what the leading one answers when it is asked for the latest snapshots.
    pub fn lists(&self, answer: &serde_json::Value) -> Result<()> {
        write(&self.directory, LATEST, &answer.to_string())
    }

    /// The requests that the stand-in of this pod's member has received, each as method and path.
    pub fn requests(&self, pod: &str) -> Result<Vec<String>> {
        let path = self.directory.join(format!("{pod}.requests"));
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

/// The file with the answer about the latest snapshots.
const LATEST: &str = "latest.json";

/// Writes a file as a whole: a stand-in reads it at any moment.
fn write(directory: &Path, name: &str, content: &str) -> Result<()> {
    fs::create_dir_all(directory)?;
    let new = directory.join(format!(".{name}"));
    fs::write(&new, content)?;
    fs::rename(&new, directory.join(name)).with_context(|| name.to_owned())
}

/// Stand for etcd-backup-restore beside a member. Flags are named like its own.
#[derive(Clone, Debug, Args)]
pub struct BackupRestoreCommand {
    /// The port to listen on.
    #[arg(long, default_value_t = 8080)]
    server_port: u16,
    /// The certificate to serve with; without it, in plaintext.
    #[arg(long, requires = "server_key")]
    server_cert: Option<PathBuf>,
    /// The private key for the certificate.
    #[arg(long)]
    server_key: Option<PathBuf>,
    /// The address to listen at.
    #[arg(long, env = "POD_IP")]
    address: IpAddr,
    /// The pod.
    #[arg(long, env = "POD_NAME")]
    pod: String,
    /// The file that lets etcd start, which etcd's container removes first.
    #[arg(long, env = "INITIALISED")]
    initialised: PathBuf,
    /// The directory of [`BackupRestore`].
    #[arg(long, env = "BACKUP_RESTORE")]
    directory: PathBuf,
}

impl BackupRestoreCommand {
    /// Serves and initialises without end.
    pub async fn run(self) -> Result<()> {
        let counts = Arc::new(Mutex::new(Counts::default()));
        let serve = server::serve(self.clone(), Arc::clone(&counts));
        let initialise = async {
            let mut ticks = interval(PAUSE);
            loop {
                ticks.tick().await;
                if self.initialised.exists() {
                    continue;
                }
                let outcome = Outcome::read(&self.directory, &self.pod);
                let counts = counts.lock();
                counts.unwrap_or_else(PoisonError::into_inner).add(outcome);
                if outcome != Outcome::NotRestored {
                    fs::write(&self.initialised, "")?;
                }
            }
        };
        tokio::select! {
            ended = serve => ended,
            ended = initialise => ended,
        }
    }
}

/// The counts since the start.
#[derive(Debug, Default)]
struct Counts {
    validated: u32,
    restored: u32,
    not_restored: u32,
    given_up: u32,
}

impl Counts {
    fn add(&mut self, outcome: Outcome) {
        // A validation that finds bad data has come to an end, and counts as succeeded.
        self.validated += 1;
        match outcome {
            Outcome::Valid => {}
            Outcome::Restored => self.restored += 1,
            Outcome::NotRestored => self.not_restored += 1,
            Outcome::GivenUp => self.given_up += 1,
        }
    }

    /// The page of metrics, in which one restoration takes one second.
    fn page(&self) -> String {
        let mut page = String::new();
        let mut histogram = |name: &str, labels: &str, count: u32| {
            let _ = writeln!(page, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
            let _ = writeln!(page, "{name}_sum{{{labels}}} {count}");
            let _ = writeln!(page, "{name}_count{{{labels}}} {count}");
        };
        let validation = "etcdbr_validation_duration_seconds";
        histogram(validation, r#"succeeded="false""#, 0);
        histogram(validation, r#"succeeded="true""#, self.validated);
        let restoration = "etcdbr_restoration_duration_seconds";
        for (labels, count) in [
            (r#"restore="single_member",succeeded="false""#, 0),
            (r#"restore="single_member",succeeded="true""#, self.given_up),
            (
                r#"restore="single_node",succeeded="false""#,
                self.not_restored,
            ),
            (r#"restore="single_node",succeeded="true""#, self.restored),
        ] {
            histogram(restoration, labels, count);
        }
        page
    }
}
