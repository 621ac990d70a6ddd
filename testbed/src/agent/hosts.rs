//! A pod's `/etc/hosts` and the names in it.
//!
//! The file stands for cluster DNS too: every name of the Services in the pod's namespace is
//! listed, in all forms that the search list of a pod would complete. The name of a Service with a
//! cluster IP has the addresses of its ready pods, since there is no proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;

/// The names of a namespace's Services: the first one or two labels of each name, and its
/// addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServiceNames(BTreeMap<String, BTreeSet<IpAddr>>);

impl ServiceNames {
    /// The endpoints of these Services, by the rules of the endpoint slice controller. (Its slices
    /// cannot be used, since the API server refuses loopback addresses in them.) `<service>` stands
    /// for every ready pod, and `<hostname>.<service>` for the pod that names the Service as its
    /// subdomain.
    pub(super) fn new<'a>(
        services: impl IntoIterator<Item = &'a Service>,
        pods: &(impl IntoIterator<Item = &'a Pod> + Clone),
    ) -> Self {
        let mut names: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
        for service in services {
            let Some(spec) = &service.spec else { continue };
            let Some(selector) = spec.selector.as_ref().filter(|s| !s.is_empty()) else {
                continue;
            };
            let any = spec.publish_not_ready_addresses == Some(true);
            let headless = spec.cluster_ip.as_deref() == Some("None");
            let name = service.name_any();
            for pod in pods.clone() {
                let selected = selector.iter().all(|(k, v)| pod.labels().get(k) == Some(v));
                let Some(ip) = address(pod).filter(|_| selected && (any || is_ready(pod))) else {
                    continue;
                };
                names.entry(name.clone()).or_default().insert(ip);
                let spec = pod.spec.as_ref();
                let hostname = spec.and_then(|s| s.hostname.as_ref());
                let subdomain = spec.and_then(|s| s.subdomain.as_ref());
                if let Some(hostname) = hostname.filter(|_| headless && subdomain == Some(&name)) {
                    names
                        .entry(format!("{hostname}.{name}"))
                        .or_default()
                        .insert(ip);
                }
            }
        }
        Self(names)
    }

    /// The addresses of `<service>` or `<hostname>.<service>`.
    pub(super) fn addresses(&self, name: &str) -> impl Iterator<Item = IpAddr> + '_ {
        self.0.get(name).into_iter().flatten().copied()
    }
}

/// The address of a pod, unless the pod has ended.
fn address(pod: &Pod) -> Option<IpAddr> {
    let status = pod.status.as_ref()?;
    if matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")) {
        return None;
    }
    status.pod_ip.as_ref()?.parse().ok()
}

/// Whether the pod is Ready and not being deleted.
fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions
            .into_iter()
            .any(|c| c.type_ == "Ready" && c.status == "True")
}

/// The content of a pod's `/etc/hosts`.
pub(super) fn render(pod: &Pod, ip: IpAddr, names: &ServiceNames) -> String {
    let namespace = pod.namespace().unwrap_or_default();
    let mut out = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n".to_owned();
    let own = own_service_name(pod);
    let fully = own.iter().flat_map(|name| forms(name, &namespace));
    let own_names: Vec<_> = fully.chain([hostname(pod)]).collect();
    line(&mut out, &ip.to_string(), &own_names);
    for (name, addresses) in &names.0 {
        if own.as_ref() == Some(name) {
            continue;
        }
        for address in addresses {
            line(&mut out, &address.to_string(), &forms(name, &namespace));
        }
    }
    let aliases = pod
        .spec
        .iter()
        .flat_map(|s| s.host_aliases.iter().flatten());
    let mut aliases = aliases.peekable();
    if aliases.peek().is_some() {
        out.push_str("# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        line(
            &mut out,
            &alias.ip,
            alias.hostnames.as_deref().unwrap_or_default(),
        );
    }
    out
}

