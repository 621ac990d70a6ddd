//! The namespace with the example's etcd cluster, and the installed gate.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams};
use kube::config::Kubeconfig;
use kube::{Client, ResourceExt as _};
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate_testbed::kubectl::{Invocation, Output};
use quorumgate_testbed::{eventually, kubeconfig};

/// The name of the example's StatefulSet, and the first part of its pods' names.
pub(crate) const SET: &str = "etcd";

/// The names of its pods.
pub(crate) const PODS: [&str; 3] = ["etcd-0", "etcd-1", "etcd-2"];

/// The time limit for anything that needs images, volumes or the settle time of a new budget.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The namespace in the example's manifests.
const EXAMPLE: &str = "etcd-example";

/// The label by which the example selects its members' pods.
pub(crate) const LABEL: &str = "app.kubernetes.io/name";

/// The label that the manifests give to all objects of the gate.
const OURS: &str = "app.kubernetes.io/name=quorumgate";

/// An etcd cluster of three members, guarded by the gate.
pub(crate) struct Cluster {
    client: Client,
    namespace: String,
    version: String,
    nodes: usize,
    /// The gate's feature gates, from the arguments of its Deployment.
    features: String,
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Kubernetes {} with {} nodes, the namespace {}, the gate's arguments {:?}",
            self.version, self.nodes, self.namespace, self.features
        )
    }
}

impl Cluster {
    /// Applies the example in a new namespace.
    ///
    /// # Errors
    ///
    /// Fails if the gate is not installed, or if the members do not come up.
    pub(crate) async fn start() -> Result<Self> {
        // The client does not repeat refused requests, as it would by default.
        let client = kubeconfig::client(Kubeconfig::read()?).await?;
        let hooks = Api::<ValidatingWebhookConfiguration>::all(client.clone());
        let hooks = hooks.get_opt("quorumgate").await?;
        hooks.context("quorumgate is not installed here: there is no ValidatingWebhookConfiguration quorumgate")?;
        let nodes = Api::<Node>::all(client.clone());
        let cluster = Self {
            version: client.apiserver_version().await?.git_version,
            nodes: nodes.list(&ListParams::default()).await?.items.len(),
            features: features(&client).await?,
            namespace: format!("quorumgate-try-{:05}", fastrand::u32(..100_000)),
            client,
        };
        ensure!(
            cluster.nodes >= 3,
            "the example needs three nodes, one for each member"
        );
        if let Err(error) = cluster.apply().await {
            let ended = cluster.end().await;
            return Err(match ended {
                Ok(()) => error,
                Err(left) => error.context(format!("the namespace is left behind: {left:#}")),
            });
        }
        Ok(cluster)
    }

