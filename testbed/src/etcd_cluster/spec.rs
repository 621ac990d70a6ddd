//! The properties of an etcd cluster, which [`EtcdClusterBuilder`](super::EtcdClusterBuilder) sets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::EtcdVersion;

/// The kind of connections between clients or peers and members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tls {
    /// Both sides show a certificate.
    #[default]
    Mutual,
    /// No TLS.
    None,
}

impl Tls {
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::Mutual => "https",
            Self::None => "http",
        }
    }
}

/// The authentication of clients by etcd. Users are named by the common name of their certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Auth {
    /// Off: every client with an accepted certificate may make every call.
    #[default]
    Off,
    /// On. The gate's user exists and has no role.
    GateIsUser,
    /// On. The gate's user has the role `root`.
    GateIsRoot,
    /// On. etcd does not know the gate's user.
    GateIsUnknown,
    /// On, with [`PASSWORD`] for all users. The gate's user has the role `root`.
    Password,
}

/// The password of every user with [`Auth::Password`].
pub const PASSWORD: &str = "test bed, test bed";

/// The form in which a member's certificates are configured, and the names of the volumes that have
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsTold {
    /// Flags, on druid's volumes.
    #[default]
    Druid,
    /// Flags, on volumes with other names.
    Flags,
    /// Environment variables, on volumes with other names, none of which is for clients.
    Variables,
}

/// The readiness probe of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Readiness {
    /// etcd's own check that the member has a quorum, as in druid's wrapper.
    #[default]
    Quorum,
    /// A check that the process listens. A member that lost its peers stays Ready.
    Process,
    /// No probe: the pod is Ready while it runs.
    None,
}

/// The storage of a member's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    /// A claim per member, which outlives its pods.
    #[default]
    Claim,
    /// A claim per member for the data, and another one for the write-ahead log.
    WalApart,
    /// A volume that is deleted with the pod. A member that comes back has to be removed and added
    /// again.
    EmptyDir,
    /// A directory of the node (`hostPath`).
    Node,
}

/// The conventions of the objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// A container for etcd, and the label that enrols a StatefulSet.
    #[default]
    Enrolled,
    /// A container for etcd, and no label for the gate.
    Foreign,
    /// etcd-druid's labels, services, annotations, Leases, and its second container.
    Druid,
}

/// The initialisation of members like etcd-wrapper's: etcd's container runs at once, and starts
/// etcd when the container beside it has initialised the data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Initialisation {
    /// No initialisation: etcd starts at once.
    #[default]
    None,
    /// The initialisation succeeds, and etcd starts.
    Succeeds,
    /// The initialisation fails again and again in these pods (in all if none is named), and
    /// succeeds in the others.
    Fails(Vec<String>),
    /// The initialisation hangs in these pods (in all if none is named), and succeeds in the
    /// others.
    Hangs(Vec<String>),
}

impl Initialisation {
    /// The arguments of the initialising container.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let (what, pods) = match self {
            Self::None | Self::Succeeds => ("succeeds", [].as_slice()),
            Self::Fails(pods) => ("fails", pods.as_slice()),
            Self::Hangs(pods) => ("hangs", pods.as_slice()),
        };
        std::iter::once(what.to_owned())
            .chain(pods.iter().cloned())
            .collect()
    }
}

/// The order in which the StatefulSet controller starts and stops pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodManagement {
    /// All pods at once, as druid does.
    #[default]
    Parallel,
    /// Pods one after another, each when its predecessor is Ready.
    OrderedReady,
}

/// The update strategy of the StatefulSet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpdateStrategy {
    /// The StatefulSet controller replaces pods, the highest ordinal first.
    #[default]
    RollingUpdate,
    /// Pods are replaced when a client deletes them.
    OnDelete,
}

/// etcd's own comparison of the members' data, which raises CORRUPT alarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataCheck {
    /// Every few seconds. The leader's data is taken for right.
    Periodic,
    /// After each compaction, from etcd 3.5 on. From 3.6 on the data of a majority is taken for
    /// right.
    AfterCompaction,
}

impl DataCheck {
    /// The interval between two checks.
    const EVERY: &'static str = "2s";

    /// etcd's arguments.
    pub(crate) fn arguments(self, version: EtcdVersion) -> Vec<String> {
        let every = Self::EVERY;
        let is_experimental = version < EtcdVersion::V3_6;
        match (self, is_experimental) {
            (Self::Periodic, true) => vec![format!("--experimental-corrupt-check-time={every}")],
            (Self::Periodic, false) => vec![format!("--corrupt-check-time={every}")],
            (Self::AfterCompaction, true) => vec![
                "--experimental-compact-hash-check-enabled=true".to_owned(),
                format!("--experimental-compact-hash-check-time={every}"),
            ],
            (Self::AfterCompaction, false) => vec![
                "--feature-gates=CompactHashCheck=true".to_owned(),
                format!("--compact-hash-check-time={every}"),
            ],
        }
    }
}

