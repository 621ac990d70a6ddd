//! Members that lose their volumes or run on each other's data, that are replaced because somebody
//! asks for it, and whose databases others defragment.
//!
//! A member is replaced in a cluster of three only: the template names three members, and etcd
//! starts nobody who does not know all others by name.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{Patch, PatchParams};
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::{PodFaults, swap_data};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::chance::SIZES;
use super::operation::Broken;
use super::stage::{Cluster, Stage};
use super::timeline::{Nobody, Replaced};
use crate::replacement;

/// The time limit for a replacement. It waits until all other members serve and nothing else is
/// permitted, so while other operations go on it may begin again and again.
const DONE: Duration = Duration::from_secs(900);
/// The time limit until a request to the API server succeeds, which may be away.
const SAID: Duration = Duration::from_secs(120);

/// Destroys the volume of a member. The gate replaces the member.
pub(super) async fn lose(stage: &Stage, cluster: usize, member: &str) -> Result<()> {
    let cluster = stage.cluster(cluster)?;
    let _turn = cluster.size.lock().await;
    let id = known(stage, cluster, member)
        .await
        .map_err(|why| nobody(&why))?;
    let volume = volume(stage, member).await.map_err(|why| nobody(&why))?;
    let since = Timestamp::now();
    {
        let _unrest = cluster.unrest.read().await;
        // A member that does not run just now loses its volume all the same.
        let destroyed = replacement::destroy(&stage.world, member, &volume).await;
        tracing::debug!(?destroyed, "{member} has lost {volume}");
        eventually(SAID, format!("{volume} is gone"), || {
            is_gone(stage, &volume)
        })
        .await?;
    }
    let replaced = replaced(stage, cluster, member, id).await;
    stage.was_broken(Broken::Member(member.to_owned()), since);
    stage.was_replaced(member, since, Replaced::Lost);
    replaced
}

/// Asks the gate to replace a member, which may serve.
pub(super) async fn replace(stage: &Stage, cluster: usize, member: &str) -> Result<()> {
    let cluster = stage.cluster(cluster)?;
    let _turn = cluster.size.lock().await;
    let id = known(stage, cluster, member)
        .await
        .map_err(|why| nobody(&why))?;
    let since = Timestamp::now();
    let asked = json!({"metadata": {"annotations": {"quorumgate.io/replace": format!("{id:x}")}}});
    patch(stage, &cluster.etcd, &asked).await?;
    let replaced = replaced(stage, cluster, member, id).await;
    stage.was_replaced(member, since, Replaced::Asked);
    replaced
}

/// Lets two members run on each other's data for a while. The gate may permit nothing because of
/// that which it would not permit otherwise, and both members come back with what they had.
pub(super) async fn swap(
    stage: &Stage,
    cluster: usize,
    members: [&str; 2],
    length: Duration,
) -> Result<()> {
    let cluster = stage.cluster(cluster)?;
    // Neither member is replaced meanwhile, so that each has the same volume at the end.
    let _turn = cluster.size.lock().await;
    let since = Timestamp::now();
    exchange(stage, members).await.map_err(|why| nobody(&why))?;
    sleep(length).await;
    let again = eventually(DONE, format!("{members:?} have their own data"), || {
        exchange(stage, members)
    })
    .await;
    for member in members {
        stage.was_broken(Broken::Member(member.to_owned()), since);
    }
    again
}

/// Exchanges the data of two members that run.
async fn exchange(stage: &Stage, members: [&str; 2]) -> Result<()> {
    let [one, other] = members;
    let faults = [
        PodFaults::find(&stage.world.sandbox, one).await?,
        PodFaults::find(&stage.world.sandbox, other).await?,
    ];
    let volumes = [directory(stage, one).await?, directory(stage, other).await?];
    swap_data(&faults.each_ref(), volumes.each_ref().map(PathBuf::as_path))
}

/// Lets a member run on the data of a cluster of its own for a while. It answers as the leader of
/// one voter.
pub(super) async fn estrange(
    stage: &Stage,
    cluster: usize,
    member: &str,
    length: Duration,
) -> Result<()> {
    let cluster = stage.cluster(cluster)?;
    let _turn = cluster.size.lock().await;
    let since = Timestamp::now();
    let volume = directory(stage, member).await.map_err(|why| nobody(&why))?;
    let others = tempfile::tempdir_in(volume.parent().context("no directory")?)?;
    let faults = PodFaults::find(&stage.world.sandbox, member).await;
    let faults = faults.map_err(|why| nobody(&why))?;
    let made = faults.data_of_another_cluster(others.path()).await;
    made.map_err(|why| nobody(&why))?;
    let volumes = [others.path(), volume.as_path()];
    swap_data(&[&faults], volumes).map_err(|why| nobody(&why))?;
    sleep(length).await;
    let again = eventually(DONE, format!("{member} has its own data"), || async {
        swap_data(
            &[&PodFaults::find(&stage.world.sandbox, member).await?],
            volumes,
        )
    })
    .await;
    stage.was_broken(Broken::Member(member.to_owned()), since);
    again
}

