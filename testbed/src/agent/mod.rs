//! The node agent, which stands for a kubelet and runs the pods of one Node object as plain
//! processes.
//!
//! `node` and `lease` keep the Node. `pods` watches the pods that are bound to it. Each pod has a
//! `worker`, which asks the pure modules `order`, `backoff` and `status` what to do, and does it.
//! `container` says what a container is, `layout` has the paths, and `control` makes faults.
//!
//! Left out: network namespaces (each pod has an address of its own instead), images (they stand
//! for binaries of the host), cluster IPs of Services (their names have the addresses of pods),
//! users and capabilities, gRPC probes, readiness gates, `kubectl logs` and `exec`.

mod address;
mod backoff;
pub mod container;
pub mod control;
mod dns;
mod endpoints;
mod env;
mod expand;
pub mod faults;
mod fields;
mod hosts;
mod image;
mod launcher;
pub mod layout;
mod lease;
mod node;
mod objects;
mod order;
mod pods;
mod probe;
mod process;
mod rejection;
mod retry;
mod sandbox;
mod slot;
mod status;
mod status_writer;
mod termination;
mod volumes;
mod worker;

pub(crate) use worker::{FIRST_FAMILY, IPV6};

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use kube::Client;
use nix::fcntl::{Flock, FlockArg};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use self::backoff::Limits;
use self::endpoints::Endpoints;
use self::image::Images;
use self::layout::NodeDir;
use self::objects::Objects;
use crate::kubeconfig;
use crate::paths::{Cache, State};

/// Run the agent of one node.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the Node.
    #[arg(long)]
    node: String,
    /// State directory of the control plane that the node belongs to.
    #[arg(long)]
    state: PathBuf,
    /// How to reach the API server as `system:node:NAME`; default: the state's kubeconfig for that
    /// user.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Label of the Node, as KEY=VALUE; may be repeated.
    #[arg(long = "label", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// Directory of binaries that stands for an image, as NAME=DIR; may be repeated.
    #[arg(long = "image", value_parser = pair)]
    images: Vec<(String, String)>,
    /// Back-off of restarts in seconds, as BASE..MAX; the kubelet's is 10..300.
    #[arg(long, default_value = "1..300")]
    restart_backoff: Limits,
    /// Time between renewals of the node's Lease, in milliseconds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..))]
    lease_renewal: u64,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// The state that all parts of one agent share.
pub struct Agent {
    /// The Node's name.
    node: String,
    /// The node's address.
    host_ip: Ipv4Addr,
    /// The node's directory.
    dir: NodeDir,
    /// A client for the API server, as the node.
    client: Client,
    /// The address of the API server, for pods that ask for it.
    api_server: (String, u16),
    images: Images,
    limits: Limits,
    objects: Objects,
    endpoints: Arc<Endpoints>,
    /// The path of this program.
    program: PathBuf,
    /// A signal that faults may have changed.
    recheck: watch::Sender<()>,
}

/// Runs an agent until it is told to end. Its containers go on.
pub fn run(args: Args) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let dir = NodeDir::new(&args.state, &args.node);
    fs::create_dir_all(dir.pods())?;
    let lock = File::create(dir.lock())?;
    let Ok(_lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else {
        bail!("node {} has an agent already", args.node);
    };
    let labels: BTreeMap<_, _> = args.labels.iter().cloned().collect();
    let renewal = Duration::from_millis(args.lease_renewal);
    let agent = Arc::new(agent(args, dir).await?);

    let owner = node::register(&agent, &labels).await;
    let (mut term, mut int) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    tokio::select! {
        () = lease::renew(&agent, owner, renewal) => {}
        () = node::keep_ready(&agent) => {}
        () = pods::follow(agent.clone()) => {}
        () = names(&agent) => {}
        result = hangups(&agent) => result?,
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

async fn agent(args: Args, dir: NodeDir) -> anyhow::Result<Agent> {
    let state = State::at(&args.state);
    let path = args
        .kubeconfig
        .unwrap_or_else(|| state.node_kubeconfig(&args.node));
    let client = kubeconfig::client_from(&path).await?;
    let config = kube::Config::from_custom_kubeconfig(
        kube::config::Kubeconfig::read_from(&path)?,
        &kube::config::KubeConfigOptions::default(),
    )
    .await?;
    let host = config
        .cluster_url
        .host()
        .context("the API server has no host")?
        .to_owned();
    let port = config.cluster_url.port_u16().unwrap_or(443);
    let more = args
        .images
        .into_iter()
        .map(|(name, dir)| (name, PathBuf::from(dir)))
        .collect();
    Ok(Agent {
        host_ip: sandbox::node_ip(&dir)?,
        node: args.node,
        dir,
        api_server: (host, port),
        images: Images::new(Cache::from_env()?.root(), more),
        limits: args.restart_backoff,
        objects: Objects::new(client.clone()),
        endpoints: Arc::new(Endpoints::new(client.clone())),
        client,
        program: container::launch::own_program()?,
        recheck: watch::Sender::new(()),
    })
}

/// Serves cluster DNS. If the port cannot be bound, `/etc/hosts` has to do.
async fn names(agent: &Agent) {
    if let Err(error) = dns::serve(agent.host_ip, agent.endpoints.clone()).await {
        tracing::warn!(%error, "no DNS on {}:53", agent.host_ip);
    }
    std::future::pending::<()>().await;
}

/// Makes every worker check its faults on `SIGHUP`.
async fn hangups(agent: &Agent) -> std::io::Result<()> {
    let mut hangups = signal(SignalKind::hangup())?;
    loop {
        hangups.recv().await;
        agent.recheck.send_replace(());
    }
}
