//! A Service whose endpoints the replicas keep, and a pod for each replica as the owner of its
//! slice.
//!
//! The slices can be followed as kube-proxy does. An API server accepts no loopback address as an
//! endpoint. So the replicas have the address of the machine, each with its own ports.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::manifests;
use super::permissions::apply_namespaced;
use crate::balancer::Directions;
use crate::eventually::AtOnce;

/// The address by which others know this machine. Nothing is sent.
fn own_address() -> Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket
        .connect("192.0.2.1:9")
        .context("replicas can keep endpoints only where the machine has a route to elsewhere")?;
    let address = socket.local_addr()?.ip();
    ensure!(
        !address.is_loopback() && !address.is_unspecified(),
        "{address} cannot be an endpoint"
    );
    Ok(address)
}

/// Creates the Service of the manifests.
pub(super) async fn create_service(
    client: &Client,
    namespace: &str,
    objects: &[Value],
) -> Result<String> {
    let service = objects
        .iter()
        .find(|object| manifests::kind(object) == "Service");
    let service = service.context("the manifests have no Service")?;
    let mut service: Service = serde_json::from_value(service.clone())?;
    service.metadata.namespace = None;
    let name = service.name_any();
    apply_namespaced(client, namespace, service).await?;
    Ok(name)
}

/// Creates a pod for a replica, which is never scheduled. Its labels match the Service, and it has
/// the ports of the webhooks and of the plain listener. Returns the environment variables by which
/// the replica knows its pod.
pub(super) async fn create_pod(
    client: &Client,
    namespace: &str,
    name: &str,
    [webhooks, admin]: [u16; 2],
) -> Result<Vec<(String, String)>> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "quorumgate", "app.kubernetes.io/instance": "quorumgate"}},
        "spec": {
            "serviceAccountName": manifests::SERVICE_ACCOUNT,
            "schedulerName": "nobody",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "quorumgate",
                "image": "quorumgate",
                "ports": [
                    {"name": "webhooks", "containerPort": webhooks},
                    {"name": "admin", "containerPort": admin},
                ],
            }],
        },
    }))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = pods.create(&PostParams::default(), &pod).await?;
    let uid = pod.uid().context("a pod without UID")?;
    // As its kubelet would say. A policy holds the replica's endpoint to this address.
    let address = own_address()?.to_string();
    let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
    let params = PatchParams::default();
    pods.patch_status(name, &params, &Patch::Merge(&status))
        .await?;
    let told = [
        ("QUORUMGATE_POD_NAME", name.to_owned()),
        ("QUORUMGATE_POD_UID", uid),
        ("QUORUMGATE_POD_IP", address),
    ];
    Ok(told.map(|(name, value)| (name.to_owned(), value)).to_vec())
}

/// The replicas, among those with these names, that are in the Service.
pub(super) async fn standing(
    client: &Client,
    namespace: &str,
    names: impl Iterator<Item = &str>,
) -> Result<Vec<bool>> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let slices = slices.list(&ListParams::default()).await?;
    let ready: BTreeSet<String> = slices.iter().filter(|s| is_ready(s)).map(name).collect();
    ensure!(!slices.items.is_empty(), "the replicas keep no endpoints");
    Ok(names.map(|name| ready.contains(name)).collect())
}

/// A task that names the replicas in the Service to a balancer, until it is dropped.
pub(super) struct Follower(JoinHandle<()>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Follows the slices of the replicas with these names. The last known state holds while the API
/// server is away.
pub(super) fn follow(
    client: &Client,
    namespace: &str,
    names: Vec<String>,
    directions: Directions,
) -> Follower {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let (store, writer) = reflector::store();
    let events = watcher(slices, watcher::Config::default()).backoff(AtOnce);
    let events = reflector::reflector(writer, events);
    Follower(tokio::spawn(events.for_each(move |_| {
        let ready: BTreeSet<String> = store
            .state()
            .iter()
            .filter(|slice| is_ready(slice))
            .map(|slice| name(slice))
            .collect();
        let numbers = names.iter().enumerate();
        let standing = numbers.filter(|(_, name)| ready.contains(*name));
        directions.send_to(standing.map(|(number, _)| number).collect());
        std::future::ready(())
    })))
}

/// The name of the replica, which is that of its slice.
fn name(slice: &EndpointSlice) -> String {
    slice.name_any()
}

fn is_ready(slice: &EndpointSlice) -> bool {
    let mut conditions = slice.endpoints.iter().filter_map(|e| e.conditions.as_ref());
    conditions.any(|conditions| conditions.ready == Some(true))
}
