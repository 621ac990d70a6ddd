//! What an etcd cluster of the test bed is made of; chosen with [`EtcdClusterBuilder`](super::EtcdClusterBuilder).

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::EtcdVersion;

/// How clients or peers of the cluster talk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tls {
    /// Both sides show a certificate.
    #[default]
    Mutual,
    /// Plain text.
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

/// Whether etcd asks who its clients are. Users are named by the common name of their certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Auth {
    /// Anyone whose certificate is accepted may do anything.
    #[default]
    Off,
    /// Authentication is on, and the gate's user exists, but has no role.
    GateIsUser,
    /// Authentication is on, and the gate's user has the root role.
    GateIsRoot,
    /// Authentication is on, and etcd does not know the gate's user.
    GateIsUnknown,
    /// Authentication is on, and users, of whom the gate's has the root role, are known by [`PASSWORD`].
    Password,
}

/// Every user's password, with [`Auth::Password`].
pub const PASSWORD: &str = "test bed, test bed";

/// Where it says with which certificates a member serves, and how the volumes are called that hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsTold {
    /// By flags, on druid's volumes.
    #[default]
    Druid,
    /// By flags, on volumes of other names.
    Flags,
    /// By variables, on volumes of other names, none of which is for clients.
    Variables,
}

/// What makes a pod Ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Readiness {
    /// etcd's own check that the member has quorum, as druid's wrapper does.
    #[default]
    Quorum,
    /// The process listens; a member that lost its peers stays Ready.
    Process,
    /// No probe: Ready while it runs.
    None,
}

/// Where a member keeps its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    /// A claim per member, which outlives its pods.
    #[default]
    Claim,
    /// Gone with the pod: a member that comes back has to be removed and added anew.
    EmptyDir,
}

/// Whose conventions the objects follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// One container, and the label that enrols a StatefulSet.
    #[default]
    Enrolled,
    /// One container, and nothing that tells the gate about it.
    Foreign,
    /// etcd-druid's labels, services, annotations, Leases, and its second container.
    Druid,
}

/// Whether members are shaped like those of etcd-wrapper: etcd's container runs at once, and starts etcd when the container beside it has
/// initialised the data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Initialisation {
    /// There is none: etcd starts at once.
    #[default]
    None,
    /// It lets etcd start.
    Succeeds,
    /// It fails in these pods, over and over (in all of them, where none is named), and succeeds in the others.
    Fails(Vec<String>),
    /// It hangs in these pods (in all of them, where none is named), and succeeds in the others.
    Hangs(Vec<String>),
}

impl Initialisation {
    /// The arguments of the container that initialises.
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

/// How the StatefulSet controller starts and stops pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodManagement {
    /// All at once, as druid does.
    #[default]
    Parallel,
    /// One after another, each when its predecessor is Ready.
    OrderedReady,
}

/// How the StatefulSet controller replaces outdated pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpdateStrategy {
    /// By itself, highest ordinal first.
    #[default]
    RollingUpdate,
    /// When somebody deletes them.
    OnDelete,
}

/// Everything that decides what the cluster's objects look like. Kept as an annotation of the StatefulSet, so that
/// another process can find the cluster again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) replicas: u32,
    pub(crate) version: EtcdVersion,
    pub(crate) tls: Tls,
    #[serde(default)]
    pub(crate) tls_told: TlsTold,
    /// Between peers, where that differs.
    #[serde(default)]
    pub(crate) peer_tls: Option<Tls>,
    pub(crate) auth: Auth,
    pub(crate) gate_user: String,
    pub(crate) readiness: Readiness,
    pub(crate) storage: Storage,
    pub(crate) shape: Shape,
    pub(crate) pod_management: PodManagement,
    pub(crate) update_strategy: UpdateStrategy,
    pub(crate) member_name_prefix: Option<String>,
    pub(crate) template_annotations: BTreeMap<String, String>,
    pub(crate) grace_period: Duration,
    pub(crate) quota_bytes: Option<u64>,
    pub(crate) owner: Option<OwnerReference>,
    /// Whether members advertise their client URLs by the addresses of their pods.
    #[serde(default)]
    pub(crate) clients_by_address: bool,
    #[serde(default)]
    pub(crate) initialisation: Initialisation,
    #[serde(default)]
    pub(crate) container: Map<String, Value>,
}

impl Spec {
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

    /// How peers talk.
    pub(crate) fn peer_tls(&self) -> Tls {
        self.peer_tls.unwrap_or(self.tls)
    }

    /// Where the peers of a pod reach it.
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
