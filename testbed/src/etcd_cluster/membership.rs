//! Members as etcd lists them, and changes to them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use etcd_client::MemberAddOptions;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{EtcdCluster, objects};
use crate::eventually;

/// How long etcd may take to find all members well enough connected for a change.
const HEALTHY: Duration = Duration::from_secs(30);

/// An entry of etcd's member list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its ID.
    pub id: u64,
    /// Its name; empty until it has started for the first time.
    pub name: String,
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it; none until it has started.
    pub client_urls: Vec<String>,
    /// Whether it has no vote.
    pub is_learner: bool,
}

impl From<&etcd_client::Member> for Member {
    fn from(member: &etcd_client::Member) -> Self {
        Self {
            id: member.id(),
            name: member.name().to_owned(),
            peer_urls: member.peer_urls().to_vec(),
            client_urls: member.client_urls().to_vec(),
            is_learner: member.is_learner(),
        }
    }
}

impl EtcdCluster {
    /// The members, from one that has quorum.
    pub async fn members(&self) -> Result<Vec<Member>> {
        let list = self.connect().await?.member_list().await?;
        Ok(list.members().iter().map(Member::from).collect())
    }

    /// The members as the one in this pod knows them, with or without quorum.
    pub async fn members_known_to(&self, pod: &str) -> Result<Vec<Member>> {
        let list = self.connect_to(pod).await?.member_list().await?;
        Ok(list.members().iter().map(Member::from).collect())
    }

    /// The member of a pod, found by its peer URL: one that never started has no name.
    pub async fn member(&self, pod: &str) -> Result<Member> {
        let url = self.spec.peer_url(&self.namespace, pod);
        let found = self
            .members()
            .await?
            .into_iter()
            .find(|m| m.peer_urls.contains(&url));
        found.with_context(|| format!("{pod} is not a member of {self:?}"))
    }

    /// Adds the member of a pod that is still to come (or whose volume is empty) as a learner. Call it before the pod
    /// starts: the pod learns from it that it has to join.
    pub async fn add_learner(&self, pod: &str) -> Result<Member> {
        self.add_member(pod, MemberAddOptions::new().with_is_learner())
            .await
    }

    /// Like [`EtcdCluster::add_learner`], but with a vote at once.
    pub async fn add_voter(&self, pod: &str) -> Result<Member> {
        self.add_member(pod, MemberAddOptions::new()).await
    }

    /// Gives the learner in this pod a vote. etcd refuses while it is not in sync.
    pub async fn promote(&self, pod: &str) -> Result<()> {
        let id = self.member(pod).await?.id;
        self.connect().await?.member_promote(id).await?;
        Ok(())
    }

    /// Removes the member of this pod from etcd; its process ends by itself.
    pub async fn remove(&self, pod: &str) -> Result<()> {
        let id = self.member(pod).await?.id;
        // etcd refuses this, too, while it does not find enough members connected.
        let what = format!("{self:?} lets the member in {pod} go");
        eventually(HEALTHY, what, || async {
            self.connect().await?.member_remove(id).await?;
            anyhow::Ok(())
        })
        .await
    }

    /// Makes the member in this pod the leader.
    pub async fn move_leader(&self, pod: &str) -> Result<()> {
        let target = self.member(pod).await?.id;
        self.connect_to(&self.leader().await?)
            .await?
            .move_leader(target)
            .await?;
        Ok(())
    }

    async fn add_member(&self, pod: &str, options: MemberAddOptions) -> Result<Member> {
        let url = self.spec.peer_url(&self.namespace, pod);
        // etcd refuses ("unhealthy cluster") until all members have been connected for five seconds.
        let what = format!("{self:?} takes a member");
        let answer = eventually(HEALTHY, what, || async {
            let mut etcd = self.connect().await?;
            anyhow::Ok(etcd.member_add([&url], Some(options.clone())).await?)
        })
        .await?;
        let added = answer.member().context("etcd added nobody")?;
        let entries: Vec<_> = answer
            .member_list()
            .iter()
            .filter_map(|member| {
                let is_new = member.id() == added.id();
                let name = if is_new {
                    self.spec.member_name(pod)
                } else {
                    member.name().to_owned()
                };
                Some(format!("{name}={}", member.peer_urls().first()?))
            })
            .collect();
        // Whatever is added has to be told, also while the API server restarts: etcd takes nobody else before this one has joined.
        let what = format!("{pod} is told to join");
        let cluster = entries.join(",");
        eventually(HEALTHY, what, || self.tell_to_join(pod, &cluster)).await?;
        Ok(Member::from(added))
    }

    async fn tell_to_join(&self, pod: &str, initial_cluster: &str) -> Result<()> {
        let config_maps = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        let patch = json!({"data": {pod: format!("{initial_cluster}\n")}});
        let name = objects::join_config_name(&self.spec);
        config_maps
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }
}
