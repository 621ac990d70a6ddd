//! The questions that the judge answers.

use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;

use super::decision::Answer;
use crate::api::{DefragmentationStatus, RecoveryStatus, ReplacementStatus};
use crate::ledger::Page;
use crate::observe::{ClusterView, Intents};
use crate::quorum::stateful_set::Change;
use crate::quorum::{Actor, ClusterRef, Disruption, Grace, Kind, PodName, PodUid, TargetPod};

/// The judge as its askers see it, so that tests can put another one in its place.
///
/// The answer comes before the deadline of the question. If something could not be found out in
/// time, the answer is [`super::Refused::Wait`].
pub trait Judging: Send + Sync + 'static {
    /// Answers a question about a pod.
    fn judge(&self, question: Question) -> BoxFuture<'_, Answer>;

    /// Answers a question about a StatefulSet.
    fn judge_set(&self, question: SetQuestion) -> BoxFuture<'_, Answer>;

    /// Answers a question about a claim.
    fn judge_claim(&self, question: ClaimQuestion) -> BoxFuture<'_, Answer>;
}

/// A question about the disruption of a pod.
#[derive(Debug, Clone)]
pub struct Question {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: PodName,
    /// The metadata of the pod as the request showed it (`oldObject`). An eviction shows none.
    pub shown: Option<Box<ObjectMeta>>,
    /// The kind of disruption.
    pub kind: Kind,
    /// The asker.
    pub asker: Asker,
    /// Whether the pod gets its grace period.
    pub grace: Grace,
    /// The UID that the request insists on.
    pub precondition: Option<PodUid>,
    /// Whether anything may be written.
    pub dry_run: DryRun,
    /// The time by which the answer has to be there.
    pub deadline: Instant,
    /// The containers of which one has to be etcd's, by the word of the budget. Empty where that
    /// makes no difference.
    pub only_if_etcd_is: Vec<String>,
    /// The facts by which the asker chose this pod, if a change of them makes the question void.
    pub seen: Option<SeenVersions>,
}

/// A question about a change of a StatefulSet that takes pods away.
#[derive(Debug, Clone)]
pub struct SetQuestion {
    /// The StatefulSet.
    pub set: ClusterRef,
    /// The UID of the StatefulSet that the request showed.
    pub uid: Option<PodUid>,
    /// The change.
    pub change: Change,
    /// The annotations that the object would have after the write. `None` if the stored object's
    /// count.
    pub intents: Option<Intents>,
    /// The asker.
    pub asker: Asker,
    /// Whether the garbage collector deletes exactly this UID, which proves that the owner is gone
    /// or goes together with its dependents.
    pub collected: bool,
    /// Whether anything may be written.
    pub dry_run: DryRun,
    /// The time by which the answer has to be there.
    pub deadline: Instant,
}

/// A change of a `PersistentVolumeClaim` that may cost a member its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimChange {
    /// The claim, which is not terminating, is deleted.
    Delete {
        /// Whether the garbage collector deletes exactly this UID, because its owners are gone.
        collected: bool,
    },
    /// The finalizer is removed that keeps the claim while a pod uses it.
    Unprotect,
    /// The volume of this name, to which the claim is bound, is deleted or taken from it.
    TakeVolume(String),
}

/// A question about a `PersistentVolumeClaim`.
#[derive(Debug, Clone)]
pub struct ClaimQuestion {
    /// The namespace of the claim.
    pub namespace: String,
    /// The name of the claim.
    pub claim: String,
    /// The change.
    pub change: ClaimChange,
    /// The asker.
    pub asker: Asker,
    /// Whether anything may be written.
    pub dry_run: DryRun,
    /// The time by which the answer has to be there.
    pub deadline: Instant,
}

/// A question about maintenance, for which only the gate asks.
#[derive(Debug, Clone)]
pub struct MaintenanceQuestion {
    /// The cluster.
    pub cluster: ClusterRef,
    /// The member, and what is done to it.
    pub what: Maintenance,
    /// The asker.
    pub asker: Asker,
    /// The time by which the answer has to be there.
    pub deadline: Instant,
    /// The facts by which the asker chose this member.
    pub seen: SeenVersions,
}

/// The treatment of a member by the gate, besides the delete of its pod.
#[derive(Debug, Clone)]
pub enum Maintenance {
    /// The member is defragmented.
    Defragment {
        /// The pod of the member.
        pod: TargetPod,
        /// The process that makes the call.
        holder: String,
        /// The longest time that the defragmentation may take.
        timeout: Duration,
        /// The record of the run, if the call follows at once. `None` if leadership may have to
        /// move first; the question is asked again then.
        begins: Option<DefragmentationStatus>,
    },
    /// The member is removed from etcd for good.
    Remove {
        /// The pod of the member.
        pod: TargetPod,
    },
    /// The member starts alone, after a permanent loss of quorum.
    Recover {
        /// The pod of the member.
        pod: TargetPod,
        /// How far that is then.
        record: Box<RecoveryStatus>,
    },
    /// The member is replaced by one with another id.
    Replace {
        /// The pod of the member, which need not exist.
        member: PodName,
        /// The record of the replacement, if it begins. `None` if the member is removed from etcd
        /// next.
        begins: Option<ReplacementStatus>,
    },
}

/// The facts by which a rollout or a defragmentation chose a step. Both follow rules that the judge
/// does not know (`maxUnavailable`, which pods are updated). If one of these facts has changed,
/// another pod may be next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenVersions {
    /// The number of the latest permission that was ever recorded.
    pub last_seq: u64,
    /// The generation of the budget.
    pub budget: Option<i64>,
    /// The generation of the StatefulSet.
    pub stateful_set: Option<i64>,
}

impl SeenVersions {
    /// The facts as they are in this reading.
    pub fn new(page: &Page, view: &ClusterView) -> Self {
        let set = view.stateful_set();
        Self {
            last_seq: page.grants.last_seq(),
            budget: page.budget().metadata.generation,
            stateful_set: set.and_then(|set| set.metadata.generation),
        }
    }
}

impl Question {
    /// The UID of the pod that the request showed.
    pub fn shown_uid(&self) -> Option<PodUid> {
        let uid = self.shown.as_ref()?.uid.as_deref()?;
        Some(uid.into())
    }

    /// The disruption of the incarnation that exists. The UID that the request showed counts as a
    /// precondition: before the API server deletes another incarnation, it asks again.
    pub(super) fn disruption(&self, kind: Kind, present: &PodUid, grace: Grace) -> Disruption {
        Disruption {
            target: TargetPod {
                name: PodName::clone(&self.pod),
                uid: present.clone(),
            },
            kind,
            actor: self.asker.actor,
            grace,
            precondition: self.precondition.clone().or_else(|| self.shown_uid()),
        }
    }
}

/// The asker of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The username, for the record.
    pub name: String,
    /// The role of the asker in the rules.
    pub actor: Actor,
}

/// Whether anything may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRun {
    /// Decide and write nothing.
    Yes,
    /// Record a permission.
    No,
}

impl From<bool> for DryRun {
    fn from(dry_run: bool) -> Self {
        if dry_run { Self::Yes } else { Self::No }
    }
}
