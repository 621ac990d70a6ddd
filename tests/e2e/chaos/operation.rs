//! The operations of a run.

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams};
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::PodFaults;
use tokio::sync::RwLockReadGuard;
use tokio::time::sleep;

use super::hung::Hang;
use super::relabelled::{Afterwards, Lost};
use super::stage::{Cluster, Stage};
use super::strangers::Stranger;
use super::{clients, data, drains, gates, guards, hung, power, relabelled, sizes, strangers};
use crate::asking::By;

/// The time limit until the API server is back, on a busy machine.
const BACK: Duration = Duration::from_secs(600);

/// An operation. Clusters and replicas of the gate are given by their number, members and nodes by
/// name.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Ask(usize, By, String),
    AskUntilItGoes(usize, By, String),
    Force(usize, String),
    DeleteAll(usize),
    ChangeTemplate(usize, usize),
    Kill(usize, String),
    Freeze(usize, String, Duration),
    CutOff(usize, String, Duration),
    Relabel(usize, String, Lost, Afterwards),
    Hang(usize, usize, String, Hang),
    Scale(usize, u32),
    AskForMembers(usize, u32),
    LoseVolume(usize, String),
    Swap(usize, [String; 2], Duration),
    Estrange(usize, String, Duration),
    DeleteClaim(usize, String),
    DeleteBudget(usize),
    MoveOrdinals(usize),
    Refuse(usize, Vec<String>, Duration),
    Replace(usize, String),
    Defragment(usize, String),
    Rotate(Certificates),
    Drain(String),
    DrainUntilDone(String),
    PowerOff(String, Duration),
    LoseNode(String),
    PowerOffWithGates(String, Vec<usize>, Duration),
    KillGate(usize, Duration),
    FreezeGate(usize, Duration),
    SetClock(usize, i64, Duration),
    Besiege(usize, Stranger, usize, Duration),
    RestartApiServer,
}

/// The certificates that an operation renews.
#[derive(Debug, Clone, Copy)]
pub(super) enum Certificates {
    /// The server and peer certificates of this cluster's members.
    Members(usize),
    /// The gate's client certificate for this cluster.
    Client(usize),
    /// The gate's certificate for API servers.
    Gate,
}

/// The member or node that does not serve for another reason than a permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Broken {
    Nobody,
    Member(String),
    Node(String),
}

impl Operation {
    pub(super) fn breaks(&self) -> Broken {
        match self {
            Self::Kill(_, member) | Self::Freeze(_, member, _) | Self::CutOff(_, member, _) => {
                Broken::Member(member.clone())
            }
            Self::PowerOff(node, _) | Self::LoseNode(node) => Broken::Node(node.clone()),
            // Operations that break a member later report that by `Stage::was_broken`.
            _ => Broken::Nobody,
        }
    }

    /// Whether the operation has to succeed in the end.
    pub(super) fn must_come_about(&self) -> bool {
        matches!(
            self,
            Self::DrainUntilDone(_)
                | Self::Scale(..)
                | Self::AskForMembers(..)
                | Self::LoseVolume(..)
                | Self::Swap(..)
                | Self::Estrange(..)
                | Self::DeleteClaim(..)
                | Self::DeleteBudget(_)
                | Self::MoveOrdinals(_)
                | Self::Replace(..)
                | Self::PowerOff(..)
                | Self::LoseNode(_)
                | Self::PowerOffWithGates(..)
                | Self::Relabel(..)
                | Self::Besiege(..)
                | Self::KillGate(..)
                | Self::RestartApiServer
        )
    }

