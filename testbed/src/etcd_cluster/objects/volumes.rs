//! Volumes of a member's pod. Names and paths are druid's, because the gate reads from them what
//! each Secret is for.

use serde_json::{Value, json};

use super::join_config_name;
use crate::etcd_cluster::spec::{Spec, Storage, Tls, TlsTold};

/// The mount path of the data.
pub(super) const DATA: &str = "/var/etcd/data";
/// The mount path of the ConfigMap of [`join_config_name`].
pub(super) const JOIN: &str = "/var/etcd/join";
/// The environment variable with [`INITIALISED_FILE`].
pub(super) const INITIALISED: &str = "INITIALISED";
/// The file that exists once etcd may start.
pub(super) const INITIALISED_FILE: &str = "/var/etcd/initialised/done";
/// The name of its volume, which is deleted with the pod.
const INITIALISED_VOLUME: &str = "initialised";
/// The name of the data volume and of the claim template.
const DATA_VOLUME: &str = "data";
const WAL_VOLUME: &str = "wal";
/// The directory of the write-ahead log, where that is on a volume of its own.
pub(super) const WAL: &str = "/var/etcd/wal";

/// The volume with the authority of the certificate of the container beside etcd's, which etcd's
/// wrapper trusts.
const BACKUP_RESTORE_CA: &str = "backup-restore-ca";

/// The mount with the members' certificate, with which the container beside etcd's serves.
pub(super) fn server_certificate_mount() -> Value {
    json!({"name": "etcd-server-tls", "mountPath": SERVER_CERTIFICATE, "readOnly": true})
}

/// The mount path of the members' certificate.
pub(super) const SERVER_CERTIFICATE: &str = "/var/etcd/ssl/server";

/// The volumes of Secrets: name, suffix of the Secret's name, mount path.
const TLS_VOLUMES: [(&str, &str, &str); 5] = [
    ("etcd-ca", "ca", "/var/etcd/ssl/ca"),
    ("etcd-server-tls", "server", SERVER_CERTIFICATE),
    ("etcd-client-tls", "client", "/var/etcd/ssl/client"),
    ("etcd-peer-ca", "ca", "/var/etcd/ssl/peer/ca"),
    ("etcd-peer-server-tls", "peer", "/var/etcd/ssl/peer/server"),
];

/// The `spec.volumes` of the pod.
pub(super) fn volumes(spec: &Spec) -> Vec<Value> {
    let mut volumes = vec![json!({
        "name": "join",
        "configMap": {"name": join_config_name(spec), "optional": true},
    })];
    match spec.storage {
        Storage::Claim | Storage::WalApart => {}
        Storage::EmptyDir => volumes.push(json!({"name": DATA_VOLUME, "emptyDir": {}})),
        Storage::Node => volumes.push(json!({
            "name": DATA_VOLUME,
            "hostPath": {"path": format!("/var/lib/{}", spec.name), "type": "DirectoryOrCreate"},
        })),
    }
    if spec.waits_for_initialisation() {
        volumes.push(json!({"name": INITIALISED_VOLUME, "emptyDir": {}}));
    }
    if spec
        .backup_restore
        .as_ref()
        .is_some_and(|it| it.tls == Tls::Mutual)
    {
        volumes.push(json!({
            "name": BACKUP_RESTORE_CA,
            "secret": {"secretName": format!("{}-ca", spec.name)},
        }));
    }
    if spec.tls == Tls::Mutual {
        volumes.extend(tls_volumes(spec).map(|(name, suffix, _)| {
            json!({"name": name, "secret": {"secretName": format!("{}-{suffix}", spec.name)}})
        }));
    }
    volumes
}

/// The mount in which the initialising container permits etcd's start.
pub(super) fn initialised_mount() -> Value {
    json!({"name": INITIALISED_VOLUME, "mountPath": "/var/etcd/initialised"})
}

/// The `volumeMounts` of the etcd container.
pub(super) fn mounts(spec: &Spec) -> Vec<Value> {
    let mut mounts = vec![
        json!({"name": DATA_VOLUME, "mountPath": DATA}),
        json!({"name": "join", "mountPath": JOIN, "readOnly": true}),
    ];
    if spec.storage == Storage::WalApart {
        mounts.push(json!({"name": WAL_VOLUME, "mountPath": WAL}));
    }
    if spec.waits_for_initialisation() {
        mounts.push(initialised_mount());
    }
    if spec.tls == Tls::Mutual {
        let mounted = tls_volumes(spec)
            .map(|(name, _, path)| json!({"name": name, "mountPath": path, "readOnly": true}));
        mounts.extend(mounted);
    }
    mounts
}

/// The volumes of [`TLS_VOLUMES`], under the names that this cluster has for them.
fn tls_volumes(spec: &Spec) -> impl Iterator<Item = (String, &'static str, &'static str)> {
    let told = spec.tls_told;
    let volumes = TLS_VOLUMES
        .into_iter()
        .filter(move |(_, suffix, _)| told != TlsTold::Variables || *suffix != "client");
    volumes.map(move |(name, suffix, path)| {
        let name = match told {
            TlsTold::Druid => name.to_owned(),
            TlsTold::Flags | TlsTold::Variables => name.replace("etcd-", "pki-"),
        };
        (name, suffix, path)
    })
}

/// The `volumeClaimTemplates` of the StatefulSet.
pub(super) fn claim_templates(spec: &Spec) -> Vec<Value> {
    let names: &[&str] = match spec.storage {
        Storage::EmptyDir | Storage::Node => &[],
        Storage::Claim => &[DATA_VOLUME],
        Storage::WalApart => &[DATA_VOLUME, WAL_VOLUME],
    };
    let claim = |name: &&str| {
        json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": spec.claim_size}},
            },
        })
    };
    names.iter().map(claim).collect()
}
