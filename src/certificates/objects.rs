//! The objects that certificates are in: two Secrets, and the two webhook configurations.
//!
//! Every write names the version that was read, so of two replicas that write at once one is told,
//! and looks again.

use std::fmt::Debug;

use futures::try_join;
use json_patch::Patch as Changes;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, Error, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::SecretNames;
use super::held::{Authority, Data, Serving, Stored};
use super::plan::State;

/// The name of the gate as a writer of objects.
const MANAGER: &str = "quorumgate";

/// Where the objects are.
pub struct Objects {
    secrets: Api<Secret>,
    names: SecretNames,
    validating: Api<ValidatingWebhookConfiguration>,
    mutating: Api<MutatingWebhookConfiguration>,
    configuration: String,
}

/// The objects as they were read.
pub(super) struct Found {
    validating: Option<ValidatingWebhookConfiguration>,
    mutating: Option<MutatingWebhookConfiguration>,
    serving: Option<Secret>,
    authority: Option<Secret>,
}

impl Objects {
    /// The Secrets of these names in this namespace, and the webhook configurations of this name.
    pub fn new(client: Client, namespace: &str, names: SecretNames, configuration: String) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            names,
            validating: Api::all(client.clone()),
            mutating: Api::all(client),
            configuration,
        }
    }

    pub(super) fn names(&self) -> &SecretNames {
        &self.names
    }

    /// Reads all of them. The authority comes last: whoever replaces it meanwhile writes the others
    /// later, and so at versions that were not read here.
    pub(super) async fn read(&self) -> Result<Found, Error> {
        let (validating, mutating) = try_join!(
            self.validating.get_opt(&self.configuration),
            self.mutating.get_opt(&self.configuration),
        )?;
        let serving = self.secrets.get_opt(&self.names.serving).await?;
        let authority = self.secrets.get_opt(&self.names.authority).await?;
        Ok(Found {
            validating,
            mutating,
            serving,
            authority,
        })
    }

    pub(super) async fn write_authority(&self, found: &Found, data: Data) -> Result<(), Error> {
        self.write(&self.names.authority, found.authority.as_ref(), data)
            .await
    }

    pub(super) async fn write_serving(&self, found: &Found, data: Data) -> Result<(), Error> {
        self.write(&self.names.serving, found.serving.as_ref(), data)
            .await
    }

    async fn write(&self, name: &str, found: Option<&Secret>, data: Data) -> Result<(), Error> {
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let Some(found) = found else {
            let labels = [
                ("app.kubernetes.io/managed-by", MANAGER),
                ("app.kubernetes.io/name", MANAGER),
            ];
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    labels: Some(labels.into()),
                    ..ObjectMeta::default()
                },
                type_: Some("kubernetes.io/tls".to_owned()),
                data: Some(data),
                ..Secret::default()
            };
            return self.secrets.create(&params, &secret).await.map(drop);
        };
        // The rest of the Secret stays as it is: a type cannot be changed.
        let mut secret = found.clone();
        secret.data.get_or_insert_default().extend(data);
        self.secrets.replace(name, &params, &secret).await.map(drop)
    }

    /// Writes this `caBundle` into every webhook that has another. Each configuration is changed
    /// once: a ledger keeps its trust where a replica's watch is one change of each behind, and not
    /// more.
    pub(super) async fn write_bundle(&self, found: &Found, bundle: &str) -> Result<(), Error> {
        if let Some(validating) = &found.validating {
            write_bundle(&self.validating, validating, bundle).await?;
        }
        if let Some(mutating) = &found.mutating {
            write_bundle(&self.mutating, mutating, bundle).await?;
        }
        Ok(())
    }
}

impl Found {
    pub(super) fn state(&self) -> State {
        let data = |secret: &Option<Secret>| {
            let secret = secret.as_ref();
            secret.map(|secret| secret.data.clone().unwrap_or_default())
        };
        let validating = self.validating.iter().flat_map(Configuration::callees);
        let mutating = self.mutating.iter().flat_map(Configuration::callees);
        State {
            bundles: validating.chain(mutating).map(bundle).collect(),
            serving: Stored::read(data(&self.serving).as_ref(), Serving::read),
            authority: Stored::read(data(&self.authority).as_ref(), Authority::read),
        }
    }
}

/// A webhook configuration of either kind. The two have the same fields, and no type in common.
trait Configuration: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned {
    /// Whom each webhook calls.
    fn callees(&self) -> Vec<&WebhookClientConfig>;
}

impl Configuration for ValidatingWebhookConfiguration {
    fn callees(&self) -> Vec<&WebhookClientConfig> {
        let webhooks = self.webhooks.iter().flatten();
        webhooks.map(|hook| &hook.client_config).collect()
    }
}

impl Configuration for MutatingWebhookConfiguration {
    fn callees(&self) -> Vec<&WebhookClientConfig> {
        let webhooks = self.webhooks.iter().flatten();
        webhooks.map(|hook| &hook.client_config).collect()
    }
}

fn bundle(callee: &WebhookClientConfig) -> Vec<u8> {
    let bundle = callee.ca_bundle.as_ref();
    bundle.map_or_else(Vec::new, |bundle| bundle.0.clone())
}

async fn write_bundle<K: Configuration>(
    api: &Api<K>,
    found: &K,
    wanted: &str,
) -> Result<(), Error> {
    let value = ByteString(wanted.as_bytes().to_vec());
    let callees = found.callees();
    let others = callees.iter().enumerate();
    let others = others.filter(|(_, callee)| bundle(callee) != value.0);
    let changes = others.map(|(index, _)| {
        let path = format!("/webhooks/{index}/clientConfig/caBundle");
        json!({"op": "add", "path": path, "value": value})
    });
    let mut changes: Vec<_> = changes.collect();
    if changes.is_empty() {
        return Ok(());
    }
    // The indices are those of this version.
    let version = &found.meta().resource_version;
    changes.insert(
        0,
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}),
    );
    let changes: Changes = serde_json::from_value(changes.into()).map_err(Error::SerdeError)?;
    let name = found.meta().name.as_deref().unwrap_or_default();
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    api.patch(name, &params, &Patch::Json::<()>(changes))
        .await
        .map(drop)
}
