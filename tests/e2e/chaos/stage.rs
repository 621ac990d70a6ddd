//! Where operations happen, and where it is written down.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::eventually;
use tokio::sync::{Mutex as Turn, RwLock, Semaphore};

use super::operation::{Broken, Operation};
use super::pods::Watch;
use super::timeline::{Entry, Timeline};
use super::{drains, hung};
use crate::world::World;

/// How long it may take until all is well once nothing happens any more, on a machine that does other things besides.
const CALM: Duration = Duration::from_secs(600);
/// Nodes that may be drained at one time: pods need somewhere to go.
const DRAINS: usize = 2;

/// The world, and what happened in it.
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) pods: Watch,
    pub(super) clusters: Vec<Cluster>,
    /// Whoever stops, freezes or mistimes a replica of the gate has its turn.
    pub(super) replicas: Vec<Turn<()>>,
    /// One node is without power at a time.
    pub(super) power: Turn<()>,
    /// The API server restarts once at a time.
    pub(super) api_server: Turn<()>,
    /// One replica of the gate has strangers at its door at a time.
    pub(super) siege: Turn<()>,
    pub(super) drains: Semaphore,
    timeline: Mutex<Timeline>,
}

/// One etcd cluster, and who may do what to it now.
pub(super) struct Cluster {
    pub(super) etcd: EtcdCluster,
    /// Held to ask for a member or to break one; exclusively while a member is added: etcd takes none before all have been connected for
    /// five seconds.
    pub(super) unrest: RwLock<()>,
    /// One change of its size at a time.
    pub(super) size: Turn<()>,
}

impl Stage {
    pub(super) async fn new(world: World, clusters: Vec<EtcdCluster>) -> Result<Self> {
        let replicas = world.gate.replicas().iter().map(|_| Turn::default());
        let clusters = clusters.into_iter().map(|etcd| Cluster {
            etcd,
            unrest: RwLock::default(),
            size: Turn::default(),
        });
        Ok(Self {
            replicas: replicas.collect(),
            pods: Watch::start(world.pods()).await?,
            clusters: clusters.collect(),
            world,
            power: Turn::default(),
            api_server: Turn::default(),
            siege: Turn::default(),
            drains: Semaphore::new(DRAINS),
            timeline: Mutex::default(),
        })
    }

    /// Waits until every cluster is whole and its ledger warm.
    pub(super) async fn ready(&self) -> Result<()> {
        for cluster in &self.clusters {
            cluster.etcd.quorate(CALM).await?;
            self.world.warm_of(&cluster.etcd).await?;
        }
        self.whole().await
    }

    /// Does it. That it was refused, or found nobody, is no failure, unless it had to come about.
    pub(super) async fn perform(&self, operation: Operation) {
        let entry = Entry::begin(&operation);
        let outcome = operation.perform(self).await;
        if let Ok(mut timeline) = self.timeline.lock() {
            timeline.add(entry.end(outcome));
        }
    }

    /// That this one was broken from then until now, for other reasons than a permission.
    pub(super) fn was_broken(&self, who: Broken, from: Timestamp) {
        if let Ok(mut timeline) = self.timeline.lock() {
            timeline.broken(who, from);
        }
    }

    /// Whether the machine is quiet again: every member serves in a pod of its StatefulSet with the last template, no grant is open, nothing is
    /// cordoned.
    pub(super) async fn whole(&self) -> Result<()> {
        for node in self.world.sandbox.nodes() {
            self.uncordon(node.name()).await?;
        }
        let clusters = self.clusters.iter();
        let whole = clusters.map(async |cluster| {
            hung::no_rollout_is_left(cluster, CALM).await?;
            self.world.whole_within(CALM, &cluster.etcd).await
        });
        try_join_all(whole).await?;
        Ok(())
    }

    /// Nothing is wedged: with all faults gone every node can be drained, and everybody comes back.
    pub(super) async fn every_node_can_be_drained(&self) -> Result<()> {
        for node in self.world.sandbox.nodes() {
            drains::until_done(self, node.name()).await?;
            self.whole().await?;
        }
        Ok(())
    }

    /// All that has happened since the last time.
    pub(super) fn take_timeline(&self) -> Timeline {
        let taken = self
            .timeline
            .lock()
            .map(|mut all| std::mem::take(&mut *all));
        taken.unwrap_or_default()
    }

    /// Also while the API server is away.
    pub(super) async fn uncordon(&self, node: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.world.sandbox.client());
        eventually(CALM, format!("{node} is uncordoned"), || {
            nodes.uncordon(node)
        })
        .await
        .map(drop)
    }
}
