//! A replica's EndpointSlice, and the state of an endpoint in any slice.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt as _;

use super::rule::EndpointState;

/// The label that ties a slice to its Service.
pub(super) const SERVICE: &str = "kubernetes.io/service-name";
/// The label that names the writer of a slice. Kubernetes' controllers leave slices of other
/// writers alone.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(super) const MANAGER: &str = "quorumgate.io";
/// The controller that mirrors the Endpoints of Services without selector into slices.
const MIRROR: &str = "endpointslicemirroring-controller.k8s.io";
/// The annotation that a replica writes on its own slice before it strikes a peer. It changes the
/// slice's version, so that no peer can strike this replica by an older read.
pub(super) const STRIKES: &str = "quorumgate.io/strikes";
/// The annotation on the slice of a replica that asks to return, with the time since when. A peer
/// refuses by removing it.
pub(super) const KNOCKS: &str = "quorumgate.io/knocks";
/// The names of the ports in the Service.
const WEBHOOKS: &str = "webhooks";
const METRICS: &str = "metrics";

/// The pod of this process, as its endpoint shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Myself {
    /// The gate's own namespace.
    pub namespace: String,
    /// The Service that API servers call.
    pub service: String,
    /// The name of the pod, and of its slice.
    pub pod: String,
    /// The UID of the pod, which owns the slice.
    pub uid: String,
    /// The IP address of the pod.
    pub address: IpAddr,
    /// The node of the pod, if it is known.
    pub node: Option<String>,
    /// The port of the webhooks.
    pub webhooks: u16,
    /// The port of metrics and health.
    pub admin: u16,
}

/// The state that this replica gives its own endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnState {
    /// Ready.
    In,
    /// Not ready.
    Out,
    /// Not ready, and asking to return.
    Knocking,
    /// Not ready because the process is ending; it still answers.
    Leaving,
}

impl Myself {
    /// The slice of this replica in the given state.
    pub(super) fn slice(&self, standing: OwnState) -> EndpointSlice {
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

    /// Whether `stored` is this replica's slice in the given state. A slice that a peer struck is
    /// not, and neither is one of an earlier pod of the same name.
    pub(super) fn is_current(&self, stored: &EndpointSlice, standing: OwnState) -> bool {
        let wanted = self.slice(standing);
        let knocks = stored.annotations().contains_key(KNOCKS);
        knocks == (standing == OwnState::Knocking)
            && stored.endpoints == wanted.endpoints
            && stored.ports == wanted.ports
            && stored.owner_references() == wanted.owner_references()
            && wanted
                .labels()
                .iter()
                .all(|(key, value)| stored.labels().get(key) == Some(value))
    }
}

fn conditions(standing: OwnState) -> EndpointConditions {
    EndpointConditions {
        ready: Some(standing == OwnState::In),
        // A replica that is ending still answers. kube-proxy uses such endpoints where no other is
        // ready.
        serving: Some(matches!(standing, OwnState::In | OwnState::Leaving)),
        terminating: Some(standing == OwnState::Leaving),
    }
}

/// The writer of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SliceWriter {
    Replica,
    Mirror,
    Other,
}

pub(super) fn writer_of(slice: &EndpointSlice) -> SliceWriter {
    match slice.labels().get(MANAGED_BY).map(String::as_str) {
        Some(MANAGER) => SliceWriter::Replica,
        Some(MIRROR) => SliceWriter::Mirror,
        _ => SliceWriter::Other,
    }
}

/// Whether API servers call an endpoint. Kubernetes treats an unknown condition as ready.
pub(super) fn is_called(endpoint: &Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions
        .and_then(|conditions| conditions.ready)
        .unwrap_or(true)
}

/// The state of a replica's endpoint; `None` where the slice has no endpoint any more.
pub(super) fn place(slice: &EndpointSlice) -> Option<EndpointState> {
    slice.endpoints.first()?;
    Some(if slice.endpoints.iter().any(is_called) {
        EndpointState::In
    } else if slice.annotations().contains_key(KNOCKS) {
        EndpointState::Knocks
    } else {
        EndpointState::Out
    })
}

/// The address of an endpoint's webhook port.
pub(super) fn address(slice: &EndpointSlice, endpoint: &Endpoint) -> Option<SocketAddr> {
    let address = endpoint.addresses.first()?;
    let mut ports = slice.ports.iter().flatten();
    let port = ports.find(|port| port.name.as_deref() == Some(WEBHOOKS))?;
    let port = u16::try_from(port.port?).ok()?;
    Some(SocketAddr::new(address.parse().ok()?, port))
}

/// The slice with its endpoint struck, and its knock refused.
pub(super) fn struck(mut slice: EndpointSlice) -> EndpointSlice {
    for endpoint in &mut slice.endpoints {
        endpoint.conditions = Some(conditions(OwnState::Out));
    }
    slice.annotations_mut().remove(KNOCKS);
    slice
}

#[cfg(test)]
pub(super) mod tests;
