//! The command line of `testbed`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use crate::agent;
use crate::backup_restore::BackupRestoreCommand;
use crate::builder::{self, print};
use crate::control_plane::ControlPlane;
use crate::kubeconfig;
use crate::member::MemberCommand;
use crate::paths::Cache;
use crate::status;
use crate::versions::{self, Release, Software};
use crate::write_command::WriteCommand;

/// A local Kubernetes without containers: a real control plane, and nodes that run pods as
/// processes.
///
/// State is kept in `$QUORUMGATE_TESTBED`, by default below the cache; binaries in
/// `$QUORUMGATE_CACHE`, by default `~/.cache/quorumgate`.
#[derive(Debug, Parser)]
#[command(name = "testbed", version, disable_help_subcommand = true)]
pub struct Cli {
    /// The Kubernetes version, such as 1.37 or 1.37.1; each has a control plane of its own.
    #[arg(long, global = true, env = "QUORUMGATE_KUBERNETES", default_value = "1.37", value_parser = kubernetes)]
    kubernetes: &'static Release,
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Build the binaries that are missing into the cache (minutes once, then milliseconds).
    Build {
        /// An etcd version to build, such as 3.6; repeat for several. Default: every version that
        /// can be built.
        #[arg(long, value_parser = etcd)]
        etcd: Vec<&'static Release>,
    },
    /// Start the control plane, or what is missing of it.
    Up,
    /// Stop everything and remove the state; the cache stays.
    Down,
    /// Show processes, versions, nodes and pods.
    Status,
    /// Look at the members of an etcd cluster by way of etcdctl.
    #[command(subcommand)]
    Member(MemberCommand),
    Write(WriteCommand),
    /// Print what a pod's containers have written, also those of incarnations that are gone.
    Logs {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        pod: String,
    },
    #[command(hide = true)]
    BackupRestore(BackupRestoreCommand),
    #[command(hide = true)]
    Agent(Box<agent::Args>),
    /// Run one container to its end; started by the agent.
    #[command(hide = true)]
    ContainerInit {
        /// The container's directory.
        directory: PathBuf,
    },
    /// Run a command in a container; started by the agent.
    #[command(hide = true)]
    ContainerExec {
        /// The container's directory.
        directory: PathBuf,
        /// The command.
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Run kubectl as the administrator.
    #[command(disable_help_flag = true)]
    Kubectl {
        /// Arguments for kubectl.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

fn kubernetes(version: &str) -> Result<&'static Release> {
    versions::find(Software::Kubernetes, version)
}

fn etcd(version: &str) -> Result<&'static Release> {
    versions::find(Software::Etcd, version)
}

impl Cli {
    /// Runs the subcommand.
    ///
    /// The node agent's commands come first, because a container has to be set up by a process
    /// without threads.
    pub fn run(self) -> Result<ExitCode> {
        let done = match self.command {
            Subcommands::ContainerInit { directory } => agent::container::init::run(&directory),
            Subcommands::ContainerExec { directory, command } => {
                agent::container::exec::run(&directory, &command)
            }
            Subcommands::Agent(args) => agent::run(*args),
            command => {
                kubeconfig::install_crypto();
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .enable_all()
                    .build()?;
                return runtime.block_on(command.run(self.kubernetes));
            }
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

impl Subcommands {
    async fn run(self, kubernetes: &'static Release) -> Result<ExitCode> {
        match self {
            Self::ContainerInit { .. } | Self::ContainerExec { .. } | Self::Agent(_) => {
                anyhow::bail!("not a command that runs asynchronously")
            }
            Self::BackupRestore(command) => command.run().await.map(|()| ExitCode::SUCCESS),
            Self::Build { etcd } => build(kubernetes, &etcd),
            Self::Up => up(&ControlPlane::with_kubernetes(kubernetes)?).await,
            Self::Down => down(&ControlPlane::with_kubernetes(kubernetes)?).await,
            Self::Status => status::print(&ControlPlane::with_kubernetes(kubernetes)?).await,
            Self::Member(command) => {
                let plane = ControlPlane::with_kubernetes(kubernetes)?;
                command.run(plane.client().await?, &plane.cache).await
            }
            Self::Write(command) => {
                let plane = ControlPlane::with_kubernetes(kubernetes)?;
                command.run(plane.client().await?).await
            }
            Self::Logs { namespace, pod } => {
                let plane = ControlPlane::with_kubernetes(kubernetes)?;
                agent::control::print_logs(&plane.state, &namespace, &pod)
            }
            Self::Kubectl { args } => kubectl(&ControlPlane::with_kubernetes(kubernetes)?, &args),
        }
    }
}

fn build(kubernetes: &Release, etcd: &[&'static Release]) -> Result<ExitCode> {
    let cache = Cache::from_env()?;
    let can_be_built =
        |release: &&Release| matches!(release.origin, versions::Origin::GoModule { .. });
    let etcd = match etcd {
        [] => versions::of(Software::Etcd).filter(can_be_built).collect(),
        chosen => chosen.to_vec(),
    };
    for release in std::iter::once(kubernetes).chain(etcd) {
        let directory = builder::ensure_built(&cache, release)?;
        print(&format!(
            "{} {} is in {}",
            release.software.name(),
            release.version,
            directory.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

async fn up(plane: &ControlPlane) -> Result<ExitCode> {
    let started = Instant::now();
    plane.up().await?;
    print(&format!(
        "Kubernetes {} is up ({:.1?})",
        plane.kubernetes.version,
        started.elapsed()
    ));
    print("try `testbed status`, `testbed kubectl get nodes`, or");
    print(&format!(
        "  export KUBECONFIG={}",
        plane.state.admin_kubeconfig().display()
    ));
    Ok(ExitCode::SUCCESS)
}

async fn down(plane: &ControlPlane) -> Result<ExitCode> {
    let stopped = plane.down().await?;
    match stopped.as_slice() {
        [] => print("nothing was running"),
        names => print(&format!("stopped {}", names.join(", "))),
    }
    Ok(ExitCode::SUCCESS)
}

fn kubectl(plane: &ControlPlane, args: &[OsString]) -> Result<ExitCode> {
    plane.api_url()?;
    let kubectl = plane.cache.binaries(plane.kubernetes).join("kubectl");
    // kubectl replaces this process, so that terminal, signals and exit code are kubectl's own.
    let error = Command::new(&kubectl)
        .env("KUBECONFIG", plane.state.admin_kubeconfig())
        .args(args)
        .exec();
    Err(error).with_context(|| format!("cannot run {}", kubectl.display()))
}
