//! The webhook configurations of the manifests, for one gate behind a balancer and for one
//! namespace.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{EvictParams, PostParams};
use kube::{Api, Client};
use serde_json::{Map, Value, json};

use super::cleanup::delete;
use super::manifests;
use super::permissions::apply_cluster_wide;
use crate::eventually;

/// The time limit until the API server has noticed a change of its webhooks.
const PATIENCE: Duration = Duration::from_secs(10);

/// The two configurations of one gate.
#[derive(Debug)]
pub(super) struct Webhooks {
    name: String,
    namespace: String,
    validating: ValidatingWebhookConfiguration,
    mutating: MutatingWebhookConfiguration,
}

impl Webhooks {
    /// The configurations of the manifests, rewritten. Several of one kind become one, as kustomize
    /// merges that of a component. `only` is the one namespace that they are for. `None` stands for
    /// all namespaces that the gate labels. Without an `authority` the gate writes its own into
    /// them.
    pub(super) fn new(
        objects: &[Value],
        name: &str,
        namespace: &str,
        only: Option<&str>,
        balancer: SocketAddr,
        authority: Option<&str>,
    ) -> Result<Self> {
        let target = Target {
            name,
            only,
            port: balancer.port(),
            authority,
        };
        Ok(Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            validating: target.rewrite(objects, "ValidatingWebhookConfiguration")?,
            mutating: target.rewrite(objects, "MutatingWebhookConfiguration")?,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) async fn register(&self, client: &Client) -> Result<()> {
        apply_cluster_wide(client, self.mutating.clone()).await?;
        apply_cluster_wide(client, self.validating.clone()).await
    }

    pub(super) async fn unregister(&self, client: &Client) -> Result<()> {
        delete::<ValidatingWebhookConfiguration>(client, &self.name).await?;
        delete::<MutatingWebhookConfiguration>(client, &self.name).await?;
        let what = "the API server asks the gate no more";
        eventually(PATIENCE, what, || async {
            let asked = self.is_asked(client).await?;
            ensure!(!asked, "it still asks");
            anyhow::Ok(())
        })
        .await
    }

    /// Waits until the API server asks this gate about evictions in its namespace.
    pub(super) async fn in_force(&self, client: &Client, within: Duration) -> Result<()> {
        let what = format!("the API server asks the gate about {}", self.namespace);
        eventually(within, what, || async {
            let asked = self.is_asked(client).await?;
            ensure!(asked, "it does not ask; is the namespace labelled?");
            anyhow::Ok(())
        })
        .await
    }

    /// Whether a webhook is asked about evictions. If so, an eviction of a pod that does not exist
    /// is refused by the webhook, before the API server would answer "not found".
    async fn is_asked(&self, client: &Client) -> Result<bool> {
        let pods = Api::<Pod>::namespaced(client.clone(), &self.namespace);
        let dry_run = EvictParams {
            post_options: PostParams {
                dry_run: true,
                ..PostParams::default()
            },
            ..EvictParams::default()
        };
        // No StatefulSet gives such a name, so the gate reads the pod, and says that there is none.
        match pods.evict("no-such-pod-00", &dry_run).await {
            Err(kube::Error::Api(status)) => Ok(status.message.contains("webhook")),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(false),
        }
    }
}

/// The values for a configuration.
struct Target<'a> {
    name: &'a str,
    only: Option<&'a str>,
    port: u16,
    authority: Option<&'a str>,
}

impl Target<'_> {
    fn rewrite<K: serde::de::DeserializeOwned>(&self, objects: &[Value], kind: &str) -> Result<K> {
        let found = objects
            .iter()
            .filter(|object| manifests::kind(object) == kind)
            .filter_map(|object| object.get("webhooks")?.as_array())
            .cloned()
            .reduce(|first, more| [first, more].concat());
        let mut webhooks = found.with_context(|| format!("the manifests have no {kind}"))?;
        for webhook in &mut webhooks {
            self.redirect(kind, webhook)?;
        }
        Ok(serde_json::from_value(json!({
            "metadata": {"name": self.name},
            "webhooks": webhooks,
        }))?)
    }

    fn redirect(&self, kind: &str, webhook: &mut Value) -> Result<()> {
        let name = webhook.get("name").and_then(Value::as_str);
        let name = name.context("a webhook without a name")?;
        let label = name.split('.').next().unwrap_or(name);
        let path = match (kind, self.authority) {
            // A gate that makes its own certificates writes the path.
            (_, None) => String::new(),
            ("ValidatingWebhookConfiguration", Some(_)) => format!("/validate/{label}"),
            (_, Some(_)) => format!("/mutate/{label}"),
        };
        // The address is not 127.0.0.1: to loopback addresses, and only to those, the API server
        // speaks HTTP/2, which would keep all calls on one connection and so on one replica. To a
        // Service it speaks HTTP/1.1. 0.0.0.0 is this machine, too.
        let url = format!("https://0.0.0.0:{}{path}", self.port);
        let bundle = self.authority.map(|authority| STANDARD.encode(authority));
        let client = match bundle {
            Some(bundle) => json!({"url": url, "caBundle": bundle}),
            None => json!({"url": url}),
        };
        let fields = webhook
            .as_object_mut()
            .context("a webhook that is no object")?;
        fields.insert("clientConfig".to_owned(), client);
        match self.only {
            Some(namespace) => select(namespace, fields),
            None => Ok(()),
        }
    }
}

