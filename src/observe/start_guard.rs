//! The identity guard's facts: whether the pod of a member may start, by the volume on record for
//! the member and the volume that the pod has.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PodSpec;

use tokio::time::{Instant, timeout_at};

use super::bound_node::bound_node;
use super::claim_note::ClaimNote;
use super::data_on::{DataOn, data_directory, data_on};
use super::error::ObserveError;
use super::held_data::unrecorded;
use super::intents::Intents;
use super::member_claim::MemberClaim;
use super::observer::Observer;
use super::pods::is_held;
use super::self_joining::joins_by;
use super::teardown::{kept_ordinals, kept_pods};
use super::view::ClusterView;
use super::{belonging, enrolment};
use crate::api::{EphemeralData, Membership, QuorumDisruptionBudget, RecordedEtcd, RecoveryPhase};
use crate::ledger::Page;
use crate::plan::replacement::{
    Guard, MembershipBy, Start, all_are_elsewhere, guard, initial_cluster, may_start,
};
use crate::quorum::Intent;
use crate::quorum::evidence::ListedMember;
use crate::quorum::{
    ClusterRef, DataInPods, Difference, Ordinal, PodName, Snapshot, Volume, VolumeFinding,
    confirmed_list, unrecorded_finding, volume_finding,
};

/// The kind of the owner with etcd-operator, and with others of that name.
const OPERATOR: &str = "EtcdCluster";
/// The kind and the API group of the owner with etcd-druid.
const DRUID: (&str, &str) = ("Etcd", "druid.gardener.cloud");

/// The one who changes etcd's member list: by what the budget says, or else by what owns the
/// StatefulSet.
pub fn membership(budget: &QuorumDisruptionBudget, set: Option<&StatefulSet>) -> MembershipBy {
    let by_script = || have_a_script(budget, set).then_some(MembershipBy::Pod);
    match budget.spec.data_protection.membership {
        Some(Membership::Gate) => return MembershipBy::Gate,
        Some(Membership::Pod) => return by_script().unwrap_or(MembershipBy::Sidecar),
        Some(Membership::Owner) => return MembershipBy::Owner,
        None => {}
    }
    let owner = set.and_then(|set| belonging::controller(&set.metadata));
    let is = |(kind, group): (&str, &str)| {
        owner.is_some_and(|owner| {
            let of_group = owner.api_version.split('/').next() == Some(group);
            owner.kind == kind && of_group
        })
    };
    let labels = set.and_then(|set| set.metadata.labels.as_ref());
    if is(DRUID) || labels.is_some_and(enrolment::are_of_druid) {
        MembershipBy::Sidecar
    } else if owner.is_some_and(|owner| owner.kind == OPERATOR) {
        MembershipBy::Owner
    } else {
        let recorded = budget.status.as_ref().and_then(|status| status.membership);
        match recorded {
            Some(Membership::Pod) => MembershipBy::Pod,
            Some(Membership::Gate | Membership::Owner) => MembershipBy::Gate,
            None => by_script().unwrap_or(MembershipBy::Gate),
        }
    }
}

/// The doubt about who changes the member list, in words: the contents of the pods say something
/// else by now than when the first volumes were recorded, and the budget's spec says nothing.
pub fn membership_in_doubt(
    budget: &QuorumDisruptionBudget,
    set: Option<&StatefulSet>,
) -> Option<String> {
    let status = budget.status.as_ref()?;
    let (recorded, by) = (status.membership?, status.joins_by.as_ref());
    let is_said = budget.spec.data_protection.membership.is_some();
    match (recorded, by, membership(budget, set)) {
        (Membership::Gate, Some(by), MembershipBy::Gate) if !is_said => {
            Some(format!("{by} of the pods adds members to etcd by now"))
        }
        (Membership::Pod, None, MembershipBy::Pod) if !is_said => {
            Some("nothing in the pods adds members to etcd any more".to_owned())
        }
        _ => None,
    }
}

/// Whether anything shows that pods have a script which changes the member list.
fn have_a_script(budget: &QuorumDisruptionBudget, set: Option<&StatefulSet>) -> bool {
    let status = budget.status.as_ref();
    let is_on_record = status.is_some_and(|status| status.joins_by.is_some());
    let template = set.and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
    is_on_record || template.is_some_and(|spec| joins_by(spec).is_some())
}

