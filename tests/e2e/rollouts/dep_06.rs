//! The three scenarios of DEP-06, with members that start etcd at once, and with members like
//! etcd-wrapper's.

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use quorumgate::api::condition;
use quorumgate_testbed::etcd_cluster::Initialisation;
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::{self, PodFaults};
use serde_json::json;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::change;
use super::told::{GRACE, ROLLOUT, all_updated, finished, rollout, waits_on, wish};
use crate::world::{Fault, SOON, World};

/// The time after which the grace period and the look after it are over.
const GRACE_IS_OVER: SignedDuration = SignedDuration::from_secs(12);

/// The kind of members, which decides how a broken one looks.
#[derive(Clone, Copy)]
enum Members {
    /// The containers of a broken member crash, and stay down for longer and longer times.
    Plain,
    /// The etcd container of a broken member runs, and waits for the container beside it, which
    /// fails. So nothing listens.
    Wrapped,
}

impl Members {
    async fn start(self, name: &str) -> Result<World> {
        let (name, initialisation) = match self {
            Self::Plain => (name.to_owned(), Initialisation::None),
            Self::Wrapped => (format!("{name}-wrapped"), Initialisation::Succeeds),
        };
        let choose = |etcd: quorumgate_testbed::etcd_cluster::EtcdClusterBuilder| {
            etcd.initialisation(initialisation)
        };
        on_delete(&name, choose).start().await
    }

    fn fault(self) -> Fault {
        match self {
            Self::Plain => faults::crash_loop,
            Self::Wrapped => faults::fail_initialisation,
        }
    }

