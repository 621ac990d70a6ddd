//! The chart makes the objects of the manifests, and the API server accepts all that it can make.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::Bed;
use quorumgate_testbed::kubectl::Invocation;
use serde_json::{Map, Value};

use super::{chart, helm};
use crate::manifests::{
    cert_manager_crds, every_object_is_accepted, go_module, kustomized, repository,
};

/// The Go module of the Prometheus operator. Only its CRDs are used.
const PROMETHEUS_OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator@v0.85.0";

/// The object that only the chart has by default: a role for users. Hooks are not rendered here
/// (see [`super::rendered`]).
const OF_THE_CHART: [&str; 1] = ["quorumgate-view"];

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

pub(super) type Objects = BTreeMap<(String, String), Value>;

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_makes_the_objects_of_the_manifests() -> Result<()> {
    let bed = Bed::up().await?;
    let made = kustomized(&bed, "manifests/base").await?;
    same(&made, &rendered(&bed, &[]).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_makes_the_objects_of_the_manifests_for_cert_manager() -> Result<()> {
    let bed = Bed::up().await?;
    let made = kustomized(&bed, "manifests/cert-manager").await?;
    let values = ["certificates.certManager.enabled=true"];
    same(&made, &rendered(&bed, &values).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_makes_the_objects_of_the_manifests_for_a_certificate_in_files() -> Result<()> {
    let bed = Bed::up().await?;
    let made = kustomized(&bed, "manifests/files").await?;
    // Whoever applies the manifests writes the bundle afterwards.
    let authority = "certificates.caBundle=-----BEGIN CERTIFICATE-----";
    let chart = rendered(&bed, &[authority]).await?;
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
        "etcdMembers.enabled=true",
        "networkPolicy.enabled=true",
        "networkPolicy.apiServers={0.0.0.0/0,::/0}",
        "service.selector=true",
    ];
    same(&made, &rendered(&bed, &values).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_makes_the_objects_for_rollouts_on_openshift() -> Result<()> {
    let bed = Bed::up().await?;
    let directory = tempfile::Builder::new()
        .prefix("openshift-")
        .tempdir_in(repository("manifests"))?;
    let kustomization = "resources: [../base]\ncomponents: [../on-delete, ../openshift]\n";
    std::fs::write(directory.path().join("kustomization.yaml"), kustomization)?;
    let made = kustomized(&bed, &directory.path().to_string_lossy()).await?;
    let values = format!("--values={}/values-openshift.yaml", chart());
    let feature = "featureGates.QuorumAwareUpdatesWithOnDelete=true";
    let chart = template(&bed, &[feature]).args([values]);
    let chart = chart.await?.success()?;
    for part in ["runAsUser", "runAsGroup", "fsGroup"] {
        ensure!(!chart.contains(part), "{part} in\n{chart}");
    }
    same(&made, &chart)
}

/// Platforms ask for other ports, contexts and rights.
#[tokio::test(flavor = "multi_thread")]
async fn ports_secrets_and_contexts_are_what_the_values_say() -> Result<()> {
    let bed = Bed::up().await?;
    let values = [
        "hostNetwork=true",
        "ports.webhooks=9443",
        "ports.metrics=9080",
        "rbac.secrets=Namespaces",
        "namespaces={a,b}",
        "podSecurityContext.runAsUser=null",
        "podDisruptionBudget.enabled=false",
        "flowControl.shares=60",
    ];
    let text = rendered(&bed, &values).await?;
    let found = objects(&text)?;
    let object = |kind: &str, name: &str| found.get(&(kind.to_owned(), name.to_owned()));
    let deployment = object("Deployment", "quorumgate").context("no Deployment")?;
    let pod = &deployment["spec"]["template"]["spec"];
    ensure!(pod["hostNetwork"] == true && pod["dnsPolicy"] == "ClusterFirstWithHostNet");
    let container = &pod["containers"][0];
    let args = container["args"].to_string();
    for argument in ["--listen=[::]:9443", "--admin-listen=[::]:9080"] {
        ensure!(args.contains(argument), "{args}");
    }
    ensure!(
        container["ports"][0]["containerPort"] == 9443,
        "{container}"
    );
    ensure!(
        container["ports"][1]["containerPort"] == 9080,
        "{container}"
    );
    ensure!(container.get("lifecycle").is_none(), "{container}");
    let context = &pod["securityContext"];
    ensure!(context.get("runAsUser").is_none() && context["runAsNonRoot"] == true);
    let binding = object("ClusterRoleBinding", "quorumgate-secrets");
    ensure!(binding.is_none(), "{binding:?}");
    for namespace in ["a", "b"] {
        let bound = format!("name: quorumgate-secrets\n  namespace: {namespace}\n");
        ensure!(text.contains(&bound), "no role in {namespace}:\n{text}");
    }
    let policy = object("ValidatingAdmissionPolicy", "quorumgate-namespaces");
    let policy = policy.context("no policy")?.to_string();
    ensure!(
        policy.contains("object.metadata.name in ['a', 'b']"),
        "{policy}"
    );
    ensure!(object("PodDisruptionBudget", "quorumgate").is_none());
    let level = object("PriorityLevelConfiguration", "quorumgate").context("no level")?;
    ensure!(level["spec"]["limited"]["nominalConcurrencyShares"] == 60);
    let none = objects(&rendered(&bed, &["rbac.secrets=None"]).await?)?;
    for kind in ["ClusterRole", "ClusterRoleBinding", "RoleBinding"] {
        let key = (kind.to_owned(), "quorumgate-secrets".to_owned());
        ensure!(!none.contains_key(&key), "{key:?}");
    }
    let cluster_wide = objects(&rendered(&bed, &["service.selector=true"]).await?)?;
    let named = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
    ensure!(cluster_wide.contains_key(&named("ClusterRoleBinding", "quorumgate-secrets")));
    let with_selector = &cluster_wide[&named("Deployment", "quorumgate")];
    let sleep = "/spec/template/spec/containers/0/lifecycle/preStop/sleep/seconds";
    ensure!(
        with_selector.pointer(sleep) == Some(&10.into()),
        "{with_selector}"
    );
    Ok(())
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
        "serviceAccount.annotations.role=arn",
        "serviceAccount.automount=false",
        "topologySpreadConstraints[0].topologyKey=rack",
        "topologySpreadConstraints[0].maxSkew=2",
        "topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
        "dnsPolicy=None",
        "dnsConfig.nameservers={10.0.0.1}",
        "podDisruptionBudget.maxUnavailable=null",
        "podDisruptionBudget.minAvailable=60%",
        "podMonitor.scrapeTimeout=5s",
        "podMonitor.relabelings[0].targetLabel=region",
        "podMonitor.relabelings[0].replacement=north",
        "podMonitor.metricRelabelings[0].action=labeldrop",
        "podMonitor.metricRelabelings[0].regex=pod",
        "commonLabels.team=storage",
        "commonAnnotations.contact=us",
        "extraObjects[0].apiVersion=v1",
        "extraObjects[0].kind=ConfigMap",
        "extraObjects[0].metadata.name=more",
    ];
    let objects = rendered(&bed, &values).await?;
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
        ("networkPolicy.enabled=true", "networkPolicy.apiServers"),
        (
            "hostNetwork=true,networkPolicy.enabled=true,networkPolicy.apiServers={10.0.0.0/8}",
            "does not apply to pods in the network of their nodes",
        ),
        ("rbac.secrets=Namespaces", "needs namespaces"),
        ("rbac.secrets=Some", "/rbac/secrets"),
        ("ports.metrics=8443", "are the same"),
        ("enabled=false", "charts that depend on this one"),
        ("image.registry=ghcr.io/", "/image/registry"),
        ("serviceAccount.create=false", "needs serviceAccount.name"),
        ("serviceAccount.name=Mine", "/serviceAccount/name"),
        ("rbac.create=false", "leaves the hooks without rights"),
        (
            "podDisruptionBudget.minAvailable=1",
            "podDisruptionBudget.minAvailable and podDisruptionBudget.maxUnavailable",
        ),
        (
            "podDisruptionBudget.minAvailable=0",
            "/podDisruptionBudget/minAvailable",
        ),
        (
            "podDisruptionBudget.maxUnavailable=null",
            "allows no eviction",
        ),
        // Without sources, a rule of a NetworkPolicy permits all.
        ("networkPolicy.monitoring=null", "/networkPolicy"),
        ("probes.startup=null", "/probes"),
        ("maxRollouts=1000000", "/maxRollouts"),
        (
            "certificates.certManager.issuerRef.kind=Issuer",
            "/certificates/certManager/issuerRef",
        ),
        ("podMonitor.scrapeTimeout=soon", "/podMonitor/scrapeTimeout"),
        ("log.format=xml", "/log/format"),
        ("dnsPolicy=Mine", "/dnsPolicy"),
    ] {
        let output = template(&bed, &[value]).await?;
        ensure!(!output.succeeded(), "{value} is accepted");
        ensure!(output.stderr.contains(reason), "{value}: {}", output.stderr);
    }
    let depended_upon = template(&bed, &["global.anything=1"]).await?;
    depended_upon.success()?;
    Ok(())
}

pub(super) fn template(bed: &Bed, values: &[&str]) -> Invocation {
    let values = values.iter().map(|value| format!("--set={value}"));
    helm(
        bed,
        ["template", "quorumgate", &chart(), "--namespace=quorumgate"],
    )
    .args(values)
}

pub(super) async fn rendered(bed: &Bed, values: &[&str]) -> Result<String> {
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
pub(super) fn objects(text: &str) -> Result<Objects> {
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
