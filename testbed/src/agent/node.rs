//! The Node object, which is registered at the start and kept Ready while the agent lives.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::Agent;
use super::retry::Retry;
use super::status::time;

/// The node's capacity, which is enough for all pods of a test.
pub(super) fn capacity() -> BTreeMap<String, Quantity> {
    [
        ("cpu", "64"),
        ("memory", "256Gi"),
        ("ephemeral-storage", "1000Gi"),
        ("pods", "110"),
    ]
    .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
    .into()
}

/// Creates the Node or takes over the existing one, and reports it Ready. Tries until it succeeds.
pub(super) async fn register(agent: &Agent, labels: &BTreeMap<String, String>) -> OwnerReference {
    let api: Api<Node> = Api::all(agent.client.clone());
    let mut retry = Retry::default();
    loop {
        match try_register(&api, agent, labels).await {
            Ok(node) => return owner(&node),
            Err(error) => tracing::info!(%error, "registering the node"),
        }
        retry.wait().await;
    }
}

async fn try_register(
    api: &Api<Node>,
    agent: &Agent,
    labels: &BTreeMap<String, String>,
) -> kube::Result<Node> {
    let mut labels = labels.clone();
    labels.insert("kubernetes.io/hostname".to_owned(), agent.node.clone());
    labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
    let node = Node {
        metadata: ObjectMeta {
            name: Some(agent.node.clone()),
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        },
        status: Some(status(agent.host_ip, None)),
        ..Node::default()
    };
    match api.create(&PostParams::default(), &node).await {
        Ok(created) => Ok(created),
        Err(kube::Error::Api(error)) if error.code == 409 => {
            let patch = json!({"metadata": {"labels": labels}});
            api.patch(&agent.node, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
            report(api, agent, None).await
        }
        Err(error) => Err(error),
    }
}

/// Watches the Node object, and reports Ready again after the node lifecycle controller has
/// reported otherwise.
pub(super) async fn keep_ready(agent: &Agent) {
    let api: Api<Node> = Api::all(agent.client.clone());
    let mut stream = watcher::watch_object(api.clone(), &agent.node)
        .backoff(Retry::default())
        .boxed();
    while let Some(event) = stream.next().await {
        // A deleted node stays deleted until its agent starts again, as with a kubelet.
        let Ok(Some(node)) = event else { continue };
        if !is_ready(&node)
            && let Err(error) = report(&api, agent, Some(&node)).await
        {
            tracing::info!(%error, "reporting the node Ready");
            Retry::default().wait().await;
        }
    }
}

async fn report(api: &Api<Node>, agent: &Agent, old: Option<&Node>) -> kube::Result<Node> {
    let patch = json!({"status": status(agent.host_ip, old)});
    api.patch_status(
        &agent.node,
        &PatchParams::default(),
        &Patch::Strategic(patch),
    )
    .await
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|c| c.type_ == "Ready" && c.status == "True")
}

fn owner(node: &Node) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.name_any(),
        uid: node.uid().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

fn status(ip: Ipv4Addr, old: Option<&Node>) -> NodeStatus {
    let now = time(Timestamp::now());
    let condition = |kind: &str, status: &str, reason: &str| {
        let before = old.into_iter().flat_map(|n| n.status.iter());
        let mut same = before
            .flat_map(|s| s.conditions.iter().flatten())
            .filter(|c| c.type_ == kind && c.status == status);
        NodeCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some("reported by the test bed's node agent".to_owned()),
            last_heartbeat_time: Some(now.clone()),
            last_transition_time: same
                .next()
                .and_then(|c| c.last_transition_time.clone())
                .or_else(|| Some(now.clone())),
        }
    };
    NodeStatus {
        addresses: Some(vec![NodeAddress {
            type_: "InternalIP".to_owned(),
            address: ip.to_string(),
        }]),
        capacity: Some(capacity()),
        allocatable: Some(capacity()),
        conditions: Some(vec![
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady"),
        ]),
        daemon_endpoints: Some(NodeDaemonEndpoints::default()),
        node_info: Some(NodeSystemInfo {
            architecture: std::env::consts::ARCH.to_owned(),
            operating_system: "linux".to_owned(),
            container_runtime_version: "host://1".to_owned(),
            // Clients parse the version. Nothing here depends on the number.
            kubelet_version: "v1.37.0-testbed".to_owned(),
            os_image: "processes of this host".to_owned(),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}
