//! etcd clusters on a real control plane, with members as processes of node agents.

use std::time::Duration;

use anyhow::{Result, ensure};
use quorumgate_testbed::etcd_cluster::{
    Auth, EtcdCluster, EtcdVersion, Readiness, Shape, Storage, Tls,
};
use quorumgate_testbed::faults::PodFaults;
use quorumgate_testbed::{Bed, Sandbox, eventually};

/// A time limit that is enough for a machine that also compiles.
const PATIENCE: Duration = Duration::from_secs(60);

async fn sandbox(name: &str, nodes: usize) -> Result<Sandbox> {
    let mut sandbox = Bed::up().await?.sandbox(name).await?;
    sandbox.add_nodes(nodes).await?;
    Ok(sandbox)
}

#[tokio::test]
async fn three_members_are_quorate_within_five_seconds_of_their_stateful_set() -> Result<()> {
    let sandbox = sandbox("quorate", 3).await?;
    let cluster = EtcdCluster::builder("etcd").apply(&sandbox).await?;
    let took = cluster.quorate(PATIENCE).await?;
    // A busy machine is no fault of the test bed, so the limit depends on the load per core.
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let load: f64 = load.split(' ').next().unwrap_or_default().parse()?;
    let cores = f64::from(u32::try_from(std::thread::available_parallelism()?.get())?);
    let allowed = Duration::from_secs(5).mul_f64((load / cores).max(1.0));
    ensure!(
        took < allowed,
        "it took {took:?}, allowed are {allowed:?} at a load of {load}"
    );
    sandbox.close().await
}

/// Checks a cluster of this version: members, roles, a write and a read through TLS.
async fn forms_a_quorate_cluster(version: EtcdVersion) -> Result<()> {
    let name = format!("{version:?}").to_lowercase().replace('_', "");
    let sandbox = sandbox(&name, 3).await?;
    let cluster = EtcdCluster::builder("etcd")
        .version(version)
        .apply(&sandbox)
        .await?;
    cluster.quorate(PATIENCE).await?;

    let members = cluster.members().await?;
    let mut names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["etcd-0", "etcd-1", "etcd-2"]);
    assert!(members.iter().all(|member| !member.is_learner));
    assert!(
        members
            .iter()
            .all(|m| m.client_urls.iter().all(|url| url.starts_with("https://")))
    );

    let image = version.image()?;
    let status = cluster.endpoint_status("etcd-0").await?;
    assert_eq!(image, format!("etcd:{}", status.version));

    let leader = cluster.leader().await?;
    let follower = cluster.followers().await?.remove(0);
    cluster
        .connect_to(&follower)
        .await?
        .put("key", "value", None)
        .await?;
    let read = cluster.connect_to(&leader).await?.get("key", None).await?;
    assert_eq!(
        read.kvs().first().map(etcd_client::KeyValue::value),
        Some(&b"value"[..])
    );

    cluster.move_leader(&follower).await?;
    assert_eq!(cluster.leader().await?, follower);
    eventually(PATIENCE, "all pods are Ready", async || {
        for pod in cluster.pod_names() {
            ensure!(cluster.is_ready(&pod).await?, "{pod} is not Ready");
        }
        anyhow::Ok(())
    })
    .await?;
    sandbox.close().await
}

#[tokio::test]
async fn etcd_3_4_forms_a_quorate_cluster_with_tls() -> Result<()> {
    forms_a_quorate_cluster(EtcdVersion::V3_4).await
}

#[tokio::test]
async fn etcd_3_5_forms_a_quorate_cluster_with_tls() -> Result<()> {
    forms_a_quorate_cluster(EtcdVersion::V3_5).await
}

#[tokio::test]
async fn etcd_3_6_forms_a_quorate_cluster_with_tls() -> Result<()> {
    forms_a_quorate_cluster(EtcdVersion::V3_6).await
}

#[tokio::test]
async fn etcd_3_7_forms_a_quorate_cluster_with_tls() -> Result<()> {
    forms_a_quorate_cluster(EtcdVersion::V3_7).await
}

