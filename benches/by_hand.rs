//! The round trips behind one permission without the gate, in sequence or concurrent as they have
//! to be.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate::etcd::{Endpoint, Prober};
use quorumgate::quorum::ClusterRef;
use tokio::time::Instant;

use crate::gate::Gate;

/// The time limit of a probe, which is the gate's while its members are quick.
const PROBE_TIMEOUT: Duration = Duration::from_millis(400);

/// The clients and connections, which are of the same kind as the gate's.
pub(crate) struct ByHand {
    budgets: Api<QuorumDisruptionBudget>,
    name: String,
    pods: Api<Pod>,
    members: [String; 3],
    prober: Prober,
    endpoints: Vec<Endpoint>,
}

impl ByHand {
    /// Prepares the round trips. The gate must have given one permission before, so that it knows
    /// the members and there is a grant to repeat.
    pub(crate) fn new(client: &Client, gate: &Gate, cluster: &ClusterRef) -> Result<Self> {
        let ClusterRef { namespace, name } = cluster;
        let endpoints = gate.observer.likely_endpoints(cluster);
        ensure!(endpoints.len() == 3, "three members, not {endpoints:?}");
        Ok(Self {
            budgets: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client.clone(), namespace),
            members: [0, 1, 2].map(|ordinal| format!("{name}-{ordinal}")),
            name: name.clone(),
            prober: gate.observer.prober().clone(),
            endpoints,
        })
    }

    /// Makes the round trips once. `None` if a member did not answer in time, in which case the
    /// gate would have to refuse.
    pub(crate) async fn round_trips(&self) -> Result<Option<Phases>> {
        let start = Instant::now();
        let mut budget = self.budgets.get(&self.name).await?;
        let read = Instant::now();
        let ((pods, pods_read), (round, asked)) = tokio::join!(
            timed(try_join_all(
                self.members.iter().map(|name| self.pods.get(name))
            )),
            timed(self.prober.round(&self.endpoints, read + PROBE_TIMEOUT)),
        );
        let gathered = Instant::now();
        pods?;
        if round.probes.iter().any(|probe| probe.read.is_err()) {
            return Ok(None);
        }
        raise(&mut budget).context("no permission to repeat")?;
        self.budgets
            .replace_status(&self.name, &PostParams::default(), &budget)
            .await?;
        let put = Instant::now();
        Ok(Some(Phases {
            whole: put - start,
            read: read - start,
            pods: pods_read - read,
            probes: asked - read,
            put: put - gathered,
        }))
    }
}

/// The result of the work, and the time at which it ended.
async fn timed<T>(work: impl Future<Output = T>) -> (T, Instant) {
    let result = work.await;
    (result, Instant::now())
}

/// The durations of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phases {
    pub(crate) whole: Duration,
    pub(crate) read: Duration,
    pub(crate) pods: Duration,
    pub(crate) probes: Duration,
    pub(crate) put: Duration,
}

/// Repeats the grant.
fn raise(budget: &mut QuorumDisruptionBudget) -> Option<()> {
    let status = budget.status.as_mut()?;
    status.ledger.last_seq += 1;
    let cause = status.grants.first_mut()?.causes.first_mut()?;
    cause.seq = status.ledger.last_seq;
    Some(())
}