/// The policy for members whose data goes with their pods.
pub fn data_in_pods(budget: &QuorumDisruptionBudget, set: Option<&StatefulSet>) -> DataInPods {
    match budget.spec.data_protection.ephemeral {
        Some(EphemeralData::Replace) => DataInPods::Replace,
        Some(EphemeralData::Refuse) => DataInPods::Refuse,
        None if membership(budget, set) == MembershipBy::Gate => DataInPods::Replace,
        Some(EphemeralData::Allow) | None => DataInPods::Allow,
    }
}

impl ClusterView {
    /// The first of these pods that would start on the next claim, because the identity guard holds
    /// only pods that are created without their claim: it waits for a node, or the StatefulSet has
    /// yet to create it for a member whose volume is on record.
    pub fn waiting_pod(&self, page: &Page, pods: &[PodName]) -> Option<PodName> {
        let by_gate = membership(page.budget(), self.stateful_set()) == MembershipBy::Gate;
        let is_guarded = by_gate && page.cluster_id().is_some();
        let records = page.volume_records();
        let is_wanted = |name: &PodName| {
            let set = self.stateful_set();
            let set = set.filter(|set| set.metadata.deletion_timestamp.is_none());
            set.zip(Ordinal::from_pod(name))
                .is_some_and(|(set, Ordinal(n))| kept_ordinals(set).contains(&n))
        };
        let waits = |name: &&PodName| match self.pod(name) {
            None => is_wanted(name) && records.contains_key(*name),
            Some(pod) => {
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
                node.is_none() && pod.metadata.deletion_timestamp.is_none() && !is_held(pod)
            }
        };
        pods.iter().find(waits).filter(|_| is_guarded).cloned()
    }
}

/// The decision of the identity guard about a pod that is being created.
#[derive(Debug, Clone)]
pub struct StartGuard {
    /// The changes of the pod.
    pub guard: Guard,
    /// The container of etcd, where the budget names it.
    pub etcd_container: Option<String>,
    /// The node that has the data, to which the pod is bound.
    pub node: Option<String>,
    /// The members that the new one joins, as `initial-cluster` names them, where etcd expects one
    /// in the pod.
    pub members: Option<String>,
    /// Whether etcd starts as the only member, with what it has.
    pub alone: bool,
}

/// The time that is left for the answer when the question whom a new member joins is given up.
const FOR_THE_ANSWER: Duration = Duration::from_millis(300);

