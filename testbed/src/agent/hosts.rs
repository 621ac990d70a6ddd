//! A pod's `/etc/hosts` and the names in it.
//!
//! It stands for cluster DNS too: every name of the Services in the pod's namespace is listed, in the forms that the search
//! list of a pod would complete. A Service with a cluster IP names its ready pods directly, since nothing proxies here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;

/// Names of a namespace's Services: the first label or two of each name, and the addresses behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceNames(BTreeMap<String, BTreeSet<Ipv4Addr>>);

impl ServiceNames {
    /// Reads them off EndpointSlices: `<service>` for every ready address, `<hostname>.<service>` where an endpoint has a
    /// host name. The endpoint slice controller has already applied `publishNotReadyAddresses`.
    pub fn from_slices<'a>(slices: impl IntoIterator<Item = &'a EndpointSlice>) -> Self {
        let mut names: BTreeMap<String, BTreeSet<Ipv4Addr>> = BTreeMap::new();
        for slice in slices {
            let Some(service) = slice.labels().get("kubernetes.io/service-name") else {
                continue;
            };
            for endpoint in &slice.endpoints {
                // An unset condition reads as ready.
                if endpoint.conditions.as_ref().and_then(|c| c.ready) == Some(false) {
                    continue;
                }
                for ip in endpoint.addresses.iter().filter_map(|a| a.parse().ok()) {
                    names.entry(service.clone()).or_default().insert(ip);
                    if let Some(hostname) = &endpoint.hostname {
                        names
                            .entry(format!("{hostname}.{service}"))
                            .or_default()
                            .insert(ip);
                    }
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

    fn slice(service: &str, endpoints: serde_json::Value) -> EndpointSlice {
        serde_json::from_value(json!({
            "metadata": {"labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4", "endpoints": endpoints
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
        let slice = slice(
            "peers",
            json!([
                {"addresses": ["127.64.0.8"], "hostname": "a-1", "conditions": {"ready": true}},
                {"addresses": ["127.64.0.9"], "hostname": "a-2"}
            ]),
        );
        let names = ServiceNames::from_slices([&slice]);
        let text = render(&pod(), IP, &names);
        assert!(text.contains("127.64.0.8\ta-1.peers.ns.svc.cluster.local\ta-1.peers.ns.svc\t"));
        assert!(text.contains("127.64.0.9\tpeers.ns.svc.cluster.local\t"));
        assert_eq!(names.addresses("peers").count(), 2);
    }

    #[test]
    fn an_endpoint_that_is_not_ready_has_no_name() {
        let slice = slice(
            "peers",
            json!([
                {"addresses": ["127.64.0.8"], "hostname": "a-1", "conditions": {"ready": false}}
            ]),
        );
        assert_eq!(ServiceNames::from_slices([&slice]), ServiceNames::default());
    }
}
