//! The endpoint at which each member is asked.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::settings::Settings;
use super::{belonging, etcd_container, pods};
use crate::api::{MemberStatus, MembersSpec};
use crate::etcd::{Endpoint, TlsIdentity};
use crate::quorum::evidence::Target;

/// etcd's default port for clients.
const CLIENT_PORT: u16 = 2379;

/// The settings that all members of a cluster share.
#[derive(Debug, Clone)]
pub(super) struct SharedSettings<'a> {
    pub(super) namespace: &'a str,
    /// The StatefulSet's governing service, for pods that name none.
    pub(super) service: Option<&'a str>,
    pub(super) members: &'a MembersSpec,
    pub(super) tls: Option<Arc<TlsIdentity>>,
}

/// The endpoint of a pod's member. `None` if the pod has no address.
pub(super) fn of_pod(pod: &Pod, shared: &SharedSettings<'_>) -> Option<Endpoint> {
    let port = shared
        .members
        .client_port
        .and_then(|p| u16::try_from(p).ok());
    let named = shared.members.container.as_deref();
    let port = port
        .or_else(|| told_port(pod, named))
        .or_else(|| named_port(pod, named))
        .unwrap_or(CLIENT_PORT);
    let server_name = shared.members.server_name.clone();
    Some(Endpoint {
        target: Target::Pod(pods::uid(pod)),
        address: with_port(pods::address(pod)?, port),
        server_name: server_name.or_else(|| dns_name(pod, shared.service, shared.namespace)),
        tls: shared.tls.clone(),
    })
}

/// The endpoint of a voter without a pod, from the budget's record. `None` if the record is not
/// enough.
pub(super) fn of_external(member: &MemberStatus, shared: &SharedSettings<'_>) -> Option<Endpoint> {
    let id = member.member_id.as_ref()?.parse().ok()?;
    let url = member.client_urls.first()?;
    let mut endpoint = Endpoint::external(id, url, shared.tls.as_ref()).ok()?;
    if let Some(named) = &shared.members.server_name {
        endpoint.server_name = Some(named.clone());
    }
    Some(endpoint)
}

/// Whether both lists name the same members with the same settings, so that answers to one are
/// answers to the other.
pub(super) fn same(one: &[Endpoint], other: &[Endpoint]) -> bool {
    let print = |e: &Endpoint| e.tls.as_ref().map(|tls| *tls.fingerprint());
    one.len() == other.len()
        && one.iter().zip(other).all(|(a, b)| {
            a.target == b.target
                && a.address == b.address
                && a.server_name == b.server_name
                && print(a) == print(b)
        })
}

/// The port in etcd's own settings: that of the first client URL that others than its own pod can
/// reach.
fn told_port(pod: &Pod, named: Option<&str>) -> Option<u16> {
    let settings = Settings::of(etcd_container::of_pod(pod, named)?);
    if settings.file().is_some() {
        return None;
    }
    let urls = settings.get("listen-client-urls")?.value;
    urls.split(',').find_map(|url| {
        let (_, authority) = url.trim().split_once("://")?;
        let (host, port) = authority.trim_end_matches('/').rsplit_once(':')?;
        let own = ["localhost", "127.", "[::1]"];
        let reached = !own.iter().any(|own| host.starts_with(own));
        reached.then(|| port.parse().ok()).flatten()
    })
}

fn named_port(pod: &Pod, named: Option<&str>) -> Option<u16> {
    let mut ports = etcd_container::of_pod(pod, named)?.ports.iter().flatten();
    let port = ports.find(|port| port.name.as_deref() == Some("client"))?;
    u16::try_from(port.container_port).ok()
}

/// The DNS name of a pod, by its own governing Service or else by `service`.
pub(super) fn dns_name(pod: &Pod, service: Option<&str>, namespace: &str) -> Option<String> {
    let own = pod.spec.as_ref().and_then(|spec| spec.subdomain.as_deref());
    let service = own.or(service).filter(|service| !service.is_empty())?;
    Some(format!(
        "{}.{service}.{namespace}.svc",
        belonging::name(pod)
    ))
}

pub(super) fn with_port(address: &str, port: u16) -> String {
    if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}