/// Restricts a webhook to one namespace, besides its other selectors.
fn select(namespace: &str, webhook: &mut Map<String, Value>) -> Result<()> {
    let selector = webhook
        .entry("namespaceSelector")
        .or_insert_with(|| json!({}));
    let selector = selector
        .as_object_mut()
        .context("a selector that is no object")?;
    let labels = selector.entry("matchLabels").or_insert_with(|| json!({}));
    let labels = labels
        .as_object_mut()
        .context("labels that are no object")?;
    labels.insert("kubernetes.io/metadata.name".to_owned(), json!(namespace));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const MANIFEST: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: quorumgate
  annotations: {cert-manager.io/inject-ca-from: quorumgate/serving}
webhooks:
- name: pods.quorumgate.io
  clientConfig:
    service: {name: quorumgate, namespace: quorumgate}
  namespaceSelector:
    matchLabels: {quorumgate.io/gated: "true"}
  matchConditions:
  - {name: not-terminating, expression: "!has(oldObject.metadata.deletionTimestamp)"}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [pods]}
  sideEffects: NoneOnDryRun
  timeoutSeconds: 5
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: quorumgate}
webhooks: []
"#;

    fn rewritten(only: Option<&str>) -> Webhooks {
        let objects = manifests::parse(MANIFEST).unwrap();
        let balancer = "127.0.0.1:4321".parse().unwrap();
        Webhooks::new(&objects, "quorumgate-a", "a", only, balancer, Some("PEM")).unwrap()
    }

    /// The labels by which the only validating webhook selects namespaces.
    fn selected(webhooks: Webhooks) -> BTreeMap<String, String> {
        let hook = webhooks.validating.webhooks.unwrap().remove(0);
        hook.namespace_selector.unwrap().match_labels.unwrap()
    }

    #[test]
    fn webhooks_are_sent_to_the_balancer_for_one_namespace_only() {
        let validating = rewritten(Some("a")).validating;
        assert_eq!(validating.metadata.name.as_deref(), Some("quorumgate-a"));
        assert_eq!(validating.metadata.annotations, None);
        let hook = &validating.webhooks.unwrap()[0];
        assert_eq!(
            hook.client_config.url.as_deref(),
            Some("https://0.0.0.0:4321/validate/pods")
        );
        assert!(hook.client_config.service.is_none());
        assert_eq!(hook.client_config.ca_bundle.as_ref().unwrap().0, b"PEM");
        let selected = selected(rewritten(Some("a")));
        assert_eq!(selected["kubernetes.io/metadata.name"], "a");
        assert_eq!(selected["quorumgate.io/gated"], "true");
    }

    #[test]
    fn a_gate_for_everywhere_selects_namespaces_as_the_manifests_do() {
        let selected = selected(rewritten(None));
        assert_eq!(
            selected,
            BTreeMap::from([("quorumgate.io/gated".into(), "true".into())])
        );
    }

    #[test]
    fn the_rest_of_a_webhook_is_what_the_manifest_says() {
        let hook = rewritten(None).validating.webhooks.unwrap().remove(0);
        assert_eq!(hook.timeout_seconds, Some(5));
        assert_eq!(hook.match_conditions.unwrap().len(), 1);
        assert_eq!(
            hook.rules.unwrap()[0].operations.as_ref().unwrap(),
            &["DELETE"]
        );
    }

    #[test]
    fn the_repository_s_own_manifests_can_be_registered() {
        let manifests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests");
        let objects = manifests::read(&manifests, "a").unwrap();
        let address = "127.0.0.1:4321".parse().unwrap();
        let webhooks = Webhooks::new(
            &objects,
            "quorumgate-a",
            "a",
            Some("a"),
            address,
            Some("PEM"),
        )
        .unwrap();
        for hook in webhooks.validating.webhooks.unwrap() {
            let url = hook.client_config.url.unwrap();
            assert!(url.starts_with("https://0.0.0.0:4321/validate/"), "{url}");
        }
        assert!(!webhooks.mutating.webhooks.unwrap().is_empty());
    }

    #[test]
    fn manifests_without_a_configuration_are_refused() {
        let objects = manifests::parse("kind: Namespace").unwrap();
        let address = "127.0.0.1:1".parse().unwrap();
        let error = Webhooks::new(&objects, "n", "n", None, address, Some("PEM"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("ValidatingWebhookConfiguration"), "{error}");
    }
}
