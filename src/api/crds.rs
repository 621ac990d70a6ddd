//! The custom resource definitions as YAML.

use kube::CustomResourceExt as _;

use super::QuorumDisruptionBudget;

/// Every `CustomResourceDefinition` of this version as one YAML stream. The result is the same each
/// time.
pub fn crds_yaml() -> Result<String, serde_saphyr::ser::Error> {
    let definition = QuorumDisruptionBudget::crd();
    let yaml = serde_saphyr::to_string(&definition)?;
    Ok(format!(
        "# Written by `make crds`; do not edit.\n---\n{}\n",
        yaml.trim_end()
    ))
}
