//! A release from its installation to its end, on a control plane of its own: the gate runs in
//! pods, and the hooks of helm run as pods do.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use quorumgate_testbed::control_plane::Tuning;
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::kubectl::Invocation;
use quorumgate_testbed::{Bed, Sandbox, eventually};
use serde_json::json;

use super::{chart, helm};
use crate::world::{SOON, on_a_plane_of_its_own};

/// The release, its namespace, and the name of its objects.
const RELEASE: &str = "guard";
const HOME: &str = "guard-home";
const NAME: &str = "guard-quorumgate";
/// The definition that the release leaves behind, with what it defines.
const KEPT: &str = "quorumdisruptionbudgets.quorumgate.io";
const MEMORY: &str = "quorumgate.io/previous-update-strategy";
const GATED: &str = "quorumgate.io/gated";
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
const ASKED: &str = "quorumgate.io/asked";

#[tokio::test(flavor = "multi_thread")]
async fn a_release_comes_changes_and_goes_without_a_trace() -> Result<()> {
    on_a_plane_of_its_own("chart", Tuning::default(), life).await
}

async fn life(bed: Bed) -> Result<()> {
    let mut sandbox = bed.sandbox("db").await?;
    let program = Path::new(env!("CARGO_BIN_EXE_quorumgate"));
    sandbox.map_image("quorumgate", program.parent().context("no directory")?);
    sandbox.add_nodes(3).await?;
    let etcd = EtcdCluster::builder("etcd").apply(&sandbox).await?;
    etcd.quorate(SOON).await?;
    let release = Release::prepare(&bed, sandbox).await?;
    let before = release.surroundings().await?;
    let objects_before = release.objects().await?;

    release.install().await?;
    release.is_at_work().await?;
    release.is_well().await?;
    release.is_alone().await?;
    let installed = release.manifest().await?;
    let arguments = release.arguments().await?;

    release
        .change(&[
            "--set=networkPolicy.enabled=true",
            "--set=networkPolicy.apiServers={10.0.0.0/8}",
            "--set=extraArgs={--settle-time=9s}",
        ])
        .await?;
    ensure!(release.manifest().await? != installed, "nothing changed");
    ensure!(
        release.arguments().await? != arguments,
        "no argument changed"
    );
    release.is_well().await?;
    release.run(&["rollback", RELEASE, "1", "--wait"]).await?;
    ensure!(
        release.manifest().await? == installed,
        "it was not rolled back"
    );
    ensure!(
        release.arguments().await? == arguments,
        "the arguments were not"
    );
    release.is_well().await?;
    release.is_at_work().await?;

    // Nothing proxies cluster IPs here, so the API server cannot ask the gate: members are stuck
    // unless the webhooks go first.
    let pods = release.sandbox.api::<Pod>();
    let only_ask = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    let asked = pods.delete("etcd-0", &only_ask).await;
    ensure!(asked.is_err(), "nobody was asked about a member");
    release.a_held_pod_keeps_it(program).await?;
    release.an_unfinished_rollout_keeps_it(program).await?;
    release.other_names_keep_it(program).await?;
    // As the gate's webhook marks every new pod. API servers cannot ask it here.
    let marked = json!({"metadata": {"annotations": {SAFE_TO_EVICT: "false", ASKED: "true"}}});
    let params = PatchParams::default();
    pods.patch("etcd-1", &params, &Patch::Merge(&marked))
        .await?;
    release.run(&["uninstall", RELEASE, "--wait"]).await?;
    let after = release.surroundings().await?;
    ensure!(after == before, "before: {before:?}\nafter: {after:?}");
    let namespace = release.sandbox.namespace();
    let kept = [
        format!("CustomResourceDefinition/{KEPT}"),
        // The API server's own record of the group that the definition makes.
        "APIService/v1alpha1.quorumgate.io".to_owned(),
        format!("QuorumDisruptionBudget/{namespace}/etcd"),
    ];
    let expected: BTreeSet<String> = objects_before.into_iter().chain(kept).collect();
    eventually(SOON, "only what crds.keep says is left", || async {
        let now = release.objects().await?;
        let more: Vec<_> = now.difference(&expected).collect();
        let less: Vec<_> = expected.difference(&now).collect();
        ensure!(
            more.is_empty() && less.is_empty(),
            "more {more:?}, less {less:?}"
        );
        Ok(())
    })
    .await?;
    pods.delete("etcd-0", &DeleteParams::default()).await?;
    // As an administrator runs it, and a second time: there is nothing left to do.
    let said = by_hand(program, &bed, "20s").await?.success()?;
    ensure!(said.lines().count() == 11, "{said}");
    release.sandbox.close().await
}

