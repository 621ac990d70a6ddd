//! The node's heartbeat: its Lease in `kube-node-lease`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::PostParams;
use tokio::time::MissedTickBehavior;

use super::Agent;

/// The namespace of all node Leases.
const NAMESPACE: &str = "kube-node-lease";

/// Renews the Lease for ever. A failure is tried again at the next beat.
pub(super) async fn renew(agent: &Agent, owner: OwnerReference, every: Duration) {
    let api: Api<Lease> = Api::namespaced(agent.client.clone(), NAMESPACE);
    let mut beats = tokio::time::interval(every);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut held = None;
    loop {
        beats.tick().await;
        match beat(&api, agent, &owner, every, held.take()).await {
            Ok(lease) => held = Some(lease),
            Err(error) => tracing::debug!(%error, "lease"),
        }
    }
}

/// Renews once: replaces the Lease that is held, or else the existing one, or else creates one.
async fn beat(
    api: &Api<Lease>,
    agent: &Agent,
    owner: &OwnerReference,
    every: Duration,
    held: Option<Lease>,
) -> kube::Result<Lease> {
    let params = PostParams::default();
    let found = match held {
        Some(lease) => Some(lease),
        None => api.get_opt(&agent.node).await?,
    };
    // A node that misses five beats counts as gone.
    let duration = i32::try_from(every.as_secs().max(1) * 5).unwrap_or(i32::MAX);
    let spec = LeaseSpec {
        holder_identity: Some(agent.node.clone()),
        lease_duration_seconds: Some(duration),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    };
    let Some(mut lease) = found else {
        let metadata = ObjectMeta {
            name: Some(agent.node.clone()),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        };
        return api
            .create(
                &params,
                &Lease {
                    metadata,
                    spec: Some(spec),
                },
            )
            .await;
    };
    lease.spec = Some(spec);
    api.replace(&agent.node, &params, &lease).await
}
