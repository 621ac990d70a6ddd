//! The parts of a report.

use std::fmt::Debug;

use anyhow::{Result, anyhow};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, LogParams};
use kube::core::Selector;
use kube::{Api, Resource, ResourceExt as _};
use quorumgate_api::QuorumDisruptionBudget;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::archive::Archive;
use super::redact;
use crate::cli;
use crate::connect::{BUDGETS, Kubernetes, failed};
use crate::discover::Gate;
use crate::status::{chosen, table_of};
use crate::{doctor, version};

/// The most bytes of one log.
const LOG: i64 = 8 << 20;

/// The container of the gate, and its port with metrics.
const CONTAINER: &str = "quorumgate";
const METRICS_PORT: &str = "admin";

/// Reads every part. What the user may not read is left out, and said.
pub(super) async fn collect(
    of: &Kubernetes,
    gate: &Gate,
    options: &cli::Report,
    archive: &mut Archive,
) {
    archive.add("versions.json", version::json(&of.client, gate).await);
    let found = doctor::text(of, &options.gate).await;
    archive.add("doctor.txt", Ok(redact::text(&found)));
    let clusters = chosen(of).await;
    let shown = clusters.map(|all| redact::text(&table_of(of, &all)));
    archive.add("status.txt", shown);
    archive.add("budgets.yaml", budgets(of).await);
    archive.add("events.yaml", events(of, gate).await);
    archive.add("webhook-configurations.yaml", webhooks(of, gate).await);
    archive.add("deployment.yaml", one::<Deployment>(of, gate).await);
    archive.add("lease.yaml", one::<Lease>(of, gate).await);
    archive.add("endpoints.yaml", endpoints(of, gate).await);
    match replicas(of, gate).await {
        Err(error) => archive.add("pods.yaml", Err(error)),
        Ok(pods) => {
            archive.add("pods.yaml", yaml(&pods));
            for pod in pods {
                logs(of, gate, &pod, options, archive).await;
                let name = format!("metrics/{}.txt", pod.name_any());
                archive.add(&name, metrics(of, gate, &pod).await);
            }
        }
    }
}

/// Objects as YAML, one document each.
fn yaml<K: Serialize>(objects: &[K]) -> Result<String> {
    let mut text = String::new();
    for object in objects {
        let object = redact::object(serde_json::to_value(object)?);
        text += "---\n";
        text += &serde_saphyr::to_string(&object)?;
    }
    Ok(text)
}

/// The object with the gate's name.
async fn one<K>(of: &Kubernetes, gate: &Gate) -> Result<String>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let api = Api::<K>::namespaced(of.client.clone(), &gate.namespace);
    let found = api.get(&gate.name).await;
    yaml(&[found.map_err(|error| failed(&K::plural(&()), error))?])
}

async fn budgets(of: &Kubernetes) -> Result<String> {
    let api = if of.named {
        Api::<QuorumDisruptionBudget>::namespaced(of.client.clone(), &of.namespace)
    } else {
        Api::all(of.client.clone())
    };
    let all = api.list(&ListParams::default()).await;
    yaml(&all.map_err(|error| failed(BUDGETS, error))?.items)
}

/// The Events about clusters, budgets and the gate, oldest first.
async fn events(of: &Kubernetes, gate: &Gate) -> Result<String> {
    let clusters = chosen(of).await?;
    let mut found = Vec::new();
    let mut namespaces: Vec<_> = clusters.iter().map(|c| c.namespace.as_str()).collect();
    namespaces.push(&gate.namespace);
    namespaces.sort_unstable();
    namespaces.dedup();
    for namespace in namespaces {
        let api = Api::<Event>::namespaced(of.client.clone(), namespace);
        let all = api.list(&ListParams::default()).await;
        let all = all.map_err(|error| failed("Events", error))?;
        let concerns = |event: &Event| {
            let about = event.regarding.as_ref();
            let name = about
                .and_then(|about| about.name.as_deref())
                .unwrap_or_default();
            let mut clusters = clusters
                .iter()
                .filter(|cluster| cluster.namespace == namespace);
            namespace == gate.namespace
                || clusters.any(|c| c.name == name || c.has_pod(namespace, name))
        };
        found.extend(all.into_iter().filter(concerns));
    }
    found.sort_by_key(|event| event.metadata.creation_timestamp.clone().map(|time| time.0));
    yaml(&found)
}

