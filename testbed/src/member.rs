//! `testbed member`: etcdctl for people, with the addresses and certificates of a cluster of the
//! test bed.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use crate::etcd_cluster::EtcdCluster;
use crate::paths::Cache;
use crate::versions;

/// Which cluster is meant.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    /// The namespace it lives in.
    pub namespace: String,
    /// The name of its StatefulSet.
    pub cluster: String,
}

/// The operations on the members of a cluster.
#[derive(Clone, Debug, Subcommand)]
pub enum MemberCommand {
    /// List the members as etcd knows them.
    List(ClusterArgs),
    /// Ask every member what it is: leader, term, applied index, sizes, alarms.
    Status(ClusterArgs),
    /// Try a write through every member.
    Health(ClusterArgs),
    /// List the alarms that stand.
    Alarms(ClusterArgs),
    /// Run etcdctl with any arguments.
    Etcdctl {
        /// Which cluster.
        #[command(flatten)]
        cluster: ClusterArgs,
        /// Arguments for etcdctl, such as `get --prefix ""`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

impl MemberCommand {
    /// Runs etcdctl on this terminal. Returns its exit code.
    pub async fn run(self, client: kube::Client, cache: &Cache) -> Result<ExitCode> {
        let (cluster, arguments) = match self {
            Self::List(cluster) => (cluster, words(&["member", "list", "-w", "table"])),
            Self::Status(cluster) => (cluster, words(&["endpoint", "status", "-w", "table"])),
            Self::Health(cluster) => (cluster, words(&["endpoint", "health", "-w", "table"])),
            Self::Alarms(cluster) => (cluster, words(&["alarm", "list"])),
            Self::Etcdctl { cluster, arguments } => (cluster, arguments),
        };
        let cluster = EtcdCluster::find(client, &cluster.namespace, &cluster.cluster).await?;
        let directory = tempfile::tempdir()?;
        let mut etcdctl = etcdctl(&cluster, cache, directory.path()).await?;
        let status = tokio::task::spawn_blocking(move || etcdctl.args(arguments).status())
            .await?
            .context("cannot run etcdctl; `testbed build` makes it")?;
        Ok(status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1)
            .into())
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The command for the etcdctl of the newest etcd, which works with all versions.
async fn etcdctl(
    cluster: &EtcdCluster,
    cache: &Cache,
    directory: &std::path::Path,
) -> Result<Command> {
    let endpoints: Vec<_> = cluster.endpoints().await?.into_values().collect();
    let mut command = Command::new(cache.binaries(versions::default_etcd()?).join("etcdctl"));
    command.env("ETCDCTL_ENDPOINTS", endpoints.join(","));
    let Some(secret) = cluster.root_secret() else {
        return Ok(command);
    };
    let secrets = Api::<Secret>::namespaced(cluster.client().clone(), cluster.namespace());
    let data = secrets.get(secret.as_str()).await?.data.unwrap_or_default();
    for (key, variable) in [
        ("ca.crt", "ETCDCTL_CACERT"),
        ("tls.crt", "ETCDCTL_CERT"),
        ("tls.key", "ETCDCTL_KEY"),
    ] {
        let file = directory.join(key);
        let content = data
            .get(key)
            .with_context(|| format!("Secret {secret} has no {key}"))?;
        std::fs::write(&file, &content.0)?;
        command.env(variable, file);
    }
    // Only pods can resolve the names in members' certificates, and etcdctl has no option for the
    // expected name.
    command.env("ETCDCTL_INSECURE_SKIP_TLS_VERIFY", "true");
    Ok(command)
}