    /// The reason for which the rollout keeps the last live member while no updated member serves.
    /// While two members may be about to listen, the loss of quorum is not certain, so the rule for
    /// lost quorum does not apply.
    fn keeps_the_last(self) -> &'static str {
        match self {
            Self::Plain => "UpdatedMembers",
            Self::Wrapped => "Permission",
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_1_the_one_that_does_not_participate_is_deleted_and_the_others_evicted()
-> Result<()> {
    scenario_1(Members::Plain).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_1_with_a_member_that_runs_and_does_not_listen() -> Result<()> {
    scenario_1(Members::Wrapped).await
}

/// Scenario 1: P-0 does not participate when the update begins. The options are those that make the
/// procedure DEP-06's.
async fn scenario_1(members: Members) -> Result<()> {
    let world = members.start("dep-06-1").await?;
    let options =
        json!({"removal": "EvictHealthy", "nonServing": "AllAtOnce", "sidecarFirst": true});
    wish(&world, json!({"rollout": options})).await?;
    world.etcd.move_leader("etcd-2").await?;
    let broken = world.break_by(members.fault(), "etcd-0").await?;
    let mut watched = Watched::begin(&world).await?;

    let target = change(&world, "one").await?;
    let told = waits_on(&world, &target, &["UpdatedMembers"]).await?;
    let step = told.last_step.context("no step")?;
    ensure!(step.pod == "etcd-0" && step.action == "Delete", "{step:?}");
    if let Members::Wrapped = members {
        ensure!(step.because.contains("is starting"), "{step:?}");
    }
    ensure!(watched.gone() == ["etcd-0"], "others went too");
    broken.mend();
    eventually(ROLLOUT, "a member that serves was evicted", async || {
        let step = rollout(&world).await?.last_step.context("no step")?;
        ensure!(step.pod == "etcd-1" && step.action == "Evict", "{step:?}");
        Ok(())
    })
    .await?;

    let told = finished(&world, &target).await?;
    let step = told.last_step.context("no step")?;
    let order = watched.end(&world, ELECTION).await?;
    ensure!(order == ["etcd-1", "etcd-2"], "{order:?}");
    ensure!(
        step.pod == "etcd-2" && step.because.contains("leader"),
        "{step:?}"
    );
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_2_one_that_fails_midway_is_updated_at_once_and_the_last_one_stays() -> Result<()>
{
    scenario_2(Members::Plain).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_2_with_members_that_run_and_do_not_listen() -> Result<()> {
    scenario_2(Members::Wrapped).await
}

/// Scenario 2: P-0 does not participate, and P-1 fails while P-0 is being updated. P-1 is updated
/// at once, which costs nothing. P-2 stays, since the quorum would return with it: the updated
/// members do not run, or run and never listen.
async fn scenario_2(members: Members) -> Result<()> {
    let world = members.start("dep-06-2").await?;
    wish(&world, json!({"rollout": {"quorumLossGracePeriod": GRACE}})).await?;
    world.etcd.move_leader("etcd-2").await?;
    let p_0 = world.break_by(members.fault(), "etcd-0").await?;
    let mut watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    let mut order = vec![watched.next().await?];

    let p_1 = members.fault()(&world.sandbox, "etcd-1")?;
    order.push(watched.next().await?);
    ensure!(order == ["etcd-0", "etcd-1"], "{order:?}");
    quorum_is_lost_for(&world, GRACE_IS_OVER).await?;
    waits_on(&world, &target, &[members.keeps_the_last()]).await?;
    ensure!(watched.gone().is_empty(), "P-2 went");
    p_0.mend();
    p_1.mend();

    finished(&world, &target).await?;
    let (rest, _) = watched.end_with_any_gap(&world).await?;
    ensure!(rest == ["etcd-2"], "{rest:?}");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_3_a_lost_quorum_is_given_time_and_then_the_new_revision() -> Result<()> {
    scenario_3(Members::Plain).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_3_with_members_that_have_to_be_initialised_again() -> Result<()> {
    scenario_3(Members::Wrapped).await
}

/// Scenario 3: P-0 and P-1 have lost contact with their peers, so that P-2 has lost its quorum. The
/// members are alive, and it is unknown how long the loss will last. During the grace period no
/// member is replaced. After it a restart may be the repair, as here.
async fn scenario_3(members: Members) -> Result<()> {
    let world = members.start("dep-06-3").await?;
    let mut watched = Watched::begin(&world).await?;
    // The next incarnations have other addresses, to which the partition does not apply.
    let cuts = [
        PodFaults::find(&world.sandbox, "etcd-0")
            .await?
            .partition()?,
        PodFaults::find(&world.sandbox, "etcd-1")
            .await?
            .partition()?,
    ];
    quorum_is_lost_for(&world, SignedDuration::ZERO).await?;
    let target = change(&world, "one").await?;
    waits_on(&world, &target, &["QuorumLost"]).await?;
    quorum_is_lost_for(&world, GRACE_IS_OVER).await?;
    let told = waits_on(&world, &target, &["QuorumLost"]).await?;
    let message = told.waiting_on.context("no wait")?.message;
    ensure!(message.contains("(0 of 3 voters serve)"), "{message}");
    ensure!(watched.gone().is_empty(), "a pod was replaced too early");

    wish(&world, json!({"rollout": {"quorumLossGracePeriod": GRACE}})).await?;
    all_updated(&world, &target).await?;
    drop(cuts);
    let (mut order, _) = watched.end_with_any_gap(&world).await?;
    order.sort();
    ensure!(order == world.etcd.pod_names(), "{order:?}");
    world.close().await
}

/// Scenario 3, where P-0 and P-1 were restarted and are not initialised, so that P-2 has lost its
/// quorum for good. The two are replaced at once, which costs nothing. P-2 stays until one of the
/// new members at least listens.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_3_where_two_do_not_listen_those_go_at_once_and_the_last_one_stays() -> Result<()>
{
    let members = Members::Wrapped;
    let world = members.start("dep-06-3-silent").await?;
    wish(&world, json!({"rollout": {"quorumLossGracePeriod": GRACE}})).await?;
    let mut watched = Watched::begin(&world).await?;
    let broken = [
        members.fault()(&world.sandbox, "etcd-0")?,
        members.fault()(&world.sandbox, "etcd-1")?,
    ];
    quorum_is_lost_for(&world, GRACE_IS_OVER).await?;
    let target = change(&world, "one").await?;
    let mut order = [watched.next().await?, watched.next().await?];
    order.sort();
    ensure!(order == ["etcd-0", "etcd-1"], "{order:?}");
    waits_on(&world, &target, &[members.keeps_the_last()]).await?;
    ensure!(watched.gone().is_empty(), "P-2 went");
    drop(broken);

    finished(&world, &target).await?;
    let (rest, _) = watched.end_with_any_gap(&world).await?;
    ensure!(rest == ["etcd-2"], "{rest:?}");
    world.close().await
}

async fn quorum_is_lost_for(world: &World, time: SignedDuration) -> Result<()> {
    let what = format!("the budget shows for {time} that quorum is lost");
    eventually(SOON, what, async || {
        let healthy = world.condition(condition::QUORUM_HEALTHY).await?;
        let since = healthy.last_transition_time.0;
        ensure!(
            healthy.status == "False" && Timestamp::now().duration_since(since) >= time,
            "{healthy:?}"
        );
        Ok(())
    })
    .await
}
