//! The effect of each value of the chart, as far as `helm template` shows it.

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::Bed;
use quorumgate_testbed::control_plane::Tuning;
use serde_json::{Value, json};

use super::same_objects::{Objects, objects, rendered, template};
use super::{chart, helm};
use crate::world::on_a_plane_of_its_own;

/// Values, the object that they change, and what is at a path of it then. `null`: nothing is.
struct Row(
    &'static [&'static str],
    (&'static str, &'static str),
    &'static str,
    Value,
);

const DEPLOYMENT: (&str, &str) = ("Deployment", "quorumgate");
const ACCOUNT: (&str, &str) = ("ServiceAccount", "quorumgate");
const BUDGET: (&str, &str) = ("PodDisruptionBudget", "quorumgate");
const MONITOR: (&str, &str) = ("PodMonitor", "quorumgate");
const RULE: (&str, &str) = ("PrometheusRule", "quorumgate");
const DASHBOARD: (&str, &str) = ("ConfigMap", "quorumgate-dashboard");
const SERVICE: (&str, &str) = ("Service", "quorumgate");
const CERTIFICATE: (&str, &str) = ("Certificate", "quorumgate-tls");
const REMOVAL: (&str, &str) = ("Job", "quorumgate-uninstall");
const HELM_TEST: (&str, &str) = ("Pod", "quorumgate-test");
const IMAGE: &str = "/spec/template/spec/containers/0/image";
const SPREAD: &str = "/spec/template/spec/topologySpreadConstraints";
const VOLUMES: &str = "/spec/template/spec/volumes";
const MOUNTS: &str = "/spec/template/spec/containers/0/volumeMounts";