/// The removal as an administrator runs it.
fn by_hand(program: &Path, bed: &Bed, timeout: &str) -> Invocation {
    Invocation::new(program)
        .kubeconfig(&bed.admin_kubeconfig())
        .args(["uninstall".to_owned(), format!("--timeout={timeout}")])
        .args([
            format!("--webhook-configuration={NAME}"),
            format!("--lease-namespace={HOME}"),
            format!("--lease-name={NAME}"),
            format!("--deployment={NAME}"),
        ])
}

/// The fields of others that the gate changes.
#[derive(Debug, PartialEq, Eq)]
struct Surroundings {
    strategy: serde_json::Value,
    annotations: Vec<String>,
    labels_of_the_namespace: Vec<String>,
    annotations_of_the_pods: Vec<String>,
}

struct Release {
    bed: Bed,
    sandbox: Sandbox,
}

impl Release {
    /// Makes the namespace.
    async fn prepare(bed: &Bed, sandbox: Sandbox) -> Result<Self> {
        let namespaces: Api<Namespace> = Api::all(bed.client());
        let namespace = serde_json::from_value(json!({"metadata": {"name": HOME}}))?;
        namespaces
            .create(&PostParams::default(), &namespace)
            .await?;
        let release = Self {
            bed: bed.clone(),
            sandbox,
        };
        // Every namespace gets these a moment after it was made.
        eventually(SOON, "the namespace is furnished", || async {
            let objects = release.objects().await?;
            for furnished in ["ServiceAccount", "ConfigMap"] {
                let of_it = format!("{furnished}/{HOME}/");
                let is_there = objects.iter().any(|object| object.starts_with(&of_it));
                ensure!(is_there, "no {furnished}");
            }
            Ok(())
        })
        .await?;
        Ok(release)
    }

    /// Runs a command that changes something and waits for it.
    async fn run(&self, args: &[&str]) -> Result<String> {
        let mut args = args.to_vec();
        args.push("--timeout=150s");
        self.helm(&args).await?.success()
    }

    async fn helm(&self, args: &[&str]) -> Result<quorumgate_testbed::kubectl::Output> {
        helm(&self.bed, args)
            .args(["--namespace", HOME])
            .timeout(Duration::from_secs(160))
            .await
    }

    async fn install(&self) -> Result<()> {
        let args = [
            "install",
            RELEASE,
            &chart(),
            "--wait",
            // One replica: all nodes share the ports of this machine only by their addresses.
            "--set=replicas=1",
            "--set=listenAddress=$(QUORUMGATE_POD_IP)",
            // Nothing proxies a cluster IP here: the name of the Service leads to the pods.
            "--set=service.selector=true",
            "--set=service.port=8443",
            "--set=featureGates.QuorumAwareUpdatesWithOnDelete=true",
            "--set=defaultEnforcement=Enforce",
        ];
        self.run(&args).await.map(drop)
    }

    async fn change(&self, values: &[&str]) -> Result<()> {
        let chart = chart();
        let mut args = vec![
            "upgrade",
            RELEASE,
            &chart,
            "--wait",
            "--reset-then-reuse-values",
        ];
        args.extend(values);
        self.run(&args).await.map(drop)
    }

