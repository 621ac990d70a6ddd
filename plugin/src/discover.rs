//! Where the gate is: the webhook configurations say which Service the API server calls.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use quorumgate_api::names::{HELM_NAMESPACE, HELM_RELEASE, POD_WEBHOOK};
use serde::Serialize;

use crate::cli;

/// The name of everything, where nothing says otherwise.
const USUAL: &str = "quorumgate";

/// An installed gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Gate {
    pub(crate) namespace: String,
    /// Name of the Deployment, the Service and the Lease.
    pub(crate) name: String,
    /// Name of its webhook configurations.
    pub(crate) configuration: String,
    /// The release of helm, with its namespace, if helm installed it.
    pub(crate) release: Option<String>,
}

/// The result of the search.
pub(crate) struct Found {
    pub(crate) gate: Gate,
    /// Every webhook configuration by which the API server asks a gate.
    pub(crate) configurations: Vec<String>,
    /// The error, if webhook configurations could not be listed. The names are then the usual ones.
    pub(crate) error: Option<kube::Error>,
}

/// Finds the gate by its webhook, which has the same name in every installation. What the user
/// named counts before that.
pub(crate) async fn gate(client: &Client, given: &cli::Gate) -> Found {
    let all = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let (found, error) = match all.list(&ListParams::default()).await {
        Ok(all) => (all.items, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let ours: Vec<_> = found.iter().filter(|found| asks_gate(found)).collect();
    let configurations: Vec<_> = ours.iter().map(|found| found.name_any()).collect();
    let chosen = match &given.webhook_configuration {
        Some(name) => ours.iter().find(|found| found.name_any() == *name),
        None => ours.first(),
    };
    let service = chosen.and_then(|found| {
        let mut hooks = found.webhooks.iter().flatten();
        hooks.find_map(|hook| hook.client_config.service.clone())
    });
    let release = chosen.and_then(|found| {
        let annotations = found.annotations();
        let release = annotations.get(HELM_RELEASE)?;
        let namespace = annotations.get(HELM_NAMESPACE)?;
        Some(format!("{namespace}/{release}"))
    });
    let configuration = given.webhook_configuration.clone();
    let by_service = service.map(|service| (service.namespace, service.name));
    let (namespace, name) = by_service.unwrap_or_else(|| (USUAL.to_owned(), USUAL.to_owned()));
    Found {
        gate: Gate {
            namespace: given.gate_namespace.clone().unwrap_or(namespace),
            name: given.gate_name.clone().unwrap_or(name),
            configuration: configuration
                .or_else(|| chosen.map(|found| found.name_any()))
                .unwrap_or_else(|| USUAL.to_owned()),
            release,
        },
        configurations,
        error,
    }
}

fn asks_gate(found: &ValidatingWebhookConfiguration) -> bool {
    let mut hooks = found.webhooks.iter().flatten();
    hooks.any(|hook| hook.name == POD_WEBHOOK)
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::connect::tests::{api_server, forbidden, list};

    /// The path of the list of validating webhook configurations.
    pub(crate) const VALIDATING: &str =
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

    /// A webhook configuration of this name, for the Service `gates/the-gate`.
    pub(crate) fn configuration(name: &str, webhook: &str) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name, "annotations": {
                "meta.helm.sh/release-name": "mine", "meta.helm.sh/release-namespace": "gates"}},
            "webhooks": [{"name": webhook, "sideEffects": "NoneOnDryRun",
                "failurePolicy": "Fail",
                "admissionReviewVersions": ["v1"],
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                    "operations": ["DELETE"]}],
                "clientConfig": {"caBundle": "", "service": {"namespace": "gates",
                    "name": "the-gate", "path": "/validate/pods/secretword", "port": 443}}}],
        })
    }

    #[tokio::test]
    async fn the_gate_is_where_its_webhook_calls_whatever_its_name() {
        let all = list(
            "ValidatingWebhookConfiguration",
            &[
                configuration("another", "pods.example.org"),
                configuration("renamed", POD_WEBHOOK),
            ],
        );
        let (of, _) = api_server(&[(VALIDATING, all)]);
        let found = gate(&of.client, &cli::Gate::default()).await;
        assert_eq!(found.gate.namespace, "gates");
        assert_eq!(found.gate.name, "the-gate");
        assert_eq!(found.gate.configuration, "renamed");
        assert_eq!(found.gate.release.as_deref(), Some("gates/mine"));
        assert_eq!(found.configurations, ["renamed"]);

        let given = cli::Gate {
            gate_namespace: Some("elsewhere".to_owned()),
            ..cli::Gate::default()
        };
        let found = gate(&of.client, &given).await.gate;
        assert_eq!(
            (found.namespace.as_str(), found.name.as_str()),
            ("elsewhere", "the-gate")
        );
    }

    #[tokio::test]
    async fn a_user_who_may_not_list_webhooks_gets_the_usual_names() {
        let (of, _) = api_server(&[(VALIDATING, forbidden())]);
        let found = gate(&of.client, &cli::Gate::default()).await;
        assert!(found.error.is_some());
        assert_eq!(found.gate.name, "quorumgate");
        assert_eq!(found.gate.configuration, "quorumgate");
    }
}
