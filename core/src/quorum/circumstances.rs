//! The facts about a cluster's Kubernetes objects that are judged before any member (rules 1 to
//! 10).

use super::id::{ClusterRef, PodName};
use super::intent::Intent;
use super::trust::Trust;

/// The facts about the budget, the StatefulSet, its owner and its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circumstances {
    /// Whether the pod belongs to an enrolled cluster (rule 1).
    pub scope: Scope,
    /// The teardown of the cluster or of this ordinal, if there is one (rule 3).
    pub teardown: Option<Teardown>,
    /// A valid override (rule 6). An override on the pod itself also lifts rule 5.
    pub valid_override: Option<Override>,
    /// Another budget whose members report the same etcd cluster id (rule 8).
    pub shared_with: Option<ClusterRef>,
    /// Whether the ledger is known to hold every open grant (rule 9).
    pub ledger: Trust,
    /// Whether the pod template starts etcd with `--force-new-cluster`, so that each new pod leaves
    /// the others.
    pub forces_new_cluster: bool,
    /// Whether the StatefulSet keeps no pod for the target's ordinal, and nobody announced that.
    pub outside_ordinals: Option<OutsideOrdinals>,
    /// The pod of the member that starts alone, after a permanent loss of quorum.
    pub recovering: Option<PodName>,
    /// The answer that the pod's `PodDisruptionBudget`s would give to an eviction now (rule 10).
    pub disruption_budget: EvictionBudget,
}

impl Circumstances {
    /// An enrolled cluster with a trusted ledger: no teardown, no override, no refusal.
    pub fn ordinary() -> Self {
        Self {
            scope: Scope::Enrolled,
            teardown: None,
            valid_override: None,
            shared_with: None,
            ledger: Trust::Trusted,
            forces_new_cluster: false,
            outside_ordinals: None,
            recovering: None,
            disruption_budget: EvictionBudget::Permits,
        }
    }
}

/// Whether a pod belongs to an enrolled cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The pod belongs to a cluster with a budget.
    Enrolled,
    /// The StatefulSet has no budget and is not enrolled. The gate lets the pod go.
    Foreign,
    /// The StatefulSet is enrolled, and its budget does not exist yet.
    NoLedger,
    /// The `CustomResourceDefinition` of budgets is missing from the API server.
    NoDefinition,
}

/// The kinds of teardown. In each of them the owner wants the member gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Teardown {
    /// The namespace is terminating.
    Namespace,
    /// The StatefulSet of the pod is being deleted together with its pods (not with
    /// `--cascade=orphan`).
    StatefulSet,
    /// The owner of the StatefulSet is being deleted.
    Owner,
    /// `spec.replicas` is 0 (hibernation). The delete takes a grant, because etcd still lists the
    /// member.
    Hibernation,
    /// The pod's ordinal left the range by a recorded scale-in. The delete takes a grant, because
    /// etcd may still list the member.
    ScaleIn,
}

/// A pod for whose ordinal its StatefulSet keeps none, as where the StatefulSet was made anew with
/// fewer replicas. The pod would not be created again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutsideOrdinals {
    /// The StatefulSet.
    pub set: ClusterRef,
    /// The announcement that is missing.
    pub needs: Intent,
    /// The reason why an announcement that exists does not count.
    pub ignored: Option<String>,
}

/// A person's annotation that lets disruptions pass against the rules for a limited time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// The object that carries the annotation.
    pub on: OverrideOn,
    /// The end of the override, as written (RFC 3339).
    pub until: String,
}

/// The object that carries an override.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverrideOn {
    /// The pod. Only this override also lifts rule 5.
    Pod,
    /// The StatefulSet.
    StatefulSet,
    /// The budget.
    Budget,
}

/// The answer that the `PodDisruptionBudget`s of the pod would give to an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionBudget {
    /// No `PodDisruptionBudget` selects the pod, or the only one allows the eviction.
    Permits,
    /// The `PodDisruptionBudget` would refuse: the API server answers 429.
    Refuses {
        /// The name of the `PodDisruptionBudget`.
        name: String,
    },
    /// Several `PodDisruptionBudget`s select the pod: the API server answers 500.
    Several {
        /// The names of the `PodDisruptionBudget`s.
        names: Vec<String>,
    },
}

/// The direction in which a setting changes, for example TLS between members in the pod template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Switch {
    /// From off to on.
    On,
    /// From on to off.
    Off,
}
