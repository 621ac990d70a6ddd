//! What may happen.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use kube::api::{DeleteParams, ListParams};
use quorumgate_testbed::faults::PodFaults;
use tokio::time::sleep;

use super::stage::Stage;
use crate::asking::By;

/// One of it.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Ask(By, String),
    Force(String),
    DeleteAll,
    Drain(String),
    ChangeTemplate(usize),
    Kill(String),
    Freeze(String, Duration),
    CutOff(String, Duration),
    KillGate(usize, Duration),
    FreezeGate(usize, Duration),
    RotateCertificate,
}

impl Operation {
    /// The next one. Most ask for members to go; a fault is over after some seconds.
    pub(super) fn choose(chance: &mut Rng, stage: &Stage, number: usize) -> Self {
        let world = &stage.world;
        let members = world.etcd.pod_names();
        let member = members.get(chance.usize(..members.len())).cloned();
        let member = member.unwrap_or_default();
        let nodes = world.sandbox.nodes();
        let node = nodes.get(chance.usize(..nodes.len()));
        let node = node.map(|node| node.name().to_owned()).unwrap_or_default();
        let replica = chance.usize(..stage.replicas.len());
        let length = Duration::from_millis(chance.u64(200..4000));
        match chance.u32(..100) {
            0..25 => Self::Ask(By::Delete, member),
            25..50 => Self::Ask(By::Eviction, member),
            50..54 => Self::Force(member),
            54..58 => Self::DeleteAll,
            58..63 => Self::Drain(node),
            63..68 => Self::ChangeTemplate(number),
            68..76 => Self::Kill(member),
            76..83 => Self::Freeze(member, length),
            83..90 => Self::CutOff(member, length),
            90..94 => Self::KillGate(replica, length),
            94..98 => Self::FreezeGate(replica, length),
            _ => Self::RotateCertificate,
        }
    }

    /// The member that is broken by it.
    pub(super) fn breaks(&self) -> Option<&str> {
        match self {
            Self::Kill(member) | Self::Freeze(member, _) | Self::CutOff(member, _) => Some(member),
            Self::Ask(..)
            | Self::Force(_)
            | Self::DeleteAll
            | Self::Drain(_)
            | Self::ChangeTemplate(_)
            | Self::KillGate(..)
            | Self::FreezeGate(..)
            | Self::RotateCertificate => None,
        }
    }

    pub(super) async fn perform(self, stage: &Stage) -> Result<()> {
        let world = &stage.world;
        let faults = async |member: &str| PodFaults::of(&world.sandbox, member).await;
        match self {
            Self::Ask(by, member) => Ok(world.ask(by, &member).await?),
            Self::Force(member) => Ok(world.force(&member).await?),
            Self::DeleteAll => {
                let (how, which) = (DeleteParams::default(), ListParams::default());
                world.pods().delete_collection(&how, &which).await?;
                Ok(())
            }
            Self::Drain(node) => {
                let drain = [
                    "drain",
                    &node,
                    "--ignore-daemonsets",
                    "--delete-emptydir-data",
                ];
                let drained = world
                    .kubectl(&[&drain[..], &["--timeout=20s"]].concat())
                    .await;
                world.kubectl(&["uncordon", &node]).await?.success()?;
                drained?.success().map(drop)
            }
            Self::ChangeTemplate(number) => Ok(world
                .etcd
                .change_template(&format!("chaos-{number}"))
                .await?),
            Self::Kill(member) => faults(&member).await?.kill(),
            Self::Freeze(member, length) => {
                let frozen = faults(&member).await?.freeze()?;
                sleep(length).await;
                frozen.thaw();
                Ok(())
            }
            Self::CutOff(member, length) => {
                let cut = faults(&member).await?.partition()?;
                sleep(length).await;
                cut.heal();
                Ok(())
            }
            Self::KillGate(replica, length) => kill_gate(stage, replica, length).await,
            Self::FreezeGate(replica, length) => freeze_gate(stage, replica, length).await,
            Self::RotateCertificate => world.gate.rotate_certificate(),
        }
    }
}

async fn kill_gate(stage: &Stage, replica: usize, length: Duration) -> Result<()> {
    let Some(turn) = stage.replicas.get(replica) else {
        return Ok(());
    };
    let _turn = turn.lock().await;
    let replica = stage.world.gate.replica(replica);
    replica.kill().await?;
    sleep(length).await;
    replica.restart().await
}

async fn freeze_gate(stage: &Stage, replica: usize, length: Duration) -> Result<()> {
    let Some(turn) = stage.replicas.get(replica) else {
        return Ok(());
    };
    let _turn = turn.lock().await;
    let replica = stage.world.gate.replica(replica);
    replica.freeze()?;
    sleep(length).await;
    replica.thaw()
}
