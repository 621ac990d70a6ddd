//! Choosing what a cluster looks like, and applying it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value};

use super::spec::{
    Auth, Initialisation, PodManagement, Readiness, Shape, Spec, Storage, Tls, TlsTold,
    UpdateStrategy,
};
use super::{EtcdCluster, EtcdVersion, MARKER, objects};
use crate::Sandbox;

/// The common name of the client certificate that the gate finds, unless told otherwise.
const GATE_USER: &str = "quorumgate";

/// Builds an [`EtcdCluster`]: three members of the newest etcd with mutual TLS, each with a claim, enrolled.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is applied"]
pub struct EtcdClusterBuilder {
    spec: Spec,
}

impl EtcdClusterBuilder {
    pub(super) fn new(name: &str) -> Self {
        Self {
            spec: Spec {
                name: name.to_owned(),
                replicas: 3,
                version: EtcdVersion::default(),
                tls: Tls::default(),
                tls_told: TlsTold::default(),
                peer_tls: None,
                auth: Auth::default(),
                gate_user: GATE_USER.to_owned(),
                readiness: Readiness::default(),
                storage: Storage::default(),
                shape: Shape::default(),
                pod_management: PodManagement::default(),
                update_strategy: UpdateStrategy::default(),
                member_name_prefix: None,
                template_annotations: BTreeMap::new(),
                grace_period: Duration::from_secs(10),
                quota_bytes: None,
                owner: None,
                clients_by_address: false,
                initialisation: Initialisation::default(),
                container: Map::new(),
            },
        }
    }

    /// How many members (3).
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.spec.replicas = replicas;
        self
    }

    /// Which etcd (3.7).
    pub fn version(mut self, version: EtcdVersion) -> Self {
        self.spec.version = version;
        self
    }

    /// TLS between clients, members and peers (mutual).
    pub fn tls(mut self, tls: Tls) -> Self {
        self.spec.tls = tls;
        self
    }

    /// Where it says with which certificates members serve (flags, druid's volumes).
    pub fn tls_told(mut self, told: TlsTold) -> Self {
        self.spec.tls_told = told;
        self
    }

    /// TLS between peers (like that of clients, which has to be on where this is); see [`EtcdCluster::switch_peer_tls`].
    pub fn peer_tls(mut self, tls: Tls) -> Self {
        self.spec.peer_tls = Some(tls);
        self
    }

    /// Whether etcd authenticates its users (off); switched on by [`EtcdCluster::enable_auth`] once it is quorate.
    pub fn auth(mut self, auth: Auth) -> Self {
        self.spec.auth = auth;
        self
    }

    /// The common name of the client certificate in the Secret that the gate finds (`quorumgate`).
    pub fn gate_user(mut self, common_name: &str) -> Self {
        common_name.clone_into(&mut self.spec.gate_user);
        self
    }

    /// What makes a member's pod Ready (quorum).
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.spec.readiness = readiness;
        self
    }

    /// Where members keep their data (a claim each).
    pub fn storage(mut self, storage: Storage) -> Self {
        self.spec.storage = storage;
        self
    }

    /// Whose conventions the objects follow (enrolled by label).
    pub fn shape(mut self, shape: Shape) -> Self {
        self.spec.shape = shape;
        self
    }

    /// In which order pods start (parallel).
    pub fn pod_management(mut self, policy: PodManagement) -> Self {
        self.spec.pod_management = policy;
        self
    }

    /// How outdated pods are replaced (rolling update).
    pub fn update_strategy(mut self, strategy: UpdateStrategy) -> Self {
        self.spec.update_strategy = strategy;
        self
    }

    /// Members are named `<prefix>-<pod>` instead of like their pod.
    pub fn member_name_prefix(mut self, prefix: &str) -> Self {
        self.spec.member_name_prefix = Some(prefix.to_owned());
        self
    }

    /// One more annotation of the pod template.
    pub fn template_annotation(mut self, key: &str, value: &str) -> Self {
        self.spec
            .template_annotations
            .insert(key.to_owned(), value.to_owned());
        self
    }

    /// The revision that the template starts with; see [`EtcdCluster::change_template`].
    pub fn marker(self, marker: &str) -> Self {
        self.template_annotation(MARKER, marker)
    }

    /// How long a terminating pod may take (10 s).
    pub fn grace_period(mut self, grace_period: Duration) -> Self {
        self.spec.grace_period = grace_period;
        self
    }

    /// The size of the database at which etcd raises NOSPACE (etcd's default: 2 GiB).
    pub fn quota_bytes(mut self, quota: u64) -> Self {
        self.spec.quota_bytes = Some(quota);
        self
    }

    /// The controlling owner of the StatefulSet (none).
    pub fn owned_by(mut self, owner: OwnerReference) -> Self {
        self.spec.owner = Some(owner);
        self
    }

    /// Members tell clients their addresses instead of their names, which stop resolving when their pods lose their labels (names).
    pub fn clients_by_address(mut self) -> Self {
        self.spec.clients_by_address = true;
        self
    }

    /// What lets etcd start in a pod that runs (nothing: it starts at once); see [`EtcdCluster::change_initialisation`].
    pub fn initialisation(mut self, initialisation: Initialisation) -> Self {
        self.spec.initialisation = initialisation;
        self
    }

    /// One more field of the etcd container, such as `resources` (none).
    pub fn container_field(mut self, name: &str, value: Value) -> Self {
        self.spec.container.insert(name.to_owned(), value);
        self
    }

    /// Applies all objects in the sandbox's namespace, by server-side apply, and returns at once; wait with
    /// [`EtcdCluster::quorate`].
    pub async fn apply(self, sandbox: &Sandbox) -> Result<EtcdCluster> {
        self.apply_in(sandbox.client(), sandbox.namespace()).await
    }

    /// Like [`EtcdClusterBuilder::apply`], in any namespace that has nodes with its label.
    pub async fn apply_in(self, client: kube::Client, namespace: &str) -> Result<EtcdCluster> {
        ensure!(
            matches!(self.spec.auth, Auth::Off | Auth::Password) || self.spec.tls == Tls::Mutual,
            "users are named by client certificates here: authentication without passwords needs TLS"
        );
        ensure!(
            self.spec.peer_tls() == Tls::None || self.spec.tls == Tls::Mutual,
            "peers have no certificates where clients have none"
        );
        objects::apply(&client, namespace, &self.spec).await?;
        Ok(EtcdCluster {
            client,
            namespace: namespace.to_owned(),
            spec: self.spec,
        })
    }
}
