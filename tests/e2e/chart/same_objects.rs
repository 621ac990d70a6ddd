//! The chart makes the objects of the manifests, and the API server accepts all that it can make.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::Bed;
use serde_json::{Map, Value};

use super::{chart, helm};
use crate::manifests::{
    cert_manager_crds, every_object_is_accepted, go_module, kustomized, repository,
};

/// The Go module of the Prometheus operator. Only its CRDs are used.
const PROMETHEUS_OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator@v0.85.0";

/// The objects that only the chart has: roles for users, and the hooks.
const OF_THE_CHART: [&str; 4] = [
    "quorumgate-view",
    "quorumgate-edit",
    "quorumgate-test",
    "quorumgate-uninstall",
];

/// Labels that helm's users expect, and the name that manifests have on few objects.
const LABELS: [&str; 5] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
    "app.kubernetes.io/version",
    "helm.sh/chart",
];

/// The kinds here that belong to no namespace. kustomize does not know all of them, and writes one
/// into them, which API servers ignore.
const CLUSTER_WIDE: [&str; 4] = [
    "FlowSchema",
    "PriorityLevelConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

type Objects = BTreeMap<(String, String), Value>;

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_makes_the_objects_of_the_manifests() -> Result<()> {
    let bed = Bed::up().await?;
    let made = kustomized(&bed, "manifests/base").await?;
    same(&made, &rendered(&bed, &["image.tag=dev"]).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_makes_the_objects_of_the_manifests_for_cert_manager() -> Result<()> {
    let bed = Bed::up().await?;
    let made = kustomized(&bed, "manifests/cert-manager").await?;
    let values = ["image.tag=dev", "certificates.certManager.enabled=true"];
    same(&made, &rendered(&bed, &values).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_makes_the_objects_of_the_manifests_for_a_certificate_in_files() -> Result<()> {
    let bed = Bed::up().await?;
    let made = kustomized(&bed, "manifests/files").await?;
    // Whoever applies the manifests writes the bundle afterwards.
    let authority = "certificates.caBundle=-----BEGIN CERTIFICATE-----";
    let chart = rendered(&bed, &["image.tag=dev", authority]).await?;
    let bundle = "      caBundle: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t\n";
    let webhooks = made.matches("clientConfig:").count();
    ensure!(
        chart.matches(bundle).count() == webhooks,
        "not in each of {webhooks} webhooks:\n{chart}"
    );
    same(&made, &chart.replace(bundle, ""))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_makes_the_objects_of_every_component() -> Result<()> {
    let bed = Bed::up().await?;
    // A kustomization finds its parts by relative paths, so this one is written inside the
    // repository.
    let directory = tempfile::Builder::new()
        .prefix("components-")
        .tempdir_in(repository("manifests"))?;
    let kustomization =
        "resources: [../base]\ncomponents: [../etcd-members, ../network-policy, ../selector]\n";
    std::fs::write(directory.path().join("kustomization.yaml"), kustomization)?;
    let made = kustomized(&bed, &directory.path().to_string_lossy()).await?;
    let values = [
        "image.tag=dev",
        "etcdMembers.enabled=true",
        "networkPolicy.enabled=true",
        "service.selector=true",
    ];
    same(&made, &rendered(&bed, &values).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_accepts_every_object_of_the_chart() -> Result<()> {
    let bed = Bed::up().await?;
    let operator = go_module(PROMETHEUS_OPERATOR)
        .await?
        .join("example/prometheus-operator-crd");
    let monitors = ["podmonitors", "prometheusrules"]
        .map(|kind| operator.join(format!("monitoring.coreos.com_{kind}.yaml")));
    for definitions in [cert_manager_crds().await?].iter().chain(&monitors) {
        bed.kubectl(["apply", "--server-side", "-f"])
            .args([definitions])
            .await?
            .success()?;
    }
    let values = [
        "certificates.certManager.enabled=true",
        "etcdMembers.enabled=true",
        "networkPolicy.enabled=true",
        "networkPolicy.apiServers={10.0.0.0/8}",
        "podMonitor.enabled=true",
        "prometheusRule.enabled=true",
        "dashboard.enabled=true",
        "defaultEnforcement=Warn",
        "namespaces={a,b}",
        "featureGates.QuorumAwareUpdatesWithOnDelete=true",
        "image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000",
        "imagePullSecrets[0].name=pull",
    ];
    let objects = rendered(&bed, &values).await?;
    // A dry run of a pod needs its account.
    for command in [
        &["create", "namespace", "quorumgate"] as &[&str],
        &[
            "create",
            "serviceaccount",
            "-n",
            "quorumgate",
            "quorumgate-test",
        ],
    ] {
        let created = bed.kubectl(command).await?;
        let is_there = created.succeeded() || created.stderr.contains("already exists");
        ensure!(is_there, "{}", created.stderr);
    }
    every_object_is_accepted(&bed, "quorumgate", &objects).await?;
    let objects = rendered(&bed, &[]).await?;
    ensure!(!objects.contains("cert-manager"), "{objects}");
    every_object_is_accepted(&bed, "quorumgate", &objects).await
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_cannot_work_are_refused_with_a_reason() -> Result<()> {
    let bed = Bed::up().await?;
    for (value, reason) in [
        ("replicas=0", "/replicas"),
        ("replica=2", "'replica' not allowed"),
        ("featureGates.NoSuch=true", "'NoSuch' not allowed"),
        ("featureGates.EtcdMembers=true", "etcdMembers.enabled=true"),
        ("certificates.secretName=mine", "certificates.caBundle"),
        ("certificates.caBundle=nonsense", "/certificates/caBundle"),
    ] {
        let output = template(&bed, &[value]).await?;
        ensure!(!output.succeeded(), "{value} is accepted");
        ensure!(output.stderr.contains(reason), "{value}: {}", output.stderr);
    }
    let depended_upon = template(&bed, &["global.anything=1"]).await?;
    depended_upon.success()?;
    Ok(())
}

async fn template(bed: &Bed, values: &[&str]) -> Result<quorumgate_testbed::kubectl::Output> {
    let values = values.iter().map(|value| format!("--set={value}"));
    helm(
        bed,
        ["template", "quorumgate", &chart(), "--namespace=quorumgate"],
    )
    .args(values)
    .await
}

async fn rendered(bed: &Bed, values: &[&str]) -> Result<String> {
    template(bed, values).await?.success()
}

/// Compares what the manifests make with what the chart makes.
fn same(manifests: &str, chart: &str) -> Result<()> {
    let (mut manifests, chart) = (objects(manifests)?, objects(chart)?);
    // helm makes the namespace before it installs, or uses one that is there.
    let namespace = ("Namespace".to_owned(), "quorumgate".to_owned());
    manifests.remove(&namespace).context("no Namespace")?;
    let names = |objects: &Objects| objects.keys().cloned().collect::<BTreeSet<_>>();
    let (theirs, ours) = (names(&manifests), names(&chart));
    let missing: Vec<_> = theirs.difference(&ours).collect();
    ensure!(missing.is_empty(), "the chart lacks {missing:?}");
    let more = ours.difference(&theirs).filter(|(_, name)| {
        let mut known = OF_THE_CHART.iter();
        !known.any(|known| name.starts_with(known))
    });
    let more: Vec<_> = more.collect();
    ensure!(more.is_empty(), "only the chart has {more:?}");
    for (name, object) in &manifests {
        let other = chart.get(name).context("it was there")?;
        ensure!(
            object == other,
            "{name:?} differs:\n{}\n--- the chart:\n{}",
            serde_json::to_string_pretty(object)?,
            serde_json::to_string_pretty(other)?
        );
    }
    ensure!(manifests.len() > 20, "{} objects", manifests.len());
    Ok(())
}

/// The objects of a YAML stream by kind and name, without what may differ.
fn objects(text: &str) -> Result<Objects> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let objects = documents.into_iter().filter(Value::is_object);
    objects
        .map(|mut object| {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let kind = text(&object["kind"]).context("no kind")?;
            let name = text(&object["metadata"]["name"]).context("no name")?;
            let metadata = object["metadata"].as_object_mut().context("no metadata")?;
            if CLUSTER_WIDE.contains(&kind.as_str()) {
                metadata.remove("namespace");
            }
            without(metadata, "labels", &LABELS);
            // Only CustomResourceDefinitions have it, and only as the chart installs them.
            without(metadata, "annotations", &["helm.sh/resource-policy"]);
            fold(&mut object);
            Ok(((kind, name), object))
        })
        .collect()
}

fn without(metadata: &mut Map<String, Value>, field: &str, keys: &[&str]) {
    let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) else {
        return;
    };
    map.retain(|key, _| !keys.contains(&key.as_str()));
    if map.is_empty() {
        metadata.remove(field);
    }
}

/// Writes every run of white space as one space: kustomize adds line breaks to folded expressions.
fn fold(value: &mut Value) {
    match value {
        Value::String(text) => {
            *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        Value::Array(values) => values.iter_mut().for_each(fold),
        Value::Object(fields) => fields.values_mut().for_each(fold),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
