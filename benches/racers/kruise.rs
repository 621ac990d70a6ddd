//! OpenKruise's manager with its webhooks, its budgets, and pods that it counts as ready.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::{Bed, Sandbox, eventually};
use serde_json::{Value, json};

use super::{
    KEPT, PATIENCE, Process, Racer, Starting, apply, apply_all, free_port, program, spawn,
};
use crate::caller::SERVER_NAME;

/// The annotation by which OpenKruise finds the budget of a pod. Its webhook sets it when a pod is
/// created; the API server does not ask that webhook here.
const BUDGET: &str = "kruise.io/related-pub";

/// OpenKruise's own namespace.
const NAMESPACE: &str = "kruise-system";

/// The name of the budget that keeps a pod for good.
const FOR_GOOD: &str = "kept";

impl Racer {
    /// Starts it, and waits until its budget answers.
    pub(crate) async fn openkruise(bed: &Bed, directory: &Path, review: &Value) -> Result<Self> {
        let namespace = review.pointer("/request/namespace");
        let namespace = namespace.and_then(Value::as_str).context("no namespace")?;
        let crds = program("QUORUMGATE_RACE_KRUISE_CRDS")?;
        apply(bed, &["--server-side", "-f", &crds.to_string_lossy()], "").await?;
        apply_all(bed, &objects(namespace)).await?;
        ready_pod(bed, namespace, (FOR_GOOD, KEPT)).await?;
        let first = Self::start_openkruise(bed, directory).await?;
        let start = async || Self::start_openkruise(bed, directory).await;
        first.once_more(review, start).await
    }

    async fn start_openkruise(bed: &Bed, directory: &Path) -> Result<Starting> {
        let address = free_port()?;
        let folder = directory.join("kruise");
        fs::create_dir_all(&folder)?;
        let begun = Instant::now();
        let mut command = Command::new(program("QUORUMGATE_RACE_KRUISE")?);
        command
            .env("KUBECONFIG", bed.admin_kubeconfig())
            .env("POD_NAMESPACE", NAMESPACE)
            .env("WEBHOOK_HOST", SERVER_NAME)
            .env("WEBHOOK_PORT", address.port().to_string())
            .env("WEBHOOK_CERT_DIR", &folder)
            .args([
                "--enable-leader-election=false",
                "--enable-pprof=false",
                "--metrics-addr=127.0.0.1:0",
                "--health-probe-addr=127.0.0.1:0",
                "--rest-config-qps=1000",
                "--rest-config-burst=1000",
            ]);
        let process = Process::Peer(spawn(command, directory, "kruise")?);
        // It makes its certificate itself.
        let made = eventually(PATIENCE, "OpenKruise has a certificate", async || {
            fs::read_to_string(folder.join("ca-cert.pem"))
        });
        Ok(Starting {
            racer: Self {
                name: "OpenKruise",
                deletes: "/validate-pod",
                evictions: "/validate-pod",
                address,
                authority: made.await?,
                process,
                ready_after: f64::NAN,
            },
            begun,
        })
    }
}

/// The objects that OpenKruise needs besides its CRDs, and a budget in `namespace` that lets no pod
/// go. The webhook configurations are empty, so that the API server asks nothing of it.
fn objects(namespace: &str) -> [Value; 4] {
    let configuration = |kind: &str, name: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "webhooks": [],
        })
    };
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        configuration(
            "MutatingWebhookConfiguration",
            "kruise-mutating-webhook-configuration",
        ),
        configuration(
            "ValidatingWebhookConfiguration",
            "kruise-validating-webhook-configuration",
        ),
        budget(namespace, FOR_GOOD, 0),
    ]
}

/// Makes a review about a pod that the budget [`FOR_GOOD`] never lets go.
pub(super) fn about_kept_pod(review: &mut Value) -> Result<()> {
    let pod = review.pointer_mut("/request/oldObject/metadata");
    let pod = pod.and_then(Value::as_object_mut).context("no pod")?;
    pod.insert("annotations".to_owned(), json!({ BUDGET: FOR_GOOD }));
    Ok(())
}

/// A budget that lets so many of the pods with its label go, which are one more.
fn budget(namespace: &str, name: &str, may_go: usize) -> Value {
    json!({
        "apiVersion": "policy.kruise.io/v1alpha1", "kind": "PodUnavailableBudget",
        "metadata": {
            "name": name, "namespace": namespace,
            // The pods have no owner that would say how many there are to be.
            "annotations": {"pub.kruise.io/protect-total-replicas": (may_go + 1).to_string()},
        },
        "spec": {"selector": {"matchLabels": {"budget": name}}, "maxUnavailable": may_go},
    })
}

