//! The members in etcd's list, and changes to them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use etcd_client::MemberAddOptions;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{EtcdCluster, objects};
use crate::eventually;

/// The time limit until etcd finds the members well enough connected for a change.
const HEALTHY: Duration = Duration::from_secs(30);

/// An entry of etcd's member list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The member's id.
    pub id: u64,
    /// The member's name. Empty before its first start.
    pub name: String,
    /// The URLs for other members.
    pub peer_urls: Vec<String>,
    /// The URLs for clients. Empty before its first start.
    pub client_urls: Vec<String>,
    /// Whether the member is a learner.
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
    /// The member list of a member that has a quorum.
    pub async fn members(&self) -> Result<Vec<Member>> {
        let list = self.connect().await?.member_list().await?;
        Ok(list.members().iter().map(Member::from).collect())
    }

    /// The member list of the member in this pod, with or without a quorum.
    pub async fn members_known_to(&self, pod: &str) -> Result<Vec<Member>> {
        let list = self.connect_to(pod).await?.member_list().await?;
        Ok(list.members().iter().map(Member::from).collect())
    }

    /// The member of a pod, found by its peer URL, since a member that never started has no name.
    pub async fn member(&self, pod: &str) -> Result<Member> {
        let url = self.spec.peer_url(&self.namespace, pod);
        let found = self
            .members()
            .await?
            .into_iter()
            .find(|m| m.peer_urls.contains(&url));
        found.with_context(|| format!("{pod} is not a member of {self:?}"))
    }

    /// Adds a member for a pod that does not exist yet (or whose volume is empty), as a learner.
    /// Call this before the pod starts: the pod reads from a ConfigMap that it has to join.
    pub async fn add_learner(&self, pod: &str) -> Result<Member> {
        self.add_member(pod, MemberAddOptions::new().with_is_learner())
            .await
    }

    /// Adds a member as [`EtcdCluster::add_learner`] does, but as a voter.
    pub async fn add_voter(&self, pod: &str) -> Result<Member> {
        self.add_member(pod, MemberAddOptions::new()).await
    }

    /// Promotes the learner in this pod. etcd refuses while the learner is not in sync.
    pub async fn promote(&self, pod: &str) -> Result<()> {
        let id = self.member(pod).await?.id;
        self.connect().await?.member_promote(id).await?;
        Ok(())
    }

    /// Removes the member of this pod from etcd; its process ends by itself.
    pub async fn remove(&self, pod: &str) -> Result<()> {
        let id = self.member(pod).await?.id;
        // etcd refuses the removal too, while it does not find enough members connected.
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
        // etcd refuses ("unhealthy cluster") until all members have been connected for five
        // seconds.
        let what = format!("{self:?} takes a member");
        let answer = eventually(HEALTHY, what, || async {
            let mut etcd = self.connect().await?;
            anyhow::Ok(etcd.member_add([&url], Some(options.clone())).await?)
        })
        .await?;
        let added = answer.member().context("etcd added no member")?;
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
        // The new member's pod has to get its member list, also while the API server restarts: etcd
        // adds no other member before this one has joined.
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
