mod belonging;
mod cluster_of_pod;
mod data;
mod endpoint;
mod eviction;
mod identities;
mod ledgerless;
mod override_until;
mod pod;
mod reading;
mod tearing_down;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::api::QuorumDisruptionBudget;
use crate::fake_api::etcd::{budget_json, owner_of_pods, pod_json, set_json};

fn pod(change: &Value) -> Pod {
    serde_json::from_value(pod_json(0, change)).unwrap()
}

fn set(change: &Value) -> StatefulSet {
    serde_json::from_value(set_json(change)).unwrap()
}

fn budget(change: &Value) -> QuorumDisruptionBudget {
    serde_json::from_value(budget_json(change)).unwrap()
}
