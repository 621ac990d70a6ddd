//! `quorumgate uninstall`: takes the gate out of a cluster, so that nobody is worse off than before
//! it came.
//!
//! Nothing is begun while the gate has other names than those that were given, or is not part of
//! the release of helm that was given; while a rollout is unfinished that the StatefulSet
//! controller would finish unasked; or while a pod is held that only the gate would let start. The
//! webhook configurations go first, so that nothing asks a gate that is gone. Then the replicas
//! end, because their leader would do again what is undone next. Then the clusters get back what is
//! theirs. Nothing that was undone is done again when the command is repeated.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, Error, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::kubernetes;
use super::print::print;
use crate::api::names;
use crate::certificates::SecretNames;
use crate::cli;
use crate::clock::{Clock, monotonic_now};
use crate::lists;
use crate::named;
use crate::reconcile::undo;

/// The longest time that is waited for what has to be so before anything is begun. It may end by
/// itself, and helm waits for five minutes at most.
const BEFORE: Duration = Duration::from_secs(15);

/// The pause between two passes of a step.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) async fn run(options: cli::Uninstall) -> Result<()> {
    crate::install_crypto_provider();
    let client = kubernetes::connect(&Clock::system(), &Arc::default()).await?;
    let removal = Removal { client, options };
    let Removal { client, options } = &removal;
    removal.has_right_names().await?;
    removal.is_of_the_release().await?;
    let before = options.timeout.min(BEFORE);
    if !options.unfinished_rollouts {
        let finished = "every rollout is finished (or --unfinished-rollouts is given)";
        removal
            .step_within(before, finished, || undo::unfinished_rollouts(client))
            .await?;
    }
    let none_waits = "no pod waits for its member to be replaced";
    removal
        .step_within(before, none_waits, || undo::held_pods(client))
        .await?;
    removal
        .step("no webhook asks the gate any more", || removal.webhooks())
        .await?;
    // One may have been held until API servers had seen that the webhooks are gone.
    removal.step(none_waits, || undo::held_pods(client)).await?;
    removal
        .step("no replica runs any more", || removal.replicas())
        .await?;
    removal
        .step(
            "every StatefulSet has the update strategy of its owner",
            || undo::update_strategies(client),
        )
        .await?;
    removal
        .step("the PodDisruptionBudgets for planners are gone", || {
            undo::companions(client)
        })
        .await?;
    removal
        .step(
            "no pod has the mark for autoscalers that the gate set",
            || undo::marks_of_pods(client),
        )
        .await?;
    removal
        .step("no namespace has the label of the gate", || {
            undo::labels_of_namespaces(client, &options.lease_namespace)
        })
        .await?;
    removal
        .step("the Lease of the replicas is gone", || removal.lease())
        .await?;
    removal
        .step("the certificates that the gate made are gone", || {
            removal.certificates()
        })
        .await
}

struct Removal {
    client: Client,
    options: cli::Uninstall,
}

impl Removal {
    /// Repeats a pass until it leaves nothing.
    async fn step<F>(&self, done: &str, pass: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = Result<Vec<String>, Error>>,
    {
        self.step_within(self.options.timeout, done, pass).await
    }

    async fn step_within<F>(
        &self,
        longest: Duration,
        done: &str,
        pass: impl Fn() -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<Vec<String>, Error>>,
    {
        let until = monotonic_now() + longest;
        loop {
            let left = pass().await;
            match &left {
                Ok(left) if left.is_empty() => return print(&format!("{done}\n")),
                _ if monotonic_now() < until => tokio::time::sleep(PAUSE).await,
                Ok(left) => bail!(
                    "not so after {longest:?}: {done}; left are {}. Repeat the command when that is mended",
                    left.join(", ")
                ),
                Err(_) => {
                    return left
                        .map(drop)
                        .with_context(|| format!("not so after {longest:?}: {done}"));
                }
            }
        }
    }

    /// Fails if webhooks of the gate are in a configuration of another name, or name a service in
    /// another namespace. Everything would seem to be gone already.
    async fn has_right_names(&self) -> Result<()> {
        let cli::Uninstall {
            webhook_configuration,
            lease_namespace,
            ..
        } = &self.options;
        let all = Api::<ValidatingWebhookConfiguration>::all(self.client.clone());
        let mut found = Vec::new();
        lists::each(&all, &ListParams::default(), |configuration| {
            let hooks = configuration.webhooks.iter().flatten();
            let Some(hook) = hooks.clone().find(|hook| hook.name == names::POD_WEBHOOK) else {
                return;
            };
            let service = hook.client_config.service.as_ref();
            let namespace = service.map_or(lease_namespace, |service| &service.namespace);
            found.push((configuration.name_any(), namespace.clone()));
        })
        .await
        .context("the webhook configurations")?;
        for (name, namespace) in found {
            if (&name, &namespace) != (webhook_configuration, lease_namespace) {
                bail!(
                    "the gate has other names here: say --webhook-configuration={name} --lease-namespace={namespace}, and --deployment and --lease-name as they are there (a chart gives all but the namespace one name)"
                );
            }
        }
        Ok(())
    }

    /// Fails if helm did not install the gate as part of the given release. helm annotates what it
    /// installs, and rendered manifests have no such annotation. So a Job that was applied with
    /// them removes nothing.
    async fn is_of_the_release(&self) -> Result<()> {
        let cli::Uninstall {
            webhook_configuration,
            lease_namespace,
            deployment,
            release,
            release_namespace,
            ..
        } = &self.options;
        let Some(release) = release else {
            return Ok(());
        };
        let release_namespace = release_namespace.as_ref().unwrap_or(lease_namespace);
        let validating = Api::<ValidatingWebhookConfiguration>::all(self.client.clone());
        let mut theirs = Vec::new();
        let every = ListParams::default();
        let listed = lists::each_metadata(&validating, &every, |one| {
            theirs.extend((one.name_any() == *webhook_configuration).then_some(one));
        });
        listed.await.context("the webhook configurations")?;
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), lease_namespace);
        let deployed = named::get_metadata_opt(&deployments, "--deployment", deployment);
        let deployed = deployed.await.context("the Deployment")?;
        let is_of_it = |metadata: &ObjectMeta| {
            let says = |key: &str| metadata.annotations.as_ref()?.get(key);
            (says(names::HELM_RELEASE), says(names::HELM_NAMESPACE))
                == (Some(release), Some(release_namespace))
        };
        let foreign = theirs
            .iter()
            .find(|one| !is_of_it(&one.metadata))
            .map(|one| format!("ValidatingWebhookConfiguration {}", one.name_any()))
            .or_else(|| {
                let other = deployed.filter(|one| !is_of_it(&one.metadata))?;
                Some(format!("Deployment {}", other.name_any()))
            });
        match foreign {
            Some(what) => bail!(
                "helm did not install the {what} as part of the release {release} in the namespace {release_namespace}: rendered manifests were applied, and with them the hook of the removal. To remove the gate, run the command without --release"
            ),
            None => Ok(()),
        }
    }

