//! Alarms, which one member raises and all members report, and how the gate mends a full member.

use anyhow::{Context as _, Result, bail, ensure};
use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, DeleteOptions};
use quorumgate::clock::Clock;
use quorumgate::etcd::{Admin, Connections, MemberMetrics};
use quorumgate::quorum::evidence::{Alarm, AlarmKind};
use quorumgate_testbed::eventually;
use tokio::time::Instant;

use crate::cluster::{Builder, Cluster, PATIENCE, SOON, probe, prober, round};
use crate::version::Version;

crate::on_every_version!(
    alarms_are_seen_on_every_member,
    a_full_member_is_defragmented_and_its_alarm_disarmed,
);

const QUOTA: u64 = 1 << 20;

async fn alarms_are_seen_on_every_member(version: Version) -> Result<()> {
    let cluster = Builder::new(version)
        .quota_of_the_first(QUOTA)
        .start()
        .await?;
    let member = *cluster
        .ids()
        .await?
        .first()
        .context("there is a first one")?;
    let mut etcd = cluster.client(0).await?;

    fill(&mut etcd).await?;
    let no_space = Alarm {
        member,
        kind: AlarmKind::NoSpace,
    };
    every_member_shows(&cluster, &[no_space]).await?;

    let mut corrupt = AlarmOptions::new();
    corrupt.with_member(member.0);
    etcd.alarm(
        AlarmAction::Activate,
        AlarmType::Corrupt,
        Some(corrupt.clone()),
    )
    .await?;
    let corrupted = Alarm {
        member,
        kind: AlarmKind::Corrupt,
    };
    every_member_shows(&cluster, &[no_space, corrupted]).await?;

    for alarm in [AlarmType::Corrupt, AlarmType::Nospace] {
        etcd.alarm(AlarmAction::Deactivate, alarm, Some(corrupt.clone()))
            .await?;
    }
    every_member_shows(&cluster, &[]).await
}

async fn a_full_member_is_defragmented_and_its_alarm_disarmed(version: Version) -> Result<()> {
    let builder = Builder::new(version).quota_of_the_first(QUOTA);
    let cluster = builder.start().await?;
    let (ids, endpoints) = (cluster.ids().await?, cluster.endpoints()?);
    let (member, endpoint) = ids.first().zip(endpoints.first()).context("no member")?;
    let mut etcd = cluster.client(0).await?;
    fill(&mut etcd).await?;
    let all = DeleteOptions::new().with_all_keys();
    let deleted = etcd.delete("", Some(all)).await?;
    let revision = deleted.header().context("no header")?.revision();
    let physical = CompactionOptions::new().with_physical();
    etcd.compact(revision, Some(physical)).await?;

    let prober = prober();
    let before = probe(&prober, endpoint).await?.status?;
    let metrics = prober.metrics(endpoint, PATIENCE).await?;
    let expected = MemberMetrics {
        defragmenting: Some(false),
        quota: Some(QUOTA),
        memory: metrics.memory,
        age: metrics.age,
        work: metrics.work,
    };
    ensure!(metrics.memory > Some(1 << 20), "{metrics:?}");
    ensure!(
        metrics.age.is_some_and(|age| age < PATIENCE * 6),
        "{metrics:?}"
    );
    ensure!(metrics == expected, "{metrics:?}");
    let admin = Admin::new(Connections::new(Clock::system()));
    admin.defragment(endpoint).await?;
    let after = probe(&prober, endpoint).await?.status?;
    ensure!(
        after.db_size < before.db_size / 2 && after.db_size >= after.db_size_in_use,
        "{before:?}, then {after:?}"
    );
    let deadline = Instant::now() + PATIENCE;
    let alarm = Alarm {
        member: *member,
        kind: AlarmKind::NoSpace,
    };
    admin.disarm(endpoint, alarm, deadline).await?;
    every_member_shows(&cluster, &[]).await?;
    etcd.put("after", "all", None).await?;
    Ok(())
}

/// Writes until the first member's space quota is used up.
async fn fill(etcd: &mut Client) -> Result<()> {
    for key in 0..64 {
        match etcd.put(format!("{key}"), vec![0; 100_000], None).await {
            Ok(_) => {}
            Err(error) if error.to_string().contains("database space exceeded") => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    bail!("6 MB went into {QUOTA} bytes")
}

async fn every_member_shows(cluster: &Cluster, expected: &[Alarm]) -> Result<()> {
    let endpoints = cluster.endpoints()?;
    let prober = prober();
    eventually(SOON, "every member shows the alarms", async || {
        for probe in round(&prober, &endpoints).await.probes {
            let mut alarms = probe.status?.alarms;
            alarms.sort_unstable();
            ensure!(alarms == expected, "{alarms:?}");
            // etcd confirms reads in spite of either alarm.
            probe.read?;
        }
        Ok(())
    })
    .await
}
