//! The downward API: facts about a pod, as environment variables and files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;

use super::address;

/// The facts that are not in the pod's object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement {
    /// The pod's first address.
    pub ip: IpAddr,
    /// The node's address.
    pub host_ip: Ipv4Addr,
}

/// The value of a `fieldRef`. `None` if there is no such field.
pub(super) fn field(pod: &Pod, place: Placement, path: &str) -> Option<String> {
    let spec = pod.spec.as_ref();
    let value = match path {
        "metadata.name" => pod.name_any(),
        "metadata.namespace" => pod.namespace().unwrap_or_default(),
        "metadata.uid" => pod.uid().unwrap_or_default(),
        "metadata.labels" => listed(pod.labels()),
        "metadata.annotations" => listed(pod.annotations()),
        "spec.nodeName" => spec.and_then(|s| s.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => spec
            .and_then(|s| s.service_account_name.clone())
            .unwrap_or_default(),
        "status.podIP" => place.ip.to_string(),
        "status.podIPs" => {
            let all = address::all(place.ip).into_iter();
            all.map(|ip| ip.to_string()).collect::<Vec<_>>().join(",")
        }
        "status.hostIP" | "status.hostIPs" => place.host_ip.to_string(),
        _ => return keyed(pod, path),
    };
    Some(value)
}

/// The value of `metadata.labels['key']` or `metadata.annotations['key']`. A missing key gives the
/// empty string.
fn keyed(pod: &Pod, path: &str) -> Option<String> {
    let (map, rest) = if let Some(rest) = path.strip_prefix("metadata.labels['") {
        (pod.labels(), rest)
    } else {
        (
            pod.annotations(),
            path.strip_prefix("metadata.annotations['")?,
        )
    };
    let key = rest.strip_suffix("']")?;
    Some(map.get(key).cloned().unwrap_or_default())
}

/// The format of label and annotation files: `key="value"`, one per line, quoted as Go quotes.
fn listed(map: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    for (key, value) in map {
        if !out.is_empty() {
            out.push('\n');
        }
        // Writing to a String cannot fail.
        let _ = write!(out, "{key}={value:?}");
    }
    out
}

/// The value of a `resourceFieldRef`: a limit or request, divided and rounded up. A limit that is
/// not set has the value of the node, so `None` stands only for an unknown resource.
pub(super) fn resource(container: &Container, selector: &ResourceFieldSelector) -> Option<String> {
    let (kind, name) = selector.resource.split_once('.')?;
    let resources = container.resources.as_ref();
    let set = match kind {
        "limits" => resources.and_then(|r| r.limits.as_ref()),
        "requests" => resources.and_then(|r| r.requests.as_ref()),
        _ => return None,
    };
    let value = match set.and_then(|map| map.get(name)) {
        Some(quantity) => amount(quantity)?,
        None if kind == "requests" => 0.0,
        None => super::node::capacity().get(name).and_then(amount)?,
    };
    let divisor = selector
        .divisor
        .as_ref()
        .and_then(amount)
        .filter(|d| *d > 0.0)
        .unwrap_or(1.0);
    Some(format!("{:.0}", (value / divisor).ceil()))
}

/// A quantity as a number.
fn amount(quantity: &Quantity) -> Option<f64> {
    const SUFFIXES: [(&str, f64); 11] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
    ];
    let text = quantity.0.as_str();
    let scaled = SUFFIXES.iter().find_map(|(suffix, factor)| {
        Some(text.strip_suffix(suffix)?.parse::<f64>().ok()? * factor)
    });
    scaled.or_else(|| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLACE: Placement = Placement {
        ip: IpAddr::V4(Ipv4Addr::new(127, 64, 0, 9)),
        host_ip: Ipv4Addr::new(127, 64, 0, 1),
    };

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "a-0", "namespace": "ns", "uid": "u1",
                "labels": {"app": "etcd", "x": "say \"y\""}, "annotations": {"k": "v"}},
            "spec": {"nodeName": "n1", "serviceAccountName": "sa", "containers": []}
        }))
        .unwrap()
    }

    #[test]
    fn every_field_that_the_kubelet_knows_has_a_value() {
        let value = |path| field(&pod(), PLACE, path);
        assert_eq!(value("metadata.name").unwrap(), "a-0");
        assert_eq!(value("metadata.namespace").unwrap(), "ns");
        assert_eq!(value("metadata.uid").unwrap(), "u1");
        assert_eq!(value("spec.nodeName").unwrap(), "n1");
        assert_eq!(value("spec.serviceAccountName").unwrap(), "sa");
        assert_eq!(value("status.podIP").unwrap(), "127.64.0.9");
        assert_eq!(value("status.hostIP").unwrap(), "127.64.0.1");
        assert_eq!(value("metadata.labels['app']").unwrap(), "etcd");
        assert_eq!(value("metadata.annotations['none']").unwrap(), "");
        assert_eq!(
            value("metadata.labels").unwrap(),
            "app=\"etcd\"\nx=\"say \\\"y\\\"\""
        );
        assert_eq!(value("status.phase"), None);
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let container: Container = serde_json::from_value(json!({
            "name": "c", "resources": {"limits": {"memory": "100Mi", "cpu": "1500m"}}
        }))
        .unwrap();
        let value = |resource: &str, divisor: &str| {
            let selector = ResourceFieldSelector {
                resource: resource.to_owned(),
                divisor: Some(Quantity(divisor.to_owned())),
                container_name: None,
            };
            super::resource(&container, &selector).unwrap()
        };
        assert_eq!(value("limits.memory", "1Mi"), "100");
        assert_eq!(value("limits.cpu", "1"), "2");
        assert_eq!(value("limits.cpu", "1m"), "1500");
        assert_eq!(value("requests.cpu", "0"), "0");
    }
}
