//! The review of a pod's DELETE, as the API server sends it.

use serde_json::{Value, json};

/// The review of the DELETE of this pod. A dry run is judged like any other, and leaves nothing
/// behind.
pub(crate) fn deletion(pod: &Value, dry_run: bool) -> Value {
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    let dry = if dry_run { json!(["All"]) } else { json!([]) };
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0f0e0d0c-0b0a-0908-0706-050403020100",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": resource,
            "requestResource": resource,
            "name": pod.pointer("/metadata/name"),
            "namespace": pod.pointer("/metadata/namespace"),
            "operation": "DELETE",
            "userInfo": {"username": "bench", "groups": ["system:authenticated"]},
            "object": null,
            "oldObject": pod,
            "dryRun": dry_run,
            "options": {
                "apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions",
                "gracePeriodSeconds": 30, "dryRun": dry,
            },
        },
    })
}
