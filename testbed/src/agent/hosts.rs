//! A pod's `/etc/hosts` and the names in it.
//!
//! It stands for cluster DNS too: every name of the Services in the pod's namespace is listed, in the forms that the search
//! list of a pod would complete. A Service with a cluster IP names its ready pods directly, since nothing proxies here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;

/// Names of a namespace's Services: the first label or two of each name, and the addresses behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceNames(BTreeMap<String, BTreeSet<Ipv4Addr>>);

impl ServiceNames {
    /// Reads them off Services and pods: `<service>` for every ready pod that it selects, `<hostname>.<service>` where the
    /// pod has that Service as its subdomain. Not off EndpointSlices: those must not hold loopback addresses.
    pub fn new<'a>(
        services: impl IntoIterator<Item = &'a Service>,
        pods: impl IntoIterator<Item = &'a Pod> + Clone,
    ) -> Self {
        let mut names: BTreeMap<String, BTreeSet<Ipv4Addr>> = BTreeMap::new();
        for service in services {
            let name = service.name_any();
            for pod in pods.clone() {
                let Some(ip) = address(pod).filter(|_| is_endpoint(service, pod)) else {
                    continue;
                };
                names.entry(name.clone()).or_default().insert(ip);
                if let Some(own) = own_service_name(pod).filter(|own| is_in(own, &name)) {
                    names.entry(own).or_default().insert(ip);
                }
            }
        }
        Self(names)
    }

    /// Addresses of `<service>` or `<hostname>.<service>`.
    pub fn addresses(&self, name: &str) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.0.get(name).into_iter().flatten().copied()
    }
}

/// The content of a pod's `/etc/hosts`.
pub fn render(pod: &Pod, ip: Ipv4Addr, names: &ServiceNames) -> String {
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

/// Whether the endpoints controller would list the pod: selected, not ended, and ready where the Service asks for it.
fn is_endpoint(service: &Service, pod: &Pod) -> bool {
    let spec = service.spec.as_ref();
    let selector = spec.and_then(|spec| spec.selector.as_ref());
    // Without a selector nobody lists pods for the Service.
    let selects = selector.is_some_and(|selector| {
        !selector.is_empty() && selector.iter().all(|(k, v)| pod.labels().get(k) == Some(v))
    });
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let ended = matches!(phase, Some("Failed" | "Succeeded"));
    let unready_too = spec.and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
    let mut conditions = status
        .into_iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let ready = pod.metadata.deletion_timestamp.is_none()
        && conditions.any(|c| c.type_ == "Ready" && c.status == "True");
    selects && !ended && (unready_too || ready)
}

fn address(pod: &Pod) -> Option<Ipv4Addr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}

/// Whether `<hostname>.<subdomain>` belongs to this Service.
fn is_in(own: &str, service: &str) -> bool {
    own.split_once('.')
        .is_some_and(|(_, subdomain)| subdomain == service)
}

/// The pod's host name: `spec.hostname`, else its name.
pub fn hostname(pod: &Pod) -> String {
    let set = pod.spec.as_ref().and_then(|s| s.hostname.clone());
    set.unwrap_or_else(|| pod.name_any())
}

/// `<hostname>.<subdomain>`, which a pod has from the start, ready or not.
fn own_service_name(pod: &Pod) -> Option<String> {
    let subdomain = pod.spec.as_ref()?.subdomain.as_ref()?;
    Some(format!("{}.{subdomain}", hostname(pod)))
}

/// All that a resolver with a pod's search list would accept.
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

    const IP: Ipv4Addr = Ipv4Addr::new(127, 64, 0, 7);

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "a-0", "namespace": "ns"},
            "spec": {"hostname": "a-0", "subdomain": "peers", "containers": [],
                "hostAliases": [{"ip": "127.1.1.1", "hostnames": ["x", "y"]}]}
        }))
        .unwrap()
    }

    fn service(unready_too: bool) -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": "peers"},
            "spec": {"selector": {"app": "a"}, "publishNotReadyAddresses": unready_too}
        }))
        .unwrap()
    }

    fn peer(name: &str, ip: &str, app: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"hostname": name, "subdomain": "peers", "containers": []},
            "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": ready}]}
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
        let pods = [
            peer("a-1", "127.64.0.8", "a", "True"),
            peer("a-2", "127.64.0.9", "a", "True"),
            peer("b-0", "127.64.0.10", "b", "True"),
        ];
        let names = ServiceNames::new([&service(false)], &pods);
        let text = render(&pod(), IP, &names);
        assert!(text.contains("127.64.0.8\ta-1.peers.ns.svc.cluster.local\ta-1.peers.ns.svc\t"));
        assert!(text.contains("127.64.0.9\tpeers.ns.svc.cluster.local\t"));
        assert_eq!(names.addresses("peers").count(), 2);
    }

    #[test]
    fn a_pod_that_is_not_ready_has_a_name_only_where_the_service_says_so() {
        let pods = [peer("a-1", "127.64.0.8", "a", "False")];
        assert_eq!(
            ServiceNames::new([&service(false)], &pods),
            ServiceNames::default()
        );
        assert_eq!(
            ServiceNames::new([&service(true)], &pods)
                .addresses("a-1.peers")
                .count(),
            1
        );
    }
}
