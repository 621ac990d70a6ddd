//! The gate's service account, its roles and the policies that limit it, taken from the manifests
//! and moved into the sandbox's namespace.

use anyhow::Result;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cleanup::Leftovers;
use super::manifests::{self, SERVICE_ACCOUNT};

/// Applies all of them, for webhook configurations of this name. Cluster-wide objects get names of
/// their own, and are added to `leftovers`.
pub(super) async fn apply(
    client: &Client,
    namespace: &str,
    configuration: &str,
    objects: &[Value],
    leftovers: &mut Leftovers,
) -> Result<()> {
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": SERVICE_ACCOUNT}}))?;
    apply_namespaced(client, namespace, account).await?;
    for object in objects {
        match manifests::kind(object) {
            "Role" if manifests::is_at_home(object) => {
                apply_namespaced::<Role>(client, namespace, read(object)?).await?;
            }
            "RoleBinding" if manifests::is_at_home(object) => {
                let mut binding: RoleBinding = read(object)?;
                move_subjects(binding.subjects.iter_mut().flatten(), namespace);
                apply_namespaced(client, namespace, binding).await?;
            }
            "ClusterRole" => {
                let mut role: ClusterRole = read(object)?;
                rename_webhook_configuration(&mut role, configuration);
                role.metadata.name = Some(own_name(&role.name_any(), namespace));
                leftovers.cluster_role(&role.name_any());
                apply_cluster_wide(client, role).await?;
            }
            "ClusterRoleBinding" => {
                let mut binding: ClusterRoleBinding = read(object)?;
                binding.metadata.name = Some(own_name(&binding.name_any(), namespace));
                binding.role_ref.name = own_name(&binding.role_ref.name, namespace);
                move_subjects(binding.subjects.iter_mut().flatten(), namespace);
                leftovers.cluster_role_binding(&binding.name_any());
                apply_cluster_wide(client, binding).await?;
            }
            "ValidatingAdmissionPolicy" => {
                let mut policy: ValidatingAdmissionPolicy = read(object)?;
                policy.metadata.name = Some(own_name(&policy.name_any(), namespace));
                leftovers.admission_policy(&policy.name_any());
                apply_cluster_wide(client, policy).await?;
            }
            "ValidatingAdmissionPolicyBinding" => {
                let mut binding: ValidatingAdmissionPolicyBinding = read(object)?;
                binding.metadata.name = Some(own_name(&binding.name_any(), namespace));
                let policy = binding
                    .spec
                    .iter_mut()
                    .flat_map(|spec| &mut spec.policy_name);
                policy.for_each(|policy| *policy = own_name(policy, namespace));
                move_binding(&mut binding, namespace);
                apply_cluster_wide(client, binding).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The name of a cluster-wide role or policy. It has the namespace in it, so that tests of one
/// control plane do not share the object.
fn own_name(name: &str, namespace: &str) -> String {
    format!("{name}-{namespace}")
}

/// Renames the webhook configurations in a role that is limited to the gate's own ones.
fn rename_webhook_configuration(role: &mut ClusterRole, configuration: &str) {
    for rule in role.rules.iter_mut().flatten() {
        let groups = rule.api_groups.iter().flatten();
        if groups
            .into_iter()
            .any(|group| group == "admissionregistration.k8s.io")
        {
            for name in rule.resource_names.iter_mut().flatten() {
                configuration.clone_into(name);
            }
        }
    }
}

/// Binds a policy that is bound to the gate's namespace to this one.
fn move_binding(binding: &mut ValidatingAdmissionPolicyBinding, namespace: &str) {
    let resources = binding
        .spec
        .iter_mut()
        .flat_map(|spec| &mut spec.match_resources);
    let selectors = resources.flat_map(|resources| &mut resources.namespace_selector);
    for requirement in selectors.flat_map(|s| s.match_expressions.iter_mut().flatten()) {
        requirement.values = Some(vec![namespace.to_owned()]);
    }
}

fn move_subjects<'a>(
    subjects: impl Iterator<Item = &'a mut k8s_openapi::api::rbac::v1::Subject>,
    namespace: &str,
) {
    for subject in subjects.filter(|subject| subject.kind == "ServiceAccount") {
        subject.namespace = Some(namespace.to_owned());
    }
}

/// The object without the namespace of the manifests.
fn read<K: DeserializeOwned + Resource>(object: &Value) -> Result<K> {
    let mut object: K = serde_json::from_value(object.clone())?;
    object.meta_mut().namespace = None;
    Ok(object)
}

/// Applies a namespaced object by server-side apply.
pub(super) async fn apply_namespaced<K>(client: &Client, namespace: &str, object: K) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    apply_to(&Api::namespaced(client.clone(), namespace), object).await
}

/// Applies a cluster-wide object by server-side apply.
pub(super) async fn apply_cluster_wide<K>(client: &Client, object: K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    apply_to(&Api::all(client.clone()), object).await
}

async fn apply_to<K>(api: &Api<K>, object: K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let parameters = PatchParams::apply("testbed").force();
    api.patch(&object.name_any(), &parameters, &Patch::Apply(&object))
        .await?;
    Ok(())
}