    pub(super) async fn perform(self, stage: &Stage) -> Result<()> {
        match self {
            Self::Drain(node) => drains::once(stage, &node).await,
            Self::DrainUntilDone(node) => drains::until_done(stage, &node).await,
            Self::PowerOff(node, length) => power::off(stage, &node, length).await,
            Self::LoseNode(node) => power::lost(stage, &node).await,
            Self::PowerOffWithGates(node, replicas, length) => {
                power::off_with_gates(stage, &node, &replicas, length).await
            }
            Self::KillGate(replica, length) => gates::kill(stage, replica, length).await,
            Self::FreezeGate(replica, length) => gates::freeze(stage, replica, length).await,
            Self::SetClock(replica, seconds, length) => {
                gates::set_clock(stage, replica, seconds, length).await
            }
            Self::Besiege(replica, stranger, count, length) => {
                strangers::besiege(stage, replica, stranger, count, length).await
            }
            Self::RestartApiServer => restart_api_server(stage).await,
            Self::Rotate(certificates) => rotate(stage, certificates).await,
            Self::Relabel(cluster, member, lost, afterwards) => {
                relabelled::go(stage, cluster, &member, lost, afterwards).await
            }
            Self::Hang(cluster, number, member, hang) => {
                change_template(stage, cluster, number).await?;
                hung::during_a_rollout(stage, cluster, &member, hang).await
            }
            Self::Scale(cluster, members) => sizes::reach(stage, cluster, members).await,
            Self::AskForMembers(cluster, members) => sizes::ask_for(stage, cluster, members).await,
            Self::LoseVolume(cluster, member) => data::lose(stage, cluster, &member).await,
            Self::Swap(cluster, [one, other], length) => {
                data::swap(stage, cluster, [&one, &other], length).await
            }
            Self::Estrange(cluster, member, length) => {
                data::estrange(stage, cluster, &member, length).await
            }
            Self::DeleteClaim(cluster, member) => {
                guards::delete_claim(stage, cluster, &member).await
            }
            Self::DeleteBudget(cluster) => guards::delete_budget(stage, cluster).await,
            Self::MoveOrdinals(cluster) => guards::move_ordinals(stage, cluster).await,
            Self::Refuse(cluster, members, length) => {
                refuse(stage, cluster, &members, length).await
            }
            Self::Replace(cluster, member) => data::replace(stage, cluster, &member).await,
            Self::Defragment(cluster, member) => data::defragment(stage, cluster, &member).await,
            Self::AskUntilItGoes(cluster, by, member) => {
                clients::ask_until_it_goes(stage, cluster, by, &member).await
            }
            Self::Ask(cluster, by, member) => {
                let _unrest = unrest(stage, cluster).await?;
                Ok(stage.world.ask(by, &member).await?)
            }
            Self::Force(cluster, member) => {
                let _unrest = unrest(stage, cluster).await?;
                Ok(stage.world.force(&member).await?)
            }
            Self::DeleteAll(cluster) => delete_all(stage, cluster).await,
            Self::ChangeTemplate(cluster, number) => change_template(stage, cluster, number).await,
            Self::Kill(cluster, member) => {
                let _unrest = unrest(stage, cluster).await?;
                faults(stage, &member).await?.kill()
            }
            Self::Freeze(cluster, member, length) => {
                let _unrest = unrest(stage, cluster).await?;
                let frozen = faults(stage, &member).await?.freeze()?;
                sleep(length).await;
                frozen.thaw();
                Ok(())
            }
            Self::CutOff(cluster, member, length) => {
                let _unrest = unrest(stage, cluster).await?;
                let cut = faults(stage, &member).await?.partition()?;
                sleep(length).await;
                cut.heal();
                Ok(())
            }
        }
    }
}

impl Stage {
    pub(super) fn cluster(&self, number: usize) -> Result<&Cluster> {
        self.clusters.get(number).context("no such cluster")
    }
}

async fn change_template(stage: &Stage, cluster: usize, number: usize) -> Result<()> {
    let marker = format!("chaos-{number}-{}", Timestamp::now());
    let etcd = &stage.cluster(cluster)?.etcd;
    Ok(etcd.change_template(&marker).await?)
}

async fn unrest(stage: &Stage, cluster: usize) -> Result<RwLockReadGuard<'_, ()>> {
    Ok(stage.cluster(cluster)?.unrest.read().await)
}

async fn faults(stage: &Stage, member: &str) -> Result<PodFaults> {
    PodFaults::find(&stage.world.sandbox, member).await
}

/// Refuses all clients of these members for a while, as a network policy that rejects. The members
/// serve each other.
async fn refuse(stage: &Stage, cluster: usize, members: &[String], length: Duration) -> Result<()> {
    let _unrest = unrest(stage, cluster).await?;
    let since = Timestamp::now();
    let mut cuts = Vec::new();
    for member in members {
        cuts.push(faults(stage, member).await?.refuse_clients()?);
    }
    sleep(length).await;
    drop(cuts);
    for member in members {
        stage.was_broken(Broken::Member(member.clone()), since);
    }
    Ok(())
}

async fn restart_api_server(stage: &Stage) -> Result<()> {
    let _turn = stage.api_server.lock().await;
    let bed = stage.world.bed();
    if bed.restart_api_server().await.is_ok() {
        return Ok(());
    }
    // A busy machine may need longer than the test bed waits.
    let plane = bed.control_plane();
    eventually(BACK, "the control plane is back", || plane.up()).await
}

async fn delete_all(stage: &Stage, cluster: usize) -> Result<()> {
    let _unrest = unrest(stage, cluster).await?;
    let name = stage.cluster(cluster)?.etcd.name();
    let which = ListParams::default().labels(&format!("app={name}"));
    let how = DeleteParams::default();
    stage.world.pods().delete_collection(&how, &which).await?;
    Ok(())
}

async fn rotate(stage: &Stage, certificates: Certificates) -> Result<()> {
    match certificates {
        Certificates::Members(cluster) => {
            let cluster = stage.cluster(cluster)?;
            cluster.etcd.rotate_member_certificates().await
        }
        Certificates::Client(cluster) => {
            let cluster = stage.cluster(cluster)?;
            cluster.etcd.rotate_client_certificate().await
        }
        Certificates::Gate => stage.world.gate.rotate_certificate(),
    }
}