impl Observer {
    /// Decides how a pod starts that is about to be created. Without a record for its member the
    /// pod starts as a member of the cluster, once that is formed.
    ///
    /// A claim that does not exist or could not be read proves nothing, so the pod waits until the
    /// leader has seen the claim. So does a pod with another volume: whether etcd expects it is for
    /// the leader to find out, who asks the members.
    pub async fn start_of(
        &self,
        cluster: &ClusterRef,
        pod: &PodName,
        spec: &PodSpec,
        deadline: Instant,
    ) -> Result<Option<StartGuard>, ObserveError> {
        let page = self.ledger().read(cluster).await;
        let page = page.map_err(ObserveError::Ledger)?;
        // The budget may have been deleted, and the claims remember.
        let page = page.unwrap_or_else(|| Page::unwritten(cluster));
        let set = self.set(cluster).await?;
        let mut notes = Vec::new();
        // The objects that name the directories may say something else than when others started.
        let named = page.etcd_container();
        let told = self.told_in(&cluster.namespace, spec, named).await;
        let etcd = RecordedEtcd {
            directories: told.directories.as_ref().or(page.etcd().directories),
            ..page.etcd()
        };
        let directory = data_directory(spec, etcd, pod);
        let mut node = None;
        let volume = match data_on(spec, etcd, set.as_ref(), pod) {
            DataOn::Claims(claims) => {
                let claim = self.claims_named(cluster, claims).await;
                let mut claim = claim.ok();
                let volume = claim.as_mut().and_then(|claim| claim.volume.as_mut());
                if let Some(volume) = volume {
                    volume.directory = directory;
                }
                if !page.volume_records().contains_key(pod) {
                    notes = self.notes(&page, set.as_ref(), spec).await;
                }
                finding(&page, pod, claim.as_ref(), &notes)
            }
            // The pod has no UID yet, and is another one than any on record.
            DataOn::Pod => {
                let volume = Volume::in_pod("");
                let recorded = page.recorded_volumes();
                match (recorded.contains_key(pod), page.cluster_id()) {
                    (false, Some(cluster)) => unrecorded_finding(cluster, &volume, None, true),
                    _ => volume_finding(&recorded, pod, Some(&volume)),
                }
            }
            DataOn::Node { path, .. } => {
                let recorded = page.recorded_volumes();
                let own = recorded.get(pod).and_then(Volume::node);
                let may_run_there =
                    own.is_some_and(|own| bound_node(spec).is_none_or(|to| to == own));
                match own.filter(|_| may_run_there) {
                    Some(own) if self.is_node_gone(own).await => {
                        found(&page, pod, Some(&Volume::on_node("", &path)))
                    }
                    Some(own) => {
                        node = Some(own.to_owned());
                        let volume = Volume {
                            directory,
                            ..Volume::on_node(own, &path)
                        };
                        found(&page, pod, Some(&volume))
                    }
                    None => found(&page, pod, None),
                }
            }
            // The data on record is not seen any more.
            DataOn::AnyOf(_) | DataOn::Unknown => found(&page, pod, None),
        };
        let volume = start_finding(&page, pod, told.is_forced, told.is_late, volume);
        let start = self.start(&page, set.as_ref(), pod, &volume);
        let is_formed = start.is_formed || !notes.is_empty() && !page.budget().only_warns();
        let guard = guard(&Start { is_formed, ..start });
        // Where the gate sees to the number of members, or they join one that started alone, the
        // template may name others. The volume of a member that has yet to start may be on record
        // already.
        let has_others =
            page.budget().spec.members.count.is_some() || page.open_recovery().is_some();
        let is_new = has_others && guard.existing;
        Ok(Some(StartGuard {
            members: if is_new {
                let latest = deadline.checked_sub(FOR_THE_ANSWER).unwrap_or(deadline);
                self.whom(&page, pod, latest).await
            } else {
                None
            },
            alone: starts_alone(&page, pod, &volume),
            guard,
            etcd_container: page.etcd_container().map(str::to_owned),
            node,
        }))
    }

    /// The members that a new one in this pod joins, by etcd's own list, in the words of
    /// `initial-cluster`. `None` if etcd expects none there, or nobody tells.
    async fn whom(&self, page: &Page, pod: &PodName, latest: Instant) -> Option<String> {
        // The rest of the guard does not wait for it.
        let look = timeout_at(latest, Box::pin(self.look(page, latest)));
        let look = look.await.ok()?.ok()?;
        let list = confirmed_list(&look.snapshot, &look.round)?;
        initial_cluster(&page.cluster.name, pod, &list)
    }

    /// The notes on the claims of the members whose pods are like one with this spec.
    async fn notes(
        &self,
        page: &Page,
        set: Option<&StatefulSet>,
        spec: &PodSpec,
    ) -> Vec<ClaimNote> {
        let Some(set) = set else {
            return Vec::new();
        };
        let claims = kept_pods(set).filter_map(|pod| {
            let on = data_on(spec, page.etcd(), Some(set), &pod);
            let DataOn::Claims(names) = on else {
                return None;
            };
            Some((pod, names.into_iter().next()?))
        });
        let claims = self.claims_metadata(&page.cluster, claims).await;
        let notes = claims
            .iter()
            .filter_map(|(_, claim)| ClaimNote::read(claim));
        notes.collect()
    }

    /// Whether a pod that waits may start. `some_serve`: whether any member of the cluster serves,
    /// or may serve.
    pub fn may_start(
        &self,
        page: &Page,
        view: &ClusterView,
        pod: &PodName,
        volume: &VolumeFinding,
        (list, snapshot): (Option<&[ListedMember]>, &Snapshot),
        some_serve: bool,
    ) -> bool {
        let start = Start {
            list,
            others_only: list.is_some_and(|list| all_are_elsewhere(list, snapshot, pod)),
            ..self.start(page, view.stateful_set(), pod, volume)
        };
        may_start(&start, some_serve)
    }