    /// `helm test`, whose pod asks the replicas as API servers would.
    async fn is_well(&self) -> Result<()> {
        let said = self.run(&["test", RELEASE]).await?;
        ensure!(said.contains("Succeeded"), "{said}");
        Ok(())
    }

    /// A second release is refused, with a reason.
    async fn is_alone(&self) -> Result<()> {
        let second = helm(
            &self.bed,
            ["install", "second", &chart(), "--namespace=second"],
        )
        .args(["--create-namespace"])
        .await?;
        ensure!(!second.succeeded(), "two gates in one cluster");
        let reason = format!(
            "quorumgate is installed already, by the release {RELEASE} in the namespace {HOME}"
        );
        ensure!(second.stderr.contains(&reason), "{}", second.stderr);
        self.bed
            .kubectl(["delete", "namespace", "second", "--ignore-not-found"])
            .await?
            .success()?;
        Ok(())
    }

    /// While a pod is held that only the gate would let start, nothing is removed.
    async fn a_held_pod_keeps_it(&self, program: &Path) -> Result<()> {
        let pods: Api<Pod> = self.sandbox.api();
        let held = serde_json::from_value(json!({
            // Its name has no ordinal, so nobody is asked about its delete.
            "metadata": {"name": "held"},
            "spec": {
                "containers": [{"name": "etcd", "image": "etcd"}],
                "schedulingGates": [{"name": "quorumgate.io/identity"}],
            },
        }))?;
        pods.create(&PostParams::default(), &held).await?;
        let refused = by_hand(program, &self.bed, "1s").await?;
        ensure!(!refused.succeeded(), "{}", refused.stdout);
        let named = format!("left are {}/held", self.sandbox.namespace());
        ensure!(refused.stderr.contains(&named), "{}", refused.stderr);
        let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(self.bed.client());
        webhooks.get(NAME).await.context("it was begun")?;
        pods.delete("held", &DeleteParams::default().grace_period(0))
            .await?;
        Ok(())
    }

    /// While pods are outdated that the StatefulSet controller would replace unasked, nothing is
    /// removed.
    async fn an_unfinished_rollout_keeps_it(&self, program: &Path) -> Result<()> {
        let sets: Api<StatefulSet> = self.sandbox.api();
        let params = PatchParams::default();
        let label = |value: serde_json::Value| {
            Patch::Merge(json!({"spec": {"template": {"metadata": {"labels": {"new": value}}}}}))
        };
        sets.patch("etcd", &params, &label(json!("yes"))).await?;
        let refused = by_hand(program, &self.bed, "1s").await?;
        ensure!(!refused.succeeded(), "{}", refused.stdout);
        let named = format!("{}/etcd (", self.sandbox.namespace());
        ensure!(refused.stderr.contains(&named), "{}", refused.stderr);
        ensure!(refused.stderr.contains("outdated"), "{}", refused.stderr);
        let seen = async || {
            let set = sets.get("etcd").await?;
            let status = set.status.context("no status")?;
            ensure!(status.observed_generation == set.metadata.generation);
            Ok(status)
        };
        let changed = eventually(SOON, "the new template is seen", &seen).await?;
        sets.patch("etcd", &params, &label(serde_json::Value::Null))
            .await?;
        eventually(SOON, "no pod is outdated any more", || async {
            let status = seen().await?;
            ensure!(
                status.updated_replicas == Some(status.replicas),
                "{status:?}"
            );
            Ok(())
        })
        .await?;
        let revisions: Api<ControllerRevision> = self.sandbox.api();
        let revision = changed.update_revision.context("no revision")?;
        revisions
            .delete(&revision, &DeleteParams::default())
            .await?;
        Ok(())
    }

