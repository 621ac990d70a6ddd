//! Members that run and do not listen, as etcd-wrapper's do while the container beside them
//! initialises, fails or hangs.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use quorumgate::api::condition;
use quorumgate_testbed::etcd_cluster::{EtcdVersion, Initialisation, UpdateStrategy};
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::{Cut, PodFaults, fail_readiness};
use serde_json::json;
use tokio::time::Instant;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::{self, another_than, revision};
use super::told::{GRACE, all_updated, finished, waits_on, wish};
use crate::asking::{By, refusal};
use crate::order::Order;
use crate::vigil::Vigil;
use crate::world::{SOON, World, WorldBuilder};

/// The time for which the gate is kept out. It is several times what the gate waits before a member
/// counts as hanging, and twice the grace period of a lost quorum.
const OUT_FOR: Duration = Duration::from_secs(15);

fn fails() -> Initialisation {
    Initialisation::Fails(Vec::new())
}

fn hangs() -> Initialisation {
    Initialisation::Hangs(Vec::new())
}

/// Starts a cluster under this strategy whose members never listen.
fn never_forms(
    name: &str,
    initialisation: Initialisation,
    strategy: UpdateStrategy,
) -> WorldBuilder {
    let choose = |etcd: quorumgate_testbed::etcd_cluster::EtcdClusterBuilder| {
        etcd.initialisation(initialisation)
            .update_strategy(strategy)
            .grace_period(Duration::from_secs(2))
    };
    World::builder(name).etcd(choose).unformed()
}

/// Waits until all pods run and no member listens.
async fn no_member_listens(world: &World) -> Result<()> {
    eventually(SOON, "etcd's container runs in every pod", async || {
        for name in world.etcd.pod_names() {
            let status = world.etcd.pod(&name).await?.status.context("no status")?;
            let mut containers = status.container_statuses.into_iter().flatten();
            let etcd = containers.find(|container| container.name == "etcd");
            let state = etcd.and_then(|etcd| etcd.state);
            let runs = state.is_some_and(|state| state.running.is_some());
            ensure!(runs, "not that of {name}");
        }
        Ok(())
    })
    .await
}