/// The pod's host name: `spec.hostname`, else its name.
pub(super) fn hostname(pod: &Pod) -> String {
    let set = pod.spec.as_ref().and_then(|s| s.hostname.clone());
    set.unwrap_or_else(|| pod.name_any())
}

/// `<hostname>.<subdomain>`, a name that a pod has from the start, ready or not.
fn own_service_name(pod: &Pod) -> Option<String> {
    let subdomain = pod.spec.as_ref()?.subdomain.as_ref()?;
    Some(format!("{}.{subdomain}", hostname(pod)))
}

/// All forms of a name that a resolver with a pod's search list would accept.
fn forms(name: &str, namespace: &str) -> Vec<String> {
    vec![
        format!("{name}.{namespace}.svc.cluster.local"),
        format!("{name}.{namespace}.svc"),
        format!("{name}.{namespace}"),
        name.to_owned(),
    ]
}

fn line(out: &mut String, ip: &str, names: &[String]) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{ip}\t{}", names.join("\t"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 64, 0, 7));

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "a-0", "namespace": "ns"},
            "spec": {"hostname": "a-0", "subdomain": "peers", "containers": [],
                "hostAliases": [{"ip": "127.1.1.1", "hostnames": ["x", "y"]}]}
        }))
        .unwrap()
    }

    /// A pod of the Service with this address.
    fn peer(name: &str, ip: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app": "a"}},
            "spec": {"hostname": name, "subdomain": "peers", "containers": []},
            "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": ready}]}
        }))
        .unwrap()
    }

    fn service(name: &str, cluster_ip: &str, any: bool) -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"selector": {"app": "a"}, "clusterIP": cluster_ip, "publishNotReadyAddresses": any}
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_knows_its_own_names_before_anybody_else_does() {
        let text = render(&pod(), IP, &ServiceNames::default());
        let own = text
            .lines()
            .find(|l| l.starts_with("127.64.0.7\t"))
            .unwrap();
        let names: Vec<_> = own.split('\t').skip(1).collect();
        assert_eq!(
            names,
            [
                "a-0.peers.ns.svc.cluster.local",
                "a-0.peers.ns.svc",
                "a-0.peers.ns",
                "a-0.peers",
                "a-0"
            ]
        );
        assert!(text.ends_with("127.1.1.1\tx\ty\n"));
    }

    #[test]
    fn peers_have_every_form_of_their_name_and_the_service_names_all_of_them() {
        let peers = [
            peer("a-1", "127.64.0.8", "True"),
            peer("a-2", "127.64.0.9", "True"),
        ];
        let services = [
            service("peers", "None", false),
            service("client", "10.96.0.7", false),
        ];
        let names = ServiceNames::new(&services, &&peers);
        let text = render(&pod(), IP, &names);
        assert!(text.contains("127.64.0.8\ta-1.peers.ns.svc.cluster.local\ta-1.peers.ns.svc\t"));
        assert!(text.contains("127.64.0.9\tpeers.ns.svc.cluster.local\t"));
        assert_eq!(names.addresses("client").count(), 2);
        assert_eq!(names.addresses("a-1.client").count(), 0);
    }

    #[test]
    fn a_pod_that_is_not_ready_has_names_only_where_the_service_says_so() {
        let peers = [peer("a-1", "127.64.0.8", "False")];
        let hidden = ServiceNames::new(&[service("peers", "None", false)], &&peers);
        assert_eq!(hidden, ServiceNames::default());
        let shown = ServiceNames::new(&[service("peers", "None", true)], &&peers);
        assert_eq!(shown.addresses("a-1.peers").count(), 1);
    }

    #[test]
    fn pods_that_have_ended_or_have_other_labels_have_no_names() {
        let mut ended = peer("a-1", "127.64.0.8", "True");
        ended.status.as_mut().unwrap().phase = Some("Failed".to_owned());
        let mut foreign = peer("a-2", "127.64.0.9", "True");
        foreign.metadata.labels = None;
        let names = ServiceNames::new(&[service("peers", "None", true)], &&[ended, foreign]);
        assert_eq!(names, ServiceNames::default());
    }
}
