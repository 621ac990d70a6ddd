//! A Kubernetes control plane as four background processes on loopback.
//!
//! A start is idempotent: components that run and are healthy stay. Components that are missing,
//! unhealthy, or were started with other options are (re)started. A lock per state keeps two
//! callers from doing so concurrently.

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

/// How much garbage a component may keep, in percent of the memory that it uses. Their heaps are
/// small, and with Go's 100 a tenth of the processor time of all tests goes into collecting them.
const GARBAGE: &str = "400";

/// The time limit until a component is healthy. It is far more than an idle machine needs.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time limit until a component has ended after SIGTERM.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// The time for which a running component may fail its health check before it counts as hung.
const BENEFIT_OF_DOUBT: Duration = Duration::from_secs(10);

/// The settings that differ between control planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The age of its Lease at which a node counts as not Ready. Whole seconds.
    pub node_grace_period: Duration,
    /// The time for which pods stay on a node that is not Ready or unreachable, unless they set it
    /// themselves. Whole seconds.
    pub not_ready_toleration: Duration,
    /// The feature gates of kube-controller-manager, in the form of its flag (`Name=false`). `None`
    /// stands for its defaults.
    pub controller_gates: Option<&'static str>,
    /// The port on loopback of the OTLP collector that gets a trace of every request to the API
    /// server. `None`: the API server does not trace.
    pub collector: Option<u16>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            node_grace_period: Duration::from_secs(4),
            not_ready_toleration: Duration::from_secs(5),
            controller_gates: None,
            collector: None,
        }
    }
}

/// A control plane, running or not.
#[derive(Clone, Debug)]
pub struct ControlPlane {
    /// The cache of binaries.
    pub cache: Cache,
    /// The state directory.
    pub state: State,
    /// The Kubernetes release.
    pub kubernetes: &'static Release,
    /// The release of its etcd.
    pub etcd: &'static Release,
    /// The settings.
    pub tuning: Tuning,
}

impl ControlPlane {
    /// The shared control plane that the environment names (see [`State::from_env`],
    /// [`versions::default_kubernetes`]).
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

    /// Starts all components that do not run or are not healthy, and waits until all are healthy.
    ///
    /// # Errors
    ///
    /// Fails if a binary cannot be built, or if a component does not get healthy. The error has the
    /// end of its log.
    pub async fn up(&self) -> Result<()> {
        // The check needs no lock, so that many tests may ask at once.
        if self.is_up().await {
            return Ok(());
        }
        let _lock = self.lock().await?;
        self.start_all().await
    }

    /// Stops all processes of this state, also those that a crash left behind, and removes the
    /// state.
    ///
    /// The cache stays. Returns the names of the processes that were still running.
    pub async fn down(&self) -> Result<Vec<String>> {
        let _lock = self.lock().await?;
        let mut stopped = Vec::new();
        for component in Component::ALL.into_iter().rev() {
            // Processes of nodes and sandboxes are killed after the scheduler and the controllers,
            // which would give them new pods.
            if component == Component::ApiServer {
                stopped.extend(process::kill_all_below(&self.state.nodes()).await?);
                stopped.extend(process::kill_all_below(&self.state.sandboxes()).await?);
            }
            let process = component.process(&self.state);
            if process.running().is_some() {
                stopped.push(process.name().to_owned());
            }
            // The whole state is deleted, so the process need not end in order.
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

    /// Stops one component and starts it again. Returns when all components are healthy.
    pub async fn restart(&self, component: Component) -> Result<()> {
        let _lock = self.lock().await?;
        component.process(&self.state).stop(STOP_GRACE).await?;
        self.start_all().await
    }

    /// Whether each component is healthy.
    pub async fn check(&self) -> Vec<(Component, Result<()>)> {
        let ports = self.ports();
        let check = async |component: Component| {
            let ports = ports.context("does not run")?;
            component.check(&self.state, ports).await
        };
        futures::future::join_all(
            Component::ALL.map(async |component| (component, check(component).await)),
        )
        .await
    }

    /// The ports. `None` before the first start.
    pub fn ports(&self) -> Option<Ports> {
        Ports::load(&layout::ports_file(&self.state))
    }

    /// The URL of the API. Fails before the first start.
    pub fn api_url(&self) -> Result<String> {
        self.ports()
            .map(layout::api_url)
            .context("the control plane is not up; run `testbed up`")
    }

    /// A client with the administrator's rights.
    pub async fn client(&self) -> Result<Client> {
        kubeconfig::client_from(&self.state.admin_kubeconfig()).await
    }

    /// Whether each component runs with the command of `up` and is healthy.
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
        // Both components need only the API server.
        tokio::try_join!(
            self.start(&layout, Component::ControllerManager),
            self.start(&layout, Component::Scheduler),
            async { objects::apply(&self.client().await?).await },
        )?;
        Ok(())
    }

    async fn start(&self, layout: &Layout, component: Component) -> Result<()> {
        let process = component.process(&self.state);
        let mut command = component.command(layout, &self.tuning);
        command.env("GOGC", GARBAGE);
        if process.runs(&command) && self.is_well(component, layout.ports).await {
            return Ok(());
        }
        process.stop(STOP_GRACE).await?;
        component.configure(layout, &self.tuning)?;
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

    /// Gives a running component some time: on a busy machine it may just be slow, and a restart
    /// would disturb all tests.
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

    /// The lock of the state, which is exclusive over all processes until it is dropped.
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
