//! Pods of members that somebody takes away from their StatefulSet, by a change of their metadata.
//!
//! The StatefulSet controller lets go of a pod that has lost the label it selects by, and tries in vain to make another of that name. A
//! pod that has only lost its owner it adopts again. One that is deleted without an owner is nothing that it hears of.
//!
//! While it tries in vain it makes no other pod either. So where another one is missing, and the others do not make a majority without this one,
//! only its labels help: nobody lets it go, and nobody makes the one that is missing.

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

/// How long until the StatefulSet has a pod of that name again, whatever else happens.
const DONE: Duration = Duration::from_secs(900);
/// How long somebody asks for the pod before its labels are given back all the same.
const ASKED: Duration = Duration::from_secs(45);
/// The pause between two looks.
const AGAIN: Duration = Duration::from_secs(1);

/// What the pod loses.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lost {
    /// The label that its StatefulSet selects by.
    Label,
    Owner,
    Labels,
}

/// What happens to the pod then.
#[derive(Debug, Clone)]
pub(super) struct Afterwards {
    /// Who asks at once for it and for this neighbour.
    pub(super) asked: Option<(By, String)>,
    pub(super) length: Duration,
    /// How it ends, unless somebody was quicker.
    pub(super) end: End,
}

/// How a pod without its StatefulSet comes to an end.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// Its labels are given back.
    GivenBack,
    /// Somebody asks until it may go, unless that takes too long.
    Gone(By),
}

/// Takes the pod away from its StatefulSet, and sees to it that there is one again.
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
            // Whatever the answers are.
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

/// A pod as it was before.
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

    /// The next step on the way back. Each begins with a look, since everybody else goes on, too.
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
        // It may have got more meanwhile, such as where it runs.
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

    /// The StatefulSet's controller tries ever less often while the name is taken, and does not see the end of a pod that is not its own: it
    /// has to be told to look.
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
