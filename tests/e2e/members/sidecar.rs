//! The etcd-backup-restore beside a member: what it tells of the member, and that it is never asked
//! for anything that acts. The container is the test bed's stand-in, which records every request.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use quorumgate_testbed::backup_restore::{BackupRestore, Outcome};
use quorumgate_testbed::etcd_cluster::{EtcdClusterBuilder, EtcdVersion, Shape, Tls};
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::PodFaults;
use serde_json::{Value, json};

use super::{field, is_now, passed, reasons, with_members};
use crate::world::{SOON, World};

/// The requests that read and do nothing else.
const READS: [&str; 2] = ["GET /metrics", LATEST];
const LATEST: &str = "GET /snapshot/latest";

/// Writes the revision of a snapshot into its Lease, as the leading sidecar does.
async fn snapshot(world: &World, kind: &str, revision: u64) -> Result<()> {
    let name = format!("etcd-{kind}-snap");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": revision.to_string()},
    });
    let leases: kube::Api<Lease> = world.sandbox.api();
    let params = PatchParams::apply("backup-restore").force();
    leases.patch(&name, &params, &Patch::Apply(lease)).await?;
    Ok(())
}

fn stored(kind: &str, from: u64, to: u64) -> Value {
    json!({
        "kind": kind, "startRevision": from, "lastRevision": to, "createdOn": "2026-11-25T01:02:03Z",
        "snapDir": "", "snapName": format!("{kind}-{from}-{to}"), "prefix": "etcd-main/v2",
    })
}

/// The requests that the stand-ins of all members have received.
fn requests(world: &World) -> Result<Vec<String>> {
    let stand_ins = BackupRestore::new(&world.sandbox);
    let pods = world.etcd.pod_names();
    let all = pods.iter().map(|pod| stand_ins.requests(pod));
    Ok(all.collect::<Result<Vec<_>>>()?.concat())
}

fn nothing_acted(world: &World) -> Result<()> {
    let seen: BTreeSet<String> = requests(world)?.into_iter().collect();
    ensure!(
        seen.iter().all(|request| READS.contains(&request.as_str())),
        "{seen:?}"
    );
    Ok(())
}

/// Waits until the leader's `EtcdMember` shows this snapshot.
async fn shows(world: &World, leader: &str, path: &str, value: &str) -> Result<()> {
    eventually(SOON, format!("{path} is {value}"), async || {
        let shown = field(world, leader, path).await?;
        ensure!(shown == value, "{shown:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latest_snapshots_are_asked_for_once_per_change_of_the_leases_and_nothing_acts()
-> Result<()> {
    nothing_acts(EtcdVersion::V3_7, "members-backups").await
}

/// Leases and snapshots change, leadership moves, and the stand-in is asked for reads only.
pub(crate) async fn nothing_acts(version: EtcdVersion, name: &str) -> Result<()> {
    let choose = |etcd| {
        let etcd = EtcdClusterBuilder::shape(etcd, Shape::Druid);
        etcd.backup_restore(Tls::Mutual).version(version)
    };
    let world = with_members(name).etcd(choose).start().await?;
    let leader = world.etcd.leader().await?;
    is_now(&world, &leader, "Leader").await?;
    let stand_ins = BackupRestore::new(&world.sandbox);
    let asked = || {
        let all = requests(&world)?;
        Ok::<_, anyhow::Error>(all.iter().filter(|request| *request == LATEST).count())
    };

    // By the Leases alone nothing is asked.
    snapshot(&world, "full", 7).await?;
    snapshot(&world, "delta", 0).await?;
    shows(&world, &leader, "snapshots.lastFull.endRevision", "7").await?;
    ensure!(
        field(&world, &leader, "snapshots.lastDelta")
            .await?
            .is_empty()
    );
    ensure!(asked()? == 0);

    let full = stored("Full", 0, 7);
    stand_ins.lists(&json!({"fullSnapshot": full, "deltaSnapshots": []}))?;
    world
        .kubectl(&[
            "patch",
            "qdb",
            "etcd",
            "--type=merge",
            r#"--patch={"spec":{"members":{"snapshots":"Metadata"}}}"#,
        ])
        .await?
        .success()?;
    shows(&world, &leader, "snapshots.lastFull.name", "Full-0-7").await?;
    shows(
        &world,
        &leader,
        "snapshots.lastFull.timestamp",
        "2026-11-25T01:02:03Z",
    )
    .await?;
    ensure!(asked()? == 1, "{:?}", requests(&world)?);

    let delta = stored("Incr", 8, 12);
    stand_ins.lists(&json!({"fullSnapshot": full, "deltaSnapshots": [delta]}))?;
    snapshot(&world, "delta", 12).await?;
    shows(&world, &leader, "snapshots.lastDelta.name", "Incr-8-12").await?;
    ensure!(
        field(&world, &leader, "snapshots.lastDelta.size")
            .await?
            .is_empty()
    );

    // Looks come and go without another question: the member leads, follows and leads again.
    let other = world.etcd.pod_names();
    let other = other.iter().find(|pod| **pod != leader).context("none")?;
    world.etcd.move_leader(other).await?;
    is_now(&world, other, "Leader").await?;
    shows(&world, other, "snapshots.lastDelta.name", "Incr-8-12").await?;
    ensure!(asked()? == 2, "{:?}", requests(&world)?);
    nothing_acted(&world)?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_data_of_the_only_member_is_told_as_its_restoration_also_within_one_pod() -> Result<()>
{
    let world = with_members("members-restored")
        .etcd(|etcd| etcd.replicas(1).backup_restore(Tls::None))
        .start()
        .await?;
    is_now(&world, "etcd-0", "Leader").await?;
    let stand_ins = BackupRestore::new(&world.sandbox);
    eventually(SOON, "the metrics were read", async || {
        ensure!(!stand_ins.requests("etcd-0")?.is_empty());
        Ok(())
    })
    .await?;
    ensure!(field(&world, "etcd-0", "lastRestoration").await?.is_empty());

    stand_ins.initialises("etcd-0", Outcome::NotRestored)?;
    PodFaults::find(&world.sandbox, "etcd-0").await?.kill()?;
    shows(&world, "etcd-0", "lastRestoration.status", "Failed").await?;
    is_now(&world, "etcd-0", "Restoration").await?;

    stand_ins.initialises("etcd-0", Outcome::Restored)?;
    is_now(&world, "etcd-0", "Leader").await?;
    shows(&world, "etcd-0", "lastRestoration.status", "Success").await?;
    shows(&world, "etcd-0", "lastRestoration.type", "FromSnapshot").await?;
    let states = passed(&world, "etcd-0").await?;
    ensure!(
        states.ends_with(&["DBValidationFull", "Restoration", "Leader"].map(str::to_owned)),
        "{states:?}"
    );
    let told = reasons(&world, "etcd-0").await?;
    ensure!(
        told.ends_with(
            &[
                "DetectedPreviousUncleanExit",
                "DBValidationFailed",
                "RestorationSucceeded"
            ]
            .map(str::to_owned)
        ),
        "{told:?}"
    );
    nothing_acted(&world)?;
    world.close().await
}
