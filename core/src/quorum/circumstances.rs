//! What surrounds a request: facts about the cluster's objects that decide before any member is looked at (rules 1 to 10).

use std::time::Duration;

use super::id::ClusterRef;

/// Facts about the budget, the StatefulSet and what holds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circumstances {
    /// Whether the pod belongs to an enrolled cluster (rule 1).
    pub scope: Scope,
    /// Whether the cluster, or this ordinal of it, is being torn down (rule 3).
    pub teardown: Option<Teardown>,
    /// A valid override (rule 6; on the pod itself it also lifts rule 5).
    pub lifted: Option<Override>,
    /// Another budget whose members report the same etcd cluster id (rule 8).
    pub shared_with: Option<ClusterRef>,
    /// Whether the ledger has been watched for long enough to be complete (rule 9).
    pub ledger: Temperature,
    /// What the pod's `PodDisruptionBudget`s would say to an eviction now (rule 10).
    pub disruption_budget: DisruptionBudget,
}

impl Circumstances {
    /// An enrolled cluster with a warm ledger, and nothing else to say about it.
    pub fn ordinary() -> Self {
        Self {
            scope: Scope::Enrolled,
            teardown: None,
            lifted: None,
            shared_with: None,
            ledger: Temperature::Warm,
            disruption_budget: DisruptionBudget::Permits,
        }
    }
}

/// Whether a pod is the gate's business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// A pod of a cluster with a budget.
    Enrolled,
    /// No budget and no enrolment: not ours.
    Foreign,
    /// The StatefulSet is enrolled and has no budget yet.
    NoLedger,
    /// The definition of budgets is missing from the API server.
    NoDefinition,
}

/// What is being torn down. Each variant is a way in which a delete is no longer a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Teardown {
    /// The namespace is terminating.
    Namespace,
    /// The StatefulSet that the pod refers to goes, on purpose and not orphaning its pods.
    StatefulSet,
    /// The StatefulSet's owner goes.
    Owner,
    /// `spec.replicas` is 0: hibernation. Granted, so that it counts while it lasts.
    Hibernation,
    /// The pod's ordinal left the range by a recorded scale-in. Granted, so that it counts while it lasts.
    ScaleIn,
}

/// A person's decision to go on against the gate's advice, limited in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// Where it stands.
    pub on: OverrideOn,
    /// Until when, as written (RFC 3339).
    pub until: String,
}

/// The object that carries an override.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverrideOn {
    /// The pod itself: this also lifts rule 5.
    Pod,
    /// The StatefulSet.
    StatefulSet,
    /// The budget.
    Budget,
}

/// Whether the ledger is known to hold every open grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temperature {
    /// It is.
    Warm,
    /// It is new, or its gate was not in force for a while: grants given elsewhere may be open.
    Cold {
        /// How long this replica still has to watch it; `None` while its gate is not in force: that time does not count.
        remaining: Option<Duration>,
    },
}

/// What the `PodDisruptionBudget`s that select the pod would say to its eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisruptionBudget {
    /// None selects it, or the one that does would let it go.
    Permits,
    /// It would answer 429.
    Refuses {
        /// Its name.
        name: String,
    },
    /// Several select it: the API server answers 500.
    Several {
        /// Their names.
        names: Vec<String>,
    },
}
