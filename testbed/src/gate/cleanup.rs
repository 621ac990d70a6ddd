//! The objects that a gate creates outside of its namespace, and has to delete itself.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;

use crate::kubeconfig;

/// The names of cluster-wide objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Leftovers {
    webhook_configuration: Option<String>,
    namespace: Option<String>,
    cluster_roles: Vec<String>,
    cluster_role_bindings: Vec<String>,
    admission_policies: Vec<String>,
}

impl Leftovers {
    pub(super) fn webhook_configuration(&mut self, name: &str) {
        self.webhook_configuration = Some(name.to_owned());
    }

    pub(super) fn namespace(&mut self, name: &str) {
        self.namespace = Some(name.to_owned());
    }

    pub(super) fn cluster_role(&mut self, name: &str) {
        self.cluster_roles.push(name.to_owned());
    }

    pub(super) fn cluster_role_binding(&mut self, name: &str) {
        self.cluster_role_bindings.push(name.to_owned());
    }

    /// Adds a policy and the binding of the same name.
    pub(super) fn admission_policy(&mut self, name: &str) {
        self.admission_policies.push(name.to_owned());
    }

    /// Deletes all objects. Objects that are gone already are no error. Webhooks go first, so that
    /// no gate is asked that cannot answer.
    pub(super) async fn remove(&self, client: &Client) -> Result<()> {
        if let Some(name) = &self.webhook_configuration {
            delete::<ValidatingWebhookConfiguration>(client, name).await?;
            delete::<MutatingWebhookConfiguration>(client, name).await?;
        }
        for name in &self.cluster_role_bindings {
            delete::<ClusterRoleBinding>(client, name).await?;
        }
        for name in &self.cluster_roles {
            delete::<ClusterRole>(client, name).await?;
        }
        for name in &self.admission_policies {
            delete::<ValidatingAdmissionPolicyBinding>(client, name).await?;
            delete::<ValidatingAdmissionPolicy>(client, name).await?;
        }
        // No process runs in the namespace, so its deletion need not be awaited.
        if let Some(name) = &self.namespace {
            delete::<Namespace>(client, name).await?;
        }
        Ok(())
    }

    /// Deletes all objects, from code that cannot await: with a runtime and a client of its own.
    pub(super) fn remove_now(&self, admin: &Path) {
        let (leftovers, admin) = (self.clone(), admin.to_owned());
        let removal = std::thread::spawn(move || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let client = kubeconfig::client_from(&admin).await?;
                let limit = Duration::from_secs(10);
                tokio::time::timeout(limit, leftovers.remove(&client)).await?
            })
        });
        if let Ok(Err(error)) = removal.join() {
            tracing::warn!("{self:?} could not be removed: {error:#}");
        }
    }
}

/// Deletes one object. An object that is gone already is no error.
pub(super) async fn delete<K>(client: &Client, name: &str) -> Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    match Api::<K>::all(client.clone())
        .delete(name, &DeleteParams::default())
        .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}
