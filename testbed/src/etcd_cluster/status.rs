//! What each member says of itself, and whether the cluster is quorate.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use etcd_client::Client;
use futures::future::{join_all, try_join_all};

use super::EtcdCluster;
use super::connections::Connections;
use crate::eventually;

/// How long one question to one member may take: a frozen one costs as much, a starved one still answers.
const PATIENCE: Duration = Duration::from_secs(3);

/// A member's answer to `Maintenance.Status`, with the pod that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStatus {
    /// The pod that was asked.
    pub pod: String,
    /// Its member's ID.
    pub member_id: u64,
    /// Its cluster's ID.
    pub cluster_id: u64,
    /// The leader it follows, or itself; `None` while it knows none.
    pub leader: Option<u64>,
    /// Its raft term.
    pub raft_term: u64,
    /// The last log entry it has applied.
    pub applied_index: u64,
    /// Whether it has no vote.
    pub is_learner: bool,
    /// Alarms of any member, and whatever else it complains about.
    pub errors: Vec<String>,
    /// Bytes of the database file.
    pub db_size: i64,
    /// Version of etcd.
    pub version: String,
}

impl EtcdCluster {
    /// Asks the member in one pod; works without quorum.
    pub async fn endpoint_status(&self, pod: &str) -> Result<EndpointStatus> {
        let address = self.pod_ip(pod).await?;
        status(self.dialer().await?.dial(address, PATIENCE).await?, pod).await
    }

    /// Asks all members at once; those that did not answer are missing.
    pub async fn statuses(&self) -> Result<Vec<EndpointStatus>> {
        let dialer = self.dialer().await?;
        let addresses = self.pod_ips().await?;
        let questions = addresses.iter().map(|(pod, address)| async {
            status(dialer.dial(*address, PATIENCE).await?, pod).await
        });
        Ok(join_all(questions).await.into_iter().flatten().collect())
    }

    /// The pod whose member the others follow.
    pub async fn leader(&self) -> Result<String> {
        let statuses = self.statuses().await?;
        let leads = |s: &&EndpointStatus| s.leader == Some(s.member_id);
        let leader = statuses.iter().filter(leads).max_by_key(|s| s.raft_term);
        Ok(leader
            .with_context(|| format!("{self:?} has no leader: {statuses:?}"))?
            .pod
            .clone())
    }

    /// The pods that run, without the leader's.
    pub async fn followers(&self) -> Result<Vec<String>> {
        let leader = self.leader().await?;
        Ok(self
            .pod_ips()
            .await?
            .into_keys()
            .filter(|pod| *pod != leader)
            .collect())
    }

    /// Waits until every pod that `spec.replicas` asks for runs a voter, all follow one leader, and each of them
    /// answers a linearizable read. Returns how long that took.
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