/// The rows about the Deployment.
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn rows_of_the_replicas() -> Vec<Row> {
    let version = env!("CARGO_PKG_VERSION");
    let selected =
        json!({"app.kubernetes.io/name": "quorumgate", "app.kubernetes.io/instance": "quorumgate"});
    let digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    vec![
        // The image.
        Row(
            &[],
            DEPLOYMENT,
            IMAGE,
            json!(format!("ghcr.io/quorumgate/quorumgate:{version}")),
        ),
        Row(
            &["image.registry=r.example.org:5000", "image.tag=dev"],
            DEPLOYMENT,
            IMAGE,
            json!("r.example.org:5000/quorumgate/quorumgate:dev"),
        ),
        Row(
            &["image.registry=", "image.repository=mine", "image.tag=dev"],
            DEPLOYMENT,
            IMAGE,
            json!("mine:dev"),
        ),
        // As docs/install.md says of an image of one's own.
        Row(
            &[
                "image.registry=registry.example.org",
                "image.repository=quorumgate",
            ],
            DEPLOYMENT,
            IMAGE,
            json!(format!("registry.example.org/quorumgate:{version}")),
        ),
        Row(
            &["global.imageRegistry=mirror.example.org", "image.tag=dev"],
            DEPLOYMENT,
            IMAGE,
            json!("mirror.example.org/quorumgate/quorumgate:dev"),
        ),
        Row(
            &[
                "image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000",
            ],
            DEPLOYMENT,
            IMAGE,
            json!(format!("ghcr.io/quorumgate/quorumgate@{digest}")),
        ),
        Row(
            &["image.pullPolicy=Always"],
            DEPLOYMENT,
            "/spec/template/spec/containers/0/imagePullPolicy",
            json!("Always"),
        ),
        Row(
            &[
                "global.imagePullSecrets[0].name=all",
                "imagePullSecrets[0].name=ours",
            ],
            DEPLOYMENT,
            "/spec/template/spec/imagePullSecrets",
            json!([{"name": "all"}, {"name": "ours"}]),
        ),
        // The pods.
        Row(
            &[],
            DEPLOYMENT,
            "/spec/selector/matchLabels",
            selected.clone(),
        ),
        Row(
            &[],
            DEPLOYMENT,
            "/spec/template/metadata/labels",
            selected.clone(),
        ),
        Row(
            &["podLabels.team=storage", "podAnnotations.mesh=none"],
            DEPLOYMENT,
            "/spec/template/metadata/labels/team",
            json!("storage"),
        ),
        Row(
            &["podAnnotations.mesh=none"],
            DEPLOYMENT,
            "/spec/template/metadata/annotations/mesh",
            json!("none"),
        ),
        Row(
            &["deploymentAnnotations.reload=yes"],
            DEPLOYMENT,
            "/metadata/annotations/reload",
            json!("yes"),
        ),
        Row(&[], DEPLOYMENT, "/spec/template/spec/affinity", Value::Null),
        Row(
            &["affinity.nodeAffinity.of=mine"],
            DEPLOYMENT,
            "/spec/template/spec/affinity/nodeAffinity/of",
            json!("mine"),
        ),
        Row(
            &[
                "topologySpreadConstraints[0].topologyKey=rack",
                "topologySpreadConstraints[0].maxSkew=2",
                "topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
            ],
            DEPLOYMENT,
            SPREAD,
            json!([{
                "topologyKey": "rack", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": selected},
            }]),
        ),
        Row(
            &["priorityClassName=mine"],
            DEPLOYMENT,
            "/spec/template/spec/priorityClassName",
            json!("mine"),
        ),
        Row(
            &["nodeSelector.pool=system"],
            DEPLOYMENT,
            "/spec/template/spec/nodeSelector",
            json!({"pool": "system"}),
        ),
        // A list replaces the whole default.
        Row(
            &["tolerations[0].operator=Exists"],
            DEPLOYMENT,
            "/spec/template/spec/tolerations",
            json!([{"operator": "Exists"}]),
        ),
        // A map is merged into it.
        Row(
            &["resources.limits.memory=1Gi"],
            DEPLOYMENT,
            "/spec/template/spec/containers/0/resources",
            json!({"requests": {"cpu": "100m", "memory": "160Mi"}, "limits": {"memory": "1Gi"}}),
        ),
        Row(
            &["containerSecurityContext.readOnlyRootFilesystem=false"],
            DEPLOYMENT,
            "/spec/template/spec/containers/0/securityContext",
            json!({
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": false,
                "capabilities": {"drop": ["ALL"]},
            }),
        ),
        Row(
            &[],
            DEPLOYMENT,
            "/spec/template/spec/dnsPolicy",
            Value::Null,
        ),
        Row(
            &["hostNetwork=true", "dnsPolicy=Default"],
            DEPLOYMENT,
            "/spec/template/spec/dnsPolicy",
            json!("Default"),
        ),
        Row(
            &["dnsConfig.searches={example.org}"],
            DEPLOYMENT,
            "/spec/template/spec/dnsConfig/searches",
            json!(["example.org"]),
        ),
        Row(
            &["probes.startup.failureThreshold=90"],
            DEPLOYMENT,
            "/spec/template/spec/containers/0/startupProbe/failureThreshold",
            json!(90),
        ),
        Row(
            &["probes.readiness.timeoutSeconds=7"],
            DEPLOYMENT,
            "/spec/template/spec/containers/0/readinessProbe/timeoutSeconds",
            json!(7),
        ),
        Row(
            &["probes.liveness.failureThreshold=9"],
            DEPLOYMENT,
            "/spec/template/spec/containers/0/livenessProbe/failureThreshold",
            json!(9),
        ),
        // Behind the chart's own five.
        Row(
            &[
                "extraEnv[0].name=SSL_CERT_FILE",
                "extraEnv[0].value=/ca/ca.crt",
            ],
            DEPLOYMENT,
            "/spec/template/spec/containers/0/env/5",
            json!({"name": "SSL_CERT_FILE", "value": "/ca/ca.crt"}),
        ),
        Row(&[], DEPLOYMENT, VOLUMES, Value::Null),
        Row(
            &[
                "extraVolumes[0].name=ca",
                "extraVolumes[0].configMap.name=authorities",
            ],
            DEPLOYMENT,
            VOLUMES,
            json!([{"name": "ca", "configMap": {"name": "authorities"}}]),
        ),
        Row(&[], DEPLOYMENT, MOUNTS, Value::Null),
        Row(
            &[
                "extraVolumeMounts[0].name=ca",
                "extraVolumeMounts[0].mountPath=/ca",
            ],
            DEPLOYMENT,
            MOUNTS,
            json!([{"name": "ca", "mountPath": "/ca"}]),
        ),
        // With cert-manager behind the serving certificate.
        Row(
            &[
                "certificates.certManager.enabled=true",
                "extraVolumes[0].name=ca",
                "extraVolumes[0].configMap.name=authorities",
            ],
            DEPLOYMENT,
            "/spec/template/spec/volumes/1",
            json!({"name": "ca", "configMap": {"name": "authorities"}}),
        ),
        Row(
            &[
                "certificates.certManager.enabled=true",
                "extraVolumeMounts[0].name=ca",
                "extraVolumeMounts[0].mountPath=/ca",
            ],
            DEPLOYMENT,
            "/spec/template/spec/containers/0/volumeMounts/1",
            json!({"name": "ca", "mountPath": "/ca"}),
        ),
    ]
}

