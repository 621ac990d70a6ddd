//! The endpoint at which each member is asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::client_urls::client_urls;
use super::settings::Settings;
use super::{belonging, etcd_container, pods};
use crate::api::{MemberStatus, MembersSpec, PortSource, Way};
use crate::etcd::{Endpoint, TlsIdentity};
use crate::quorum::evidence::Target;

/// The settings that all members of a cluster share.
#[derive(Debug, Clone)]
pub(super) struct SharedSettings<'a> {
    pub(super) namespace: &'a str,
    /// The StatefulSet's governing service, for pods that name none.
    pub(super) service: Option<&'a str>,
    pub(super) members: &'a MembersSpec,
    /// The way in which the members are asked.
    pub(super) way: &'a Way,
    pub(super) tls: Option<Arc<TlsIdentity>>,
}

/// The endpoint of a pod's member. `None` if the pod has no address.
pub(super) fn of_pod(pod: &Pod, shared: &SharedSettings<'_>) -> Option<Endpoint> {
    let port = told_port(pod, shared).unwrap_or(shared.way.port);
    Some(Endpoint {
        target: Target::Pod(pods::uid(pod)),
        address: with_port(pods::address(pod)?, port),
        server_names: server_names(pod, shared),
        tls: shared.tls.clone(),
    })
}

/// The endpoint of a voter without a pod, from the budget's record. `None` if the record is not
/// enough.
pub(super) fn of_external(member: &MemberStatus, shared: &SharedSettings<'_>) -> Option<Endpoint> {
    let id = member.member_id.as_ref()?.parse().ok()?;
    let url = member.client_urls.first()?;
    let mut endpoint = Endpoint::external(id, url, shared.tls.as_ref()).ok()?;
    // The connection asks for the first name, and placeholders stand for what only pods have.
    if let Some(named) = &shared.members.server_name
        && !named.contains('{')
    {
        endpoint.server_names.insert(0, named.clone());
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
                && a.server_names == b.server_names
                && print(a) == print(b)
        })
}

/// The port that the pod itself names, where that is another one than the way's: a rollout may
/// change it.
fn told_port(pod: &Pod, shared: &SharedSettings<'_>) -> Option<u16> {
    let named = shared.members.container.as_deref();
    let container = etcd_container::of_pod(pod, named)?;
    let ports: Vec<u16> = match shared.way.port_from {
        PortSource::Budget => return None,
        PortSource::ClientUrl => {
            let settings = Settings::from_container(container);
            if settings.unread_file().is_some() {
                return None;
            }
            let urls = client_urls(&settings).into_iter();
            let urls = urls.filter(|url| url.scheme == shared.way.scheme);
            urls.map(|url| url.port).collect()
        }
        PortSource::ContainerPort | PortSource::Default => {
            client_ports(container).map(|(_, port)| port).collect()
        }
    };
    let is_known = ports.contains(&shared.way.port);
    ports.first().copied().filter(|_| !is_known)
}

/// The ports of a container that are called after clients, with their names.
pub(super) fn client_ports(container: &Container) -> impl Iterator<Item = (&str, u16)> {
    let ports = container.ports.iter().flatten();
    ports.filter_map(|port| {
        let name = port.name.as_deref()?;
        let number = u16::try_from(port.container_port).ok()?;
        name.contains("client").then_some((name, number))
    })
}

/// The names that the certificate of a pod's member may have, the likeliest first.
fn server_names(pod: &Pod, shared: &SharedSettings<'_>) -> Vec<String> {
    let (name, namespace) = (belonging::name(pod).to_string(), shared.namespace);
    let own = pod.spec.as_ref().and_then(|spec| spec.subdomain.as_deref());
    let service = own.or(shared.service).unwrap_or_default();
    let filled = |pattern: &String| {
        let filled = pattern.replace("{pod}", &name);
        let filled = filled.replace("{service}", service);
        filled.replace("{namespace}", namespace)
    };
    let mut names: Vec<String> = shared.members.server_name.iter().map(filled).collect();
    if !service.is_empty() {
        names.extend(forms(&format!("{name}.{service}"), namespace));
    }
    names.push(name.clone());
    if !service.is_empty() {
        names.extend(forms(service, namespace));
    }
    let end = format!(".{namespace}.svc");
    for host in shared.way.server_names.iter().map(filled) {
        match host.split_once(&end) {
            Some((base, "")) => names.extend(forms(base, namespace)),
            Some((base, domain)) if domain.starts_with('.') => names.extend(forms(base, namespace)),
            Some(_) | None => names.push(host),
        }
    }
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// The names of a Service or of a pod in it: the long one, which stands for itself in any cluster
/// domain, and the shorter ones.
fn forms(base: &str, namespace: &str) -> [String; 3] {
    [
        format!("{base}.{namespace}.svc"),
        format!("{base}.{namespace}"),
        base.to_owned(),
    ]
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
