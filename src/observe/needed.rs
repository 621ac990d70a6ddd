//! The objects that a judgement needs, derived from those that were read first.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::core::Selector;

use super::error::ObserveError;
use super::ways::credentials::{self, Credentials};
use super::ways::in_use::in_use;
use super::{owner, teardown};
use crate::api::{OwnerStatus, Way};
use crate::ledger::Page;
use crate::quorum::{EvidenceMode, PodName, Policy};

/// The selector of the cluster's pods: the StatefulSet's, or else the recorded one.
pub(super) fn selector(
    set: Option<&StatefulSet>,
    page: &Page,
) -> Result<Option<String>, ObserveError> {
    let recorded = || page.status().and_then(|status| status.selector.clone());
    let Some(spec) = set.and_then(|set| set.spec.as_ref()) else {
        return Ok(recorded());
    };
    let selector = Selector::try_from(spec.selector.clone());
    let selector = selector.map_err(|error| ObserveError::Selector(error.to_string()))?;
    Ok(Some(selector.to_string()).filter(|text| !text.is_empty()))
}

/// The names of pods that are, were or may become members: of every ordinal that the StatefulSet
/// asks for, of every member with a grant, and of every recorded member. `target` is the pod in
/// question, if there is one.
pub(super) fn pods<'a>(
    set: Option<&'a StatefulSet>,
    page: &'a Page,
    target: Option<&'a PodName>,
) -> impl Iterator<Item = PodName> + 'a {
    let cluster = page.cluster.name.as_str();
    let recorded = page.status().map(|status| status.members.as_slice());
    let recorded = recorded.unwrap_or_default().iter().filter_map(|member| {
        let pod = member.pod.as_deref().map(PodName::from);
        pod.or_else(|| PodName::of_member(cluster, &member.name))
    });
    let first = set.map_or(0, |set| teardown::first_ordinal(set).0);
    let replicas = set.map_or(page.expected.replicas, teardown::replicas);
    let ordinals = first..first.saturating_add(replicas);
    target
        .into_iter()
        .cloned()
        .chain(page.grants.iter().map(|(pod, _)| pod.clone()))
        .chain(recorded)
        .chain(ordinals.map(move |ordinal| PodName::new(format!("{cluster}-{ordinal}"))))
}

/// The owners whose state may matter: those that the StatefulSet names, and those of the last
/// recorded StatefulSet.
pub(super) fn owners(set: Option<&StatefulSet>, page: &Page) -> Vec<OwnerStatus> {
    let mut owners = set.map_or_else(Vec::new, |set| owner::named(&set.metadata));
    let last_seen = page.status().and_then(|s| s.stateful_set.as_ref());
    for owner in last_seen.iter().flat_map(|set| &set.owners) {
        if !owners.contains(owner) {
            owners.push(owner.clone());
        }
    }
    owners
}

/// The way in which the cluster's members are asked, by the StatefulSet's template, or by a pod if
/// the StatefulSet is gone.
pub(super) fn way(page: &Page, set: Option<&StatefulSet>, pods: &[Pod]) -> Way {
    let template = set.and_then(|set| set.spec.as_ref());
    let template = template.and_then(|spec| spec.template.spec.as_ref());
    let pod = || pods.iter().find_map(|pod| pod.spec.as_ref());
    in_use(page, template.or_else(pod))
}

/// The certificates and the user that the way needs.
pub(super) fn credentials(policy: &Policy, page: &Page, way: &Way) -> Option<Credentials> {
    if policy.evidence == EvidenceMode::Readiness {
        return None;
    }
    credentials::credentials(way, &page.budget().spec.members)
}