async fn webhooks(of: &Kubernetes, gate: &Gate) -> Result<String> {
    let name = gate.configuration.as_str();
    let validating = Api::<ValidatingWebhookConfiguration>::all(of.client.clone());
    let validating = validating.get(name).await;
    let validating = validating.map_err(|error| failed("webhook configurations", error))?;
    let mutating = Api::<MutatingWebhookConfiguration>::all(of.client.clone());
    let mutating = mutating.get(name).await;
    let mutating = mutating.map_err(|error| failed("webhook configurations", error))?;
    Ok(yaml(&[validating])? + &yaml(&[mutating])?)
}

async fn endpoints(of: &Kubernetes, gate: &Gate) -> Result<String> {
    let api = Api::<EndpointSlice>::namespaced(of.client.clone(), &gate.namespace);
    let of_service = format!("kubernetes.io/service-name={}", gate.name);
    let all = api.list(&ListParams::default().labels(&of_service)).await;
    yaml(&all.map_err(|error| failed("EndpointSlices", error))?.items)
}

/// The pods of the Deployment.
async fn replicas(of: &Kubernetes, gate: &Gate) -> Result<Vec<Pod>> {
    let deployments = Api::<Deployment>::namespaced(of.client.clone(), &gate.namespace);
    let deployment = deployments.get(&gate.name).await;
    let deployment = deployment.map_err(|error| failed("Deployments", error))?;
    let selector = deployment
        .spec
        .map(|spec| spec.selector)
        .unwrap_or_default();
    let selector = Selector::try_from(selector)?;
    if selector.selects_all() {
        return Err(anyhow!("the Deployment {} selects no pods", gate.name));
    }
    let pods = Api::<Pod>::namespaced(of.client.clone(), &gate.namespace);
    let all = pods
        .list(&ListParams::default().labels_from(&selector))
        .await;
    Ok(all.map_err(|error| failed("pods", error))?.items)
}

/// The log of a replica, and that of its container before the last restart.
async fn logs(
    of: &Kubernetes,
    gate: &Gate,
    pod: &Pod,
    options: &cli::Report,
    archive: &mut Archive,
) {
    let api = Api::<Pod>::namespaced(of.client.clone(), &gate.namespace);
    let name = pod.name_any();
    let since = i64::try_from(options.since.as_secs()).ok();
    for previous in [false, true] {
        let has_restarted = statuses(pod).any(|restarts| restarts > 0);
        if previous && !has_restarted {
            continue;
        }
        let which = LogParams {
            container: Some(CONTAINER.to_owned()),
            limit_bytes: Some(LOG),
            previous,
            since_seconds: since.filter(|_| !previous),
            ..LogParams::default()
        };
        let text = api.logs(&name, &which).await;
        let text = text.map_err(|error| failed("logs", error));
        let kind = if previous { ".previous" } else { "" };
        let file = format!("logs/{name}{kind}.log");
        archive.add(&file, text.map(|text| redact::text(&text)));
    }
}

/// How often each container of the pod has started again.
fn statuses(pod: &Pod) -> impl Iterator<Item = i32> {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    containers
        .into_iter()
        .flatten()
        .map(|status| status.restart_count)
}