#[tokio::test]
async fn members_refuse_clients_whose_certificate_expired_or_is_foreign() -> Result<()> {
    let sandbox = sandbox("certificates", 1).await?;
    let cluster = EtcdCluster::builder("etcd")
        .replicas(1)
        .apply(&sandbox)
        .await?;
    cluster.quorate(PATIENCE).await?;
    assert!(gate_reads(&cluster).await.is_ok());
    cluster.expire_client_certificate().await?;
    assert!(
        gate_reads(&cluster).await.is_err(),
        "an expired certificate was accepted"
    );
    cluster.rotate_client_certificate().await?;
    assert!(gate_reads(&cluster).await.is_ok());
    cluster.forge_client_certificate().await?;
    assert!(
        gate_reads(&cluster).await.is_err(),
        "a forged certificate was accepted"
    );
    // The test bed's own access is not affected.
    cluster.connect().await?;
    sandbox.close().await
}

#[tokio::test]
async fn authentication_knows_the_gate_by_its_certificate() -> Result<()> {
    let sandbox = sandbox("auth", 1).await?;
    for (name, auth) in [
        ("unknown", Auth::GateIsUnknown),
        ("user", Auth::GateIsUser),
        ("root", Auth::GateIsRoot),
    ] {
        let cluster = EtcdCluster::builder(name)
            .replicas(1)
            .auth(auth)
            .apply(&sandbox)
            .await?;
        cluster.quorate(PATIENCE).await?;
        cluster.enable_auth().await?;
        cluster.connect().await?.put("key", "value", None).await?;
        let read = gate_reads(&cluster).await;
        assert_eq!(read.is_ok(), auth == Auth::GateIsRoot, "{name}: {read:?}");
        // Every known user may ask for the status, and only `root` may defragment.
        gate_client(&cluster).await?.status().await?;
        let defragmented = gate_client(&cluster).await?.defragment().await;
        assert_eq!(
            defragmented.is_ok(),
            auth == Auth::GateIsRoot,
            "{name}: {defragmented:?}"
        );
    }
    sandbox.close().await
}

async fn gate_client(cluster: &EtcdCluster) -> Result<etcd_client::Client> {
    let pod = cluster.pod_names().remove(0);
    let address = cluster.pod_ip(&pod).await?;
    cluster
        .gate_dialer()
        .await?
        .dial(address, Duration::from_secs(2))
        .await
}

async fn gate_reads(cluster: &EtcdCluster) -> Result<()> {
    let mut client = gate_client(cluster).await?;
    tokio::time::timeout(Duration::from_secs(3), client.get("key", None)).await??;
    Ok(())
}

#[tokio::test]
async fn a_scale_out_joins_as_learner_and_is_promoted() -> Result<()> {
    let sandbox = sandbox("scale", 3).await?;
    let cluster = EtcdCluster::builder("etcd")
        .tls(Tls::None)
        .apply(&sandbox)
        .await?;
    cluster.quorate(PATIENCE).await?;
    let learner = cluster.add_learner("etcd-3").await?;
    assert!(learner.is_learner && learner.name.is_empty());
    cluster.scale(4).await?;
    eventually(PATIENCE, "the learner is promoted", || {
        cluster.promote("etcd-3")
    })
    .await?;
    cluster.quorate(PATIENCE).await?;
    let promoted = cluster.member("etcd-3").await?;
    assert!(!promoted.is_learner);
    assert_eq!(
        (promoted.id, promoted.name.as_str()),
        (learner.id, "etcd-3")
    );
    sandbox.close().await
}

#[tokio::test]
async fn a_deleted_pod_comes_back_with_its_data_at_another_address() -> Result<()> {
    let sandbox = sandbox("comeback", 3).await?;
    let cluster = EtcdCluster::builder("etcd").apply(&sandbox).await?;
    cluster.quorate(PATIENCE).await?;
    let (uid, address) = (
        cluster.pod_uid("etcd-1").await?,
        cluster.pod_ip("etcd-1").await?,
    );
    let id = cluster.endpoint_status("etcd-1").await?.member_id;
    cluster
        .pod_api()
        .delete("etcd-1", &kube::api::DeleteParams::default())
        .await?;
    eventually(PATIENCE, "the pod is another", async || {
        ensure!(cluster.pod_uid("etcd-1").await? != uid, "not yet");
        anyhow::Ok(())
    })
    .await?;
    cluster.quorate(PATIENCE).await?;
    assert_ne!(cluster.pod_ip("etcd-1").await?, address);
    assert_eq!(cluster.endpoint_status("etcd-1").await?.member_id, id);
    sandbox.close().await
}

