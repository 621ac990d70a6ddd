//! The connection to the API server, as its user.

use anyhow::{Context as _, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use quorumgate::api::QuorumDisruptionBudget;

use crate::cli::Connection;

/// The API server, and the namespace that the user works in.
pub(crate) struct Kubernetes {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// Whether the user named that namespace.
    pub(crate) named: bool,
    /// The options by which `kubectl` finds the same cluster.
    pub(crate) kubectl: Vec<String>,
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(&self) -> Result<Kubernetes> {
        quorumgate::install_crypto_provider();
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = match &self.kubeconfig {
            Some(path) => {
                let read = Kubeconfig::read_from(path)?;
                Config::from_custom_kubeconfig(read, &options).await
            }
            None if self.context.is_none() => {
                // In a pod without a kubeconfig, its service account is the user.
                let config = Config::infer().await;
                return self.at(config.context(NO_CLUSTER)?);
            }
            None => Config::from_kubeconfig(&options).await,
        };
        self.at(config.context(NO_CLUSTER)?)
    }

    fn at(&self, mut config: Config) -> Result<Kubernetes> {
        // A refusal is an answer. The client would ask again for a minute.
        config.default_retry = false;
        let given = self.namespace.clone();
        let namespace = given.unwrap_or_else(|| config.default_namespace.clone());
        let mut kubectl = Vec::new();
        if let Some(path) = &self.kubeconfig {
            kubectl.push(format!("--kubeconfig={}", path.display()));
        }
        if let Some(context) = &self.context {
            kubectl.push(format!("--context={context}"));
        }
        Ok(Kubernetes {
            client: Client::try_from(config)?,
            namespace,
            named: self.namespace.is_some(),
            kubectl,
        })
    }
}

const NO_CLUSTER: &str =
    "no Kubernetes cluster: set KUBECONFIG, or give --kubeconfig and --context";

/// The user has no right to read something.
#[derive(Debug)]
pub(crate) struct MayNotRead(String);

impl std::fmt::Display for MayNotRead {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for MayNotRead {}

/// What a failed read of `what` means to the user.
pub(crate) fn failed(what: &str, error: kube::Error) -> anyhow::Error {
    let kube::Error::Api(status) = &error else {
        return anyhow::Error::new(error)
            .context(format!("the API server could not be asked for {what}"));
    };
    match status.code {
        // Where a kind does not exist, the answer names no object.
        404 if what == BUDGETS || status.details.as_ref().is_none_or(|d| d.name.is_empty()) => {
            anyhow!("this cluster knows no {what}: is quorumgate installed here?")
        }
        403 => anyhow::Error::new(MayNotRead(format!(
            "your user may not read {what}: {}",
            status.message.trim_end()
        ))),
        401 => anyhow!("the API server does not know your user: log in again"),
        _ => anyhow!("{what} could not be read: {}", status.message.trim_end()),
    }
}

/// What budgets are called in messages.
pub(crate) const BUDGETS: &str = "QuorumDisruptionBudgets";

/// The budget of a cluster.
pub(crate) async fn budget(of: &Kubernetes, name: &str) -> Result<QuorumDisruptionBudget> {
    let api = kube::Api::<QuorumDisruptionBudget>::namespaced(of.client.clone(), &of.namespace);
    match api.get_opt(name).await {
        Ok(Some(budget)) => Ok(budget),
        // Whether the kind is missing or the object, only a list tells.
        Ok(None) => {
            let all = api.list(&kube::api::ListParams::default()).await;
            let all = all.map_err(|error| failed(BUDGETS, error))?;
            let names: Vec<_> = all.iter().filter_map(|b| b.metadata.name.clone()).collect();
            let namespace = &of.namespace;
            Err(match names.as_slice() {
                [] => {
                    anyhow!("no cluster is guarded in the namespace {namespace}: see --namespace")
                }
                names => anyhow!(
                    "no cluster {name} is guarded in the namespace {namespace}; there are: {}",
                    names.join(", ")
                ),
            })
        }
        Err(error) => Err(failed(BUDGETS, error)),
    }
}
