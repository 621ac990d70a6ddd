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
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, Error, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::held::{Authority, Data, Serving, Stored};
use super::plan::State;
use super::wishes::SecretNames;
use crate::api::call_path::{self, split};

use crate::named;

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
            named::get_opt(&self.validating, named::OF_OBJECT, &self.configuration),
            named::get_opt(&self.mutating, named::OF_OBJECT, &self.configuration),
        )?;
        let serving = named::get_opt(&self.secrets, named::OF_OBJECT, &self.names.serving).await?;
        let authority =
            named::get_opt(&self.secrets, named::OF_OBJECT, &self.names.authority).await?;
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

    /// Writes this `caBundle` into every webhook that has another.
    pub(super) async fn write_bundle(&self, found: &Found, wanted: &str) -> Result<(), Error> {
        let wanted = ByteString(wanted.as_bytes().to_vec());
        let change = |callee: &Callee<'_>| {
            (bundle(callee.client) != wanted.0).then(|| ("caBundle", json!(wanted)))
        };
        self.change(found, change).await
    }

    /// Writes this word into the path of every webhook that has another.
    pub(super) async fn write_paths(&self, found: &Found, word: &str) -> Result<(), Error> {
        self.change(found, |callee| callee.called_by(word)).await
    }

    /// Changes a field of the callee of every webhook. Each configuration is changed once: a ledger
    /// keeps its trust where a replica's watch is one change of each behind, and not more.
    async fn change(
        &self,
        found: &Found,
        change: impl Fn(&Callee<'_>) -> Option<(&'static str, Value)>,
    ) -> Result<(), Error> {
        if let Some(validating) = &found.validating {
            write(&self.validating, validating, &change).await?;
        }
        if let Some(mutating) = &found.mutating {
            write(&self.mutating, mutating, &change).await?;
        }
        Ok(())
    }
}

impl Found {
    /// The webhook configuration that somebody else than the gate wrote last, and who.
    pub(super) fn contested(&self) -> Option<(ObjectReference, String)> {
        let validating = self
            .validating
            .iter()
            .map(|one| reference(one, "Validating"));
        let mutating = self.mutating.iter().map(|one| reference(one, "Mutating"));
        let written = validating.chain(mutating).filter_map(|(of, metadata)| {
            let managers = metadata.managed_fields.iter().flatten();
            let others = managers.filter(|one| one.manager.as_deref() != Some(MANAGER));
            let last = others.max_by_key(|one| one.time.as_ref().map(|time| time.0))?;
            let at = last.time.as_ref().map(|time| time.0);
            Some((at, of, last.manager.clone().unwrap_or_default()))
        });
        let (_, of, writer) = written.max_by_key(|(at, ..)| *at)?;
        Some((of, writer))
    }

    pub(super) fn state(&self) -> State {
        let data = |secret: &Option<Secret>| {
            let secret = secret.as_ref();
            secret.map(|secret| secret.data.clone().unwrap_or_default())
        };
        let validating = self.validating.iter().flat_map(Configuration::callees);
        let mutating = self.mutating.iter().flat_map(Configuration::callees);
        let callees: Vec<Callee<'_>> = validating.chain(mutating).collect();
        let word = |callee: &Callee<'_>| callee.word().map(str::to_owned);
        State {
            bundles: callees.iter().map(|callee| bundle(callee.client)).collect(),
            called: callees.iter().map(word).collect(),
            serving: Stored::read(data(&self.serving).as_ref(), Serving::read),
            authority: Stored::read(data(&self.authority).as_ref(), Authority::read),
        }
    }
}

/// A webhook configuration of either kind. The two have the same fields, and no type in common.
trait Configuration: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned {
    /// The path of its webhook of this name, without a word.
    fn path(name: &str) -> String;

    /// Each webhook by its name, and whom it calls.
    fn webhooks(&self) -> Vec<(&str, &WebhookClientConfig)>;

    fn callees(&self) -> Vec<Callee<'_>> {
        let webhooks = self.webhooks().into_iter();
        let callees = webhooks.map(|(name, client)| Callee {
            path: Self::path(name),
            client,
        });
        callees.collect()
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    fn path(name: &str) -> String {
        call_path::validating(name)
    }

    fn webhooks(&self) -> Vec<(&str, &WebhookClientConfig)> {
        let webhooks = self.webhooks.iter().flatten();
        webhooks
            .map(|hook| (hook.name.as_str(), &hook.client_config))
            .collect()
    }
}

