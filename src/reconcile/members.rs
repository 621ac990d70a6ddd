//! The `EtcdMember`s of one cluster (DEP-04): created before their pods where possible, deleted at
//! 0 replicas and after a scale-in, and kept up to date.
//!
//! The gate is the only writer of their status. Where another client writes it too, the gate stops
//! and says so, because two writers would undo each other's work for ever.

mod evidence;
mod record;
mod snapshots;
mod volume;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::api::{Preconditions, Resource as _};
use kube::{Error, ResourceExt as _};
use serde_json::json;
use tokio::time::Instant;
use tracing::{info, warn};

use super::initialisations::Initialisations;
use super::look::Look;
use super::run::{MANAGER, Run};
use crate::api::etcd_member::{EtcdMember, EtcdMemberSpec};
use crate::api::{QuorumDisruptionBudget, SnapshotSource, names};
use crate::lists;
use crate::members::{
    CREATE_AS_LEARNER, Impossible, MemberInput, NewMember, PreviousSizes, Resources, UnixTime,
    derive, resources,
};
use crate::observe::first_ordinal;
use crate::plan::MOST_REPLICAS;
use crate::quorum::PodName;
use crate::telemetry::events::{Notice, Severity};
use snapshots::LatestSnapshots;
use volume::Volumes;

/// The label of DEP-04: the name of the owner.
const OWNED_BY: &str = "gardener.cloud/owned-by";

/// The most characters that the value of a label has.
const LONGEST_LABEL: usize = 63;

/// The state of the duty from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Members {
    sizes_written: HashMap<PodName, Instant>,
    /// The complaint about each member that was last said.
    said: BTreeMap<PodName, Complaint>,
    snapshots: LatestSnapshots,
    volumes: Volumes,
    /// The reason, last said, why the latest snapshots could not be asked for.
    unlisted: Option<String>,
}

/// A reason for which the status of an `EtcdMember` is not written, or only in part.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Complaint {
    Impossible(Impossible),
    ForeignWriter(String),
    Taken,
    Unreadable,
}

impl Complaint {
    fn reason(&self) -> &'static str {
        match self {
            Self::Impossible(_) => "ImpossibleTransition",
            Self::ForeignWriter(_) => "ForeignWriter",
            Self::Taken => "Taken",
            Self::Unreadable => "UnreadableStatus",
        }
    }

    fn note(&self) -> String {
        match self {
            Self::Impossible(impossible) => impossible.to_string(),
            Self::ForeignWriter(who) => {
                format!("{who} writes the status as well, so the gate has stopped writing it")
            }
            Self::Taken => {
                "another client has made it, so the gate leaves it alone; delete it to let the gate make its own"
                    .into()
            }
            Self::Unreadable => {
                "the status has a value that this version does not know, so the gate does not write it"
                    .into()
            }
        }
    }
}

impl Members {
    /// Brings the `EtcdMember`s of the cluster up to date.
    pub(super) async fn run(
        &mut self,
        run: &Run,
        look: &Look,
        initialisations: &Initialisations,
    ) -> Result<(), Error> {
        // Without a StatefulSet nobody knows how many members are meant. The owner's deletion takes
        // its `EtcdMember`s with it.
        let Some(set) = look.view.stateful_set() else {
            return Ok(());
        };
        let Some(owner) = owner(set, look.page.budget()) else {
            return Ok(());
        };
        let namespace = &look.page.cluster.namespace;
        let api: Api<EtcdMember> = Api::namespaced(run.client.clone(), namespace);
        // By the label of the gate alone: the owner of a StatefulSet may change.
        let ours = format!("{}={MANAGER}", names::MANAGED_BY);
        let name_of = |member: &EtcdMember| PodName::new(member.name_any());
        // Their managed fields say who else writes them.
        let of_set = |member: EtcdMember| {
            let is_of_set = name_of(&member).is_given_by(&look.page.cluster.name);
            is_of_set.then_some(member)
        };
        let listed = lists::picked(&api, &ListParams::default().labels(&ours), of_set).await?;
        let listed = listed.into_iter();
        let mut existing: BTreeMap<PodName, EtcdMember> =
            listed.map(|member| (name_of(&member), member)).collect();
        let names: BTreeSet<PodName> = existing.keys().cloned().collect();
        let Some(replicas) = pods(set, look.view.replicas(&look.page)) else {
            warn!(cluster = %look.page.cluster, most = MOST_REPLICAS, "EtcdMembers not updated: too many replicas");
            return Ok(());
        };
        let Resources { create, delete } = resources(&look.snapshot, &replicas, &names);
        for name in delete {
            if let Some(member) = existing.remove(&name) {
                remove(&api, &member).await?;
                self.sizes_written.remove(&name);
                self.said.remove(&name);
                info!(cluster = %look.page.cluster, member = %name, "EtcdMember deleted");
            }
        }
        for new in create {
            let object = object(&new, namespace, &owner);
            match api.create(&by_us(), &object).await {
                Ok(member) => {
                    info!(cluster = %look.page.cluster, member = %new.member, "EtcdMember created");
                    existing.insert(new.member, member);
                }
                // One of another client, or one whose label was removed.
                Err(Error::Api(status)) if status.is_already_exists() => {
                    self.say(run, &new.member, &object, Some(Complaint::Taken));
                }
                Err(error) => return Err(error),
            }
        }
        if existing.is_empty() {
            return Ok(());
        }
        self.volumes.read(run, look).await;
        let leases: Api<Lease> = Api::namespaced(run.client.clone(), namespace);
        let leases = lists::kept(&leases, &ListParams::default(), |_| true).await?;
        for (name, member) in existing {
            if member.meta().deletion_timestamp.is_some() {
                continue;
            }
            let mut facts = MemberInput::from_snapshot(
                &look.snapshot,
                &name,
                UnixTime(run.clock.now().as_second()),
            );
            evidence::add(&mut facts, look, &leases, &name, &owner.name);
            initialisations.add(&mut facts, &name);
            self.update(run, look, &api, (&name, member), facts, &owner)
                .await?;
        }
        Ok(())
    }

