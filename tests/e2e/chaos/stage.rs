//! The clusters, nodes and replicas of a run, and the record of its operations.

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
use super::timeline::{Entry, Replaced, Timeline};
use super::{data, drains, hung};
use crate::world::World;

/// The time limit until all is well after the last operation, on a busy machine.
const CALM: Duration = Duration::from_secs(600);
/// The number of nodes that may be drained concurrently. Pods need somewhere to go.
const DRAINS: usize = 2;

/// The world of a run, and the record of its operations.
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) pods: Watch,
    pub(super) clusters: Vec<Cluster>,
    /// Held to stop or freeze a replica of the gate, or to set its clock.
    pub(super) replicas: Vec<Turn<()>>,
    /// Held to cut the power of a node: one node at a time.
    pub(super) power: Turn<()>,
    /// Held to restart the API server.
    pub(super) api_server: Turn<()>,
    /// Held to besiege a replica of the gate: one replica at a time.
    pub(super) siege: Turn<()>,
    pub(super) drains: Semaphore,
    timeline: Mutex<Timeline>,
}

/// An etcd cluster, and the locks for operations on it.
pub(super) struct Cluster {
    pub(super) etcd: EtcdCluster,
    /// Held shared to ask for a member or to break one. Held exclusively to add a member: etcd adds
    /// none before all members have been connected for five seconds.
    pub(super) unrest: RwLock<()>,
    /// Held to change the size of the cluster, or to have a member replaced: one change of etcd's
    /// member list at a time.
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

    /// Waits until every cluster is whole and its ledger is trusted. Lost volumes are replaced from
    /// then on.
    pub(super) async fn ready(&self) -> Result<()> {
        for cluster in &self.clusters {
            cluster.etcd.quorate(CALM).await?;
            self.world.trusted_of(&cluster.etcd).await?;
            data::set_mode(self, &cluster.etcd, "Auto").await?;
        }
        self.whole().await
    }

    /// Performs an operation and records it. A refusal, or the lack of a target, is no failure
    /// unless the operation has to succeed.
    pub(super) async fn perform(&self, operation: Operation) {
        let entry = Entry::begin(&operation);
        let outcome = operation.perform(self).await;
        if let Ok(mut timeline) = self.timeline.lock() {
            timeline.add(entry.end(outcome));
        }
    }

    /// Records that this target was broken from then until now, for another reason than a
    /// permission.
    pub(super) fn was_broken(&self, who: Broken, from: Timestamp) {
        if let Ok(mut timeline) = self.timeline.lock() {
            timeline.broken(who, from);
        }
    }

    /// Records that this member was replaced at some time from then until now.
    pub(super) fn was_replaced(&self, member: &str, from: Timestamp, why: Replaced) {
        if let Ok(mut timeline) = self.timeline.lock() {
            timeline.replaced(member, from, why);
        }
    }

    /// Fails unless all is well: every member serves in a pod of its StatefulSet with the latest
    /// template, no grant is open, and no node is cordoned.
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

    /// Checks that nothing is wedged: every node can be drained, and all pods come back.
    pub(super) async fn every_node_can_be_drained(&self) -> Result<()> {
        for node in self.world.sandbox.nodes() {
            drains::until_done(self, node.name()).await?;
            self.whole().await?;
        }
        Ok(())
    }

    /// Takes the record since the last call.
    pub(super) fn take_timeline(&self) -> Timeline {
        let taken = self
            .timeline
            .lock()
            .map(|mut all| std::mem::take(&mut *all));
        taken.unwrap_or_default()
    }

    /// Uncordons a node. Repeated while the API server is away.
    pub(super) async fn uncordon(&self, node: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.world.sandbox.client());
        eventually(CALM, format!("{node} is uncordoned"), || {
            nodes.uncordon(node)
        })
        .await
        .map(drop)
    }
}
