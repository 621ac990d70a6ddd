//! A Kubernetes control plane as four background processes on loopback.
//!
//! Starting is idempotent: what runs and is well stays, what is missing, unwell or was started with other options is
//! (re)started. One lock per state keeps two callers from doing so at the same time.

mod api_server;
pub mod audit;
pub mod component;
mod controller_manager;
mod etcd;
mod kept;
mod layout;
mod objects;
mod ports;
mod scheduler;
mod volumes;

use std::fs::{self, File};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use nix::fcntl::{Flock, FlockArg};

pub use self::component::Component;
use self::layout::Layout;
pub use self::layout::authority;
pub use self::ports::Ports;
use crate::eventually::eventually;
use crate::kubeconfig;
use crate::paths::{Cache, State};
use crate::process;
use crate::versions::{self, Release};

/// How long a component may take until it is well: far more than it needs on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a component may take to end by itself.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// How long a component that runs may fail to answer before it is taken for hung.
const BENEFIT_OF_DOUBT: Duration = Duration::from_secs(10);

/// How the control plane differs from one with default settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// A node whose Lease is older than this is not Ready. Whole seconds.
    pub node_grace_period: Duration,
    /// How long pods stay on a node that is not Ready or unreachable, where they do not say so themselves. Whole seconds.
    pub not_ready_toleration: Duration,
    /// Feature gates of kube-controller-manager, as its flag has them (`Name=false`). None: those that it has by default.
    pub controller_gates: Option<&'static str>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            node_grace_period: Duration::from_secs(4),
            not_ready_toleration: Duration::from_secs(5),
            controller_gates: None,
        }
    }
}

/// One control plane, running or not.
#[derive(Clone, Debug)]
pub struct ControlPlane {
    /// Where binaries are kept.
    pub cache: Cache,
    /// Where it lives.
    pub state: State,
    /// Which Kubernetes.
    pub kubernetes: &'static Release,
    /// Which etcd behind it.
    pub etcd: &'static Release,
    /// How it reacts.
    pub tuning: Tuning,
}

impl ControlPlane {
    /// The shared control plane that the environment names (see [`State::from_env`], [`versions::default_kubernetes`]).
    pub fn from_env() -> Result<Self> {
        Self::with_kubernetes(versions::default_kubernetes()?)
    }

    /// The shared control plane of this Kubernetes release.
    pub fn with_kubernetes(kubernetes: &'static Release) -> Result<Self> {
        let cache = Cache::from_env()?;
        let state = State::from_env(&cache, kubernetes)?;
        let etcd = versions::default_etcd()?;
        Ok(Self {
            cache,
            state,
            kubernetes,
            etcd,
            tuning: Tuning::default(),
        })
    }

    /// Starts whatever does not run or is not well, and waits until all is well.
    ///
    /// # Errors
    /// When a binary cannot be built, or a component does not get well; with the end of its log.
    pub async fn up(&self) -> Result<()> {
        // Needs no lock, so that many tests may ask at once.
        if self.is_up().await {
            return Ok(());
        }
        let _lock = self.lock().await?;
        self.start_all().await
    }