/// The metrics of a replica, through the API server's proxy.
async fn metrics(of: &Kubernetes, gate: &Gate, pod: &Pod) -> Result<String> {
    let ports = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = ports
        .filter_map(|container| container.ports.as_ref())
        .flatten();
    let port = ports
        .find(|port| port.name.as_deref() == Some(METRICS_PORT))
        .ok_or_else(|| anyhow!("the pod has no port {METRICS_PORT}"))?;
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}:{}/proxy/metrics",
        gate.namespace,
        pod.name_any(),
        port.container_port
    );
    let request = http::Request::get(path).body(Vec::new())?;
    let text = of.client.request_text(request).await;
    Ok(redact::text(
        &text.map_err(|error| failed("metrics", error))?,
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::{Value, json};

    use super::super::archive::tests::read;
    use super::*;
    use crate::cluster::tests::degraded_budget;
    use crate::connect::tests::{api_server, forbidden, list};
    use crate::discover::tests::{VALIDATING, configuration};

    fn options() -> cli::Report {
        let line = ["q", "report"];
        match cli::Cli::try_parse_from(line).unwrap().command {
            cli::Command::Report(options) => options,
            other => panic!("{other:?}"),
        }
    }

    fn event(name: &str, about: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "db"}, "eventTime": null,
            "regarding": {"kind": "Pod", "name": about}, "note": "token=abc"})
    }

    fn objects(logs: Value) -> Vec<(&'static str, Value)> {
        let ours = configuration("renamed", quorumgate_api::names::POD_WEBHOOK);
        let validating: &'static str = Box::leak(format!("{VALIDATING}/renamed").into_boxed_str());
        let pod = json!({"metadata": {"name": "gate-a", "namespace": "gates"},
            "spec": {"containers": [{"name": "quorumgate",
                "env": [{"name": "A", "value": "hidden"}],
                "ports": [{"name": "admin", "containerPort": 8080}]}]},
            "status": {"containerStatuses": [{"name": "quorumgate", "image": "", "imageID": "",
                "ready": true, "restartCount": 1}]}});
        let deployment = json!({"metadata": {"name": "the-gate"},
            "spec": {"selector": {"matchLabels": {"app": "gate"}}, "template": {}}});
        vec![
            (
                VALIDATING,
                list(
                    "ValidatingWebhookConfiguration",
                    std::slice::from_ref(&ours),
                ),
            ),
            (validating, ours.clone()),
            (
                "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/renamed",
                json!({"metadata": {"name": "renamed"}}),
            ),
            (
                "/apis/quorumgate.io/v1alpha1/quorumdisruptionbudgets",
                list("QuorumDisruptionBudget", &[degraded_budget()]),
            ),
            (
                "/apis/events.k8s.io/v1/namespaces/db/events",
                list(
                    "Event",
                    &[event("a", "etcd-0"), event("b", "somebody-elses")],
                ),
            ),
            (
                "/apis/events.k8s.io/v1/namespaces/gates/events",
                list("Event", &[]),
            ),
            (
                "/apis/apps/v1/namespaces/gates/deployments/the-gate",
                deployment,
            ),
            (
                "/apis/coordination.k8s.io/v1/namespaces/gates/leases/the-gate",
                json!({"metadata": {"name": "the-gate"}}),
            ),
            (
                "/apis/discovery.k8s.io/v1/namespaces/gates/endpointslices",
                list("EndpointSlice", &[]),
            ),
            ("/api/v1/namespaces/gates/pods", list("Pod", &[pod])),
            ("/api/v1/namespaces/gates/pods/gate-a/log", logs),
            (
                "/api/v1/namespaces/gates/pods/gate-a:8080/proxy/metrics",
                json!("metric 1\n"),
            ),
        ]
    }

    async fn report(logs: Value) -> std::collections::BTreeMap<String, String> {
        let (of, _) = api_server(&objects(logs));
        let options = options();
        let gate = crate::discover::gate(&of.client, &options.gate).await.gate;
        let mut archive = Archive::new("r".to_owned());
        collect(&of, &gate, &options, &mut archive).await;
        read(&archive.finish().unwrap())
    }

    #[tokio::test]
    async fn a_report_has_every_part_and_no_secret() {
        let files = report(json!(
            "started password=hunter2 path=/validate/pods/secretword\n"
        ))
        .await;
        for part in [
            "README.txt",
            "versions.json",
            "doctor.txt",
            "status.txt",
            "budgets.yaml",
            "events.yaml",
            "webhook-configurations.yaml",
            "deployment.yaml",
            "pods.yaml",
            "lease.yaml",
            "endpoints.yaml",
            "logs/gate-a.log",
            "logs/gate-a.previous.log",
            "metrics/gate-a.txt",
        ] {
            assert!(
                files.contains_key(&format!("r/{part}")),
                "{part}: {:?}",
                files.keys()
            );
        }
        assert!(!files["r/README.txt"].contains("Could not be read"));
        for (name, text) in &files {
            for secret in ["hunter2", "secretword", "hidden", "token=abc"] {
                assert!(!text.contains(secret), "{name} has {secret}: {text}");
            }
        }
        assert!(files["r/events.yaml"].contains("etcd-0"));
        assert!(!files["r/events.yaml"].contains("somebody-elses"));
        assert!(files["r/status.txt"].contains("it refused the connection"));
        assert_eq!(files["r/metrics/gate-a.txt"], "metric 1\n");
    }

    #[tokio::test]
    async fn what_may_not_be_read_is_named_in_the_report() {
        let files = report(forbidden()).await;
        let about = &files["r/README.txt"];
        assert!(
            about.contains("logs/gate-a.log: your user may not read logs"),
            "{about}"
        );
        assert!(!files.contains_key("r/logs/gate-a.log"));
    }
}
