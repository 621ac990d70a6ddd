//! The headless Service.

use serde_json::{Value, json};

use super::labels;
use crate::etcd_cluster::spec::{Shape, Spec};

/// The Service, which gives every pod a name also before it is Ready: a member that starts has to
/// find the others.
pub(super) fn headless_service(spec: &Spec) -> Value {
    let service = spec.service();
    let own_labels = match spec.shape {
        Shape::Enrolled | Shape::Foreign => labels::selector(spec),
        Shape::Druid => labels::druid_component(spec, "etcd-peer-service", &service),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service, "labels": own_labels},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": labels::pod(spec),
            "ports": [
                {"name": "client", "port": 2379},
                {"name": "peer", "port": 2380},
            ],
        },
    })
}
