//! The custom resource definitions as YAML.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use super::QuorumDisruptionBudget;
use super::etcd_member::EtcdMember;

/// The `CustomResourceDefinition`s that every installation needs as one YAML stream. The result is
/// the same each time.
pub fn crds_yaml() -> Result<String, serde_saphyr::ser::Error> {
    written(&QuorumDisruptionBudget::crd())
}

/// The `CustomResourceDefinition` of `EtcdMember`s, which only the feature `EtcdMembers` needs.
/// etcd-druid may bring one some day.
pub fn etcd_members_crd_yaml() -> Result<String, serde_saphyr::ser::Error> {
    written(&EtcdMember::crd())
}

fn written(definition: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser::Error> {
    let yaml = serde_saphyr::to_string(definition)?;
    Ok(format!(
        "# Written by `make crds`; do not edit.\n---\n{}\n",
        yaml.trim_end()
    ))
}
