//! The StatefulSet.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::{Value, json};

use super::{container, labels, volumes};
use crate::etcd_cluster::spec::{
    Initialisation, PodManagement, Shape, Spec, StandIn, Tls, UpdateStrategy,
};

/// The annotation that holds the cluster's [`Spec`].
pub(in crate::etcd_cluster) const SPEC_ANNOTATION: &str = "testbed.quorumgate.io/cluster";

/// The initialising container, named like druid's.
pub(crate) const INITIALISER: &str = "backup-restore";

/// The shell script of the initialising container. It does what its first argument says in the pods
/// that the others name, or in all pods. It lets etcd start by creating a file, at each start anew.
const INITIALISE: &str = r#"set -eu
what=$1
shift
if [ $# -gt 0 ]; then
  case " $* " in
    *" $POD_NAME "*) ;;
    *) what=succeeds ;;
  esac
fi
case $what in
  succeeds) while :; do [ -e "$INITIALISED" ] || : >"$INITIALISED"; sleep 0.3; done ;;
  fails) sleep 1; echo "the initialisation failed" >&2; exit 1 ;;
esac
exec sleep infinity"#;

/// The StatefulSet as JSON.
pub(super) fn stateful_set(namespace: &str, spec: &Spec) -> Result<Value> {
    let owners: Vec<_> = spec.owner.iter().collect();
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": spec.name,
            "labels": labels::stateful_set(spec),
            "annotations": {SPEC_ANNOTATION: serde_json::to_string(spec)?},
            "ownerReferences": owners,
        },
        "spec": {
            "replicas": spec.replicas,
            "serviceName": spec.service(),
            "podManagementPolicy": match spec.pod_management {
                PodManagement::Parallel => "Parallel",
                PodManagement::OrderedReady => "OrderedReady",
            },
            "updateStrategy": {"type": match spec.update_strategy {
                UpdateStrategy::RollingUpdate => "RollingUpdate",
                UpdateStrategy::OnDelete => "OnDelete",
            }},
            "selector": {"matchLabels": labels::selector(spec)},
            "template": template(namespace, spec)?,
            "volumeClaimTemplates": volumes::claim_templates(spec),
        },
    }))
}

fn template(namespace: &str, spec: &Spec) -> Result<Value> {
    Ok(json!({
        "metadata": {"labels": labels::pod(spec), "annotations": annotations(namespace, spec)},
        "spec": {
            "terminationGracePeriodSeconds": spec.grace_period.as_secs(),
            "nodeSelector": {"testbed.quorumgate.io/namespace": namespace},
            "affinity": {"podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{
                    "weight": 100,
                    "podAffinityTerm": {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": labels::selector(spec)},
                    },
                }],
            }},
            "containers": containers(namespace, spec)?,
            "volumes": volumes::volumes(spec),
        },
    }))
}

fn annotations(namespace: &str, spec: &Spec) -> BTreeMap<String, String> {
    let mut annotations = spec.template_annotations.clone();
    if spec.shape == Shape::Druid {
        // The annotation stands for the checksum of druid's ConfigMap, which changes with the
        // initial cluster.
        let pods: Vec<_> = (0..spec.replicas)
            .map(|ordinal| spec.pod(ordinal))
            .collect();
        let cluster = spec.initial_cluster(namespace, pods.iter().map(String::as_str));
        annotations.insert("checksum/etcd-configmap".to_owned(), cluster);
    }
    annotations
}

fn containers(namespace: &str, spec: &Spec) -> Result<Vec<Value>> {
    let mut containers = vec![container::etcd(namespace, spec)?];
    if let Some(it) = &spec.backup_restore {
        containers.push(stand_in(it));
    } else if spec.initialisation != Initialisation::None {
        containers.push(json!({
            "name": INITIALISER,
            "image": "busybox",
            "command": ["/bin/sh", "-c", INITIALISE, INITIALISER],
            "args": spec.initialisation.arguments(),
            "env": [
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": volumes::INITIALISED, "value": volumes::INITIALISED_FILE},
            ],
            "volumeMounts": [volumes::initialised_mount()],
        }));
    } else if spec.shape == Shape::Druid {
        // `EtcdCluster::heartbeat` does the sidecar's work (Leases). The container here only runs,
        // is Ready, and may be restarted.
        containers.push(json!({
            "name": "backup-restore",
            "image": "busybox",
            "command": ["sleep", "infinity"],
            "ports": [{"name": "backup", "containerPort": 8080}],
        }));
    }
    Ok(containers)
}

/// The stand-in for etcd-backup-restore, told about port and certificate as druid tells that.
fn stand_in(it: &StandIn) -> Value {
    let mut arguments = vec!["--server-port=8080".to_owned()];
    let mut mounts = vec![volumes::initialised_mount()];
    if it.tls == Tls::Mutual {
        let directory = volumes::SERVER_CERTIFICATE;
        arguments.push(format!("--server-cert={directory}/tls.crt"));
        arguments.push(format!("--server-key={directory}/tls.key"));
        mounts.push(volumes::server_certificate_mount());
    }
    json!({
        "name": INITIALISER,
        "image": "host",
        "command": [it.program, "backup-restore"],
        "args": arguments,
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": volumes::INITIALISED, "value": volumes::INITIALISED_FILE},
            {"name": "BACKUP_RESTORE", "value": it.directory},
        ],
        "ports": [{"name": "server", "containerPort": 8080}],
        "volumeMounts": mounts,
    })
}
