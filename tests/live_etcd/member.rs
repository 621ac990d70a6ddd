//! An etcd process.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use quorumgate_testbed::eventually;
use quorumgate_testbed::process::Identity;
use tokio::process::Child;

use crate::addresses::{self, CLIENT_PORT, PEER_PORT};
use crate::cluster::SOON;

/// A member, which runs or not.
pub(crate) struct Member {
    pub(crate) name: String,
    /// The UID of its pod, as far as the gate is concerned. A new address brings a new UID.
    pub(crate) uid: String,
    /// The address for clients. A move changes it, as with pods.
    pub(crate) address: IpAddr,
    /// The address for peers. A move keeps it, as with a pod's DNS name.
    pub(crate) peer_address: IpAddr,
    directory: PathBuf,
    process: Option<Child>,
}

impl Member {
    pub(crate) fn new(directory: &Path, ordinal: usize) -> Result<Self> {
        Self::at(addresses::unused()?.into(), directory, ordinal)
    }

    pub(crate) fn at(address: IpAddr, directory: &Path, ordinal: usize) -> Result<Self> {
        let name = format!("etcd-{ordinal}");
        let directory = directory.join(&name);
        fs::create_dir_all(&directory)?;
        Ok(Self {
            uid: format!("{name}-at-{address}"),
            address,
            peer_address: address,
            directory,
            process: None,
            name,
        })
    }

    /// The name in its server certificate, which is in no DNS.
    pub(crate) fn server_name(&self) -> String {
        format!("{}.etcd.test.svc", self.name)
    }

    pub(crate) fn client_address(&self) -> String {
        SocketAddr::new(self.address, CLIENT_PORT).to_string()
    }

    pub(crate) fn peer_url(&self, scheme: &str) -> String {
        let address = SocketAddr::new(self.peer_address, PEER_PORT);
        format!("{scheme}://{address}")
    }

    pub(crate) fn move_to_a_new_address(&mut self) -> Result<()> {
        self.address = addresses::unused()?.into();
        self.uid = format!("{}-at-{}", self.name, self.address);
        Ok(())
    }

    /// Starts the process with these arguments and with those that concern only this member.
    pub(crate) fn start(
        &mut self,
        binary: &Path,
        scheme: &str,
        arguments: &[String],
    ) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let client_url = format!("{scheme}://{}", self.client_address());
        let mut command = Command::new(binary);
        command
            .arg(format!("--name={}", self.name))
            .arg(format!(
                "--data-dir={}",
                self.directory.join("data").display()
            ))
            .arg(format!("--listen-client-urls={client_url}"))
            .arg(format!("--advertise-client-urls={client_url}"))
            .arg(format!("--listen-peer-urls={}", self.peer_url(scheme)))
            .arg(format!(
                "--initial-advertise-peer-urls={}",
                self.peer_url(scheme)
            ))
            .args([
                "--logger=zap",
                "--log-level=warn",
                "--enable-grpc-gateway=false",
            ])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut command = tokio::process::Command::from(command);
        let child = command.kill_on_drop(true).spawn();
        self.process = Some(child.with_context(|| format!("cannot start {}", binary.display()))?);
        Ok(())
    }

    /// Sends SIGKILL, and returns when the process is gone.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().context("it does not run")?;
        process.kill().await?;
        Ok(())
    }

    /// Sends SIGSTOP, and returns when no thread runs any more. The process hangs; its connections
    /// and listeners stay.
    pub(crate) async fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        let tasks = format!("/proc/{}/task", self.pid()?);
        eventually(SOON, "all its threads are stopped", async || {
            for task in fs::read_dir(&tasks)? {
                let stat = fs::read_to_string(task?.path().join("stat"))?;
                // The process state follows the name, which is in parentheses.
                ensure!(stat.contains(") T "), "{stat}");
            }
            Ok(())
        })
        .await
    }

    /// Sends SIGCONT.
    pub(crate) fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// The end of the process's log.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(8).collect();
        let lines: Vec<_> = lines.into_iter().rev().collect();
        format!("{}:\n  {}", self.name, lines.join("\n  "))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Identity::read(self.pid()?)
            .context("it ended")?
            .signal(signal)
    }

    fn pid(&self) -> Result<u32> {
        let process = self.process.as_ref().context("it does not run")?;
        process.id().context("it ended")
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }
}