    async fn update(
        &mut self,
        run: &Run,
        look: &Look,
        api: &Api<EtcdMember>,
        (name, mut member): (&PodName, EtcdMember),
        mut facts: MemberInput,
        owner: &OwnerReference,
    ) -> Result<(), Error> {
        if let Some(who) = foreign_writer(&member) {
            self.say(run, name, &member, Some(Complaint::ForeignWriter(who)));
            return Ok(());
        }
        if member.owner_references() != [owner.clone()] {
            let params = PatchParams {
                field_manager: Some(MANAGER.into()),
                ..PatchParams::default()
            };
            let adopted =
                json!({"metadata": {"labels": labels(owner), "ownerReferences": [owner]}});
            member = api
                .patch(name.as_str(), &params, &Patch::Merge(adopted))
                .await?;
        }
        let shown = member.status.clone().unwrap_or_default();
        let Some(recorded) = record::read(&shown) else {
            self.say(run, name, &member, Some(Complaint::Unreadable));
            return Ok(());
        };
        let now = run.clock.instant();
        self.volumes.add(&mut facts, look, name);
        self.ask_for_snapshots(run, look, &member, &mut facts).await;
        facts.create_as_learner = member.annotations().contains_key(CREATE_AS_LEARNER);
        if let Some(at) = self.sizes_written.get(name) {
            facts.previous_sizes = PreviousSizes::WrittenFor(now.saturating_duration_since(*at));
        }
        let derived = derive(&recorded, &facts);
        self.say(
            run,
            name,
            &member,
            derived.refused.map(Complaint::Impossible),
        );
        if derived.status != recorded {
            member.status = Some(record::show(&derived.status));
            match api.replace_status(name.as_str(), &by_us(), &member).await {
                Ok(_) => {}
                // Another write came first. The next look begins with it.
                Err(Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        // The recorded sizes count as written now if these are the present ones. Otherwise a change
        // below the threshold waits for the age of the last write.
        let sizes = |sizes: crate::quorum::Sizes| (Some(sizes.db), Some(sizes.in_use));
        let present = facts.sizes.map(sizes);
        if present == Some((derived.status.db_size, derived.status.db_size_in_use)) {
            self.sizes_written.insert(name.clone(), now);
        }
        if derived.drop_annotation {
            let patch = json!({"metadata": {"annotations": {CREATE_AS_LEARNER: null}}});
            let params = PatchParams {
                field_manager: Some(MANAGER.into()),
                ..PatchParams::default()
            };
            api.patch(name.as_str(), &params, &Patch::Merge(patch))
                .await?;
        }
        Ok(())
    }

    /// Replaces the snapshots of the Leases by those of the backup store, where the budget asks for
    /// it. Where they cannot be had, those of the Leases stay.
    async fn ask_for_snapshots(
        &mut self,
        run: &Run,
        look: &Look,
        member: &EtcdMember,
        facts: &mut MemberInput,
    ) {
        let source = look.page.budget().spec.members.snapshots;
        let is_asked = source == Some(SnapshotSource::Metadata);
        let Some(leases) = facts.snapshots.take_if(|_| is_asked) else {
            return;
        };
        let leader = PodName::new(member.name_any());
        match self.snapshots.latest(run, look, &leader, &leases).await {
            Ok(latest) => {
                self.unlisted = None;
                facts.snapshots = Some(latest);
            }
            Err(why) => {
                facts.snapshots = Some(leases);
                if self.unlisted.as_ref() != Some(&why) {
                    let note = format!(
                        "the latest snapshots could not be asked for, so only their revisions are shown: {why}"
                    );
                    warn!(cluster = %look.page.cluster, member = %leader, because = why, "cannot list the latest snapshots");
                    run.events.notify(Notice {
                        regarding: member.object_ref(&()),
                        severity: Severity::Warning,
                        reason: "SnapshotsNotListed".into(),
                        action: "Observe",
                        note,
                    });
                    self.unlisted = Some(why);
                }
            }
        }
    }

    /// Says a complaint once, until it is another one or has ended.
    fn say(
        &mut self,
        run: &Run,
        name: &PodName,
        member: &EtcdMember,
        complaint: Option<Complaint>,
    ) {
        let Some(complaint) = complaint else {
            self.said.remove(name);
            return;
        };
        if self.said.get(name) == Some(&complaint) {
            return;
        }
        let (reason, note) = (complaint.reason(), complaint.note());
        warn!(member = %name, reason, note, "cannot update the EtcdMember");
        run.events.notify(Notice {
            regarding: member.object_ref(&()),
            severity: Severity::Warning,
            reason: reason.into(),
            action: "Observe",
            note,
        });
        self.said.insert(name.clone(), complaint);
    }
}

/// The owner of the `EtcdMember`s: the StatefulSet's controlling owner, else the budget. The owner
/// is not kept waiting for them: that would need rights on its finalizers.
fn owner(set: &StatefulSet, budget: &QuorumDisruptionBudget) -> Option<OwnerReference> {
    let owners = set.owner_references().iter();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    let owner = controllers.next().cloned();
    owner
        .or_else(|| budget.controller_owner_ref(&()))
        .map(|owner| OwnerReference {
            block_owner_deletion: None,
            ..owner
        })
}

/// The pods that the StatefulSet is to have. `None` beyond [`MOST_REPLICAS`]: `spec.replicas` is a
/// stranger's number, and no etcd cluster has so many members.
fn pods(set: &StatefulSet, replicas: u32) -> Option<Vec<PodName>> {
    let first = first_ordinal(set).0;
    let pod = |ordinal| PodName::new(format!("{}-{ordinal}", set.name_any()));
    let ordinals = first..first.saturating_add(replicas);
    (replicas <= MOST_REPLICAS).then(|| ordinals.map(pod).collect())
}

fn object(new: &NewMember, namespace: &str, owner: &OwnerReference) -> EtcdMember {
    let learner = new
        .create_as_learner
        .then(|| BTreeMap::from([(CREATE_AS_LEARNER.into(), names::TRUE.into())]));
    EtcdMember {
        metadata: ObjectMeta {
            name: Some(new.member.to_string()),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels(owner)),
            annotations: learner,
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        spec: EtcdMemberSpec::default(),
        status: None,
    }
}

/// The labels of an `EtcdMember`. Names may be longer than the value of a label. An owner with such
/// a name is left out.
fn labels(owner: &OwnerReference) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([(names::MANAGED_BY.to_owned(), MANAGER.to_owned())]);
    if owner.name.len() <= LONGEST_LABEL {
        labels.insert(OWNED_BY.to_owned(), owner.name.clone());
    }
    labels
}

fn by_us() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.into()),
        ..PostParams::default()
    }
}

