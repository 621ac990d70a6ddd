//! Manifests that helm renders and somebody else applies, as `helm template | kubectl apply`,
//! kustomize and Argo CD do: they install the gate, and nothing removes it again.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use quorumgate_testbed::control_plane::Tuning;
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::kubectl::Invocation;
use quorumgate_testbed::{Bed, Sandbox, eventually};
use serde_json::json;

use super::{chart, helm};
use crate::world::{SOON, on_a_plane_of_its_own};

const RELEASE: &str = "guard";
const HOME: &str = "guard-home";
const NAME: &str = "guard-quorumgate";

/// The values that the nodes of the test bed need (see [`super::life`]).
const HERE: [&str; 5] = [
    "--set=replicas=1",
    "--set=listenAddress=$(QUORUMGATE_POD_IP)",
    "--set=service.selector=true",
    "--set=service.port=8443",
    "--set=defaultEnforcement=Enforce",
];

async fn template(bed: &Bed, more: &[&str]) -> Result<String> {
    let chart = chart();
    helm(bed, ["template", RELEASE, &chart, "--namespace", HOME])
        .args(HERE)
        .args(more)
        .await?
        .success()
}

#[tokio::test(flavor = "multi_thread")]
async fn rendered_manifests_have_no_hook() -> Result<()> {
    let bed = Bed::up().await?;
    for values in [&[] as &[&str], &["--is-upgrade"], &["--dry-run=client"]] {
        let text = template(&bed, values).await?;
        ensure!(text.contains("kind: Deployment"), "{values:?}: {text}");
        for part in ["kind: Job", "kind: Pod\n", "helm.sh/hook", "-uninstall\n"] {
            ensure!(!text.contains(part), "{values:?}: {part:?} in\n{text}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_applies_rendered_manifests_has_a_gate_and_keeps_it() -> Result<()> {
    on_a_plane_of_its_own("rendered", Tuning::default(), applied).await
}

async fn applied(bed: Bed) -> Result<()> {
    let mut sandbox = bed.sandbox("db").await?;
    let program = Path::new(env!("CARGO_BIN_EXE_quorumgate"));
    sandbox.map_image("quorumgate", program.parent().context("no directory")?);
    sandbox.add_nodes(3).await?;
    let etcd = EtcdCluster::builder("etcd").apply(&sandbox).await?;
    etcd.quorate(SOON).await?;
    bed.kubectl(["create", "namespace", HOME])
        .await?
        .success()?;
    // With hooks, as for somebody who lets helm ask the cluster and applies what it prints.
    let with_hooks = template(&bed, &["--dry-run=server"]).await?;
    ensure!(with_hooks.contains("kind: Job"), "no hook:\n{with_hooks}");
    let text = template(&bed, &[]).await?;
    apply(&bed, &text).await?;
    eventually(SOON, "the gate is in force", || is_in_force(&bed, &sandbox)).await?;

    apply(&bed, &with_hooks).await?;
    let jobs: Api<Job> = Api::namespaced(bed.client(), HOME);
    eventually(SOON, "the Job of the removal has given up", || async {
        let job = jobs.get(&format!("{NAME}-uninstall")).await?;
        let conditions = job.status.and_then(|status| status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        let failed = conditions.find(|one| one.type_ == "Failed" && one.status == "True");
        let why = failed.context("it has not ended")?.reason;
        ensure!(why.as_deref() == Some("PodFailurePolicy"), "{why:?}");
        Ok(())
    })
    .await?;
    is_in_force(&bed, &sandbox).await?;
    let refused = Invocation::new(program)
        .kubeconfig(&bed.admin_kubeconfig())
        .args(["uninstall".to_owned(), format!("--release={RELEASE}")])
        .args([
            format!("--webhook-configuration={NAME}"),
            format!("--lease-namespace={HOME}"),
            format!("--lease-name={NAME}"),
            format!("--deployment={NAME}"),
        ])
        .await?;
    ensure!(!refused.succeeded(), "{}", refused.stdout);
    let because = format!("helm did not install the ValidatingWebhookConfiguration {NAME}");
    ensure!(refused.stderr.contains(&because), "{}", refused.stderr);
    is_in_force(&bed, &sandbox).await?;
    others_write_endpoints(&bed, &sandbox).await?;
    // A policy whose parameters are the replicas' pods has none then.
    bed.kubectl([
        "scale",
        "deployment",
        NAME,
        "--replicas=0",
        "--namespace",
        HOME,
    ])
    .await?
    .success()?;
    let pods: Api<Pod> = Api::namespaced(bed.client(), HOME);
    let replicas = ListParams::default().labels("app.kubernetes.io/name=quorumgate");
    eventually(SOON, "no replica is left", || async {
        let left = pods.list_metadata(&replicas).await?.items.len();
        ensure!(left == 0, "{left} pods");
        Ok(())
    })
    .await?;
    others_write_endpoints(&bed, &sandbox).await?;
    // Nothing proxies cluster IPs here, so that API servers could ask the gate.
    bed.kubectl([
        "delete",
        "validatingwebhookconfiguration,mutatingwebhookconfiguration",
        NAME,
    ])
    .await?
    .success()?;
    sandbox.close().await
}

async fn apply(bed: &Bed, text: &str) -> Result<()> {
    let what = "the manifests are applied";
    eventually(SOON, what, || async {
        let apply = ["apply", "--validate=strict", "--filename=-"];
        bed.kubectl(apply).stdin(text).await?.success()
    })
    .await
    .map(drop)
}

/// The policies are about the gate's account: everybody else writes endpoints wherever there are
/// Services.
async fn others_write_endpoints(bed: &Bed, sandbox: &Sandbox) -> Result<()> {
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let slice = serde_json::from_value(json!({
        "metadata": {"name": "others", "labels": {"kubernetes.io/service-name": "others"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["198.51.100.7"]}],
    }))?;
    for namespace in [sandbox.namespace(), HOME, "default"] {
        let slices: Api<EndpointSlice> = Api::namespaced(bed.client(), namespace);
        let made = slices.create(&params, &slice).await;
        made.with_context(|| format!("an EndpointSlice in {namespace}"))?;
    }
    Ok(())
}

/// Whether all that the removal would take away is there.
async fn is_in_force(bed: &Bed, sandbox: &Sandbox) -> Result<()> {
    let client = bed.client();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    validating.get(NAME).await?;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    mutating.get(NAME).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), HOME);
    let deployment = deployments.get(NAME).await?;
    let status = deployment.status.context("no status")?;
    ensure!(status.available_replicas == Some(1), "{status:?}");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), HOME);
    secrets.get(&format!("{NAME}-serving")).await?;
    let namespaces: Api<Namespace> = Api::all(client);
    let namespace = namespaces.get(sandbox.namespace()).await?;
    let gated = namespace.labels().get("quorumgate.io/gated");
    ensure!(gated.is_some_and(|value| value == "true"), "{gated:?}");
    let companions: Api<PodDisruptionBudget> = sandbox.api();
    companions.get("quorumgate-etcd").await?;
    Ok(())
}
