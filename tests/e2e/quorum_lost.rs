//! Clusters without a quorum, and how they get out of that state.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use quorumgate_testbed::eventually;

use crate::asking::{By, refusal};
use crate::world::{SOON, World};

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_whoever_may_bring_it_back_waits() -> Result<()> {
    let world = World::new("lost-wait").await?;
    let broken = world.crash_all(&["etcd-1", "etcd-2"]).await?;

    // A refusal for want of time names nobody.
    eventually(SOON, "etcd-0 waits for the others", || async {
        let (code, message) = refusal(world.delete("etcd-0").await)?;
        ensure!(code == 429, "{code}: {message}");
        for part in ["etcd-0", "etcd-1", "etcd-2", "of 3 voters"] {
            ensure!(
                message.contains(part),
                "the refusal does not name {part}: {message}"
            );
        }
        Ok(())
    })
    .await?;
    let (code, message) = refusal(world.evict("etcd-0").await)?;
    ensure!(code == 429, "{code}: {message}");
    world
        .has_to_wait_by(By::Delete, "etcd-1", &["completes the majority"])
        .await?;
    ensure!(world.granted().await?.is_empty(), "a refusal took a grant");

    drop(broken);
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_the_dead_go_and_the_living_wait() -> Result<()> {
    let world = World::builder("lost-dead")
        .nodes(5)
        .etcd(|etcd| etcd.replicas(5))
        .start()
        .await?;
    // None of the dead members completes a majority when it returns, so their deletes cost nothing.
    let dead = ["etcd-1", "etcd-2", "etcd-3", "etcd-4"];
    let broken = world.crash_all(&dead).await?;
    eventually(SOON, "etcd-0 is known to have lost its quorum", || async {
        let (code, message) = refusal(world.delete("etcd-0").await)?;
        ensure!(code == 429, "{code}: {message}");
        ensure!(
            message.contains("quorum is lost and etcd-0 is alive"),
            "{message}"
        );
        Ok(())
    })
    .await?;

    for (pod, by) in dead.into_iter().zip(By::BOTH.into_iter().cycle()) {
        let uid = world.etcd.pod_uid(pod).await?;
        // The member restarts again and again. While it runs it is not called dead.
        eventually(SOON, format!("{pod} may go"), || world.ask(by, pod)).await?;
        eventually(SOON, format!("{pod} is another"), || async {
            ensure!(world.etcd.pod_uid(pod).await? != uid, "it is still there");
            Ok(())
        })
        .await?;
        for by in By::BOTH {
            let (code, message) = refusal(world.ask(by, "etcd-0").await)?;
            ensure!(code == 429, "{code}: {message}");
        }
    }

    drop(broken);
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_on_the_set_lets_the_last_live_member_go_until_it_expires() -> Result<()> {
    let world = World::new("lost-override").await?;
    let broken = world.crash_all(&["etcd-1", "etcd-2"]).await?;

    for useless in [in_minutes(-1)?, in_minutes(25 * 60)?, "tomorrow".to_owned()] {
        lift(&world, &useless).await?;
        let (code, message) = refusal(world.delete("etcd-0").await)?;
        ensure!(code == 429, "override until {useless}: {code}: {message}");
    }
    let uid = world.etcd.pod_uid("etcd-0").await?;
    lift(&world, &in_minutes(10)?).await?;
    world.lets_go(By::Delete, "etcd-0").await?;

    drop(broken);
    world.replaced("etcd-0", &uid).await?;
    world.whole().await?;
    world.close().await
}

async fn lift(world: &World, until: &str) -> Result<()> {
    let annotation = format!("quorumgate.io/override-until={until}");
    let args = [
        "annotate",
        "statefulset",
        "etcd",
        "--overwrite",
        &annotation,
    ];
    world.kubectl(&args).await?.success().map(drop)
}

fn in_minutes(minutes: i64) -> Result<String> {
    let until = Timestamp::now().checked_add(SignedDuration::from_mins(minutes))?;
    Ok(until.to_string())
}
