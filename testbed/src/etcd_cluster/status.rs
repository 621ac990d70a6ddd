//! The status of each member, and the check that the cluster is quorate.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use etcd_client::Client;
use futures::future::{join_all, try_join_all};

use super::EtcdCluster;
use super::connections::Connections;
use crate::eventually;

/// The time limit of one question to one member. A frozen member costs all of it; a starved one
/// still answers.
const PATIENCE: Duration = Duration::from_secs(3);

/// A member's answer to `Maintenance.Status`, with the pod that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStatus {
    /// The pod that was asked.
    pub pod: String,
    /// The id of its member.
    pub member_id: u64,
    /// The id of its cluster.
    pub cluster_id: u64,
    /// The leader that the member follows, which may be itself. `None` if it knows none.
    pub leader: Option<u64>,
    /// The raft term.
    pub raft_term: u64,
    /// The index of the last log entry that it has applied.
    pub applied_index: u64,
    /// Whether the member is a learner.
    pub is_learner: bool,
    /// Alarms of any member, and other complaints.
    pub errors: Vec<String>,
    /// The size of the database file in bytes.
    pub db_size: i64,
    /// The version of etcd.
    pub version: String,
}

impl EtcdCluster {
    /// The status of the member in one pod. Works without a quorum.
    pub async fn endpoint_status(&self, pod: &str) -> Result<EndpointStatus> {
        let address = self.pod_ip(pod).await?;
        status(self.dialer().await?.dial(address, PATIENCE).await?, pod).await
    }

    /// The status of every member that answers.
    pub async fn statuses(&self) -> Result<Vec<EndpointStatus>> {
        let dialer = self.dialer().await?;
        let addresses = self.pod_ips().await?;
        let questions = addresses.iter().map(|(pod, address)| async {
            status(dialer.dial(*address, PATIENCE).await?, pod).await
        });
        Ok(join_all(questions).await.into_iter().flatten().collect())
    }

    /// The pod of the leader that the others follow.
    pub async fn leader(&self) -> Result<String> {
        let statuses = self.statuses().await?;
        let leads = |s: &&EndpointStatus| s.leader == Some(s.member_id);
        let leader = statuses.iter().filter(leads).max_by_key(|s| s.raft_term);
        Ok(leader
            .with_context(|| format!("{self:?} has no leader: {statuses:?}"))?
            .pod
            .clone())
    }

    /// The running pods, without the leader's.
    pub async fn followers(&self) -> Result<Vec<String>> {
        let leader = self.leader().await?;
        Ok(self
            .pod_ips()
            .await?
            .into_keys()
            .filter(|pod| *pod != leader)
            .collect())
    }

    /// Waits until every pod that `spec.replicas` asks for runs a voter, all follow one leader, and
    /// each answers a linearizable read. Returns how long that took.
    pub async fn quorate(&self, within: Duration) -> Result<Duration> {
        let start = Instant::now();
        let what = format!("{self:?} is quorate");
        let connections = Connections::new(self.dialer().await?, PATIENCE);
        eventually(within, what, || self.is_quorate(&connections)).await?;
        Ok(start.elapsed())
    }

    /// Waits until the member in this pod answers a linearizable read.
    pub async fn serves(&self, pod: &str, within: Duration) -> Result<()> {
        let what = format!("the member in {pod} serves");
        eventually(within, what, || async {
            let address = self.pod_ip(pod).await?;
            read(self.dialer().await?.dial(address, PATIENCE).await?, pod).await
        })
        .await
    }

    async fn is_quorate(&self, connections: &Connections) -> Result<()> {
        let wanted = usize::try_from(self.replicas().await?)?;
        let addresses = self.pod_ips().await?;
        ensure!(
            addresses.len() == wanted,
            "{} of {wanted} pods have addresses",
            addresses.len()
        );
        let questions = addresses
            .iter()
            .map(|(pod, address)| async { status(connections.to(*address).await?, pod).await });
        let statuses = try_join_all(questions).await?;
        for status in &statuses {
            ensure!(!status.is_learner, "{} runs a learner", status.pod);
            ensure!(status.leader.is_some(), "{} knows no leader", status.pod);
            let agrees = statuses.iter().all(|s| s.leader == status.leader);
            ensure!(agrees, "members follow different leaders: {statuses:?}");
        }
        let reads = addresses
            .iter()
            .map(|(pod, address)| async { read(connections.to(*address).await?, pod).await });
        try_join_all(reads).await?;
        Ok(())
    }
}

async fn status(mut client: Client, pod: &str) -> Result<EndpointStatus> {
    let answer = tokio::time::timeout(PATIENCE, client.status())
        .await
        .with_context(|| format!("the member in {pod} does not answer"))?
        .with_context(|| format!("the member in {pod} gives no status"))?;
    let header = answer.header().context("a status without header")?;
    Ok(EndpointStatus {
        pod: pod.to_owned(),
        member_id: header.member_id(),
        cluster_id: header.cluster_id(),
        leader: Some(answer.leader()).filter(|leader| *leader != 0),
        raft_term: answer.raft_term(),
        applied_index: answer.raft_applied_index(),
        is_learner: answer.is_learner(),
        errors: answer.errors().to_vec(),
        db_size: answer.db_size(),
        version: answer.version().to_owned(),
    })
}

async fn read(mut client: Client, pod: &str) -> Result<()> {
    tokio::time::timeout(PATIENCE, client.get("testbed", None))
        .await
        .with_context(|| format!("the member in {pod} does not answer a read"))?
        .with_context(|| format!("the member in {pod} refuses a read"))?;
    Ok(())
}
