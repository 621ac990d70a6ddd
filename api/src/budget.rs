//! The `QuorumDisruptionBudget` and its spec.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auth::AuthSpec;
use super::backups::BackupsSpec;
use super::data_protection::DataProtectionSpec;
use super::defragmentation::DefragmentationSpec;
use super::dns::SUBDOMAIN;
use super::duration::Bounds;
use super::enforcement::Enforcement;
use super::policy::{EvidenceSource, PolicySpec, SnapshotSource};
use super::rollout::RolloutSpec;
use super::status::QuorumDisruptionBudgetStatus;
use super::tls::TlsSpec;
use super::{BadField, amount, is_default};
use quorumgate_core::quorum::{ClusterRef, Policy};

/// How the gate guards one etcd cluster. The budget has the name of the cluster's StatefulSet, and
/// stays when the StatefulSet is deleted and created again. The gate creates a budget with defaults
/// for each enrolled StatefulSet that has none.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "quorumgate.io",
    version = "v1alpha1",
    kind = "QuorumDisruptionBudget",
    plural = "quorumdisruptionbudgets",
    singular = "quorumdisruptionbudget",
    shortname = "qdb",
    category = "etcd",
    namespaced,
    status = "QuorumDisruptionBudgetStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Guards the quorum of one etcd cluster against voluntary disruption. The spec says how, the status shows the cluster's state and holds the ledger of open grants.",
    selectable = ".status.clusterID",
    validation = Rule::new("!has(self.spec.statefulSetName) || self.metadata.name == self.spec.statefulSetName").message("a budget must have the name of its StatefulSet: metadata.name must equal spec.statefulSetName, or leave that out"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "Whether the cluster is healthy and guarded"),
    printcolumn(name = "Enforcement", type_ = "string", json_path = ".spec.enforcement", description = "Whether refusals are enforced or only reported"),
    printcolumn(name = "Voters", type_ = "integer", json_path = ".status.voters", description = "Voters that the majority is computed from"),
    printcolumn(name = "Serving", type_ = "integer", json_path = ".status.currentHealthy", description = "Voters that serve and have no open grant"),
    printcolumn(name = "Majority", type_ = "integer", json_path = ".status.desiredHealthy", description = "Voters that have to serve"),
    printcolumn(name = "Allowed", type_ = "integer", json_path = ".status.disruptionsAllowed", description = "Members that could be disrupted now"),
    printcolumn(name = "Leader", type_ = "string", json_path = ".status.leader", description = "The member that leads"),
    printcolumn(name = "Updated", type_ = "integer", json_path = ".status.updatedMembers", description = "Pods that have the StatefulSet's update revision"),
    printcolumn(name = "Rollout", type_ = "string", json_path = ".status.rollout.waitingOn.reason", description = "What the rollout waits for"),
    printcolumn(name = "Strategy", type_ = "string", json_path = ".status.updateStrategy.type", description = "The update strategy of the StatefulSet", priority = 1),
    printcolumn(name = "Updated by", type_ = "string", json_path = ".status.updateStrategy.updatedBy", description = "Who replaces outdated pods", priority = 1),
    printcolumn(name = "Last step", type_ = "string", json_path = ".status.rollout.lastStep.pod", description = "The pod that the rollout replaced last", priority = 1),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.rollout.waitingOn.message", description = "What the rollout waits for, in words", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct QuorumDisruptionBudgetSpec {
    /// Name of the StatefulSet whose pods are the members. It must equal the name of the budget,
    /// which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SUBDOMAIN), length(min = 1, max = 253))]
    pub stateful_set_name: Option<String>,
    /// Whether the gate refuses disruptions that endanger the quorum (`Enforce`), or allows and
    /// only reports them (`Warn`).
    #[serde(default)]
    pub enforcement: Enforcement,
    /// How the gate connects to the members and asks them. Default: found out from the StatefulSet.
    #[serde(default, skip_serializing_if = "is_default")]
    pub members: MembersSpec,
    /// Most members that a rollout may have out of service at once: a number from 1, or a
    /// percentage of the replicas (rounded down, at least 1). A rollout never takes more members
    /// than the quorum can spare. Default: that of the owner's `RollingUpdate`, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::schema")]
    pub max_unavailable: Option<IntOrString>,
    /// A rollout updates only pods with this ordinal or a higher one, like the partition of a
    /// StatefulSet. Default: that of the owner's `RollingUpdate`, else 0, all pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub partition: Option<i32>,
    /// If true, the rollout begins no new step. Steps that have begun are finished. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub paused: Option<bool>,
    /// How the gate rolls a new revision out, where status.updateStrategy.updatedBy is `Gate`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rollout: RolloutSpec,
    /// When the members' databases are defragmented.
    #[serde(default, skip_serializing_if = "is_default")]
    pub defragmentation: DefragmentationSpec,
    /// How the data of the members is protected.
    #[serde(default, skip_serializing_if = "is_default")]
    pub data_protection: DataProtectionSpec,
    /// When the backups of the cluster count as too old.
    #[serde(default, skip_serializing_if = "is_default")]
    pub backups: BackupsSpec,
    /// Choices of the cluster's owner about what may be disrupted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: PolicySpec,
}

