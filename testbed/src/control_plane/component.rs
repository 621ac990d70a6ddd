//! The four processes of a control plane, their commands and their health checks.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::{Client, Config};

use super::kept::kept;
use super::layout::Layout;
use super::ports::Ports;
use super::{Tuning, api_server, controller_manager, etcd, scheduler};
use crate::kubeconfig;
use crate::paths::State;
use crate::process::Background;

/// A process of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
}

impl Component {
    /// All components, in the order in which they need one another.
    pub const ALL: [Self; 4] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
    ];

    /// The component's name, which is also that of its pid file and its log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }

    /// The component's process.
    pub fn process(self, state: &State) -> Background {
        Background::new(self.name(), &state.run(), &state.logs())
    }

    /// Writes the component's configuration files.
    pub(super) fn configure(self, layout: &Layout, tuning: &Tuning) -> Result<()> {
        match self {
            Self::ApiServer => api_server::configure(layout, tuning),
            Self::Scheduler => scheduler::configure(layout),
            Self::Etcd | Self::ControllerManager => Ok(()),
        }
    }

    /// The command that starts the component.
    pub(super) fn command(self, layout: &Layout, tuning: &Tuning) -> Command {
        match self {
            Self::Etcd => etcd::command(layout),
            Self::ApiServer => api_server::command(layout, tuning),
            Self::ControllerManager => kept(&controller_manager::command(layout, tuning)),
            Self::Scheduler => kept(&scheduler::command(layout)),
        }
    }

    /// The URL of the component's health check, and the name in its certificate.
    fn health_url(self, ports: Ports) -> (String, &'static str) {
        match self {
            Self::Etcd => (format!("http://127.0.0.1:{}", ports.etcd_client), "/health"),
            Self::ApiServer => (format!("https://127.0.0.1:{}", ports.api_server), "/readyz"),
            Self::ControllerManager => (
                format!("https://127.0.0.1:{}", ports.controller_manager),
                "/healthz",
            ),
            Self::Scheduler => (format!("https://127.0.0.1:{}", ports.scheduler), "/readyz"),
        }
    }

    /// Checks the component's health.
    ///
    /// # Errors
    ///
    /// Fails with the component's answer, or with the reason why there is none.
    pub async fn check(self, state: &State, ports: Ports) -> Result<()> {
        ensure!(
            self.process(state).running().is_some(),
            "{} does not run",
            self.name()
        );
        let (url, path) = self.health_url(ports);
        let ask = async {
            let request = http::Request::get(path).body(Vec::new())?;
            self.health_client(state, &url)
                .await?
                .request_text(request)
                .await
                .map_err(anyhow::Error::from)
        };
        tokio::time::timeout(Duration::from_secs(5), ask)
            .await
            .with_context(|| format!("{} did not answer in time", self.name()))?
            .with_context(|| format!("{} is not well", self.name()))
            .map(drop)
    }

    async fn health_client(self, state: &State, url: &str) -> Result<Client> {
        if self == Self::ApiServer {
            return kubeconfig::client_from(&state.admin_kubeconfig()).await;
        }
        kubeconfig::install_crypto();
        let mut config = Config::new(url.parse()?);
        config.root_cert_file = Some(state.pki().join("ca.crt"));
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }
}