/// A pod of this budget that says it is ready. No node runs it.
async fn ready_pod(bed: &Bed, namespace: &str, (budget, name): (&str, &str)) -> Result<Pod> {
    let pod = json!({
        "metadata": {
            "name": name, "labels": {"budget": budget}, "annotations": {BUDGET: budget},
        },
        "spec": {
            "schedulerName": "nobody", "automountServiceAccountToken": false,
            "containers": [{"name": "etcd", "image": "etcd:3.7"}],
        },
    });
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let pods: Api<Pod> = Api::namespaced(bed.client(), namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?)
        .await?;
    let parameters = PatchParams::default();
    Ok(pods
        .patch_status(name, &parameters, &Patch::Merge(&status))
        .await?)
}

/// Gives a cluster a budget that spares one of its pods, and waits until all are counted.
pub(crate) async fn guard(sandbox: &Sandbox, etcd: &EtcdCluster) -> Result<()> {
    let name = etcd.name();
    let budget = json!({
        "apiVersion": "policy.kruise.io/v1alpha1", "kind": "PodUnavailableBudget",
        "metadata": {"name": name, "namespace": etcd.namespace()},
        "spec": {"selector": {"matchLabels": {"app": name}}, "maxUnavailable": 1},
    });
    apply_all(sandbox.bed(), &[budget]).await?;
    let pods = etcd.pod_api();
    let belongs = json!({"metadata": {"annotations": {BUDGET: name}}});
    for pod in etcd.pod_names() {
        let parameters = PatchParams::default();
        pods.patch(&pod, &parameters, &Patch::Merge(&belongs))
            .await?;
    }
    show(sandbox, 1, "/status/currentAvailable", |available| {
        available.as_u64() == Some(3)
    })
    .await
}

/// Ready pods that may go, each budget's one after another: so many budgets with `of_each` pods,
/// and one more each, which may not go.
pub(crate) async fn pods(sandbox: &Sandbox, budgets: usize, of_each: usize) -> Result<Vec<Value>> {
    let namespace = sandbox.namespace();
    let names: Vec<String> = (0..budgets)
        .map(|number| format!("kept-{number}"))
        .collect();
    let objects: Vec<Value> = names
        .iter()
        .map(|name| budget(namespace, name, of_each))
        .collect();
    apply_all(sandbox.bed(), &objects).await?;
    let mut pods = Vec::new();
    for name in &names {
        for number in 0..=of_each {
            let pod = format!("{name}-{number}");
            let pod = ready_pod(sandbox.bed(), namespace, (name, &pod)).await?;
            if number < of_each {
                pods.push(serde_json::to_value(pod)?);
            }
        }
    }
    show(sandbox, budgets, "/status/unavailableAllowed", |allowed| {
        allowed.as_u64() == u64::try_from(of_each).ok()
    })
    .await?;
    Ok(pods)
}

/// Waits until it has recorded that all pods of its budgets go that may go.
pub(crate) async fn recorded(sandbox: &Sandbox, budgets: usize, of_each: usize) -> Result<()> {
    show(sandbox, budgets, "/status/disruptedPods", |pods| {
        pods.as_object().is_some_and(|pods| pods.len() == of_each)
    })
    .await
}

/// Waits until all of its budgets have this in their status.
async fn show(
    sandbox: &Sandbox,
    budgets: usize,
    field: &str,
    holds: impl Fn(&Value) -> bool,
) -> Result<()> {
    let list = ["get", "podunavailablebudgets", "--output=json"];
    let of_namespace = ["--namespace", sandbox.namespace()];
    let what = format!("every budget has its {field}");
    eventually(PATIENCE, what, async || {
        let listed = sandbox.bed().kubectl(list.iter().chain(&of_namespace));
        let listed: Value = serde_json::from_str(&listed.await?.success()?)?;
        let listed = listed.pointer("/items").and_then(Value::as_array);
        let listed = listed.context("no list")?;
        ensure!(listed.len() == budgets, "{} budgets", listed.len());
        let missing = listed
            .iter()
            .find(|budget| !budget.pointer(field).is_some_and(&holds));
        ensure!(missing.is_none(), "{missing:?}");
        anyhow::Ok(())
    })
    .await
}
