//! The budget itself: what its owner writes, and its place in the API.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auth::AuthSpec;
use super::duration::Bounds;
use super::enforcement::Enforcement;
use super::policy::{EvidenceSource, PolicySpec};
use super::rollout::RolloutSpec;
use super::status::QuorumDisruptionBudgetStatus;
use super::tls::TlsSpec;
use super::{BadField, amount, is_default};
use crate::quorum::{ClusterRef, Policy};

/// How one etcd cluster is guarded. It is named like the cluster's StatefulSet, and outlives it.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "quorumgate.io",
    version = "v1alpha1",
    kind = "QuorumDisruptionBudget",
    plural = "quorumdisruptionbudgets",
    singular = "quorumdisruptionbudget",
    shortname = "qdb",
    namespaced,
    status = "QuorumDisruptionBudgetStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Guards the quorum of one etcd cluster: says how, shows its state, and keeps the permissions that are open.",
    selectable = ".status.clusterID",
    validation = Rule::new("self.metadata.name == self.spec.statefulSetName").message("a budget must have the name of its StatefulSet: metadata.name must equal spec.statefulSetName"),
    printcolumn(name = "Voters", type_ = "integer", json_path = ".status.voters", description = "Voters that count"),
    printcolumn(name = "Serving", type_ = "integer", json_path = ".status.currentHealthy", description = "Voters that serve and have no open permission to go"),
    printcolumn(name = "Majority", type_ = "integer", json_path = ".status.desiredHealthy", description = "Voters that must serve"),
    printcolumn(name = "Allowed", type_ = "integer", json_path = ".status.disruptionsAllowed", description = "Members that may go now"),
    printcolumn(name = "Leader", type_ = "string", json_path = ".status.leader", description = "The member that leads"),
    printcolumn(name = "Updated", type_ = "integer", json_path = ".status.updatedMembers", description = "Pods of the StatefulSet's update revision"),
    printcolumn(name = "Rollout", type_ = "string", json_path = ".status.rollout.waitingOn.reason", description = "What the rollout waits for"),
    printcolumn(name = "Strategy", type_ = "string", json_path = ".status.updateStrategy.type", description = "The update strategy of the StatefulSet", priority = 1),
    printcolumn(name = "Updated by", type_ = "string", json_path = ".status.updateStrategy.updatedBy", description = "Who replaces outdated pods", priority = 1),
    printcolumn(name = "Last step", type_ = "string", json_path = ".status.rollout.lastStep.pod", description = "The pod that the rollout took last", priority = 1),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.rollout.waitingOn.message", description = "What the rollout waits for, in words", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct QuorumDisruptionBudgetSpec {
    /// The StatefulSet whose pods are the members. It must equal the budget's own name and cannot change.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("spec.statefulSetName cannot change"))]
    pub stateful_set_name: String,
    /// Whether what the gate refuses is refused, or only reported. Default: `Enforce`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Enforcement")]
    pub enforcement: Option<Enforcement>,
    /// How members are reached and asked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub members: MembersSpec,
    /// How many members a rollout may have out at once, as a number or a percentage (rounded down, but at least 1); never
    /// more than the quorum can spare. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::schema")]
    pub max_unavailable: Option<IntOrString>,
    /// Pods with a lower ordinal keep their revision in a rollout. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub partition: Option<i32>,
    /// Whether no new step of a rollout may begin. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// How a rollout goes about it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rollout: RolloutSpec,
    /// What decides where several answers make sense.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: PolicySpec,
}

/// How members are reached and asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MembersSpec {
    /// The port on which members serve clients. Default: the container port named `client`, else 2379.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub client_port: Option<i32>,
    /// A name that the server certificate of every member is valid for. Default: the DNS name of each member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub server_name: Option<String>,
    /// The Secrets with which the gate speaks to the members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TlsSpec")]
    pub tls: Option<TlsSpec>,
    /// The user as whom the gate asks, where etcd wants a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AuthSpec")]
    pub auth: Option<AuthSpec>,
    /// Where evidence comes from. Default: `Live`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "EvidenceSource")]
    pub evidence: Option<EvidenceSource>,
    /// How long a round of questions to the members may take. Default: 400ms, rising by itself up to 1500ms with the latency seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "probe_timeout_schema")]
    pub probe_timeout: Option<String>,
}

/// A judgement asks twice where leadership moves, and the API server waits 5 s in all.
const PROBE_TIMEOUT: Bounds = Bounds {
    field: "spec.members.probeTimeout",
    least: "50ms",
    most: "1500ms",
};

fn probe_timeout_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    PROBE_TIMEOUT.schema(generator)
}

impl MembersSpec {
    /// How long a round may take, where the owner said so.
    pub fn probe_timeout(&self) -> Result<Option<Duration>, BadField> {
        self.probe_timeout
            .as_ref()
            .map(|text| PROBE_TIMEOUT.read(Some(text), Duration::ZERO))
            .transpose()
    }

    /// The client port, where the owner said so.
    pub fn client_port(&self) -> Result<Option<u16>, BadField> {
        let valid = |port: i32| u16::try_from(port).ok().filter(|port| *port > 0);
        self.client_port
            .map(|port| {
                valid(port).ok_or_else(|| BadField {
                    field: "spec.members.clientPort",
                    problem: format!("{port} is not a port"),
                })
            })
            .transpose()
    }
}

impl QuorumDisruptionBudgetSpec {
    /// The budget's choices as decisions read them, with every default filled in.
    pub fn policy(&self) -> Result<Policy, BadField> {
        let default = Policy::default();
        let PolicySpec {
            single_member,
            two_members,
            scale_out_grace: _,
            max_lag,
        } = &self.policy;
        let lag_bound = max_lag
            .map(|lag| {
                u64::try_from(lag).map_err(|_| BadField {
                    field: "spec.policy.maxLag",
                    problem: "must not be negative".into(),
                })
            })
            .transpose()?;
        Ok(Policy {
            evidence: self.members.evidence.unwrap_or_default().into(),
            single_member: single_member.map_or(default.single_member, Into::into),
            two_members: two_members.map_or(default.two_members, Into::into),
            scale_out_grace: self.policy.scale_out_grace(default.scale_out_grace)?,
            quorum_loss_grace: self
                .rollout
                .quorum_loss_grace_period(default.quorum_loss_grace)?,
            progress_deadline: self.rollout.progress_deadline(default.progress_deadline)?,
            lag_bound: lag_bound.unwrap_or(default.lag_bound),
        })
    }
}

impl QuorumDisruptionBudget {
    /// The budget of a StatefulSet, with every default.
    pub fn of(cluster: &ClusterRef) -> Self {
        let mut budget = Self::new(
            &cluster.name,
            QuorumDisruptionBudgetSpec {
                stateful_set_name: cluster.name.clone(),
                ..QuorumDisruptionBudgetSpec::default()
            },
        );
        budget.metadata.namespace = Some(cluster.namespace.clone());
        budget
    }

    /// Whether refusals are only reported.
    pub fn only_warns(&self) -> bool {
        self.spec.enforcement.unwrap_or_default().only_warns()
    }

    /// The cluster it guards.
    pub fn cluster(&self) -> ClusterRef {
        ClusterRef::new(
            self.metadata.namespace.clone().unwrap_or_default(),
            self.metadata.name.clone().unwrap_or_default(),
        )
    }
}
