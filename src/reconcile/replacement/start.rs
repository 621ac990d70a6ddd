//! Pods that wait and need not wait any more, and the beginning of a new cluster.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::gather::{Input, some_serve};
use super::report::is_unmarked;
use super::step::Step;
use super::survivors::is_to_join;
use crate::ledger::StatusUpdate;
use crate::observe::{Observer, finding, is_held};
use crate::plan::replacement::{MembershipBy, expected_in};
use crate::quorum::{Condition, PodName, PodUid, VolumeFinding, VolumeRecord};
use crate::reconcile::look::{Look, ReconcileError};
use crate::reconcile::operation::OperationContext;

/// The start of the first pod that waits and need not wait any more. Where a new cluster begins,
/// the old one is forgotten first, and a pod that was made to join it is created anew.
pub(super) fn start(observer: &Observer, look: &Look, input: &Input) -> Option<Step> {
    let Look {
        page,
        view,
        snapshot,
        ..
    } = look;
    let list = input.facts.list.as_deref();
    let some_serve = some_serve(snapshot);
    let begun = begun(look);
    let may_start = |(pod, uid): &&(PodName, PodUid)| {
        let claim = input.claims.get(pod);
        let found = view.start_finding(page, pod, finding(page, pod, claim, &input.notes));
        let seen = (list, snapshot);
        let on_its_own = observer.may_start(page, view, pod, &found, seen, some_serve);
        on_its_own || begun.contains(uid.as_str())
    };
    let Some((pod, uid)) = input.held.iter().find(may_start) else {
        return start_anew(look, input, some_serve)
            .or_else(|| guard_anew(observer, look, input, some_serve));
    };
    let (pod, uid) = (pod.clone(), uid.clone());
    let set = view.stateful_set();
    let is_of_new = begun.contains(uid.as_str());
    if !some_serve && !is_of_new && input.bootstraps {
        let held = input.held.iter().map(|(_, uid)| uid.clone());
        let begins = || Step::BeginAnew(held.collect());
        return input.survivors.is_empty().then(begins);
    }
    let joins = |pod: &Pod| is_to_join(pod, set, view.etcd_container());
    Some(if is_of_new && view.pod(&pod).is_some_and(joins) {
        Step::CreateAnew { pod, uid }
    } else {
        Step::Start { pod, uid }
    })
}

/// The UIDs of the pods with which a new cluster begins.
fn begun(look: &Look) -> BTreeSet<&str> {
    let begun = look.page.status().map(|status| &status.begins_anew);
    let begun = begun.into_iter().flatten();
    begun.map(String::as_str).collect()
}

/// The step where a new cluster begins and pods have started already that were made to join the old
/// one: the old one is forgotten, and those pods are created anew, one after another.
fn start_anew(look: &Look, input: &Input, some_serve: bool) -> Option<Step> {
    let (view, set) = (&look.view, look.view.stateful_set());
    let begun = begun(look);
    let exits = view.crash_loops();
    let mut joining = view.pods().iter().filter_map(|pod| {
        let uid = PodUid::new(pod.metadata.uid.clone()?);
        let joins = is_to_join(pod, set, view.etcd_container());
        let ends = exits.contains_key(&uid);
        (joins && ends).then(|| (PodName::new(pod.name_any()), uid))
    });
    let is_begun = |(_, uid): &(PodName, PodUid)| begun.contains(uid.as_str());
    if let Some((pod, uid)) = joining.clone().find(is_begun) {
        let anew = Step::CreateAnew { pod, uid };
        return (!look.snapshot.proves_quorum()).then_some(anew);
    }
    let may_begin = input.bootstraps && input.survivors.is_empty();
    if some_serve || joining.next().is_none() || !may_begin {
        return None;
    }
    let all = view.pods().iter().filter_map(ResourceExt::uid);
    Some(Step::BeginAnew(all.map(PodUid::new).collect()))
}

/// The creation anew of a pod that was created without the gate, on another volume than its
/// member's, and whose member does not serve: it would come back under its old identity without its
/// data. The next pod waits, as this one should have.
fn guard_anew(observer: &Observer, look: &Look, input: &Input, some_serve: bool) -> Option<Step> {
    let Look {
        page,
        view,
        snapshot,
        ..
    } = look;
    let facts = &input.facts;
    let begins_anew = !some_serve && input.bootstraps;
    let records = page.volume_records();
    let is_guarded = !begins_anew
        && facts.membership == MembershipBy::Gate
        && page.cluster_id().is_some()
        && !page.budget().only_warns()
        && facts.record.is_none();
    let begins_empty = |pod: &&Pod| {
        let name = PodName::new(pod.name_any());
        let claim = facts.claims.get(&name);
        let takes_part = snapshot.member(&name).is_some_and(|member| {
            member.serves_quorum() || member.condition == Condition::Learning
        });
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        // It has served in this pod.
        let is_known = records
            .get(&name)
            .is_some_and(|record| record.pod.as_str() == uid);
        let may_start = || {
            let seen = (facts.list.as_deref(), snapshot);
            let found = claim.map_or(VolumeFinding::Unknown, |claim| claim.volume.clone());
            observer.may_start(page, view, &name, &found, seen, some_serve)
        };
        is_unmarked(pod)
            && !is_known
            && pod.metadata.deletion_timestamp.is_none()
            && !is_held(pod)
            && !takes_part
            && facts.recorded.contains_key(&name)
            && matches!(
                claim.map(|claim| &claim.volume),
                Some(VolumeFinding::Wrong { .. })
            )
            && !may_start()
    };
    let pod = view.pods().iter().find(begins_empty);
    let pod = pod.filter(|_| is_guarded)?;
    let uid = PodUid::new(pod.metadata.uid.clone()?);
    let pod = PodName::new(pod.name_any());
    Some(Step::CreateAnew { pod, uid })
}

/// Records the volume of a member that etcd expects in a pod, before the pod starts. It may be
/// created again before a look shows that the member serves.
pub(super) async fn record_expected(
    context: &OperationContext<'_>,
    input: &Input,
    (pod, uid): (&PodName, &PodUid),
) -> Result<(), ReconcileError> {
    let page = &context.look.page;
    let list = input.facts.list.as_deref().unwrap_or_default();
    let volume = input.claims.get(pod).and_then(|c| c.volume.clone());
    let mut volumes = page.volume_records();
    let expected = expected_in(&page.cluster.name, pod, list);
    if let (Some(id), Some(volume), false) = (expected, volume, volumes.contains_key(pod)) {
        let record = VolumeRecord {
            id,
            pod: uid.clone(),
            volume,
        };
        volumes.insert(pod.clone(), record);
        let update = StatusUpdate {
            volumes: Some(volumes),
            ..StatusUpdate::default()
        };
        context.run.ledger().update(page, update).await?;
    }
    Ok(())
}