/// The rows about the objects beside the Deployment.
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn rows_of_the_rest() -> Vec<Row> {
    vec![
        // Names.
        Row(
            &["nameOverride=guard"],
            ("Deployment", "quorumgate-guard"),
            "/spec/template/metadata/labels",
            json!({"app.kubernetes.io/name": "guard", "app.kubernetes.io/instance": "quorumgate"}),
        ),
        Row(
            &["nameOverride=guard"],
            ("PodDisruptionBudget", "quorumgate-guard"),
            "/spec/selector/matchLabels",
            json!({"app.kubernetes.io/name": "guard", "app.kubernetes.io/instance": "quorumgate"}),
        ),
        Row(
            &["fullnameOverride=gate"],
            ("ServiceAccount", "gate"),
            "/metadata/name",
            json!("gate"),
        ),
        Row(
            &["fullnameOverride=gate"],
            ("ValidatingWebhookConfiguration", "gate"),
            "/webhooks/0/clientConfig/service/name",
            json!("gate"),
        ),
        Row(
            &["namespaceOverride=guards"],
            DEPLOYMENT,
            "/metadata/namespace",
            json!("guards"),
        ),
        Row(
            &["namespaceOverride=guards"],
            ("ValidatingWebhookConfiguration", "quorumgate"),
            "/webhooks/0/clientConfig/service/namespace",
            json!("guards"),
        ),
        Row(
            &["namespaceOverride=guards"],
            ("ClusterRoleBinding", "quorumgate"),
            "/subjects/0/namespace",
            json!("guards"),
        ),
        // The account.
        Row(&[], ACCOUNT, "/automountServiceAccountToken", Value::Null),
        Row(
            &["serviceAccount.automount=false"],
            ACCOUNT,
            "/automountServiceAccountToken",
            json!(false),
        ),
        Row(
            &["serviceAccount.annotations.role=arn"],
            ACCOUNT,
            "/metadata/annotations/role",
            json!("arn"),
        ),
        Row(
            &["serviceAccount.labels.team=storage"],
            ACCOUNT,
            "/metadata/labels/team",
            json!("storage"),
        ),
        Row(
            &["serviceAccount.name=mine"],
            ("ServiceAccount", "mine"),
            "/metadata/name",
            json!("mine"),
        ),
        // What is beside the replicas.
        Row(&[], BUDGET, "/spec/maxUnavailable", json!(1)),
        Row(
            &[
                "podDisruptionBudget.maxUnavailable=null",
                "podDisruptionBudget.minAvailable=2",
            ],
            BUDGET,
            "/spec/minAvailable",
            json!(2),
        ),
        Row(
            &[
                "podDisruptionBudget.maxUnavailable=null",
                "podDisruptionBudget.minAvailable=2",
            ],
            BUDGET,
            "/spec/maxUnavailable",
            Value::Null,
        ),
        Row(
            &["podDisruptionBudget.unhealthyPodEvictionPolicy=IfHealthyBudget"],
            BUDGET,
            "/spec/unhealthyPodEvictionPolicy",
            json!("IfHealthyBudget"),
        ),
        Row(
            &["podDisruptionBudget.annotations.why=because"],
            BUDGET,
            "/metadata/annotations/why",
            json!("because"),
        ),
        Row(
            &["service.annotations.why=because"],
            SERVICE,
            "/metadata/annotations/why",
            json!("because"),
        ),
        Row(
            &["service.metricsPort=9080"],
            SERVICE,
            "/spec/ports/1/port",
            json!(9080),
        ),
        Row(
            &["replicas=12"],
            ("ResourceQuota", "critical-pods"),
            "/spec/hard/pods",
            json!("13"),
        ),
        Row(
            &[],
            ("ResourceQuota", "critical-pods"),
            "/spec/scopeSelector/matchExpressions/0/values",
            json!(["system-cluster-critical"]),
        ),
        Row(
            &["flowControl.matchingPrecedence=400"],
            ("FlowSchema", "quorumgate"),
            "/spec/matchingPrecedence",
            json!(400),
        ),
        Row(
            &[
                "networkPolicy.enabled=true",
                "networkPolicy.apiServers={10.0.0.0/8}",
                "networkPolicy.monitoring[0].podSelector.matchLabels.app=prometheus",
            ],
            ("NetworkPolicy", "quorumgate"),
            "/spec/ingress/1/from",
            json!([{"podSelector": {"matchLabels": {"app": "prometheus"}}}]),
        ),
        Row(
            &["webhooks.annotations.why=because"],
            ("ValidatingWebhookConfiguration", "quorumgate"),
            "/metadata/annotations",
            json!({"why": "because"}),
        ),
        Row(
            &[
                "webhooks.annotations.why=because",
                "certificates.certManager.enabled=true",
            ],
            ("MutatingWebhookConfiguration", "quorumgate"),
            "/metadata/annotations",
            json!({"why": "because", "cert-manager.io/inject-ca-from": "quorumgate/quorumgate-tls"}),
        ),
        // The serving certificate.
        Row(
            &[
                "certificates.certManager.enabled=true",
                "clusterDomain=example.org",
            ],
            CERTIFICATE,
            "/spec/dnsNames",
            json!([
                "quorumgate.quorumgate.svc",
                "quorumgate.quorumgate.svc.example.org",
            ]),
        ),
        Row(
            &["certificates.certManager.enabled=true"],
            CERTIFICATE,
            "/spec/issuerRef",
            json!({"group": "cert-manager.io", "kind": "Issuer", "name": "quorumgate-ca"}),
        ),
        Row(
            &[
                "certificates.certManager.enabled=true",
                "certificates.certManager.issuerRef.kind=ClusterIssuer",
                "certificates.certManager.issuerRef.name=ours",
            ],
            CERTIFICATE,
            "/spec/issuerRef",
            json!({"kind": "ClusterIssuer", "name": "ours"}),
        ),
        Row(
            &[
                "certificates.certManager.enabled=true",
                "certificates.certManager.duration=240h",
                "certificates.certManager.renewBefore=80h",
            ],
            CERTIFICATE,
            "/spec/duration",
            json!("240h"),
        ),
        Row(
            &[
                "certificates.certManager.enabled=true",
                "certificates.certManager.renewBefore=80h",
            ],
            CERTIFICATE,
            "/spec/renewBefore",
            json!("80h"),
        ),
        // Metrics.
        Row(
            &["podMonitor.enabled=true", "podMonitor.interval=7s"],
            MONITOR,
            "/spec/podMetricsEndpoints/0/interval",
            json!("7s"),
        ),
        Row(
            &["podMonitor.enabled=true", "podMonitor.scrapeTimeout=5s"],
            MONITOR,
            "/spec/podMetricsEndpoints/0/scrapeTimeout",
            json!("5s"),
        ),
        Row(
            &["podMonitor.enabled=true", "podMonitor.namespace=monitoring"],
            MONITOR,
            "/metadata/namespace",
            json!("monitoring"),
        ),
        Row(
            &["podMonitor.enabled=true", "podMonitor.namespace=monitoring"],
            MONITOR,
            "/spec/namespaceSelector/matchNames",
            json!(["quorumgate"]),
        ),
        Row(
            &[
                "podMonitor.enabled=true",
                "podMonitor.labels.prometheus=main",
            ],
            MONITOR,
            "/metadata/labels/prometheus",
            json!("main"),
        ),
        Row(
            &[
                "podMonitor.enabled=true",
                "podMonitor.annotations.why=because",
            ],
            MONITOR,
            "/metadata/annotations/why",
            json!("because"),
        ),
        Row(
            &[
                "podMonitor.enabled=true",
                "podMonitor.relabelings[0].targetLabel=region",
                "podMonitor.relabelings[0].replacement=north",
            ],
            MONITOR,
            "/spec/podMetricsEndpoints/0/relabelings",
            json!([{"targetLabel": "region", "replacement": "north"}]),
        ),
        Row(
            &[
                "podMonitor.enabled=true",
                "podMonitor.metricRelabelings[0].action=labeldrop",
                "podMonitor.metricRelabelings[0].regex=pod",
            ],
            MONITOR,
            "/spec/podMetricsEndpoints/0/metricRelabelings",
            json!([{"action": "labeldrop", "regex": "pod"}]),
        ),
        Row(
            &[
                "prometheusRule.enabled=true",
                "prometheusRule.namespace=monitoring",
            ],
            RULE,
            "/metadata/namespace",
            json!("monitoring"),
        ),
        Row(
            &[
                "prometheusRule.enabled=true",
                "prometheusRule.labels.prometheus=main",
            ],
            RULE,
            "/metadata/labels/prometheus",
            json!("main"),
        ),
        Row(
            &[
                "prometheusRule.enabled=true",
                "prometheusRule.annotations.why=because",
            ],
            RULE,
            "/metadata/annotations/why",
            json!("because"),
        ),
        Row(
            &["dashboard.enabled=true", "dashboard.namespace=monitoring"],
            DASHBOARD,
            "/metadata/namespace",
            json!("monitoring"),
        ),
        Row(
            &[
                "dashboard.enabled=true",
                "dashboard.annotations.folder=etcd",
            ],
            DASHBOARD,
            "/metadata/annotations/folder",
            json!("etcd"),
        ),
        // Beside the chart's own.
        Row(
            &["dashboard.enabled=true", "dashboard.labels.team=storage"],
            DASHBOARD,
            "/metadata/labels",
            json!({"grafana_dashboard": "1", "team": "storage"}),
        ),
        Row(
            &[
                "dashboard.enabled=true",
                "dashboard.labels.grafana_dashboard=null",
                "dashboard.labels.team=storage",
            ],
            DASHBOARD,
            "/metadata/labels",
            json!({"team": "storage"}),
        ),
    ]
}