    async fn webhooks(&self) -> Result<Vec<String>, Error> {
        let name = &self.options.webhook_configuration;
        let validating = Api::<ValidatingWebhookConfiguration>::all(self.client.clone());
        let mutating = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        let mut left = delete(&validating, name).await?;
        left.extend(delete(&mutating, name).await?);
        Ok(left)
    }

    async fn replicas(&self) -> Result<Vec<String>, Error> {
        let namespace = &self.options.lease_namespace;
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let Some(deployment) =
            named::get_opt(&deployments, named::OF_OBJECT, &self.options.deployment).await?
        else {
            return Ok(Vec::new());
        };
        let spec = deployment.spec.unwrap_or_default();
        if spec.replicas != Some(0) {
            let none = json!({"spec": {"replicas": 0}});
            deployments
                .patch_scale(
                    &self.options.deployment,
                    &PatchParams::default(),
                    &Patch::Merge(&none),
                )
                .await?;
        }
        let labels = equalities(&spec.selector.match_labels.unwrap_or_default());
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let mut left = Vec::new();
        let of_deployment = ListParams::default().labels(&labels);
        lists::each_metadata(&pods, &of_deployment, |pod| left.push(pod.name_any())).await?;
        Ok(left)
    }

    async fn lease(&self) -> Result<Vec<String>, Error> {
        let namespace = &self.options.lease_namespace;
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        delete(&leases, &self.options.lease_name).await
    }

    async fn certificates(&self) -> Result<Vec<String>, Error> {
        let namespace = &self.options.lease_namespace;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let SecretNames { authority, serving } = SecretNames::for_gate(&self.options.lease_name);
        let mut left = delete(&secrets, &serving).await?;
        left.extend(delete(&secrets, &authority).await?);
        Ok(left)
    }
}

fn equalities(labels: &BTreeMap<String, String>) -> String {
    let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
    labels.collect::<Vec<_>>().join(",")
}

/// Deletes an object. Returns its name if it is still there.
async fn delete<K>(api: &Api<K>, name: &str) -> Result<Vec<String>, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    match api.delete(name, &DeleteParams::default()).await {
        Ok(deleted) if deleted.is_left() => Ok(vec![name.to_owned()]),
        Ok(_) => Ok(Vec::new()),
        Err(Error::Api(status)) if status.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;
    use crate::fake_api::FakeApi;

    /// Removes the release "gate" of the namespace "apps", as the hook does that is started with
    /// these arguments. The gate itself is in the namespace "guards".
    async fn removed_as_the_release(arguments: &[&str]) -> Result<()> {
        let helm = json!({names::HELM_RELEASE: "gate", names::HELM_NAMESPACE: "apps"});
        let api = FakeApi::default();
        api.put(
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/quorumgate",
            json!({"metadata": {"name": "quorumgate", "annotations": helm}}),
        );
        api.put(
            "/apis/apps/v1/namespaces/guards/deployments/quorumgate",
            json!({"metadata": {"name": "quorumgate", "namespace": "guards", "annotations": helm}}),
        );
        let own = ["quorumgate", "uninstall", "--lease-namespace=guards"];
        let cli = cli::Cli::parse_from(own.iter().chain(arguments));
        let cli::Command::Uninstall(options) = cli.command else {
            panic!("{cli:?}")
        };
        let client = api.client();
        Removal { client, options }.is_of_the_release().await
    }

    #[tokio::test]
    async fn the_namespace_of_the_release_may_be_another_than_that_of_the_gate() {
        let release = "--release=gate";
        removed_as_the_release(&[release, "--release-namespace=apps"])
            .await
            .unwrap();
        for others in [
            vec![release],
            vec!["--release=b", "--release-namespace=apps"],
        ] {
            let refused = removed_as_the_release(&others).await.unwrap_err();
            let said = refused.to_string();
            assert!(said.contains("helm did not install the"), "{said}");
        }
    }
}