    /// The facts about the start of a pod, without a member list.
    fn start<'a>(
        &self,
        page: &'a Page,
        set: Option<&StatefulSet>,
        pod: &'a PodName,
        volume: &'a VolumeFinding,
    ) -> Start<'a> {
        let budget = page.budget();
        let records = page.volume_records();
        Start {
            set: &page.cluster.name,
            pod,
            membership: membership(budget, set),
            // A budget that only warns keeps nothing back.
            is_formed: page.cluster_id().is_some() && !budget.only_warns(),
            bootstrap: self.bootstraps(budget, set),
            recorded_id: records.get(pod).map(|record| record.id),
            volume,
            list: None,
            others_only: false,
        }
    }

    /// Whether a person announced that the members start a new cluster, and that has not happened
    /// yet. An announcement is spent once the new cluster has its id on record: a member of that
    /// cluster which loses its data starts no further one.
    pub fn bootstraps(&self, budget: &QuorumDisruptionBudget, set: Option<&StatefulSet>) -> bool {
        let has_begun = budget
            .status
            .as_ref()
            .is_some_and(|status| !status.begins_anew.is_empty() && status.cluster_id.is_some());
        !has_begun && self.announces_bootstrap(budget, set)
    }

    /// Whether such an announcement stands on the budget or on the StatefulSet.
    pub fn announces_bootstrap(
        &self,
        budget: &QuorumDisruptionBudget,
        set: Option<&StatefulSet>,
    ) -> bool {
        let now = self.clock().now();
        let says = |said: Intents| said.announced(now) == Some(Intent::Bootstrap);
        let on_set = set.map(|set| Intents::of_set(set, budget.status.as_ref()));
        says(Intents::of_budget(budget)) || on_set.is_some_and(says)
    }
}

impl ClusterView {
    /// The finding about a pod that waits, with what etcd would make of its data.
    pub fn start_finding(&self, page: &Page, pod: &PodName, found: VolumeFinding) -> VolumeFinding {
        start_finding(
            page,
            pod,
            self.forces_new_cluster(),
            self.referenced_settings().is_late,
            found,
        )
    }
}

/// The finding about a pod by what etcd would make of its data. In a cluster where `is_forced`, it
/// would make a new one, and the only member of a cluster leaves nobody. What could not be read may
/// force it too, or name another directory. While one member starts alone, the data of the others
/// is given up for what it has.
fn start_finding(
    page: &Page,
    pod: &PodName,
    is_forced: bool,
    is_late: bool,
    found: VolumeFinding,
) -> VolumeFinding {
    let is_old_data = !matches!(found, VolumeFinding::Wrong { .. });
    let difference = match page.volume_records().len() {
        _ if page.is_given_up(pod) && (is_old_data || page.recovering().is_some()) => {
            Difference::GivenUp
        }
        // The webhook may see a pod again that it has changed.
        2.. if is_forced && page.recovering().is_none() => Difference::OwnCluster,
        1.. if is_late && !matches!(found, VolumeFinding::Wrong { .. }) => Difference::Unseen,
        _ => return found,
    };
    VolumeFinding::Wrong {
        volume: Volume::default(),
        difference,
    }
}

/// Whether etcd in this pod is to start as the only member, with the data that is on record.
fn starts_alone(page: &Page, pod: &PodName, volume: &VolumeFinding) -> bool {
    let open = page.open_recovery();
    let is_due = open
        .is_some_and(|open| open.phase == RecoveryPhase::Alone && *open.member == *pod.as_str());
    is_due && *volume == VolumeFinding::AsRecorded
}

/// Compares the claim of a pod with what is known of its member's: by the record, or else by what
/// the claims of all members say.
pub fn finding(
    page: &Page,
    pod: &PodName,
    claim: Option<&MemberClaim>,
    notes: &[ClaimNote],
) -> VolumeFinding {
    let volume = claim.and_then(|claim| claim.volume.as_ref());
    match found(page, pod, volume) {
        VolumeFinding::Unknown => unrecorded(page, claim, notes),
        known => known,
    }
}

