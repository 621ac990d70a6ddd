//! A process of the gate.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;

use super::clock::Clock;
use super::{PATIENCE, http, until_ready};
use crate::faults::{self, Cut};
use crate::process::{Background, Identity};

/// The time limit until a replica has ended after SIGTERM.
const GRACE: Duration = Duration::from_secs(30);

/// The start of a replica, each time in the same way and at the same addresses.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) kubeconfig: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    /// Whether it listens at every address of the machine instead of loopback only.
    pub(super) everywhere: bool,
}

/// A process of the gate.
#[derive(Debug)]
pub struct Replica {
    process: Background,
    launch: Launch,
    webhooks: SocketAddr,
    admin: SocketAddr,
    clock: Option<Clock>,
}

impl Replica {
    /// Starts the replica, without waiting until it is ready.
    pub(super) fn start(
        process: Background,
        launch: Launch,
        webhooks: SocketAddr,
        admin: SocketAddr,
        clock: Option<Clock>,
    ) -> Result<Self> {
        let replica = Self {
            process,
            launch,
            webhooks,
            admin,
            clock,
        };
        replica.spawn()?;
        Ok(replica)
    }

    /// The replica's name, which is also its identity in the Lease.
    pub fn name(&self) -> &str {
        self.process.name()
    }

    /// The address of its listener for the API server.
    pub fn address(&self) -> SocketAddr {
        self.webhooks
    }

    /// The URL without a path at which it answers admission requests.
    pub fn admission_url(&self) -> String {
        format!("https://{}", self.webhooks)
    }

    /// Whether the replica's process exists.
    pub fn is_running(&self) -> bool {
        self.process.running().is_some()
    }

    /// The identity of the process, while it runs.
    pub fn identity(&self) -> Option<Identity> {
        self.process.running()
    }

    /// Sends SIGKILL. Returns when the process is gone.
    pub async fn kill(&self) -> Result<()> {
        self.process.kill().await
    }

    /// Sends SIGTERM. Returns when the process has ended.
    pub async fn term(&self) -> Result<()> {
        self.process.stop(GRACE).await
    }

    /// Sends SIGSTOP. The kernel still accepts connections, and the replica does not answer.
    pub fn freeze(&self) -> Result<()> {
        self.process.freeze()
    }

    /// Undoes [`Replica::freeze`].
    pub fn thaw(&self) -> Result<()> {
        self.process.thaw()
    }

    /// Sets the offset of the replica's wall clock from the machine's, in seconds.
    ///
    /// # Errors
    ///
    /// Fails unless the gate was built with clocks of their own.
    pub fn set_clock(&self, seconds: i64) -> Result<()> {
        let clock = self.clock.as_ref();
        clock
            .with_context(|| format!("{} has no clock of its own", self.name()))?
            .set(seconds)
    }

    /// Sends SIGKILL, and keeps callers from noticing the end, as after a power loss of the node.
    /// The returned value has to be dropped before the replica is started again.
    pub async fn power_off(&self) -> Result<Cut> {
        let silenced = faults::silence(self.webhooks.port())?;
        self.process.kill().await?;
        Ok(silenced)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Kills the replica if it runs, starts it again at the same addresses, and waits until it is
    /// ready.
    pub async fn restart(&self) -> Result<()> {
        self.process.kill().await?;
        self.spawn()?;
        self.ready(PATIENCE).await
    }

    /// Ends the replica in order, and starts it again with this argument instead of arguments of
    /// the same name.
    pub(super) async fn restart_with(&mut self, argument: &str) -> Result<()> {
        let name = argument.split('=').next().unwrap_or_default();
        self.restart_without(&[name], &[argument]).await
    }

    /// Ends the replica in order, and starts it again without arguments of these names, and with
    /// others.
    pub(super) async fn restart_without(&mut self, without: &[&str], with: &[&str]) -> Result<()> {
        self.term().await?;
        let name = |argument: &str| argument.split('=').next().map(str::to_owned);
        let dropped = |known: &str| without.iter().any(|name_of| name(known) == name(name_of));
        let arguments = &mut self.launch.arguments;
        arguments.retain(|known| !dropped(known));
        arguments.extend(with.iter().map(|&argument| argument.to_owned()));
        self.spawn()?;
        self.ready(PATIENCE).await
    }

    /// Waits until `/readyz` answers 200.
    pub async fn ready(&self, within: Duration) -> Result<()> {
        until_ready(self, within).await
    }

    /// The URL of its metrics.
    pub fn metrics_url(&self) -> String {
        format!("http://{}/metrics", self.admin)
    }

    /// The answer of `/metrics`.
    pub async fn metrics(&self) -> Result<String> {
        let answer = http::get(self.admin, "/metrics").await?;
        ensure!(
            answer.code == 200,
            "/metrics of {} answers {}",
            self.name(),
            answer.code
        );
        Ok(answer.body)
    }

    /// The status code and the body of a path of its plain listener (`/livez`, `/readyz`).
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let answer = http::get(self.admin, path).await?;
        Ok((answer.code, answer.body))
    }

    /// The whole log so far.
    pub fn log(&self) -> Result<String> {
        let file = self.process.log_file();
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
    }

    pub(super) async fn is_ready(&self) -> Result<()> {
        ensure!(self.is_running(), "{} has ended", self.name());
        let answer = http::get(self.admin, "/readyz").await?;
        ensure!(
            answer.code == 200,
            "/readyz answers {}: {}",
            answer.code,
            answer.body
        );
        Ok(())
    }

    pub(super) fn last_words(&self) -> String {
        self.process.last_words()
    }

    pub(super) fn kill_now(&self) -> Result<()> {
        self.process.kill_now()
    }

    fn spawn(&self) -> Result<()> {
        let Launch {
            program,
            kubeconfig,
            arguments,
            environment,
            everywhere,
        } = &self.launch;
        let mut webhooks = self.webhooks;
        if *everywhere {
            webhooks.set_ip(Ipv4Addr::UNSPECIFIED.into());
        }
        let mut command = Command::new(program);
        command
            .arg("run")
            .arg(format!("--listen={webhooks}"))
            .arg(format!("--admin-listen={}", self.admin))
            .arg(format!("--identity={}", self.name()))
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            .env("RUST_BACKTRACE", "1")
            .envs(environment.iter().map(|(name, value)| (name, value)));
        if let Some(clock) = &self.clock {
            clock.give_to(&mut command);
        }
        self.process.spawn(command).map(drop)
    }
}
