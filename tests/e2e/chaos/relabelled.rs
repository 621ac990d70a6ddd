//! Pods of members that lose their StatefulSet by a change of their metadata.
//!
//! The StatefulSet controller releases a pod that lost the label it selects by, and tries in vain
//! to create another pod of that name. It adopts a pod again that lost only its owner. It gets no
//! event for the deletion of a pod without an owner.
//!
//! While it tries in vain it creates no other pod either. If another pod is missing then, and the
//! other members make no majority without this one, only the labels help: the gate refuses every
//! delete of this pod, and no controller creates the missing one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use super::stage::{Cluster, Stage};
use super::timeline::Nobody;
use crate::asking::By;

/// The time limit until the StatefulSet has a pod of that name again.
const DONE: Duration = Duration::from_secs(900);
/// The time for which deletes of the pod are tried before its labels are restored.
const ASKED: Duration = Duration::from_secs(45);
/// The pause between two looks.
const AGAIN: Duration = Duration::from_secs(1);

/// The metadata that the pod loses.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lost {
    /// The label that its StatefulSet selects by.
    Label,
    Owner,
    Labels,
}

/// The events after the pod lost its StatefulSet.
#[derive(Debug, Clone)]
pub(super) struct Afterwards {
    /// A request for this pod and for this neighbour, made at once.
    pub(super) asked: Option<(By, String)>,
    pub(super) length: Duration,
    /// The end of this state, unless another operation ends it first.
    pub(super) end: End,
}

/// The way in which a pod without its StatefulSet ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// The labels are restored.
    GivenBack,
    /// A client asks until the pod may go. After [`ASKED`] the labels are restored.
    Gone(By),
}

/// Takes the pod away from its StatefulSet, and makes sure that the StatefulSet has a pod of that
/// name in the end.
pub(super) async fn go(
    stage: &Stage,
    cluster: usize,
    member: &str,
    lost: Lost,
    afterwards: Afterwards,
) -> Result<()> {
    let cluster = stage.cluster(cluster)?;
    let pod = cluster.etcd.pod(member).await;
    let pod = pod.map_err(|error| Nobody(format!("{error:#}")))?;
    let astray = Astray {
        stage,
        cluster,
        uid: pod.uid().unwrap_or_default(),
        labels: pod.labels().clone(),
        name: member,
    };
    {
        let _unrest = cluster.unrest.read().await;
        let lost = astray.lose(lost).await;
        lost.map_err(|error| Nobody(error.to_string()))?;
        if let Some((by, neighbour)) = &afterwards.asked {
            // Any answer will do.
            let (first, second) = tokio::join!(
                stage.world.ask_for_this(*by, member, &astray.uid),
                stage.world.ask(*by, neighbour)
            );
            tracing::debug!(?first, ?second, "asked for {member} and {neighbour}");
        }
    }
    sleep(afterwards.length).await;
    let begun = Instant::now();
    loop {
        let end = match afterwards.end {
            End::Gone(_) if begun.elapsed() > ASKED => End::GivenBack,
            end => end,
        };
        match astray.step(end).await {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > DONE => return Err(error),
            Err(_) => sleep(AGAIN).await,
        }
    }
}

/// A pod with its metadata from before.
struct Astray<'a> {
    stage: &'a Stage,
    cluster: &'a Cluster,
    name: &'a str,
    uid: String,
    labels: BTreeMap<String, String>,
}

impl Astray<'_> {
    async fn lose(&self, lost: Lost) -> Result<(), kube::Error> {
        let metadata = match lost {
            Lost::Label => json!({"uid": self.uid, "labels": {"app": null}}),
            Lost::Owner => json!({"uid": self.uid, "ownerReferences": null}),
            Lost::Labels => json!({"uid": self.uid, "labels": null}),
        };
        self.patch(metadata).await
    }

    /// Takes the next step on the way back. Each step begins with a read, since other operations go
    /// on.
    async fn step(&self, end: End) -> Result<()> {
        match self.stage.world.pods().get_opt(self.name).await? {
            None => self.make_another().await,
            Some(pod) if pod.uid().as_deref() != Some(&self.uid) => Ok(()),
            Some(pod) if self.is_back(&pod) => Ok(()),
            Some(pod) if pod.metadata.deletion_timestamp.is_some() => bail!("it is on its way out"),
            Some(_) => {
                self.end(end).await?;
                self.look_again().await?;
                bail!("it is not its StatefulSet's")
            }
        }
    }

    fn is_back(&self, pod: &Pod) -> bool {
        let mut owners = pod.owner_references().iter();
        let set = self.cluster.etcd.name();
        let owned = owners.any(|owner| owner.controller == Some(true) && owner.name == set);
        // The pod may have got more labels meanwhile, such as those of its node's topology.
        let mut labels = self.labels.iter();
        owned && labels.all(|(key, value)| pod.labels().get(key) == Some(value))
    }

    async fn end(&self, end: End) -> Result<()> {
        match end {
            End::GivenBack => {
                self.patch(json!({"uid": self.uid, "labels": self.labels}))
                    .await?;
            }
            End::Gone(by) => {
                let _unrest = self.cluster.unrest.read().await;
                let world = &self.stage.world;
                world.ask_for_this(by, self.name, &self.uid).await?;
            }
        }
        Ok(())
    }

    async fn make_another(&self) -> Result<()> {
        let set = self.look_again().await?;
        let wanted = set.spec.and_then(|spec| spec.replicas).unwrap_or_default();
        let ordinal = self
            .name
            .rsplit_once('-')
            .map(|(_, ordinal)| ordinal.parse());
        let beyond = ordinal.is_some_and(|ordinal| ordinal.is_ok_and(|n: i32| n >= wanted));
        ensure!(beyond, "there is none");
        Ok(())
    }

    /// Triggers the StatefulSet controller by a change. The controller tries less and less often
    /// while the name is taken, and gets no event for the end of a pod that it does not own.
    async fn look_again(&self) -> Result<StatefulSet> {
        let sets = self.cluster.etcd.stateful_set_api();
        let look = json!({"testbed.quorumgate.io/look": Timestamp::now().to_string()});
        let patch = json!({"metadata": {"annotations": look}});
        let name = self.cluster.etcd.name();
        let patch = Patch::Merge(patch);
        Ok(sets.patch(name, &PatchParams::default(), &patch).await?)
    }

    async fn patch(&self, metadata: serde_json::Value) -> Result<(), kube::Error> {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let pods = self.stage.world.pods();
        pods.patch(self.name, &PatchParams::default(), &patch)
            .await
            .map(drop)
    }
}