    /// Deletes the namespace, and waits until it is gone, which the gate must not delay.
    pub(crate) async fn end(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces
            .delete(&self.namespace, &DeleteParams::default())
            .await?;
        eventually(PATIENCE, "the namespace is gone", || async {
            let left = namespaces.get_opt(&self.namespace).await?;
            ensure!(left.is_none(), "{:?}", left.map(|left| left.status));
            Ok(())
        })
        .await
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A selector for the pods of this cluster's members, unique among all namespaces.
    pub(crate) fn selector(&self) -> String {
        format!("{LABEL}={}", self.namespace)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn sets(&self) -> Api<StatefulSet> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Whether a feature of the gate is on.
    pub(crate) fn has(&self, feature: &str) -> bool {
        self.features.contains(&format!("{feature}=true"))
    }

    /// Runs `kubectl` in the cluster's namespace.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<Output> {
        let kubectl = Invocation::new("kubectl").args(["--namespace", &self.namespace]);
        kubectl.args(args).timeout(Duration::from_secs(180)).await
    }

    pub(crate) async fn pod(&self, name: &str) -> Result<Pod> {
        Ok(self.pods().get(name).await?)
    }

    /// The UID of the pod's present incarnation.
    pub(crate) async fn uid(&self, pod: &str) -> Result<String> {
        self.pod(pod).await?.uid().context("a pod without UID")
    }

    pub(crate) async fn budget(&self) -> Result<QuorumDisruptionBudget> {
        let budgets: Api<QuorumDisruptionBudget> =
            Api::namespaced(self.client.clone(), &self.namespace);
        Ok(budgets.get(SET).await?)
    }

    /// The members with an open grant.
    pub(crate) async fn granted(&self) -> Result<Vec<String>> {
        let status = self.budget().await?.status.unwrap_or_default();
        Ok(status
            .grants
            .into_iter()
            .map(|grant| grant.member)
            .collect())
    }

    /// Waits until every member serves in a Ready pod, no grant is open, and any one member may go.
    pub(crate) async fn whole(&self) -> Result<()> {
        eventually(
            PATIENCE,
            "all members serve, no grant is open, and any one may go",
            || async {
                let status = self.budget().await?.status.context("no status yet")?;
                ensure!(
                    status.ledger.trusted,
                    "the ledger waits: {:?}",
                    status.ledger
                );
                ensure!(
                    status.grants.is_empty(),
                    "grants are open: {:?}",
                    status.grants
                );
                ensure!(
                    status.current_healthy == Some(3) && status.expected_members == Some(3),
                    "{:?} of {:?} serve",
                    status.current_healthy,
                    status.expected_members
                );
                // After a move of leadership the leader has to stay for some seconds.
                let dry = DeleteParams::default().dry_run();
                for pod in PODS {
                    ensure!(is_ready(&self.pod(pod).await?), "{pod} is not Ready");
                    self.pods().delete(pod, &dry).await?;
                }
                Ok(())
            },
        )
        .await
    }

    /// Waits until the pod has another incarnation than this one.
    pub(crate) async fn replaced(&self, pod: &str, uid: &str) -> Result<()> {
        eventually(PATIENCE, format!("another {pod} is there"), || async {
            ensure!(self.uid(pod).await? != uid, "it is still there");
            Ok(())
        })
        .await
    }

    async fn apply(&self) -> Result<()> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/examples");
        let mut manifests = Vec::new();
        for file in ["namespace.yaml", "statefulset.yaml", "budget.yaml"] {
            manifests.push(std::fs::read_to_string(folder.join(file))?);
        }
        let text = manifests.join("\n---\n").replace(EXAMPLE, &self.namespace);
        // Drains select pods by their label in all namespaces, so no other pods may have the value.
        ensure!(
            text.contains(&format!("{LABEL}: etcd")),
            "the example's pods have no label {LABEL}"
        );
        let mut text = text.replace(
            &format!("{LABEL}: etcd"),
            &format!("{LABEL}: {}", self.namespace),
        );
        if let Ok(image) = std::env::var("ETCD_IMAGE") {
            text = replace_value(&text, "image: ", &image)?;
        }
        if let Ok(class) = std::env::var("STORAGE_CLASS") {
            let modes = "accessModes: [ReadWriteOnce]";
            ensure!(text.contains(modes), "the example has no claim");
            text = text.replace(
                modes,
                &format!("{modes}\n        storageClassName: {class}"),
            );
        }
        let kubectl =
            Invocation::new("kubectl").args(["apply", "--server-side", "--filename", "-"]);
        kubectl.stdin(text).await?.success()?;
        self.whole().await
    }
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let mut conditions = status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The feature gates in the arguments of the gate's Deployment, in whatever namespace that is.
async fn features(client: &Client) -> Result<String> {
    let deployments: Api<Deployment> = Api::all(client.clone());
    let found = deployments
        .list(&ListParams::default().labels(OURS))
        .await?;
    let spec = found
        .items
        .into_iter()
        .find_map(|deployment| deployment.spec);
    let containers = spec.and_then(|spec| spec.template.spec);
    let Some(containers) = containers.map(|spec| spec.containers) else {
        bail!("quorumgate is not installed here: no Deployment has the label {OURS}");
    };
    let arguments = containers
        .into_iter()
        .filter_map(|container| container.args)
        .flatten();
    let features = arguments.filter(|argument| argument.starts_with("--feature-gates"));
    Ok(features.collect::<Vec<_>>().join(" "))
}

/// Replaces the text after `key`, up to the end of the line.
fn replace_value(text: &str, key: &str, value: &str) -> Result<String> {
    let (before, rest) = text
        .split_once(key)
        .with_context(|| format!("the example has no {key}"))?;
    let (_, after) = rest.split_once('\n').unwrap_or((rest, ""));
    Ok(format!("{before}{key}{value}\n{after}"))
}