/// All properties of the cluster's objects. They are stored in an annotation of the StatefulSet, so
/// that another process can find the cluster again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) replicas: u32,
    pub(crate) version: EtcdVersion,
    pub(crate) tls: Tls,
    #[serde(default)]
    pub(crate) tls_told: TlsTold,
    /// The TLS of peers, if it differs.
    #[serde(default)]
    pub(crate) peer_tls: Option<Tls>,
    pub(crate) auth: Auth,
    pub(crate) gate_user: String,
    pub(crate) readiness: Readiness,
    pub(crate) storage: Storage,
    #[serde(default = "claim_size")]
    pub(crate) claim_size: String,
    pub(crate) shape: Shape,
    pub(crate) pod_management: PodManagement,
    pub(crate) update_strategy: UpdateStrategy,
    pub(crate) member_name_prefix: Option<String>,
    pub(crate) template_annotations: BTreeMap<String, String>,
    pub(crate) grace_period: Duration,
    pub(crate) quota_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) entries_kept: Option<u32>,
    #[serde(default)]
    pub(crate) data_check: Option<DataCheck>,
    pub(crate) owner: Option<OwnerReference>,
    /// Whether members advertise client URLs with the addresses of their pods.
    #[serde(default)]
    pub(crate) clients_by_address: bool,
    /// Whether members listen at addresses of IPv6.
    #[serde(default)]
    pub(crate) ipv6: bool,
    #[serde(default)]
    pub(crate) initialisation: Initialisation,
    #[serde(default)]
    pub(crate) container: Map<String, Value>,
    #[serde(default)]
    pub(crate) backup_restore: Option<StandIn>,
}

/// The stand-in for etcd-backup-restore beside each member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StandIn {
    pub(crate) tls: Tls,
    /// The program of the test bed.
    pub(crate) program: PathBuf,
    /// The directory of [`crate::backup_restore::BackupRestore`].
    pub(crate) directory: PathBuf,
}

/// The size of claims, unless another was chosen.
pub(super) fn claim_size() -> String {
    "100Mi".to_owned()
}

impl Spec {
    /// Whether etcd waits in each pod until the container beside it has initialised the data.
    pub(crate) fn waits_for_initialisation(&self) -> bool {
        self.initialisation != Initialisation::None || self.backup_restore.is_some()
    }

    /// The headless Service that gives members their names.
    pub(crate) fn service(&self) -> String {
        match self.shape {
            Shape::Enrolled | Shape::Foreign => self.name.clone(),
            Shape::Druid => format!("{}-peer", self.name),
        }
    }

    /// The pod of an ordinal.
    pub(crate) fn pod(&self, ordinal: u32) -> String {
        format!("{}-{ordinal}", self.name)
    }

    /// The member that runs in a pod.
    pub(crate) fn member_name(&self, pod: &str) -> String {
        match &self.member_name_prefix {
            Some(prefix) => format!("{prefix}-{pod}"),
            None => pod.to_owned(),
        }
    }

    /// The DNS name of a pod.
    pub(crate) fn host(&self, namespace: &str, pod: &str) -> String {
        format!("{pod}.{}.{namespace}.svc", self.service())
    }

    /// The URL scheme that clients use.
    pub(crate) fn scheme(&self) -> &'static str {
        self.tls.scheme()
    }

    /// The TLS of peers.
    pub(crate) fn peer_tls(&self) -> Tls {
        self.peer_tls.unwrap_or(self.tls)
    }

    /// The peer URL of a pod.
    pub(crate) fn peer_url(&self, namespace: &str, pod: &str) -> String {
        let scheme = self.peer_tls().scheme();
        format!("{scheme}://{}:2380", self.host(namespace, pod))
    }

    /// etcd's `--initial-cluster` for these pods.
    pub(crate) fn initial_cluster<'a>(
        &self,
        namespace: &str,
        pods: impl IntoIterator<Item = &'a str>,
    ) -> String {
        let entry = |pod| {
            format!(
                "{}={}",
                self.member_name(pod),
                self.peer_url(namespace, pod)
            )
        };
        pods.into_iter().map(entry).collect::<Vec<_>>().join(",")
    }
}