async fn remove(api: &Api<EtcdMember>, member: &EtcdMember) -> Result<(), Error> {
    let only = Preconditions {
        uid: member.uid(),
        resource_version: None,
    };
    let params = DeleteParams::default().preconditions(only);
    match api.delete(&member.name_any(), &params).await {
        Err(Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

/// The other client that has written the status, if there is one.
fn foreign_writer(member: &EtcdMember) -> Option<String> {
    let managers = member.managed_fields().iter();
    let mut of_status = managers.filter(|entry| entry.subresource.as_deref() == Some("status"));
    let foreign = of_status.find(|entry| entry.manager.as_deref() != Some(MANAGER))?;
    Some(foreign.manager.clone().unwrap_or_else(|| "somebody".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_number_of_replicas_makes_no_members() {
        let mut set = StatefulSet::default();
        set.metadata.name = Some("etcd".into());
        assert_eq!(pods(&set, 2), Some(vec!["etcd-0".into(), "etcd-1".into()]));
        assert_eq!(pods(&set, i32::MAX.unsigned_abs()), None);
    }

    #[test]
    fn an_owner_with_a_name_that_no_label_can_hold_is_left_out_of_the_labels() {
        let owner = |name: String| OwnerReference {
            name,
            ..OwnerReference::default()
        };
        let labels = |length| labels(&owner("e".repeat(length)));
        assert_eq!(labels(63).get(OWNED_BY), Some(&"e".repeat(63)));
        let without = BTreeMap::from([(names::MANAGED_BY.to_owned(), MANAGER.to_owned())]);
        assert_eq!(labels(64), without);
    }
}
