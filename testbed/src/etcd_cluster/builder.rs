//! The builder of an etcd cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value};

use super::spec::{
    Auth, DataCheck, Initialisation, PodManagement, Readiness, Shape, Spec, StandIn, Storage, Tls,
    TlsTold, UpdateStrategy, claim_size,
};
use super::{EtcdCluster, EtcdVersion, MARKER, objects};
use crate::agent::{FIRST_FAMILY, IPV6};
use crate::backup_restore::BackupRestore;
use crate::{Sandbox, executable};

/// The common name in the gate's client certificate, unless another was chosen.
const GATE_USER: &str = "quorumgate";

/// The builder of an [`EtcdCluster`]. The default is three members of the newest etcd with mutual
/// TLS, each with a claim, enrolled.
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
                claim_size: claim_size(),
                shape: Shape::default(),
                pod_management: PodManagement::default(),
                update_strategy: UpdateStrategy::default(),
                member_name_prefix: None,
                template_annotations: BTreeMap::new(),
                grace_period: Duration::from_secs(10),
                quota_bytes: None,
                entries_kept: None,
                data_check: None,
                owner: None,
                clients_by_address: false,
                ipv6: false,
                initialisation: Initialisation::default(),
                container: Map::new(),
                backup_restore: None,
            },
        }
    }

    /// Sets the number of members (default: 3).
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.spec.replicas = replicas;
        self
    }

    /// Sets the version of etcd (default: 3.7).
    pub fn version(mut self, version: EtcdVersion) -> Self {
        self.spec.version = version;
        self
    }

    /// Sets TLS between clients, members and peers (default: mutual).
    pub fn tls(mut self, tls: Tls) -> Self {
        self.spec.tls = tls;
        self
    }

    /// Sets the form in which members' certificates are configured (default: flags, druid's
    /// volumes).
    pub fn tls_told(mut self, told: TlsTold) -> Self {
        self.spec.tls_told = told;
        self
    }

    /// Sets TLS between peers (default: as between clients, where TLS has to be on if it is on
    /// here). See [`EtcdCluster::switch_peer_tls`].
    pub fn peer_tls(mut self, tls: Tls) -> Self {
        self.spec.peer_tls = Some(tls);
        self
    }

    /// Sets etcd's authentication (default: off). [`EtcdCluster::enable_auth`] switches it on once
    /// the cluster is quorate.
    pub fn auth(mut self, auth: Auth) -> Self {
        self.spec.auth = auth;
        self
    }

    /// Sets the common name in the Secret with the gate's client certificate (default:
    /// `quorumgate`).
    pub fn gate_user(mut self, common_name: &str) -> Self {
        common_name.clone_into(&mut self.spec.gate_user);
        self
    }

    /// Sets the readiness probe of members (default: quorum).
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.spec.readiness = readiness;
        self
    }

    /// Sets the storage of members (default: a claim each).
    pub fn storage(mut self, storage: Storage) -> Self {
        self.spec.storage = storage;
        self
    }

    /// Sets the size that each claim asks for (default: 100Mi). The node agent does not enforce it.
    pub fn claim_size(mut self, size: &str) -> Self {
        size.clone_into(&mut self.spec.claim_size);
        self
    }

    /// Sets the conventions of the objects (default: enrolled by label).
    pub fn shape(mut self, shape: Shape) -> Self {
        self.spec.shape = shape;
        self
    }

    /// Sets the order in which pods start (default: parallel).
    pub fn pod_management(mut self, policy: PodManagement) -> Self {
        self.spec.pod_management = policy;
        self
    }

    /// Sets the way in which outdated pods are replaced (default: rolling update).
    pub fn update_strategy(mut self, strategy: UpdateStrategy) -> Self {
        self.spec.update_strategy = strategy;
        self
    }

    /// Names members `<prefix>-<pod>` (default: the name of the pod).
    pub fn member_name_prefix(mut self, prefix: &str) -> Self {
        self.spec.member_name_prefix = Some(prefix.to_owned());
        self
    }

    /// Adds an annotation to the pod template.
    pub fn template_annotation(mut self, key: &str, value: &str) -> Self {
        self.spec
            .template_annotations
            .insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets the first revision of the template. See [`EtcdCluster::change_template`].
    pub fn marker(self, marker: &str) -> Self {
        self.template_annotation(MARKER, marker)
    }

    /// Sets the grace period of pods (default: 10 s).
    pub fn grace_period(mut self, grace_period: Duration) -> Self {
        self.spec.grace_period = grace_period;
        self
    }

    /// Sets the size of the database at which etcd raises NOSPACE (default: etcd's 2 GiB).
    pub fn quota_bytes(mut self, quota: u64) -> Self {
        self.spec.quota_bytes = Some(quota);
        self
    }

    /// Sets how many entries of its log a member keeps in memory at least, from etcd 3.6 on
    /// (default: etcd's 5,000).
    pub fn entries_kept(mut self, entries: u32) -> Self {
        self.spec.entries_kept = Some(entries);
        self
    }

    /// Has members compare their data every two seconds (default: never).
    pub fn data_check(mut self, check: DataCheck) -> Self {
        self.spec.data_check = Some(check);
        self
    }

    /// Sets the controlling owner of the StatefulSet (default: none).
    pub fn owned_by(mut self, owner: OwnerReference) -> Self {
        self.spec.owner = Some(owner);
        self
    }

    /// Makes members advertise their addresses to clients instead of their names, which do not
    /// resolve once their pods have lost their labels (default: names).
    pub fn clients_by_address(mut self) -> Self {
        self.spec.clients_by_address = true;
        self
    }

    /// Gives pods addresses of both families, the first of IPv6, at which members listen (default:
    /// IPv4). Such members have no peer TLS: connections from their own addresses are refused.
    pub fn ipv6(mut self) -> Self {
        self.spec.ipv6 = true;
        self.spec.peer_tls = Some(Tls::None);
        self.template_annotation(FIRST_FAMILY, IPV6)
    }

    /// Sets the condition under which etcd starts in a running pod (default: etcd starts at once).
    /// See [`EtcdCluster::change_initialisation`].
    pub fn initialisation(mut self, initialisation: Initialisation) -> Self {
        self.spec.initialisation = initialisation;
        self
    }

    /// Puts a stand-in for etcd-backup-restore beside each member, with TLS or without. Tests talk
    /// to it by [`BackupRestore`].
    pub fn backup_restore(mut self, tls: Tls) -> Self {
        self.spec.backup_restore = Some(StandIn {
            tls,
            program: PathBuf::new(),
            directory: PathBuf::new(),
        });
        self
    }

    /// Adds a field to the etcd container, such as `resources`.
    pub fn container_field(mut self, name: &str, value: Value) -> Self {
        self.spec.container.insert(name.to_owned(), value);
        self
    }

    /// Applies all objects in the sandbox's namespace by server-side apply, and returns at once.
    /// [`EtcdCluster::quorate`] waits for the members.
    pub async fn apply(mut self, sandbox: &Sandbox) -> Result<EtcdCluster> {
        if let Some(stand_in) = &mut self.spec.backup_restore {
            stand_in.program = executable::find().await?;
            stand_in.directory = BackupRestore::new(sandbox).into_directory();
        }
        self.apply_in(sandbox.client(), sandbox.namespace()).await
    }

    /// Applies all objects as [`EtcdClusterBuilder::apply`] does, in any namespace with nodes of
    /// its label.
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
