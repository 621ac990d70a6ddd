//! The names of claims, in pods and in the templates of StatefulSets, and what was read of them.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;

use crate::quorum::ClaimState;

/// Where a pod has the name of a claim.
pub(super) const CLAIM_NAME: &str = "persistentVolumeClaim.claimName of the pod";

/// The claims that were read, by name. An error says for people why one could not be.
pub(super) type ClaimReads = BTreeMap<String, Result<ClaimState, String>>;

/// The names of the claims that a pod uses.
pub(super) fn claims_of(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        let claim = volume.persistent_volume_claim.as_ref()?;
        Some(claim.claim_name.as_str())
    })
}

/// The names of the StatefulSet's claim templates.
pub(super) fn templates(set: &StatefulSet) -> impl Iterator<Item = &str> {
    let spec = set.spec.iter();
    let templates = spec.flat_map(|spec| spec.volume_claim_templates.iter().flatten());
    templates.filter_map(|template| template.metadata.name.as_deref())
}
