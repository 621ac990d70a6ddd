//! The etcd container: its command line, ports and probe.

use anyhow::Result;
use serde_json::{Value, json};

use super::volumes::{self, DATA, JOIN, WAL};
use crate::etcd_cluster::spec::{Readiness, Spec, Storage, Tls, TlsTold};

/// The container's name, which all clients expect for etcd's container.
pub(in crate::etcd_cluster) const CONTAINER: &str = "etcd";

/// The shell script that starts etcd. At every start of a pod with initialisation it waits for that
/// first. A member with an empty volume starts a new cluster, unless the ConfigMap names one to
/// join. etcd ignores both settings once it has data.
const START: &str = r#"set -eu
if [ -n "${INITIALISED:-}" ]; then
  rm -f "$INITIALISED"
  while [ ! -e "$INITIALISED" ]; do sleep 0.2; done
fi
if [ -s "$JOIN_FILE" ]; then
  read -r INITIAL_CLUSTER <"$JOIN_FILE"
  export ETCD_INITIAL_CLUSTER_STATE=existing
fi
exec etcd --initial-cluster="$INITIAL_CLUSTER" "$@""#;

/// The container as JSON.
pub(super) fn etcd(namespace: &str, spec: &Spec) -> Result<Value> {
    let pods: Vec<_> = (0..spec.replicas)
        .map(|ordinal| spec.pod(ordinal))
        .collect();
    let mut container = json!({
        "name": CONTAINER,
        "image": spec.version.image()?,
        "command": ["/bin/sh", "-c", START, "etcd"],
        "args": arguments(namespace, spec),
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "JOIN_FILE", "value": format!("{JOIN}/$(POD_NAME)")},
            {
                "name": "INITIAL_CLUSTER",
                "value": spec.initial_cluster(namespace, pods.iter().map(String::as_str)),
            },
        ],
        "ports": [
            {"name": "client", "containerPort": 2379},
            {"name": "server", "containerPort": 2380},
            {"name": "metrics", "containerPort": 2381},
        ],
        "volumeMounts": volumes::mounts(spec),
    });
    if let Some(variables) = container.get_mut("env").and_then(Value::as_array_mut) {
        if spec.waits_for_initialisation() {
            let file = volumes::INITIALISED_FILE;
            variables.push(json!({"name": volumes::INITIALISED, "value": file}));
        }
        if spec.tls == Tls::Mutual && spec.tls_told == TlsTold::Variables {
            variables.extend(CLIENT_TLS.map(variable));
        }
    }
    if let Some(fields) = container.as_object_mut() {
        if let Some(probe) = readiness_probe(spec) {
            fields.insert("readinessProbe".to_owned(), probe);
        }
        fields.extend(spec.container.clone());
    }
    Ok(container)
}

pub(in crate::etcd_cluster) fn arguments(namespace: &str, spec: &Spec) -> Vec<String> {
    let (scheme, peer_scheme) = (spec.scheme(), spec.peer_tls().scheme());
    let address = if spec.ipv6 {
        "[$(POD_IP)]"
    } else {
        "$(POD_IP)"
    };
    let host = if spec.clients_by_address {
        address.to_owned()
    } else {
        spec.host(namespace, "$(POD_NAME)")
    };
    let mut arguments = vec![
        format!("--name={}", spec.member_name("$(POD_NAME)")),
        format!("--data-dir={DATA}/new.etcd"),
        format!("--listen-client-urls={scheme}://{address}:2379"),
        format!("--listen-peer-urls={peer_scheme}://{address}:2380"),
        format!("--listen-metrics-urls=http://{address}:2381"),
        format!("--advertise-client-urls={scheme}://{host}:2379"),
        format!(
            "--initial-advertise-peer-urls={}",
            spec.peer_url(namespace, "$(POD_NAME)")
        ),
        format!("--initial-cluster-token={namespace}-{}", spec.name),
    ];
    if spec.tls == Tls::Mutual && spec.tls_told != TlsTold::Variables {
        arguments.extend(CLIENT_TLS.map(str::to_owned));
    }
    if spec.peer_tls() == Tls::Mutual {
        arguments.extend(PEER_TLS.map(str::to_owned));
    }
    if spec.storage == Storage::WalApart {
        arguments.push(format!("--wal-dir={WAL}/new.etcd"));
    }
    if let Some(quota) = spec.quota_bytes {
        arguments.push(format!("--quota-backend-bytes={quota}"));
    }
    if let Some(entries) = spec.entries_kept {
        arguments.push(format!("--snapshot-catchup-entries={entries}"));
        arguments.push(format!("--snapshot-count={entries}"));
    }
    if let Some(check) = spec.data_check {
        arguments.extend(check.arguments(spec.version));
    }
    if spec.version.can_skip_fsync() {
        arguments.push("--unsafe-no-fsync".to_owned());
    }
    arguments
}

const CLIENT_TLS: [&str; 4] = [
    "--client-cert-auth",
    "--trusted-ca-file=/var/etcd/ssl/ca/ca.crt",
    "--cert-file=/var/etcd/ssl/server/tls.crt",
    "--key-file=/var/etcd/ssl/server/tls.key",
];

/// The environment variable for a flag.
fn variable(flag: &str) -> Value {
    let (name, value) = flag.split_once('=').unwrap_or((flag, "true"));
    let name = name
        .trim_start_matches('-')
        .to_uppercase()
        .replace('-', "_");
    json!({"name": format!("ETCD_{name}"), "value": value})
}

const PEER_TLS: [&str; 4] = [
    "--peer-client-cert-auth",
    "--peer-trusted-ca-file=/var/etcd/ssl/peer/ca/ca.crt",
    "--peer-cert-file=/var/etcd/ssl/peer/server/tls.crt",
    "--peer-key-file=/var/etcd/ssl/peer/server/tls.key",
];

fn readiness_probe(spec: &Spec) -> Option<Value> {
    let mut probe = match spec.readiness {
        Readiness::Quorum => {
            json!({"httpGet": {"path": spec.version.quorum_path(), "port": "metrics"}})
        }
        Readiness::Process => json!({"tcpSocket": {"port": "metrics"}}),
        Readiness::None => return None,
    };
    if let Some(fields) = probe.as_object_mut() {
        fields.insert("periodSeconds".to_owned(), json!(1));
        fields.insert("timeoutSeconds".to_owned(), json!(1));
        fields.insert("failureThreshold".to_owned(), json!(2));
    }
    Some(probe)
}
