//! `kubectl quorum version`: the versions of the plugin, the gate and Kubernetes.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::{Api, Client};
use serde::Serialize;

use crate::End;
use crate::cli::{self, Connection};
use crate::connect::words;
use crate::discover::{Gate, gate};
use crate::show::{complain, print, print_as};

/// The version of this program.
const CLIENT: &str = env!("CARGO_PKG_VERSION");

/// The Kubernetes versions that are supported: 1.33 to 1.37.
const MINORS: std::ops::RangeInclusive<u32> = 33..=37;

/// The label with the version of an object's program.
const VERSION: &str = "app.kubernetes.io/version";

/// The versions as far as they could be read.
pub(crate) struct Versions {
    pub(crate) kubernetes: Result<Info, kube::Error>,
    /// The gate's Deployment, which says the gate's version.
    pub(crate) deployment: Result<Option<Deployment>, kube::Error>,
}

/// The versions, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    client_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gate_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes_version: Option<String>,
    /// The gate that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<Gate>,
    /// Differences that are not supported, and what could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

pub(crate) async fn run(connection: &Connection, options: &cli::Version) -> Result<End> {
    let shown = if options.client {
        Shown {
            client_version: CLIENT.to_owned(),
            gate_version: None,
            kubernetes_version: None,
            gate: None,
            warnings: Vec::new(),
        }
    } else {
        let of = connection.open().await?;
        let gate = gate(&of.client, &options.gate).await.gate;
        read(&of.client, &gate).await.shown(gate)
    };
    if let Some(form) = options.output {
        print_as(form, &shown)?;
        return Ok(End::Well);
    }
    print(&shown.text(options.client))?;
    for warning in &shown.warnings {
        complain(&format!("WARNING: {warning}"));
    }
    Ok(End::Well)
}

/// The versions as JSON, for a report.
pub(crate) async fn json(client: &Client, gate: &Gate) -> Result<String> {
    let shown = read(client, gate).await.shown(gate.clone());
    Ok(serde_json::to_string_pretty(&shown)? + "\n")
}

/// Reads the versions.
pub(crate) async fn read(client: &Client, gate: &Gate) -> Versions {
    let deployments = Api::<Deployment>::namespaced(client.clone(), &gate.namespace);
    Versions {
        kubernetes: client.apiserver_version().await,
        deployment: deployments.get_opt(&gate.name).await,
    }
}

impl Versions {
    /// The version of the gate, by the label of the chart, or by the tag of the image.
    fn gate(&self) -> Option<String> {
        let deployment = self.deployment.as_ref().ok()?.as_ref()?;
        let labels = deployment.metadata.labels.as_ref();
        if let Some(version) = labels.and_then(|labels| labels.get(VERSION)) {
            return Some(version.clone());
        }
        let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
        let image = pod.containers.first()?.image.as_deref()?;
        let (_, name) = image.rsplit_once('/').unwrap_or(("", image));
        let (name, _) = name.split_once('@').unwrap_or((name, ""));
        let (_, tag) = name.rsplit_once(':')?;
        Some(tag.to_owned())
    }

    /// The warning if the plugin and the gate have different minor versions.
    pub(crate) fn client_skew(&self) -> Option<String> {
        let gate = self.gate()?;
        let theirs = release(&gate)?;
        (Some(theirs) != release(CLIENT)).then(|| {
            format!(
                "the plugin is version {CLIENT} and the gate {gate}: use the same minor version"
            )
        })
    }

    /// The warning if quorumgate is not tested with this version of Kubernetes.
    pub(crate) fn kubernetes_skew(&self) -> Option<String> {
        let version = self.kubernetes.as_ref().ok()?;
        let minor = version.minor.trim_end_matches('+').parse().unwrap_or(0);
        let is_supported = version.major == "1" && MINORS.contains(&minor);
        (!is_supported).then(|| {
            format!(
                "Kubernetes is {}, and quorumgate is tested with 1.{} to 1.{}",
                version.git_version,
                MINORS.start(),
                MINORS.end()
            )
        })
    }

    fn shown(&self, gate: Gate) -> Shown {
        let unread = [
            self.kubernetes.as_ref().err().map(|e| ("Kubernetes", e)),
            self.deployment.as_ref().err().map(|e| ("the gate", e)),
        ];
        let unread = unread.into_iter().flatten();
        let unread = unread
            .map(|(what, error)| format!("cannot read the version of {what}: {}", words(error)));
        let skew = self.client_skew().into_iter().chain(self.kubernetes_skew());
        Shown {
            client_version: CLIENT.to_owned(),
            gate_version: self.gate(),
            kubernetes_version: self.kubernetes.as_ref().ok().map(|v| v.git_version.clone()),
            gate: Some(gate),
            warnings: skew.chain(unread).collect(),
        }
    }
}

impl Shown {
    fn text(&self, client_only: bool) -> String {
        let mut text = format!("Client:      {}\n", self.client_version);
        if client_only {
            return text;
        }
        let known = |version: &Option<String>| version.clone().unwrap_or("unknown".to_owned());
        text += &format!("Gate:        {}\n", known(&self.gate_version));
        text + &format!("Kubernetes:  {}\n", known(&self.kubernetes_version))
    }
}

/// The major and the minor version.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::connect::tests::{api_server, forbidden};

    const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/gates/deployments/gate";

    async fn versions(deployment: Value, minor: &str) -> Versions {
        let version = json!({"major": "1", "minor": minor, "gitVersion": format!("v1.{minor}.0"),
            "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "",
            "compiler": "", "platform": ""});
        let (of, _) = api_server(&[(DEPLOYMENT, deployment), ("/version", version)]);
        read(&of.client, &here()).await
    }

    fn here() -> Gate {
        Gate {
            namespace: "gates".to_owned(),
            name: "gate".to_owned(),
            configuration: "gate".to_owned(),
            release: None,
        }
    }

    fn deployment(image: &str, labels: &Value) -> Value {
        json!({"metadata": {"name": "gate", "labels": labels},
            "spec": {"selector": {}, "template": {"spec": {"containers": [
                {"name": "quorumgate", "image": image}]}}}})
    }

    #[tokio::test]
    async fn the_gates_version_is_that_of_its_label_or_of_its_image() {
        for (image, labels, expected) in [
            ("r:5000/q:1.2.3", json!({}), Some("1.2.3")),
            ("r/q:1.2.3@sha256:abc", json!({}), Some("1.2.3")),
            ("r/q@sha256:abc", json!({VERSION: "1.2.4"}), Some("1.2.4")),
            ("r:5000/q", json!({}), None),
        ] {
            let found = versions(deployment(image, &labels), "37").await.gate();
            assert_eq!(found.as_deref(), expected, "{image}");
        }
    }

    #[tokio::test]
    async fn differences_that_are_not_supported_are_warned_of() {
        let same = versions(deployment(&format!("q:{CLIENT}"), &json!({})), "37").await;
        assert_eq!(same.shown(here()).warnings, Vec::<String>::new());
        let old = versions(deployment("q:v7.1.0", &json!({})), "20+").await;
        let shown = old.shown(here());
        assert_eq!(shown.warnings.len(), 2, "{shown:?}");
        assert!(shown.warnings[0].contains("the gate v7.1.0"), "{shown:?}");
        assert!(shown.warnings[1].contains("v1.20+.0"), "{shown:?}");
        let unread = versions(forbidden(), "37").await.shown(here());
        let expected = "cannot read the version of the gate: user jane may not";
        assert_eq!(unread.warnings, [expected]);
        assert!(unread.text(false).contains("Gate:        unknown"));
    }
}