#[tokio::test]
async fn a_druid_shaped_cluster_has_leases_that_name_ids_and_roles() -> Result<()> {
    let sandbox = sandbox("druid", 3).await?;
    let cluster = EtcdCluster::builder("etcd-main")
        .shape(Shape::Druid)
        .member_name_prefix("seed")
        .storage(Storage::EmptyDir)
        .apply(&sandbox)
        .await?;
    cluster.quorate(PATIENCE).await?;
    cluster.renew_leases().await?;
    let leader = cluster.leader().await?;
    for status in cluster.statuses().await? {
        let name = format!("seed-{}", status.pod);
        let leases = sandbox.api::<k8s_openapi::api::coordination::v1::Lease>();
        let holder = leases
            .get(&name)
            .await?
            .spec
            .unwrap()
            .holder_identity
            .unwrap();
        let role = if status.pod == leader {
            "Leader"
        } else {
            "Member"
        };
        assert_eq!(
            holder,
            format!("{:x}:{:x}:{role}", status.member_id, status.cluster_id)
        );
    }
    let set = cluster.stateful_set().await?;
    assert_eq!(set.spec.unwrap().template.spec.unwrap().containers.len(), 2);
    sandbox.close().await
}

#[tokio::test]
async fn a_full_quota_raises_nospace_until_it_is_disarmed() -> Result<()> {
    let sandbox = sandbox("quota", 1).await?;
    let cluster = EtcdCluster::builder("etcd")
        .replicas(1)
        .quota_bytes(8 << 20)
        .apply(&sandbox)
        .await?;
    cluster.quorate(PATIENCE).await?;
    cluster.fill_quota().await?;
    let alarms = cluster.alarms().await?;
    assert_eq!(alarms.len(), 1);
    assert_eq!(alarms[0].kind, etcd_client::AlarmType::Nospace);
    assert!(!cluster.endpoint_status("etcd-0").await?.errors.is_empty());
    cluster.disarm().await?;
    assert!(cluster.alarms().await?.is_empty());
    sandbox.close().await
}

/// Cuts one follower off from its peers. The readiness of its pod then depends on the probe.
async fn a_partitioned_member(readiness: Readiness, name: &str) -> Result<()> {
    let sandbox = sandbox(name, 3).await?;
    let cluster = EtcdCluster::builder("etcd")
        .readiness(readiness)
        .apply(&sandbox)
        .await?;
    cluster.quorate(PATIENCE).await?;
    let victim = cluster.followers().await?.remove(0);
    eventually(PATIENCE, "it is Ready", async || {
        ensure!(cluster.is_ready(&victim).await?, "not yet");
        anyhow::Ok(())
    })
    .await?;
    let cut = PodFaults::find(&sandbox, &victim).await?.partition()?;
    eventually(PATIENCE, "it has lost its leader", async || {
        let leader = cluster.endpoint_status(&victim).await?.leader;
        ensure!(leader.is_none(), "it follows {leader:?}");
        anyhow::Ok(())
    })
    .await?;
    // The others still serve.
    cluster.connect().await?.put("key", "value", None).await?;
    if readiness == Readiness::Quorum {
        eventually(PATIENCE, "it is not Ready", async || {
            ensure!(!cluster.is_ready(&victim).await?, "it still is");
            anyhow::Ok(())
        })
        .await?;
    } else {
        assert!(
            cluster.is_ready(&victim).await?,
            "its process still listens"
        );
    }
    cut.heal();
    cluster.quorate(PATIENCE).await?;
    sandbox.close().await
}

#[tokio::test]
async fn a_partitioned_member_loses_its_leader_and_turns_unready_by_a_quorum_probe() -> Result<()> {
    a_partitioned_member(Readiness::Quorum, "cut-quorum").await
}

#[tokio::test]
async fn a_partitioned_member_loses_its_leader_and_stays_ready_by_a_process_probe() -> Result<()> {
    a_partitioned_member(Readiness::Process, "cut-process").await
}

