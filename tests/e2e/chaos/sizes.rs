//! Clusters that grow and shrink as an operator makes them, or as the gate does. A member joins as
//! a learner and is promoted before the next one is added. A member is removed from etcd before its
//! pod goes.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::DeleteParams;
use quorumgate_testbed::etcd_cluster::Member;
use quorumgate_testbed::eventually;
use tokio::time::sleep;

use super::data;
use super::stage::{Cluster, Stage};

/// The time limit for a change of the size.
const DONE: Duration = Duration::from_secs(900);
/// The time limit until a pod and its claim are gone.
const GONE: Duration = Duration::from_secs(60);
/// The time limit until a learner is promoted; then it is removed. A learner that got an
/// outdated member list from a peer may have taken the name of a removed member. Its data keeps
/// that name (seen with etcd 3.5).
const JOINED: Duration = Duration::from_secs(120);
/// The pause before the next step is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// Brings the cluster to this number of members.
pub(super) async fn reach(stage: &Stage, cluster: usize, members: u32) -> Result<()> {
    let cluster = stage.cluster(cluster)?;
    let _turn = cluster.size.lock().await;
    // Whoever removes a member in order to scale in is not to have it added again.
    data::set_mode(stage, &cluster.etcd, "Manual").await?;
    let reached = go(stage, cluster, members).await;
    data::set_mode(stage, &cluster.etcd, "Auto").await?;
    reached
}

/// Asks the gate for this number of members, and deletes the claims of earlier ones that it names.
pub(super) async fn ask_for(stage: &Stage, cluster: usize, members: u32) -> Result<()> {
    let cluster = stage.cluster(cluster)?;
    let _turn = cluster.size.lock().await;
    data::set_count(stage, &cluster.etcd, Some(members)).await?;
    let change = Change::new(stage, cluster, members);
    let what = format!("{} has {members} members", cluster.etcd.name());
    let reached = eventually(DONE, what, || change.is_made()).await;
    data::set_count(stage, &cluster.etcd, None).await?;
    reached
}

async fn go(stage: &Stage, cluster: &Cluster, members: u32) -> Result<()> {
    let mut change = Change::new(stage, cluster, members);
    let begun = Instant::now();
    loop {
        match change.step().await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) if begun.elapsed() > DONE => return Err(error),
            Err(_) => sleep(AGAIN).await,
        }
    }
}

/// A change of the size. Each step begins with a read, so that an interrupted step does no harm.
struct Change<'a> {
    stage: &'a Stage,
    cluster: &'a Cluster,
    members: u32,
    /// The pod that got the list of members it is to join.
    told: Option<String>,
    /// The learner that is joining, and since when.
    joining: Option<(u64, Instant)>,
}

impl<'a> Change<'a> {
    fn new(stage: &'a Stage, cluster: &'a Cluster, members: u32) -> Self {
        Self {
            stage,
            cluster,
            members,
            told: None,
            joining: None,
        }
    }

    /// Whether the gate has made the change. A claim that holds it up is deleted.
    async fn is_made(&self) -> Result<()> {
        let etcd = &self.cluster.etcd;
        let list = etcd.members().await?;
        let voters = list.iter().filter(|member| !member.is_learner).count();
        let replicas = u32::try_from(etcd.replicas().await?)?;
        let is_made = list.len() == voters && u32::try_from(voters)? == self.members;
        if is_made && replicas == self.members {
            return Ok(());
        }
        let said = self.scaled().await?;
        if said.as_ref().is_some_and(|said| said.reason == "ClaimLeft") {
            self.forget(&self.pod(replicas)).await?;
        }
        bail!(
            "{voters} voters of {}, {replicas} replicas: {said:?}",
            list.len()
        )
    }

    /// The word of the gate on the number of members.
    async fn scaled(&self) -> Result<Option<Condition>> {
        let budgets = self.stage.world.budgets();
        let budget = budgets.get(self.cluster.etcd.name()).await?;
        let conditions = budget.status.map(|status| status.conditions);
        let mut conditions = conditions.unwrap_or_default().into_iter();
        Ok(conditions.find(|condition| condition.type_ == "Scaled"))
    }

    /// Takes the next step. Returns whether none was left.
    async fn step(&mut self) -> Result<bool> {
        let etcd = &self.cluster.etcd;
        let list = etcd.members().await?;
        let listed = u32::try_from(list.len())?;
        let replicas = u32::try_from(etcd.replicas().await?)?;
        if let Some(learner) = list.iter().find(|member| member.is_learner) {
            self.bring_in(learner, listed, replicas).await?;
        } else if replicas > listed {
            self.let_go(listed, replicas).await?;
        } else if listed < self.members {
            self.add(listed).await?;
        } else if listed > self.members {
            etcd.remove(&self.pod(listed - 1)).await?;
        } else {
            return Ok(true);
        }
        Ok(false)
    }

    /// Adds a member, whose pod starts without old data.
    async fn add(&mut self, ordinal: u32) -> Result<()> {
        let pod = self.pod(ordinal);
        self.forget(&pod).await?;
        let _calm = self.cluster.unrest.write().await;
        self.cluster.etcd.add_learner(&pod).await?;
        self.told = Some(pod);
        Ok(())
    }

    async fn bring_in(&mut self, learner: &Member, listed: u32, replicas: u32) -> Result<()> {
        let etcd = &self.cluster.etcd;
        let pod = self.pod(listed - 1);
        // If the answer to the addition was lost, the list of members for the pod was lost with it.
        let unknown = learner.name.is_empty() && self.told.as_ref() != Some(&pod);
        if unknown || self.is_stuck(learner) {
            return etcd.remove(&pod).await;
        }
        if replicas < listed {
            etcd.scale(listed).await?;
        }
        // etcd refuses to promote a learner that is not in sync.
        etcd.promote(&pod).await
    }

    fn is_stuck(&mut self, learner: &Member) -> bool {
        match self.joining {
            Some((id, since)) if id == learner.id => since.elapsed() > JOINED,
            Some(_) | None => {
                self.joining = Some((learner.id, Instant::now()));
                false
            }
        }
    }

    /// Removes the pods of members that etcd does not list any more.
    async fn let_go(&self, listed: u32, replicas: u32) -> Result<()> {
        self.cluster.etcd.scale(listed).await?;
        for ordinal in listed..replicas {
            self.forget(&self.pod(ordinal)).await?;
        }
        Ok(())
    }

    /// Deletes the claim of a pod that is not to return.
    async fn forget(&self, pod: &str) -> Result<()> {
        let claims: Api<PersistentVolumeClaim> = self.stage.world.sandbox.api();
        let claim = format!("data-{pod}");
        eventually(GONE, format!("{claim} is gone"), || async {
            match claims.delete(&claim, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                Err(error) => Err(error.into()),
                Ok(_) => bail!("it is still there"),
            }
        })
        .await
    }

    fn pod(&self, ordinal: u32) -> String {
        format!("{}-{ordinal}", self.cluster.etcd.name())
    }
}