/// The rows about the hooks.
fn rows_of_the_hooks() -> Vec<Row> {
    vec![
        Row(
            &["namespaceOverride=guards"],
            REMOVAL,
            "/spec/template/spec/containers/0/args/2",
            json!("--lease-namespace=guards"),
        ),
        Row(
            &["namespaceOverride=guards"],
            REMOVAL,
            "/spec/template/spec/containers/0/args/6",
            json!("--release-namespace=quorumgate"),
        ),
        Row(
            &["uninstall.timeout=90s"],
            REMOVAL,
            "/spec/template/spec/containers/0/args/7",
            json!("--timeout=90s"),
        ),
        Row(
            &[],
            REMOVAL,
            "/spec/template/spec/containers/0/args/8",
            Value::Null,
        ),
        Row(
            &["uninstall.unfinishedRollouts=true"],
            REMOVAL,
            "/spec/template/spec/containers/0/args/8",
            json!("--unfinished-rollouts"),
        ),
        Row(
            &["uninstall.deadlineSeconds=600"],
            REMOVAL,
            "/spec/activeDeadlineSeconds",
            json!(600),
        ),
        Row(
            &["hooks.resources.limits.memory=512Mi"],
            REMOVAL,
            "/spec/template/spec/containers/0/resources",
            json!({"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "512Mi"}}),
        ),
        Row(
            &["hooks.resources.limits.memory=512Mi"],
            HELM_TEST,
            "/spec/containers/0/resources/limits/memory",
            json!("512Mi"),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_value_changes_what_it_says() -> Result<()> {
    let bed = Bed::up().await?;
    for row in rows_of_the_replicas().iter().chain(&rows_of_the_rest()) {
        holds(row, &rendered(&bed, row.0).await?)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_value_of_the_hooks_changes_what_it_says() -> Result<()> {
    // The chart refuses to be installed where it finds the gates of other cases.
    on_a_plane_of_its_own("chart-hooks", Tuning::default(), hooked).await
}

async fn hooked(bed: Bed) -> Result<()> {
    for row in rows_of_the_hooks() {
        // Asked of the cluster, helm renders hooks as well. The definitions are there already.
        let asked = template(&bed, row.0).args(["--set=crds.enabled=false", "--dry-run=server"]);
        holds(&row, &asked.await?.success()?)?;
    }
    Ok(())
}

/// Whether the objects that helm made of the values of a row are as it says.
fn holds(Row(values, (kind, name), path, expected): &Row, text: &str) -> Result<()> {
    let found = objects(text)?;
    let object = object(&found, kind, name).with_context(|| format!("{values:?}"))?;
    let there = object.pointer(path).unwrap_or(&Value::Null);
    ensure!(
        there == expected,
        "{values:?}: {kind} {name} has {there} at {path}, not {expected}"
    );
    Ok(())
}

fn object<'a>(found: &'a Objects, kind: &str, name: &str) -> Result<&'a Value> {
    let object = found.get(&(kind.to_owned(), name.to_owned()));
    object.with_context(|| format!("there is no {kind} {name}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_as_detailed_as_the_values_say() -> Result<()> {
    let bed = Bed::up().await?;
    let arguments = async |values: &[&str]| -> Result<String> {
        let found = objects(&rendered(&bed, values).await?)?;
        let deployment = object(&found, "Deployment", "quorumgate")?;
        Ok(deployment["spec"]["template"]["spec"]["containers"][0]["args"].to_string())
    };
    let default = arguments(&[]).await?;
    ensure!(default.contains("--log-format=json") && !default.contains("--log="));
    let changed = arguments(&["log.format=text", r"log.level=warn\,quorumgate=debug"]).await?;
    for argument in ["\"--log-format=text\"", "\"--log=warn,quorumgate=debug\""] {
        ensure!(changed.contains(argument), "{changed}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_replicas_run_with_the_arguments_that_the_values_say() -> Result<()> {
    let bed = Bed::up().await?;
    let arguments = async |values: &[&str]| -> Result<Value> {
        let found = objects(&rendered(&bed, values).await?)?;
        let deployment = object(&found, "Deployment", "quorumgate")?;
        Ok(deployment["spec"]["template"]["spec"]["containers"][0]["args"].clone())
    };
    let has = |arguments: &Value, argument: &str| {
        let mut all = arguments.as_array().into_iter().flatten();
        all.any(|one| one == argument)
    };
    let default = arguments(&[]).await?;
    let service = "quorumgate.$(QUORUMGATE_LEASE_NAMESPACE).svc";
    let names = format!("--certificate-names={service},{service}.example.org");
    let collector = "traces.endpoint=http://collector.monitoring:4317";
    for (value, argument) in [
        ("maxRollouts=2", "--max-rollouts=2"),
        (
            collector,
            "--otlp-endpoint=http://collector.monitoring:4317",
        ),
        ("clusterDomain=example.org", names.as_str()),
    ] {
        ensure!(!has(&default, argument), "{argument} in {default}");
        let changed = arguments(&[value]).await?;
        ensure!(has(&changed, argument), "{value}: {changed}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_values_switch_off_are_not_made() -> Result<()> {
    let bed = Bed::up().await?;
    let issued = "certificates.certManager.enabled=true";
    for (on, off, kind, name) in [
        (
            "criticalPodsQuota=true",
            "criticalPodsQuota=false",
            "ResourceQuota",
            "critical-pods",
        ),
        (
            "rbac.aggregateToView=true",
            "rbac.aggregateToView=false",
            "ClusterRole",
            "quorumgate-view",
        ),
        // An issuer of one's own takes the place of the authority.
        (
            issued,
            "certificates.certManager.issuerRef.name=ours",
            "Issuer",
            "quorumgate-ca",
        ),
        (
            issued,
            "certificates.certManager.issuerRef.name=ours",
            "Certificate",
            "quorumgate-ca",
        ),
    ] {
        let with = objects(&rendered(&bed, &[on]).await?)?;
        object(&with, kind, name)?;
        let without = objects(&rendered(&bed, &[on, off]).await?)?;
        ensure!(
            object(&without, kind, name).is_err(),
            "{off}: {kind} {name}"
        );
    }
    Ok(())
}

/// The life of a release shows that helm heeds it (see [`super::life`]).
#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_kept_unless_the_values_say_otherwise() -> Result<()> {
    let bed = Bed::up().await?;
    for (keep, times) in [("crds.keep=true", 2), ("crds.keep=false", 0)] {
        let text = rendered(&bed, &["etcdMembers.enabled=true", keep]).await?;
        let kept = text.matches("helm.sh/resource-policy: keep").count();
        ensure!(kept == times, "{keep}: {kept} definitions are kept");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn further_objects_are_templates_whether_objects_or_texts() -> Result<()> {
    let bed = Bed::up().await?;
    let object_of_it = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-one"},
    });
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}-two\"}";
    let values = json!([object_of_it, text]);
    let rendered = template(&bed, &[]).args([format!("--set-json=extraObjects={values}")]);
    let found = objects(&rendered.await?.success()?)?;
    for name in ["quorumgate-one", "quorumgate-two"] {
        object(&found, "ConfigMap", name)?;
    }
    Ok(())
}

/// Hooks included: a label of a mesh has to be on their pods too.
#[tokio::test(flavor = "multi_thread")]
async fn common_labels_and_annotations_are_on_every_object_and_pod() -> Result<()> {
    // The chart refuses to be installed where it finds the gates of other cases.
    on_a_plane_of_its_own("chart-labelled", Tuning::default(), labelled).await
}

async fn labelled(bed: Bed) -> Result<()> {
    let values = [
        // The cluster has them already.
        "crds.enabled=false",
        "commonLabels.team=storage",
        r"commonLabels.app\.kubernetes\.io/name=other",
        "commonAnnotations.contact=us",
        r"podLabels.app\.kubernetes\.io/instance=other",
        "etcdMembers.enabled=true",
        "networkPolicy.enabled=true",
        "networkPolicy.apiServers={10.0.0.0/8}",
        "dashboard.enabled=true",
        "rbac.aggregateToEdit=true",
    ];
    // Asked of the cluster, helm renders hooks as well, and no kinds that the cluster lacks.
    let asked = template(&bed, &values).args(["--dry-run=server"]).await?;
    let lacking = [
        "certificates.certManager.enabled=true",
        "podMonitor.enabled=true",
        "prometheusRule.enabled=true",
    ];
    let api = ["--api-versions=cert-manager.io/v1"];
    let unasked = template(&bed, &[&values[..], &lacking].concat()).args(api);
    let texts = [asked.success()?, unasked.await?.success()?];
    let mut objects: Vec<Value> = Vec::new();
    for text in &texts {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
        objects.extend(documents.into_iter().filter(Value::is_object));
    }
    let mut hooks = 0;
    for object in &objects {
        let pod = object.pointer("/spec/template/metadata");
        for metadata in [Some(&object["metadata"]), pod].into_iter().flatten() {
            let what = format!("{} {}", object["kind"], object["metadata"]["name"]);
            let (labels, annotations) = (&metadata["labels"], &metadata["annotations"]);
            ensure!(labels["team"] == "storage", "{what}: {labels}");
            ensure!(annotations["contact"] == "us", "{what}: {annotations}");
            let name = labels["app.kubernetes.io/name"].as_str();
            let ours = name.is_some_and(|name| name.starts_with("quorumgate"));
            ensure!(ours, "{what}: {labels}");
            let instance = &labels["app.kubernetes.io/instance"];
            ensure!(instance == "quorumgate", "{what}: {labels}");
            hooks += usize::from(annotations["helm.sh/hook"].is_string());
        }
    }
    ensure!(
        objects.len() > 50 && hooks > 10,
        "{hooks} of {}",
        objects.len()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_and_bindings_are_about_the_account_that_is_named() -> Result<()> {
    let bed = Bed::up().await?;
    let values = ["serviceAccount.create=false", "serviceAccount.name=mine"];
    let found = objects(&rendered(&bed, &values).await?)?;
    let (mut policies, mut bindings) = (0, 0);
    for ((kind, name), object) in &found {
        ensure!(kind != "ServiceAccount", "{name} is made");
        match kind.as_str() {
            "ValidatingAdmissionPolicy" => {
                let condition = &object["spec"]["matchConditions"][0]["expression"];
                let of_it = "request.userInfo.username == 'system:serviceaccount:quorumgate:mine'";
                ensure!(condition == of_it, "{name}: {condition}");
                policies += 1;
            }
            "ClusterRoleBinding" | "RoleBinding" => {
                ensure!(object["subjects"][0]["name"] == "mine", "{name}");
                bindings += 1;
            }
            _ => {}
        }
    }
    ensure!(policies > 5 && bindings > 5, "{policies}, {bindings}");
    let flow = &object(&found, "FlowSchema", "quorumgate")?["spec"]["rules"][0];
    ensure!(
        flow["subjects"][0]["serviceAccount"]["name"] == "mine",
        "{flow}"
    );
    let pod = &object(&found, "Deployment", "quorumgate")?["spec"]["template"]["spec"];
    ensure!(pod["serviceAccountName"] == "mine", "{pod}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rights_of_the_chart_no_role_is_left() -> Result<()> {
    // The chart refuses to be installed where it finds the gates of other cases.
    on_a_plane_of_its_own("chart-without-roles", Tuning::default(), without_roles).await
}

async fn without_roles(bed: Bed) -> Result<()> {
    let values = [
        // The cluster has them already.
        "crds.enabled=false",
        "rbac.create=false",
        "uninstall.enabled=false",
        "tests.enabled=false",
        "rbac.aggregateToEdit=true",
        "etcdMembers.enabled=true",
    ];
    let text = template(&bed, &values).args(["--dry-run=server"]);
    let found = objects(&text.await?.success()?)?;
    for (kind, name) in found.keys() {
        ensure!(!kind.contains("Role"), "{kind} {name}");
    }
    object(&found, "ServiceAccount", "quorumgate")?;
    object(
        &found,
        "ValidatingAdmissionPolicy",
        "quorumgate-etcd-members",
    )?;
    Ok(())
}

/// As `condition: quorumgate.enabled` says in a chart that depends on this one.
#[tokio::test(flavor = "multi_thread")]
async fn a_chart_that_depends_on_it_switches_it_on_and_off() -> Result<()> {
    let bed = Bed::up().await?;
    let parent = tempfile::tempdir()?;
    let version = env!("CARGO_PKG_VERSION");
    let about = json!({
        "apiVersion": "v2", "name": "parent", "version": "1.0.0",
        "dependencies": [{
            "name": "quorumgate", "version": version, "condition": "quorumgate.enabled",
            "repository": format!("file://{}", chart()),
        }],
    });
    std::fs::write(parent.path().join("Chart.yaml"), about.to_string())?;
    let path = parent.path().to_string_lossy();
    helm(&bed, ["dependency", "update", &path])
        .await?
        .success()?;
    let whole = helm(&bed, ["template", "all", &path, "--namespace=all"]);
    let found = objects(&whole.await?.success()?)?;
    object(&found, "Deployment", "all-quorumgate")?;
    let off = "--set=quorumgate.enabled=false";
    let without = helm(&bed, ["template", "all", &path, off])
        .await?
        .success()?;
    ensure!(!without.contains("kind:"), "{without}");
    Ok(())
}
