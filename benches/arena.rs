//! An etcd cluster for rollouts, with the gate or without.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{Patch, PatchParams};
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate_testbed::etcd_cluster::{EtcdCluster, Readiness, Shape, UpdateStrategy};
use quorumgate_testbed::gate::Gate;
use quorumgate_testbed::{Bed, Sandbox, eventually};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::incarnations::{Incarnation, Watch};

const SOON: Duration = Duration::from_secs(120);

/// The time for which the gate leaves leadership where it has moved it.
const LEADERSHIP_RESTS: Duration = Duration::from_secs(30);

/// The cluster and its environment.
pub(crate) struct Arena {
    pub(crate) sandbox: Sandbox,
    pub(crate) etcd: EtcdCluster,
    pub(crate) watch: Watch,
    gate: Option<Gate>,
    readiness: Readiness,
    /// The number of changes of the template.
    changes: u32,
    /// The end of the last rollout.
    rolled: Instant,
}

impl Arena {
    /// A cluster without the gate, where the StatefulSet controller rolls out.
    pub(crate) async fn plain(bed: &Bed, readiness: Readiness) -> Result<Self> {
        let sandbox = sandbox(bed, "plain").await?;
        let etcd = apply(&sandbox, readiness, false).await?;
        etcd.quorate(SOON).await?;
        Ok(Self::new(sandbox, etcd, None, readiness))
    }

    /// A cluster with two replicas of the gate, which rolls out.
    pub(crate) async fn gated(bed: &Bed, readiness: Readiness) -> Result<Self> {
        let sandbox = sandbox(bed, "gated").await?;
        let etcd = apply(&sandbox, readiness, true).await?;
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
        let gate = Gate::builder(env!("CARGO_BIN_EXE_quorumgate"), manifests)
            .argument("--settle-time=8s")
            .argument("--feature-gates=QuorumAwareUpdatesWithOnDelete=true")
            .start(&sandbox)
            .await?;
        etcd.quorate(SOON).await?;
        gate.in_force(SOON).await?;
        Ok(Self::new(sandbox, etcd, Some(gate), readiness))
    }

    fn new(sandbox: Sandbox, etcd: EtcdCluster, gate: Option<Gate>, readiness: Readiness) -> Self {
        Self {
            watch: Watch::start(&etcd),
            sandbox,
            etcd,
            gate,
            readiness,
            changes: 0,
            rolled: Instant::now(),
        }
    }

    /// Whether the cluster has the gate.
    pub(crate) fn is_gated(&self) -> bool {
        self.gate.is_some()
    }

    /// Makes the cluster healthy, with this readiness probe, this update strategy and this leader.
    pub(crate) async fn prepare(
        &mut self,
        readiness: Readiness,
        strategy: &Value,
        leader: &str,
    ) -> Result<()> {
        if self.readiness != readiness {
            let before = self.revision().await?;
            apply(&self.sandbox, readiness, self.gate.is_some()).await?;
            self.readiness = readiness;
            self.updated(&before).await?;
            self.rolled_out();
        }
        self.etcd.quorate(SOON).await?;
        if self.gate.is_some() {
            self.whole().await?;
            tokio::time::sleep_until(self.rolled + LEADERSHIP_RESTS).await;
        }
        self.choose(strategy).await?;
        self.etcd.move_leader(leader).await?;
        self.etcd.quorate(SOON).await.map(drop)
    }

    /// Sets the update strategy, and waits until the StatefulSet controller, which may have been
    /// restarted, has seen it.
    async fn choose(&self, strategy: &Value) -> Result<()> {
        let sets = self.etcd.stateful_set_api();
        let before = self.etcd.stateful_set().await?.spec.context("no spec")?;
        // Any other limit would do. The change makes the controller report a new generation.
        let limit = 30 - before.revision_history_limit.unwrap_or(10);
        let spec = json!({"updateStrategy": strategy, "revisionHistoryLimit": limit});
        let patch = Patch::Merge(json!({"spec": spec}));
        let parameters = PatchParams::default();
        sets.patch(self.etcd.name(), &parameters, &patch).await?;
        eventually(
            SOON,
            "the controller has read the StatefulSet",
            async || {
                let set = self.etcd.stateful_set().await?;
                let observed = set.status.and_then(|status| status.observed_generation);
                ensure!(observed == set.metadata.generation, "it has not");
                Ok(())
            },
        )
        .await
    }

    /// Changes the template.
    pub(crate) async fn change(&mut self) -> Result<()> {
        self.changes += 1;
        let marker = self.changes.to_string();
        Ok(self.etcd.change_template(&marker).await?)
    }

    /// The revision of all pods.
    pub(crate) async fn revision(&self) -> Result<String> {
        let members = self.etcd.pod_names().len();
        let pods = self
            .watch
            .until("all pods exist", SOON, |pods| pods.len() == members);
        let pods = pods.await?;
        let mut revisions: Vec<_> = pods.into_values().map(|pod| pod.revision).collect();
        revisions.dedup();
        ensure!(
            revisions.len() == 1,
            "an earlier rollout is not done: {revisions:?}"
        );
        revisions.pop().context("no pods")
    }

    /// Waits until no pod has this revision, all pods are Ready, and all members serve.
    pub(crate) async fn updated(&self, before: &str) -> Result<()> {
        let members = self.etcd.pod_names().len();
        self.watch
            .until("all are updated and Ready", SOON, |pods| {
                let updated =
                    |pod: &&Incarnation| pod.revision != before && pod.ready && !pod.terminating;
                pods.values().filter(updated).count() == members
            })
            .await?;
        self.etcd.quorate(SOON).await.map(drop)
    }

    /// Records the end of a rollout, after which leadership has to rest.
    pub(crate) fn rolled_out(&mut self) {
        self.rolled = Instant::now();
    }

    pub(crate) async fn close(self) -> Result<()> {
        drop(self.watch);
        if let Some(gate) = self.gate {
            gate.close().await?;
        }
        self.sandbox.close().await
    }

    /// Waits until the gate trusts its ledger, no grant is open, and every member serves.
    async fn whole(&self) -> Result<()> {
        let budgets: Api<QuorumDisruptionBudget> = self.sandbox.api();
        eventually(SOON, "the budget shows a whole cluster", async || {
            let budget = budgets.get(self.etcd.name()).await?;
            let status = budget.status.context("no status yet")?;
            ensure!(status.ledger.trusted, "it is not trusted");
            ensure!(status.grants.is_empty(), "permissions are open");
            let (serve, all) = (status.current_healthy, status.expected_members);
            ensure!(
                serve.is_some() && serve == all,
                "{serve:?} of {all:?} serve"
            );
            Ok(())
        })
        .await
    }
}

async fn sandbox(bed: &Bed, name: &str) -> Result<Sandbox> {
    let mut sandbox = bed.sandbox(name).await?;
    sandbox.add_nodes(3).await?;
    Ok(sandbox)
}

async fn apply(sandbox: &Sandbox, readiness: Readiness, gated: bool) -> Result<EtcdCluster> {
    let (shape, strategy) = if gated {
        (Shape::Enrolled, UpdateStrategy::OnDelete)
    } else {
        (Shape::Foreign, UpdateStrategy::RollingUpdate)
    };
    let etcd = EtcdCluster::builder("etcd").readiness(readiness);
    etcd.shape(shape)
        .update_strategy(strategy)
        .apply(sandbox)
        .await
}