async fn change(world: &World, to: &Initialisation) -> Result<String> {
    let before = revision(world).await?;
    world.etcd.change_initialisation(to).await?;
    another_than(world, &before).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_never_formed_is_repaired_by_deleting_its_pods_one_by_one() -> Result<()> {
    let world = never_forms("never-deletes", fails(), UpdateStrategy::OnDelete);
    let world = world.start().await?;
    no_member_listens(&world).await?;
    change(&world, &Initialisation::Succeeds).await?;
    for pod in world.etcd.pod_names() {
        let uid = world.etcd.pod_uid(&pod).await?;
        // While the first two form the cluster, one may serve a moment before the other listens.
        // The gate refuses then, since the third may be the one that completes the majority.
        eventually(SOON, format!("{pod} may go"), async || {
            world.lets_go(By::Delete, &pod).await
        })
        .await?;
        eventually(SOON, format!("another {pod} is there"), async || {
            ensure!(world.etcd.pod_uid(&pod).await? != uid, "not yet");
            Ok(())
        })
        .await?;
        world.settled().await?;
    }
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_never_formed_is_repaired_by_a_corrected_template() -> Result<()> {
    let world = never_forms("never-template", hangs(), UpdateStrategy::OnDelete);
    let world = world
        .feature("QuorumAwareUpdatesWithOnDelete")
        .start()
        .await?;
    no_member_listens(&world).await?;
    let target = change(&world, &Initialisation::Succeeds).await?;
    finished(&world, &target).await?;
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_never_formed_is_repaired_by_the_stateful_set_controller_too() -> Result<()>
{
    let world = never_forms("never-rolling", fails(), UpdateStrategy::RollingUpdate);
    let world = world.start().await?;
    no_member_listens(&world).await?;
    change(&world, &Initialisation::Succeeds).await?;
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_keeps_members_from_listening_holds_at_one() -> Result<()> {
    let choose = |etcd: quorumgate_testbed::etcd_cluster::EtcdClusterBuilder| {
        etcd.initialisation(Initialisation::Succeeds)
    };
    let world = on_delete("stops-listening", choose).start().await?;
    let good = revision(&world).await?;
    let mut watched = Watched::begin(&world).await?;
    let vigil = Vigil::start(&world.etcd).await?;
    let bad = change(&world, &hangs()).await?;
    let first = watched.next().await?;
    waits_on(&world, &bad, &["UpdatedMembers"]).await?;
    let others = world.etcd.pod_names();
    for other in others.iter().filter(|other| **other != first) {
        world.has_to_wait(other, &[&first]).await?;
    }
    ensure!(watched.gone().is_empty(), "another one went");
    let target = change(&world, &Initialisation::Succeeds).await?;
    ensure!(target == good, "{target} is not what it was before");
    finished(&world, &target).await?;
    vigil.assert_never_below(2).await?;
    watched.end(&world, ELECTION).await?;
    world.close().await
}

/// All members are down for a restore: a person deleted them at once, by an override.
#[tokio::test(flavor = "multi_thread")]
async fn while_none_listens_after_a_restore_only_an_override_lets_members_go() -> Result<()> {
    let choose = |etcd: quorumgate_testbed::etcd_cluster::EtcdClusterBuilder| {
        etcd.initialisation(Initialisation::Succeeds)
            .update_strategy(UpdateStrategy::OnDelete)
            .grace_period(Duration::from_secs(2))
    };
    let world = World::builder("restore").etcd(choose).start().await?;
    change(&world, &hangs()).await?;
    let until = Timestamp::now() + SignedDuration::from_mins(10);
    let until = format!("quorumgate.io/override-until={until}");
    world
        .kubectl(&["annotate", "statefulset", "etcd", &until])
        .await?
        .success()?;
    for pod in world.etcd.pod_names() {
        let uid = world.etcd.pod_uid(&pod).await?;
        world.lets_go(By::Delete, &pod).await?;
        eventually(SOON, format!("another {pod} is there"), async || {
            ensure!(world.etcd.pod_uid(&pod).await? != uid, "not yet");
            Ok(())
        })
        .await?;
    }
    let lift = [
        "annotate",
        "statefulset",
        "etcd",
        "quorumgate.io/override-until-",
    ];
    world.kubectl(&lift).await?.success()?;
    no_member_listens(&world).await?;
    world.settled().await?;

    // For all that the gate knows a network policy rejects it, and the members serve.
    for pod in world.etcd.pod_names() {
        let (code, message) = refusal(world.delete(&pod).await)?;
        ensure!(
            code == 429 && message.contains("proves nothing while no other member answers"),
            "{code}: {message}"
        );
    }
    world
        .kubectl(&["annotate", "statefulset", "etcd", &until])
        .await?
        .success()?;
    world.lets_go(By::Delete, "etcd-0").await?;
    world.close().await
}

/// The members serve each other meanwhile, and look like members that do not listen yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_rejects_the_gate_makes_nobody_dead() -> Result<()> {
    out_of_reach("rejected", PodFaults::refuse_clients).await
}

/// The members serve each other meanwhile, and look almost like members that have lost all peers.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_drops_what_the_gate_sends_makes_nobody_mute() -> Result<()> {
    out_of_reach("dropped", PodFaults::ignore_clients).await
}

/// A network policy keeps the gate from every member, and readiness fails for another reason.
async fn out_of_reach(name: &str, cut: fn(&PodFaults) -> Result<Cut>) -> Result<()> {
    let world = on_delete(name, |etcd| etcd).start().await?;
    wish(&world, json!({"rollout": {"quorumLossGracePeriod": GRACE}})).await?;
    let mut order = Order::watch(&world).await?;
    let pods = world.etcd.pod_names();
    let mut faults = Vec::new();
    for pod in &pods {
        let cut = cut(&PodFaults::find(&world.sandbox, pod).await?)?;
        faults.push((cut, fail_readiness(&world.sandbox, pod)?));
    }
    eventually(SOON, "no pod is Ready", async || {
        for pod in &pods {
            ensure!(!world.etcd.is_ready(pod).await?, "{pod} still is");
        }
        anyhow::Ok(())
    })
    .await?;
    eventually(SOON, "nothing is known of the quorum", async || {
        let healthy = world.condition(condition::QUORUM_HEALTHY).await?;
        ensure!(healthy.status == "Unknown", "{healthy:?}");
        Ok(())
    })
    .await?;
    let target = template::change(&world, "one").await?;
    waits_on(&world, &target, &["Evidence", "Permission"]).await?;
    let until = Instant::now() + OUT_FOR;
    while Instant::now() < until {
        for (pod, by) in pods.iter().zip(By::BOTH.into_iter().cycle()) {
            let (code, message) = refusal(world.ask(by, pod).await)?;
            ensure!(
                code == 429 && message.contains("no member gave evidence that counts"),
                "{code}: {message}"
            );
        }
        ensure!(order.gone().is_empty(), "a pod was replaced");
    }
    drop(faults);
    finished(&world, &target).await?;
    world.close().await
}

/// etcd 3.5 accepts connections before it has found its peers, and answers nothing. So the members
/// of a cluster whose peers cannot reach each other any more, by a wrong authority for example.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_listen_and_never_answer_are_repaired_by_a_corrected_template() -> Result<()> {
    let world = on_delete("mute", |etcd| etcd.version(EtcdVersion::V3_5));
    let world = world.start().await?;
    wish(&world, json!({"rollout": {"quorumLossGracePeriod": GRACE}})).await?;
    let mut cuts = Vec::new();
    for pod in world.etcd.pod_names() {
        let faults = PodFaults::find(&world.sandbox, &pod).await?;
        cuts.push(faults.partition()?);
        faults.kill()?;
    }
    eventually(SOON, "a delete is told the way", async || {
        let (code, message) = refusal(world.delete("etcd-0").await)?;
        ensure!(
            code == 429 && message.contains("correct the pod template"),
            "{code}: {message}"
        );
        anyhow::Ok(())
    })
    .await?;
    // The next incarnations have other addresses, to which the cuts do not apply.
    let target = template::change(&world, "one").await?;
    all_updated(&world, &target).await?;
    drop(cuts);
    finished(&world, &target).await?;
    world.whole().await?;
    world.close().await
}