    /// Stops everything that this state started, also what a crash left behind, and removes the state.
    ///
    /// The cache stays. Returns the names of what was still running.
    pub async fn down(&self) -> Result<Vec<String>> {
        let _lock = self.lock().await?;
        let mut stopped = Vec::new();
        for component in Component::ALL.into_iter().rev() {
            // Nodes and other processes go right after what would start new ones on them.
            if component == Component::ApiServer {
                stopped.extend(process::kill_all_below(&self.state.nodes()).await?);
                stopped.extend(process::kill_all_below(&self.state.sandboxes()).await?);
            }
            let process = component.process(&self.state);
            if process.running().is_some() {
                stopped.push(process.name().to_owned());
            }
            // Nothing of it is needed any more: no reason to let it finish.
            process.kill().await?;
        }
        volumes::remove_all(&self.state.etcd_data())?;
        match fs::remove_dir_all(self.state.root()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error)
                .with_context(|| format!("cannot remove {}", self.state.root().display()))?,
            _ => {}
        }
        Ok(stopped)
    }

    /// Stops one component and starts it again; returns when all is well.
    ///
    pub async fn restart(&self, component: Component) -> Result<()> {
        let _lock = self.lock().await?;
        component.process(&self.state).stop(STOP_GRACE).await?;
        self.start_all().await
    }

    /// Whether each component is well.
    pub async fn check(&self) -> Vec<(Component, Result<()>)> {
        let ports = self.ports();
        let check = async |component: Component| {
            let ports = ports.context("never started")?;
            component.check(&self.state, ports).await
        };
        futures::future::join_all(
            Component::ALL.map(async |component| (component, check(component).await)),
        )
        .await
    }

    /// Its ports, once it has been started.
    pub fn ports(&self) -> Option<Ports> {
        Ports::load(&layout::ports_file(&self.state))
    }

    /// The URL of its API, once it has been started.
    pub fn api_url(&self) -> Result<String> {
        self.ports()
            .map(layout::api_url)
            .context("the control plane is not up; run `testbed up`")
    }

    /// A client with the administrator's rights.
    pub async fn client(&self) -> Result<Client> {
        kubeconfig::client_from(&self.state.admin_kubeconfig()).await
    }

    /// Whether each component runs with the command that `up` would start it with, and is well.
    async fn is_up(&self) -> bool {
        let Some(layout) = Layout::find(&self.cache, &self.state, self.kubernetes, self.etcd)
        else {
            return false;
        };
        let as_wanted = Component::ALL.iter().all(|component| {
            component
                .process(&self.state)
                .runs(&component.command(&layout, &self.tuning))
        });
        as_wanted && self.check().await.iter().all(|(_, health)| health.is_ok())
    }

    async fn start_all(&self) -> Result<()> {
        let layout = self.layout().await?;
        self.start(&layout, Component::Etcd).await?;
        self.start(&layout, Component::ApiServer).await?;
        // Both need the API server only.
        tokio::try_join!(
            self.start(&layout, Component::ControllerManager),
            self.start(&layout, Component::Scheduler),
            async { objects::apply(&self.client().await?).await },
        )?;
        Ok(())
    }

    async fn start(&self, layout: &Layout, component: Component) -> Result<()> {
        let process = component.process(&self.state);
        let command = component.command(layout, &self.tuning);
        if process.runs(&command) && self.is_well(component, layout.ports).await {
            return Ok(());
        }
        process.stop(STOP_GRACE).await?;
        component.configure(layout)?;
        process.spawn(command)?;
        eventually(
            PATIENCE,
            format!("{} is well", component.name()),
            async || {
                let health = component.check(&self.state, layout.ports).await;
                match health {
                    Err(_) if process.running().is_none() => Ok(Err(anyhow::anyhow!("it ended"))),
                    Err(error) => Err(error),
                    Ok(()) => Ok(Ok(())),
                }
            },
        )
        .await
        .and_then(|outcome| outcome)
        .with_context(|| format!("{} did not start{}", component.name(), process.last_words()))
    }

    /// Gives a component that runs some time: on a busy machine it may just be slow, and a restart hurts everybody.
    async fn is_well(&self, component: Component, ports: Ports) -> bool {
        eventually(BENEFIT_OF_DOUBT, "it is well", async || {
            component.check(&self.state, ports).await
        })
        .await
        .is_ok()
    }

    async fn layout(&self) -> Result<Layout> {
        let this = self.clone();
        tokio::task::spawn_blocking(move || {
            Layout::prepare(&this.cache, &this.state, this.kubernetes, this.etcd)
        })
        .await?
    }

    /// Exclusive until dropped, over all processes.
    async fn lock(&self) -> Result<Flock<File>> {
        let path = self.state.lock_file();
        tokio::task::spawn_blocking(move || {
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
            let file = File::create(&path)?;
            Flock::lock(file, FlockArg::LockExclusive)
                .map_err(|(_, error)| error)
                .with_context(|| format!("cannot lock {}", path.display()))
        })
        .await?
    }
}
