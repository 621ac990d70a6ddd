//! Overrides, by which a person lifts the gate's refusals for a limited time (rule 6).

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::{OverrideState, QuorumDisruptionBudget, names, standing};
use crate::quorum::{Override, OverrideOn};

/// The override that applies to a pod: the pod's own if it exists, or else its StatefulSet's, or
/// else its budget's.
///
/// A pod whose template sets the annotation has none of its own, since every pod would be created
/// with it.
pub(super) fn of_pod(
    pod: Option<&Pod>,
    set: Option<&StatefulSet>,
    budget: Option<&QuorumDisruptionBudget>,
    now: Timestamp,
) -> Option<Override> {
    let own = pod.and_then(|pod| pod.metadata.annotations.as_ref());
    let own = own.filter(|_| !set.is_some_and(template_overrides));
    let places = [
        (OverrideOn::Pod, own),
        (
            OverrideOn::StatefulSet,
            set.and_then(|set| set.metadata.annotations.as_ref()),
        ),
        (
            OverrideOn::Budget,
            budget.and_then(|budget| budget.metadata.annotations.as_ref()),
        ),
    ];
    places
        .into_iter()
        .find_map(|(on, annotations)| match standing(annotations, now) {
            OverrideState::Valid(until) => Some(Override { on, until }),
            OverrideState::None | OverrideState::Ignored { .. } => None,
        })
}

/// The defects of invalid overrides for a pod, in words.
pub(super) fn ignored(
    pod: Option<&Pod>,
    set: Option<&StatefulSet>,
    budget: &QuorumDisruptionBudget,
    now: Timestamp,
) -> Vec<String> {
    let annotations = |on: &'static str, metadata: &ObjectMeta| {
        let OverrideState::Ignored { written, why } = standing(metadata.annotations.as_ref(), now)
        else {
            return None;
        };
        Some(format!(
            "the override {written:?} on the {on} does not count: {why}"
        ))
    };
    let own = pod.and_then(|pod| annotations("pod", &pod.metadata));
    let mut found: Vec<String> = own.into_iter().collect();
    found.extend(set.and_then(|set| annotations("StatefulSet", &set.metadata)));
    found.extend(annotations("QuorumDisruptionBudget", &budget.metadata));
    if set.is_some_and(template_overrides) {
        found.push("an override in the pod template does not count: every pod would be born with it; annotate the pod itself".into());
    }
    found
}

fn template_overrides(set: &StatefulSet) -> bool {
    let template = set.spec.as_ref().map(|spec| &spec.template);
    let metadata = template.and_then(|template| template.metadata.as_ref());
    let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
    annotations.is_some_and(|annotations| annotations.contains_key(names::OVERRIDE_UNTIL))
}
