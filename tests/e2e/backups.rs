//! The age of a cluster's backups, by the Leases that etcd-backup-restore renews, and restorations
//! that fail, by its metrics.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use quorumgate::api::condition;
use quorumgate_testbed::backup_restore::{BackupRestore, Outcome};
use quorumgate_testbed::etcd_cluster::Tls;
use quorumgate_testbed::faults::PodFaults;
use serde_json::json;

use crate::rollouts::scene::on_delete;
use crate::rollouts::template::change;
use crate::rollouts::told::{finished, waits_on, wish};
use crate::world::World;

/// Renews the Lease for snapshots of this kind, as a sidecar does that took one `age` ago.
async fn renew(world: &World, kind: &str, age: SignedDuration) -> Result<()> {
    let name = format!("etcd-{kind}-snap");
    let at = Timestamp::now().checked_sub(age)?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": "7", "renewTime": at.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()},
    });
    let leases: Api<Lease> = world.sandbox.api();
    let params = PatchParams::apply("backup-restore").force();
    leases.patch(&name, &params, &Patch::Apply(lease)).await?;
    Ok(())
}

async fn is(world: &World, status: &str, reason: &str) -> Result<()> {
    let wanted = (status, reason);
    world
        .reported(condition::BACKUPS_RECENT, |shown| {
            (shown.status.as_str(), shown.reason.as_str()) == wanted
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_are_as_old_as_the_leases_of_the_sidecar_say() -> Result<()> {
    let world = World::builder("backups")
        .etcd(|etcd| etcd.replicas(1).backup_restore(Tls::None))
        .start()
        .await?;
    renew(&world, "full", SignedDuration::from_hours(30)).await?;
    is(&world, "False", "TooOld").await?;
    renew(&world, "delta", SignedDuration::from_hours(1)).await?;
    is(&world, "True", "Recent").await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn restorations_that_fail_are_said_until_one_succeeds() -> Result<()> {
    let world = World::builder("backups-restored")
        .etcd(|etcd| etcd.replicas(1).backup_restore(Tls::None))
        .start()
        .await?;
    let shown = world.condition(condition::DATA_RESTORABLE).await;
    ensure!(shown.is_err(), "no restoration failed: {shown:?}");
    let stand_ins = BackupRestore::new(&world.sandbox);
    stand_ins.initialises("etcd-0", Outcome::NotRestored)?;
    PodFaults::find(&world.sandbox, "etcd-0").await?.kill()?;
    world
        .reported(condition::DATA_RESTORABLE, |shown| {
            let command = "logs etcd-0 -c backup-restore";
            shown.reason == "RestorationFailed" && shown.message.contains(command)
        })
        .await?;
    stand_ins.initialises("etcd-0", Outcome::Restored)?;
    world
        .reported(condition::DATA_RESTORABLE, |shown| shown.status == "True")
        .await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_wants_a_recent_backup_begins_when_there_is_one() -> Result<()> {
    let world = on_delete("backups-first", |etcd| etcd.backup_restore(Tls::None))
        .start()
        .await?;
    wish(&world, json!({"rollout": {"requireRecentBackup": true}})).await?;
    renew(&world, "full", SignedDuration::from_hours(30)).await?;
    is(&world, "False", "TooOld").await?;
    let target = change(&world, "one").await?;
    let told = waits_on(&world, &target, &["Backup"]).await?;
    ensure!(told.updated == 0, "{told:?}");
    renew(&world, "delta", SignedDuration::from_hours(1)).await?;
    finished(&world, &target).await?;
    world.close().await
}