/// How the gate connects to the members and asks them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MembersSpec {
    /// Number of members. The gate adds and removes one at a time: a new member joins as a learner
    /// and is promoted once it has caught up; one that leaves is removed from etcd before its pod
    /// goes. It sets the replicas of the StatefulSet, so nobody else may. Default: the gate leaves
    /// the number alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 9))]
    pub count: Option<i32>,
    /// Name of the container that runs etcd. Default: the container with a command, settings or a
    /// port of etcd, else the one called `etcd`, else the only one. Where that is not certain, a
    /// restart in place of any container is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub container: Option<String>,
    /// Port on which the members serve clients. Default: that of etcd's client URLs, else the
    /// container port with `client` in its name, else 2379.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub client_port: Option<i32>,
    /// Name that the server certificate of a member may carry, besides the names of its pod and of
    /// the Services that select it. `{pod}`, `{service}` and `{namespace}` stand for the pod's
    /// name, its governing Service and its namespace: `{pod}.etcd.example.org`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub server_name: Option<String>,
    /// Certificates for the connections to the members. Default: found out from the settings and
    /// mounts of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TlsSpec")]
    pub tls: Option<TlsSpec>,
    /// User and password for etcd's authentication. Default: none; etcd then takes the common name
    /// of the client certificate as the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AuthSpec")]
    pub auth: Option<AuthSpec>,
    /// Source of the evidence about which members serve: etcd itself (`Live`), or the readiness of
    /// pods (`Readiness`), which is weaker. Default: `Live`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "EvidenceSource")]
    #[schemars(extend("default" = "Live"))]
    pub evidence: Option<EvidenceSource>,
    /// Time limit for one round of questions to the members, from 50ms to 1500ms. The gate raises
    /// it up to 1500ms by itself while the cluster answers slowly. Default: the gate's option
    /// --probe-timeout, which is 400ms unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "probe_timeout_schema")]
    pub probe_timeout: Option<String>,
    /// Source of the snapshots in the `EtcdMember` of the leader: the snapshot Leases (`Leases`),
    /// or the etcd-backup-restore beside it (`Metadata`). Only with the feature `EtcdMembers`.
    /// Default: `Leases`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SnapshotSource")]
    #[schemars(extend("default" = "Leases"))]
    pub snapshots: Option<SnapshotSource>,
}

/// The maximum leaves time for two rounds within the 5 s that the API server waits: a judgement
/// asks twice where leadership moves.
const PROBE_TIMEOUT: Bounds = Bounds {
    field: "spec.members.probeTimeout",
    least: "50ms",
    most: "1500ms",
};

fn probe_timeout_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    PROBE_TIMEOUT.schema(generator)
}

impl MembersSpec {
    /// The time limit of a round of questions; `None` where the budget does not set it.
    pub fn probe_timeout(&self) -> Result<Option<Duration>, BadField> {
        self.probe_timeout
            .as_ref()
            .map(|text| PROBE_TIMEOUT.read(Some(text), Duration::ZERO))
            .transpose()
    }

    /// The client port; `None` where the budget does not set it.
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
    /// The policy for decisions, with the default of every field that is absent.
    pub fn policy(&self) -> Result<Policy, BadField> {
        let default = Policy::default();
        let PolicySpec {
            single_member,
            two_members,
            scale_out_grace: _,
            max_lag,
            teardown: _,
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
    /// The budget of a cluster, with every default.
    pub fn with_defaults(cluster: &ClusterRef) -> Self {
        let mut budget = Self::new(&cluster.name, QuorumDisruptionBudgetSpec::default());
        budget.metadata.namespace = Some(cluster.namespace.clone());
        budget
    }

    /// Whether refusals are only reported.
    pub fn only_warns(&self) -> bool {
        self.spec.enforcement.only_warns()
    }

    /// The cluster that the budget guards.
    pub fn cluster(&self) -> ClusterRef {
        ClusterRef::new(
            self.metadata.namespace.clone().unwrap_or_default(),
            self.metadata.name.clone().unwrap_or_default(),
        )
    }
}