/// Compares the volume of a pod with the one on record for its member. Where there is a record and
/// nothing was seen, the volume may be another one.
fn found(page: &Page, pod: &PodName, present: Option<&Volume>) -> VolumeFinding {
    let recorded = page.recorded_volumes();
    if present.is_none() && recorded.contains_key(pod) {
        return VolumeFinding::Wrong {
            volume: Volume::default(),
            difference: Difference::Unseen,
        };
    }
    volume_finding(&recorded, pod, present)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::QuorumDisruptionBudgetStatus;

    /// A word in a ConfigMap must not let pods start that are kept from it.
    #[test]
    fn what_was_on_record_first_counts_until_the_budget_says_otherwise() {
        let script = json!({"spec": {"template": {"spec": {"containers": [
            {"name": "etcd", "command": ["sh", "-c", "etcdctl member add"]},
        ]}}}});
        let script: StatefulSet = serde_json::from_value(script).unwrap();
        let mut budget = QuorumDisruptionBudget::with_defaults(&ClusterRef::new("db", "etcd"));
        let says = |budget: &QuorumDisruptionBudget| {
            let set = Some(&script);
            (membership(budget, set), membership_in_doubt(budget, set))
        };
        budget.status = Some(QuorumDisruptionBudgetStatus {
            membership: Some(Membership::Gate),
            joins_by: Some("container etcd".into()),
            ..QuorumDisruptionBudgetStatus::default()
        });
        let (by, doubt) = says(&budget);
        assert_eq!(by, MembershipBy::Gate);
        assert!(doubt.unwrap().contains("container etcd"));
        budget.spec.data_protection.membership = Some(Membership::Pod);
        assert_eq!(says(&budget), (MembershipBy::Pod, None));

        budget.spec.data_protection.membership = None;
        budget.status = Some(QuorumDisruptionBudgetStatus {
            membership: Some(Membership::Pod),
            ..QuorumDisruptionBudgetStatus::default()
        });
        let (by, doubt) = says(&budget);
        assert_eq!(by, MembershipBy::Pod);
        assert!(doubt.unwrap().contains("any more"));
    }

    fn by(labels: &serde_json::Value, owner: &serde_json::Value) -> MembershipBy {
        let metadata = json!({"labels": labels, "ownerReferences": owner});
        let set: StatefulSet = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        let budget = QuorumDisruptionBudget::with_defaults(&ClusterRef::new("db", "etcd"));
        membership(&budget, Some(&set))
    }

    #[test]
    fn the_member_list_is_changed_by_who_owns_the_stateful_set_unless_the_budget_says_so() {
        let owner = |version: &str, kind: &str| json!([{"apiVersion": version, "kind": kind, "name": "a", "uid": "b", "controller": true}]);
        let none = json!({});
        assert_eq!(by(&none, &json!([])), MembershipBy::Gate);
        let druid = owner("druid.gardener.cloud/v1alpha1", "Etcd");
        assert_eq!(by(&none, &druid), MembershipBy::Sidecar);
        let labels = json!({"app.kubernetes.io/managed-by": "etcd-druid", "app.kubernetes.io/component": "etcd-statefulset"});
        assert_eq!(by(&labels, &json!([])), MembershipBy::Sidecar);
        for group in ["operator.etcd.io/v1alpha1", "etcd.example.org/v1"] {
            let operator = owner(group, "EtcdCluster");
            assert_eq!(by(&none, &operator), MembershipBy::Owner, "{group}");
        }
        let mut budget = QuorumDisruptionBudget::with_defaults(&ClusterRef::new("db", "etcd"));
        budget.spec.data_protection.membership = Some(Membership::Owner);
        assert_eq!(membership(&budget, None), MembershipBy::Owner);
    }

    #[test]
    fn pods_with_a_script_that_adds_members_change_the_list_by_themselves() {
        let script = json!({"spec": {"template": {"spec": {"containers": [
            {"name": "etcd", "command": ["sh", "-c", "etcdctl member add $NAME"]},
        ]}}}});
        let script: StatefulSet = serde_json::from_value(script).unwrap();
        let mut budget = QuorumDisruptionBudget::with_defaults(&ClusterRef::new("db", "etcd"));
        assert_eq!(membership(&budget, Some(&script)), MembershipBy::Pod);
        assert_eq!(membership(&budget, None), MembershipBy::Gate);
        budget.spec.data_protection.membership = Some(Membership::Pod);
        assert_eq!(membership(&budget, None), MembershipBy::Sidecar);
        budget.status.get_or_insert_default().joins_by = Some("ConfigMap scripts".into());
        assert_eq!(membership(&budget, None), MembershipBy::Pod);
        budget.spec.data_protection.membership = Some(Membership::Gate);
        assert_eq!(membership(&budget, Some(&script)), MembershipBy::Gate);
    }
}