/// The directory of the member's volume on this machine.
async fn directory(stage: &Stage, member: &str) -> Result<PathBuf> {
    let volumes: Api<PersistentVolume> = Api::all(stage.world.sandbox.client());
    let volume = volumes.get(&volume(stage, member).await?).await?;
    let directory = volume.spec.and_then(|spec| spec.host_path);
    Ok(directory.context("it is no directory")?.path.into())
}

/// Defragments a member as `etcdctl defrag` does, without asking the gate.
pub(super) async fn defragment(stage: &Stage, cluster: usize, member: &str) -> Result<()> {
    let cluster = stage.cluster(cluster)?;
    let _unrest = cluster.unrest.read().await;
    let mut client = cluster.etcd.connect_to(member).await?;
    let since = Timestamp::now();
    let defragmented = client.defragment().await;
    stage.was_broken(Broken::Member(member.to_owned()), since);
    defragmented?;
    Ok(())
}

/// Sets who is replaced in a cluster.
pub(super) async fn set_mode(stage: &Stage, etcd: &EtcdCluster, mode: &str) -> Result<()> {
    patch(
        stage,
        etcd,
        &json!({"spec": {"dataProtection": {"replace": mode}}}),
    )
    .await
}

/// Sets the number of members that the gate sees to.
pub(super) async fn set_count(stage: &Stage, etcd: &EtcdCluster, count: Option<u32>) -> Result<()> {
    let change = json!({"spec": {"members": {"count": count}}});
    patch(stage, etcd, &change).await
}

async fn patch(stage: &Stage, etcd: &EtcdCluster, change: &Value) -> Result<()> {
    let (budgets, params) = (stage.world.budgets(), PatchParams::default());
    let change = Patch::Merge(change);
    eventually(SAID, format!("{change:?} is said"), || {
        budgets.patch(etcd.name(), &params, &change)
    })
    .await
    .map(drop)
}

/// The id of a member whose volume is on record, in a cluster of three.
pub(super) async fn known(stage: &Stage, cluster: &Cluster, member: &str) -> Result<u64> {
    let etcd = &cluster.etcd;
    let listed = etcd.members().await?.len();
    ensure!(
        listed == usize::try_from(SIZES[0])?,
        "etcd lists {listed} members"
    );
    let id = etcd.member(member).await?.id;
    is_recorded(stage, etcd, member, id).await?;
    Ok(id)
}

/// Fails unless the volume of the member is on record with this id.
async fn is_recorded(stage: &Stage, etcd: &EtcdCluster, member: &str, id: u64) -> Result<()> {
    let status = stage.world.budget_of(etcd).await?.status;
    let volumes = status.unwrap_or_default().volumes;
    let own = volumes.iter().find(|volume| volume.member == member);
    let recorded = own
        .context("its volume is not on record")?
        .member_id
        .clone();
    ensure!(
        u64::from_str_radix(&recorded, 16)? == id,
        "its volume is on record with the id {recorded}"
    );
    Ok(())
}

/// The name of the volume that the member's claim is bound to.
async fn volume(stage: &Stage, member: &str) -> Result<String> {
    let claims: Api<PersistentVolumeClaim> = stage.world.sandbox.api();
    let claim = claims.get(&format!("data-{member}")).await?;
    let volume = claim.spec.and_then(|spec| spec.volume_name);
    volume.context("its claim is not bound")
}

async fn is_gone(stage: &Stage, volume: &str) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(stage.world.sandbox.client());
    if volumes.get_opt(volume).await?.is_none() {
        return Ok(());
    }
    replacement::remove_volume(&stage.world, volume).await?;
    Err(anyhow!("it was deleted just now"))
}

/// Waits until the member has another id, is a voter, and its volume is on record.
pub(super) async fn replaced(
    stage: &Stage,
    cluster: &Cluster,
    member: &str,
    old: u64,
) -> Result<()> {
    let etcd = &cluster.etcd;
    eventually(DONE, format!("{member} is replaced"), || async {
        let new = etcd.member(member).await?;
        ensure!(new.id != old, "it still has the id {old:x}");
        ensure!(!new.is_learner, "it is a learner");
        is_recorded(stage, etcd, member, new.id).await
    })
    .await
}

fn nobody(why: &anyhow::Error) -> anyhow::Error {
    Nobody(format!("{why:#}")).into()
}
