//! Member Leases, renewed as druid's sidecar does.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinHandle;

use super::{EndpointStatus, EtcdCluster};

/// A task that renews member Leases until it is dropped.
#[derive(Debug)]
#[must_use = "the heartbeat stops when this is dropped"]
pub struct Heartbeat {
    task: JoinHandle<()>,
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl EtcdCluster {
    /// Renews the Lease of every member that answers and knows a leader, every `period` (druid's
    /// default: 10 s).
    pub fn heartbeat(&self, period: Duration) -> Heartbeat {
        let cluster = self.clone();
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(period);
            loop {
                ticks.tick().await;
                if let Err(error) = cluster.renew_leases().await {
                    tracing::warn!("{cluster:?}: a heartbeat was missed: {error:#}");
                }
            }
        });
        Heartbeat { task }
    }

    /// Renews the Lease of every member once.
    pub async fn renew_leases(&self) -> Result<()> {
        for status in self.statuses().await? {
            if status.leader.is_some() {
                self.renew_lease(&status).await?;
            }
        }
        Ok(())
    }

    async fn renew_lease(&self, status: &EndpointStatus) -> Result<()> {
        let leads = status.leader == Some(status.member_id);
        // The sidecar does not look at the learner flag either.
        let role = if leads { "Leader" } else { "Member" };
        let holder = format!("{:x}:{:x}:{role}", status.member_id, status.cluster_id);
        let now = Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
            .to_string();
        let patch = json!({"spec": {"holderIdentity": holder, "renewTime": now}});
        let leases = Api::<Lease>::namespaced(self.client.clone(), &self.namespace);
        let name = self.spec.member_name(&status.pod);
        leases
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }
}
