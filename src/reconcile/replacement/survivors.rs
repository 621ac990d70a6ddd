//! The rest while pods wait: members whose data is there, and pods that nobody creates meanwhile.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodSpec};

use crate::observe::{EtcdContainer, is_held, joining, kept_ordinals};
use crate::plan::replacement::ClaimFacts;
use crate::quorum::evidence::Target;
use crate::quorum::{Ordinal, PodName, PodUid, VolumeFinding};
use crate::reconcile::look::Look;

/// The pods of members whose volumes are on record as they are, and which may have every write. No
/// new cluster begins beside one of them, whether or not it runs now: without a record, it would
/// come back under its old identity. Three kinds are none: a pod that was made to join and ends
/// over and over, a member that serves as another cluster, and one whose log is less than half of
/// what is on record.
pub(super) fn survivors(look: &Look, claims: &BTreeMap<PodName, ClaimFacts>) -> Vec<PodName> {
    let Look { page, view, .. } = look;
    let exits = view.crash_loops();
    let set = view.stateful_set();
    let end = page.log_end();
    let is_empty = |pod: &Pod| {
        let uid = PodUid::new(pod.metadata.uid.clone().unwrap_or_default());
        let ends = exits.contains_key(&uid) && is_to_join(pod, set, view.etcd_container());
        let target = Target::Pod(uid);
        let mut probes = look.round.probes.iter();
        let probe = probes.find(|probe| probe.target == target);
        let status = probe.and_then(|probe| probe.status.as_ref().ok());
        ends || status.zip(end).is_some_and(|(status, end)| {
            status.cluster_id != end.cluster || status.raft_index < end.index / 2
        })
    };
    let records = page.volume_records();
    let has_data = |pod: &&PodName| {
        let claim = claims.get(*pod);
        let as_recorded = claim.is_some_and(|c| c.volume == VolumeFinding::AsRecorded && !c.lost);
        as_recorded
            && view
                .pod(pod)
                .is_none_or(|pod| !is_held(pod) && !is_empty(pod))
    };
    records.keys().filter(has_data).cloned().collect()
}

/// The pods that do not exist because their StatefulSet creates one pod after another, by ordinal,
/// and waits for one that waits for the gate.
pub(super) fn uncreated(look: &Look, held: &[(PodName, PodUid)]) -> Vec<PodName> {
    let set = look.view.stateful_set();
    let spec = set.and_then(|set| set.spec.as_ref());
    let policy = spec.and_then(|spec| spec.pod_management_policy.as_deref());
    let first = held.iter().filter_map(|(pod, _)| Ordinal::from_pod(pod));
    let first = first.min().filter(|_| policy != Some("Parallel"));
    let ordinals = set.zip(first).into_iter().flat_map(|(set, Ordinal(held))| {
        let kept = kept_ordinals(set);
        (held.saturating_add(1)..kept.end).map(|n| format!("{}-{n}", look.page.cluster.name))
    });
    let pods = ordinals.map(PodName::new);
    pods.filter(|pod| look.view.pod(pod).is_none()).collect()
}

/// Whether the gate made the pod join a cluster: its etcd is given another state than in the
/// template of its StatefulSet.
pub(super) fn is_to_join(pod: &Pod, set: Option<&StatefulSet>, named: Option<&str>) -> bool {
    let joins = |spec: Option<&PodSpec>| {
        let container = EtcdContainer::find(spec?, named).certain()?;
        Some(matches!(joining(container), Ok(None)))
    };
    let template = set.and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
    joins(pod.spec.as_ref()) == Some(true) && joins(template) != Some(true)
}