#[tokio::test]
async fn a_member_whose_probe_is_broken_serves_without_being_ready() -> Result<()> {
    let sandbox = sandbox("unready", 1).await?;
    let cluster = EtcdCluster::builder("etcd")
        .replicas(1)
        .apply(&sandbox)
        .await?;
    cluster.quorate(PATIENCE).await?;
    let broken = quorumgate_testbed::faults::fail_readiness(&sandbox, "etcd-0")?;
    eventually(PATIENCE, "it is not Ready", async || {
        ensure!(!cluster.is_ready("etcd-0").await?, "it still is");
        anyhow::Ok(())
    })
    .await?;
    cluster.serves("etcd-0", PATIENCE).await?;
    drop(broken);
    eventually(PATIENCE, "it is Ready again", async || {
        ensure!(cluster.is_ready("etcd-0").await?, "not yet");
        anyhow::Ok(())
    })
    .await?;
    sandbox.close().await
}

#[tokio::test]
async fn a_member_with_corrupt_data_cannot_start() -> Result<()> {
    let sandbox = sandbox("corrupt", 3).await?;
    let cluster = EtcdCluster::builder("etcd").apply(&sandbox).await?;
    cluster.quorate(PATIENCE).await?;
    let victim = cluster.followers().await?.remove(0);
    PodFaults::find(&sandbox, &victim).await?.corrupt_data()?;
    eventually(PATIENCE, "it is in CrashLoopBackOff", async || {
        let why = waiting_reason(&cluster, &victim).await?;
        ensure!(
            why.as_deref() == Some("CrashLoopBackOff"),
            "it waits for {why:?}"
        );
        anyhow::Ok(())
    })
    .await?;
    cluster.connect().await?.put("key", "value", None).await?;
    sandbox.close().await
}

#[tokio::test]
async fn a_held_pod_stays_in_container_creating_until_it_is_let_go() -> Result<()> {
    let sandbox = sandbox("held", 2).await?;
    let held = quorumgate_testbed::faults::hold_in_container_creating(&sandbox, "etcd-0")?;
    let cluster = EtcdCluster::builder("etcd")
        .replicas(1)
        .apply(&sandbox)
        .await?;
    eventually(PATIENCE, "it is in ContainerCreating", async || {
        let why = waiting_reason(&cluster, "etcd-0").await?;
        ensure!(
            why.as_deref() == Some("ContainerCreating"),
            "it waits for {why:?}"
        );
        anyhow::Ok(())
    })
    .await?;
    assert!(cluster.connect().await.is_err());
    drop(held);
    cluster.quorate(PATIENCE).await?;
    sandbox.close().await
}

async fn waiting_reason(cluster: &EtcdCluster, pod: &str) -> Result<Option<String>> {
    let status = cluster.pod(pod).await?.status.unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let state = containers
        .into_iter()
        .find(|c| c.name == "etcd")
        .and_then(|c| c.state);
    Ok(state
        .and_then(|state| state.waiting)
        .and_then(|waiting| waiting.reason))
}

#[tokio::test]
async fn a_crash_loop_ends_in_back_off_and_a_mended_member_comes_back() -> Result<()> {
    let sandbox = sandbox("crash", 3).await?;
    let cluster = EtcdCluster::builder("etcd").apply(&sandbox).await?;
    cluster.quorate(PATIENCE).await?;
    let crashing = quorumgate_testbed::faults::crash_loop(&sandbox, "etcd-2")?;
    eventually(PATIENCE, "it is in CrashLoopBackOff", async || {
        let why = waiting_reason(&cluster, "etcd-2").await?;
        ensure!(
            why.as_deref() == Some("CrashLoopBackOff"),
            "it waits for {why:?}"
        );
        anyhow::Ok(())
    })
    .await?;
    assert!(cluster.endpoint_status("etcd-2").await.is_err());
    crashing.mend();
    cluster.quorate(PATIENCE).await?;
    sandbox.close().await
}

#[tokio::test]
async fn a_member_that_clients_cannot_reach_keeps_its_part_in_the_quorum() -> Result<()> {
    let sandbox = sandbox("unreached", 3).await?;
    let cluster = EtcdCluster::builder("etcd").apply(&sandbox).await?;
    cluster.quorate(PATIENCE).await?;
    for (pod, refused) in [("etcd-0", true), ("etcd-1", false)] {
        let faults = PodFaults::find(&sandbox, pod).await?;
        let cut = if refused {
            faults.refuse_clients()?
        } else {
            faults.ignore_clients()?
        };
        assert!(cluster.endpoint_status(pod).await.is_err(), "{pod} answers");
        let members = cluster.members().await?;
        assert_eq!(members.len(), 3);
        cut.heal();
        cluster.serves(pod, PATIENCE).await?;
    }
    sandbox.close().await
}