impl Configuration for MutatingWebhookConfiguration {
    fn path(name: &str) -> String {
        call_path::mutating(name)
    }

    fn webhooks(&self) -> Vec<(&str, &WebhookClientConfig)> {
        let webhooks = self.webhooks.iter().flatten();
        webhooks
            .map(|hook| (hook.name.as_str(), &hook.client_config))
            .collect()
    }
}

/// Whom a webhook calls.
struct Callee<'a> {
    client: &'a WebhookClientConfig,
    /// The path of the webhook, without a word.
    path: String,
}

impl Callee<'_> {
    /// The scheme and the host of a URL, and its path.
    fn url(&self) -> Option<(&str, &str)> {
        let url = self.client.url.as_deref()?;
        let host = url.find("://")? + "://".len();
        let path = url.get(host..)?.find('/').map_or(url.len(), |at| host + at);
        url.split_at_checked(path)
    }

    /// The path. `None` if there is none.
    fn called(&self) -> Option<&str> {
        let path = match self.url() {
            Some((_, path)) => path,
            None => self.client.service.as_ref()?.path.as_deref()?,
        };
        let path = path.trim_end_matches('/');
        (!path.is_empty()).then_some(path)
    }

    /// The word in the path. `None` if there is no path, or if it is that of another webhook.
    fn word(&self) -> Option<&str> {
        let (path, word) = split(self.called()?);
        (path == self.path).then_some(word)
    }

    /// The field to be changed so that the path has this word. `None` if it has.
    fn called_by(&self, word: &str) -> Option<(&'static str, Value)> {
        let path = format!("{}/{word}", self.path);
        if self.called() == Some(&*path) {
            return None;
        }
        Some(match self.url() {
            Some((host, _)) => ("url", json!(format!("{host}{path}"))),
            None => ("service/path", json!(path)),
        })
    }
}

fn reference<K: Configuration>(of: &K, kind: &str) -> (ObjectReference, ObjectMeta) {
    let metadata = of.meta().clone();
    let reference = ObjectReference {
        api_version: Some("admissionregistration.k8s.io/v1".to_owned()),
        kind: Some(format!("{kind}WebhookConfiguration")),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        ..ObjectReference::default()
    };
    (reference, metadata)
}

fn bundle(callee: &WebhookClientConfig) -> Vec<u8> {
    let bundle = callee.ca_bundle.as_ref();
    bundle.map_or_else(Vec::new, |bundle| bundle.0.clone())
}

async fn write<K: Configuration>(
    api: &Api<K>,
    found: &K,
    change: &impl Fn(&Callee<'_>) -> Option<(&'static str, Value)>,
) -> Result<(), Error> {
    let callees = found.callees().into_iter().enumerate();
    let changes = callees.filter_map(|(index, callee)| {
        let (field, value) = change(&callee)?;
        let path = format!("/webhooks/{index}/clientConfig/{field}");
        Some(json!({"op": "add", "path": path, "value": value}))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn calling(path: &str) -> ValidatingWebhookConfiguration {
        let client = json!({"service": {"name": "gate", "namespace": "gate", "path": path}});
        let hook = json!({
            "name": "evictions.quorumgate.io", "clientConfig": client,
            "admissionReviewVersions": ["v1"], "sideEffects": "None",
        });
        serde_json::from_value(json!({"metadata": {"name": "gate"}, "webhooks": [hook]})).unwrap()
    }

    #[test]
    fn a_webhook_that_calls_by_the_path_of_another_is_repaired() {
        let right = json!("/validate/evictions/abc");
        for (path, word, is_right) in [
            ("/validate/evictions/abc", Some("abc"), true),
            ("/validate/evictions/abc/", Some("abc"), true),
            ("/validate/evictions/def", Some("def"), false),
            ("/validate/evictions", Some(""), false),
            ("/mutate/evictions/abc", None, false),
            ("/validate/pods/abc", None, false),
            ("", None, false),
        ] {
            let found = calling(path);
            let callees = found.callees();
            assert_eq!(callees[0].word(), word, "{path}");
            let change = callees[0].called_by("abc").map(|(_, value)| value);
            assert_eq!(change, (!is_right).then(|| right.clone()), "{path}");
        }
    }
}
