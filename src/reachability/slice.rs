//! A replica's EndpointSlice: how it is made, and what is read of one.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt as _;

/// Ties a slice to its Service.
pub(super) const SERVICE: &str = "kubernetes.io/service-name";
/// Keeps the controllers of Kubernetes away from a slice.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(super) const MANAGER: &str = "quorumgate.io";
/// What a replica writes on its own slice before it strikes a peer, so that nobody can strike it unseen meanwhile.
pub(super) const STRIKES: &str = "quorumgate.io/strikes";
/// The names of the ports in the Service.
const WEBHOOKS: &str = "webhooks";
const METRICS: &str = "metrics";

/// The pod that this process runs in, as its endpoint shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Myself {
    /// The gate's own namespace.
    pub namespace: String,
    /// The Service that API servers call.
    pub service: String,
    /// The pod's name, which is also the slice's.
    pub pod: String,
    /// The pod's UID: the slice goes with the pod.
    pub uid: String,
    /// The pod's address.
    pub address: IpAddr,
    /// Its node, where it is told.
    pub node: Option<String>,
    /// The port of the webhooks.
    pub webhooks: u16,
    /// The port of metrics and health.
    pub admin: u16,
}

/// Whether an endpoint is to be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Yes.
    In,
    /// No.
    Out,
    /// Not by choice: it still answers, and ends soon.
    Leaving,
}

impl Myself {
    /// This replica's slice.
    pub(super) fn slice(&self, standing: Standing) -> EndpointSlice {
        let address_type = if self.address.is_ipv4() {
            "IPv4"
        } else {
            "IPv6"
        };
        let port = |name: &str, port: u16| EndpointPort {
            name: Some(name.to_owned()),
            port: Some(port.into()),
            protocol: Some("TCP".to_owned()),
            app_protocol: None,
        };
        EndpointSlice {
            metadata: ObjectMeta {
                name: Some(self.pod.clone()),
                namespace: Some(self.namespace.clone()),
                labels: Some(
                    [
                        (SERVICE.to_owned(), self.service.clone()),
                        (MANAGED_BY.to_owned(), MANAGER.to_owned()),
                    ]
                    .into(),
                ),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Pod".to_owned(),
                    name: self.pod.clone(),
                    uid: self.uid.clone(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            address_type: address_type.to_owned(),
            endpoints: vec![Endpoint {
                addresses: vec![self.address.to_string()],
                conditions: Some(conditions(standing)),
                node_name: self.node.clone(),
                target_ref: Some(ObjectReference {
                    kind: Some("Pod".to_owned()),
                    name: Some(self.pod.clone()),
                    namespace: Some(self.namespace.clone()),
                    uid: Some(self.uid.clone()),
                    ..ObjectReference::default()
                }),
                ..Endpoint::default()
            }],
            ports: Some(vec![
                port(WEBHOOKS, self.webhooks),
                port(METRICS, self.admin),
            ]),
        }
    }

    /// Whether a stored slice says what this replica's should say: what was struck differs, and so does what a pod of the same name left.
    pub(super) fn is_said_by(&self, stored: &EndpointSlice, standing: Standing) -> bool {
        let wanted = self.slice(standing);
        stored.endpoints == wanted.endpoints
            && stored.ports == wanted.ports
            && stored.owner_references() == wanted.owner_references()
            && wanted
                .labels()
                .iter()
                .all(|(key, value)| stored.labels().get(key) == Some(value))
    }
}

fn conditions(standing: Standing) -> EndpointConditions {
    EndpointConditions {
        ready: Some(standing == Standing::In),
        // What leaves still answers: where nobody else does, it is called.
        serving: Some(standing != Standing::Out),
        terminating: Some(standing == Standing::Leaving),
    }
}

/// Whether the endpoint of a slice is called.
pub(super) fn is_in(slice: &EndpointSlice) -> bool {
    let conditions = |endpoint: &Endpoint| endpoint.conditions.clone().unwrap_or_default();
    let mut endpoints = slice.endpoints.iter();
    endpoints.any(|endpoint| conditions(endpoint).ready.unwrap_or(true))
}

/// Where the replica of a slice answers API servers; `None` for a slice that no replica made.
pub(super) fn webhooks_of(slice: &EndpointSlice) -> Option<SocketAddr> {
    if slice.labels().get(MANAGED_BY).map(String::as_str) != Some(MANAGER) {
        return None;
    }
    let address = slice.endpoints.first()?.addresses.first()?;
    let mut ports = slice.ports.iter().flatten();
    let port = ports.find(|port| port.name.as_deref() == Some(WEBHOOKS))?;
    let port = u16::try_from(port.port?).ok()?;
    Some(SocketAddr::new(address.parse().ok()?, port))
}

/// The same slice, struck.
pub(super) fn struck(mut slice: EndpointSlice) -> EndpointSlice {
    for endpoint in &mut slice.endpoints {
        endpoint.conditions = Some(conditions(Standing::Out));
    }
    slice
}

#[cfg(test)]
pub(super) mod tests;