    /// Under other names than the gate has, nothing is found, which must not look like success.
    async fn other_names_keep_it(&self, program: &Path) -> Result<()> {
        let refused = Invocation::new(program)
            .kubeconfig(&self.bed.admin_kubeconfig())
            .args(["uninstall"])
            .await?;
        ensure!(!refused.succeeded(), "{}", refused.stdout);
        let told = format!("--webhook-configuration={NAME} --lease-namespace={HOME}");
        ensure!(refused.stderr.contains(&told), "{}", refused.stderr);
        Ok(())
    }

    /// Waits until the gate has changed whatever it changes of others.
    async fn is_at_work(&self) -> Result<()> {
        eventually(SOON, "the gate keeps the cluster", || async {
            let now = self.surroundings().await?;
            ensure!(now.strategy["type"] == "OnDelete", "{now:?}");
            ensure!(now.annotations.iter().any(|key| key == MEMORY), "{now:?}");
            let gated = now.labels_of_the_namespace.iter();
            ensure!(gated.clone().any(|key| key == GATED), "{now:?}");
            let companion = format!(
                "PodDisruptionBudget/{}/quorumgate-etcd",
                self.sandbox.namespace()
            );
            ensure!(self.objects().await?.contains(&companion), "no {companion}");
            Ok(())
        })
        .await
    }

    async fn surroundings(&self) -> Result<Surroundings> {
        let set: StatefulSet = self.sandbox.api().get("etcd").await?;
        let namespaces: Api<Namespace> = Api::all(self.bed.client());
        let namespace = namespaces.get(self.sandbox.namespace()).await?;
        let pods: Api<Pod> = self.sandbox.api();
        let pods = pods.list_metadata(&ListParams::default()).await?;
        let annotations = pods
            .iter()
            .flat_map(|pod| pod.annotations().keys().cloned());
        let strategy = set.spec.as_ref().and_then(|s| s.update_strategy.clone());
        Ok(Surroundings {
            strategy: serde_json::to_value(strategy)?,
            annotations: set.annotations().keys().cloned().collect(),
            labels_of_the_namespace: namespace.labels().keys().cloned().collect(),
            annotations_of_the_pods: annotations.collect(),
        })
    }

    async fn manifest(&self) -> Result<String> {
        self.helm(&["get", "manifest", RELEASE]).await?.success()
    }

    async fn arguments(&self) -> Result<Vec<String>> {
        let deployments: Api<Deployment> = Api::namespaced(self.bed.client(), HOME);
        let deployment = deployments.get(NAME).await?;
        let template = deployment.spec.context("no spec")?.template;
        let mut containers = template.spec.context("no pod")?.containers;
        let container = containers.pop().context("no container")?;
        container.args.context("no arguments")
    }

    /// All objects that there are, except those that come and go by themselves.
    async fn objects(&self) -> Result<BTreeSet<String>> {
        let kinds = self
            .bed
            .kubectl([
                "api-resources",
                "--verbs=list",
                "--output=name",
                "--cached=false",
            ])
            .await?
            .success()?;
        let passing = ["events", "componentstatuses", "leases.coordination.k8s.io"];
        let kinds: Vec<&str> = kinds
            .lines()
            .filter(|kind| !kind.starts_with("events") && !passing.contains(kind))
            .collect();
        let columns = "--output=custom-columns=K:.kind,S:.metadata.namespace,N:.metadata.name";
        let kinds = kinds.join(",");
        let args = ["get", &kinds, "--all-namespaces", "--no-headers", columns];
        let listed = self.bed.kubectl(args).await?.success()?;
        let leases = [
            "get",
            "leases",
            "--namespace",
            HOME,
            "--no-headers",
            columns,
        ];
        let leases = self.bed.kubectl(leases).await?.success()?;
        let mut objects = BTreeSet::new();
        for line in listed.lines().chain(leases.lines()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [kind, "<none>", name] => objects.insert(format!("{kind}/{name}")),
                [kind, namespace, name] => objects.insert(format!("{kind}/{namespace}/{name}")),
                other => bail!("not an object: {other:?}"),
            };
        }
        Ok(objects)
    }
}
