//! Everything at once and at random, and afterwards the question whether one permission was wrong.
//!
//! A short run belongs to the tests. `make chaos OPS=10000 SEED=7` goes on for longer, and the same seed chooses the same operations again,
//! though not the same races.

mod operation;
mod stage;
mod timeline;
mod verdict;
mod witness;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use fastrand::Rng;
use quorumgate_testbed::writer::Writer;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::rollouts::scene::on_delete;
use operation::Operation;
use stage::Stage;
use witness::Witness;

/// Operations of a run that nobody chose.
const OPERATIONS: usize = 60;
/// Operations under way at one time.
const AT_ONCE: usize = 5;
/// The longest pause between the beginnings of two.
const PAUSE: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_no_permission_takes_the_majority() -> Result<()> {
    let operations = chosen("QUORUMGATE_CHAOS_OPS")?.map_or(Ok(OPERATIONS), usize::try_from)?;
    let seed = match chosen("QUORUMGATE_CHAOS_SEED")? {
        Some(seed) => seed,
        None => u64::from(SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos()),
    };
    let again = format!("make chaos OPS={operations} SEED={seed}");
    run(operations, Rng::with_seed(seed))
        .await
        .map_err(|error| anyhow!("{error:#}\nto do the same again: {again}"))
}

fn chosen(variable: &str) -> Result<Option<u64>> {
    match std::env::var(variable) {
        Ok(text) if !text.is_empty() => Ok(Some(text.parse().context(variable.to_owned())?)),
        Ok(_) | Err(_) => Ok(None),
    }
}

#[expect(clippy::print_stdout, reason = "what a run has seen is to be read")]
async fn run(operations: usize, mut chance: Rng) -> Result<()> {
    let world = on_delete("chaos", |etcd| etcd).replicas(3).start().await?;
    let audit = world.bed().audit_log();
    let writer = Writer::start(&world.etcd).await?;
    let witness = Witness::start(&world.etcd).await?;
    let stage = Arc::new(Stage::new(world));

    let mut under_way = JoinSet::new();
    for number in 0..operations {
        while under_way.len() >= AT_ONCE {
            under_way.join_next().await;
        }
        let operation = Operation::choose(&mut chance, &stage, number);
        let stage = Arc::clone(&stage);
        under_way.spawn(async move { stage.perform(operation).await });
        sleep(PAUSE.mul_f64(chance.f64())).await;
    }
    while under_way.join_next().await.is_some() {}

    let stage = Arc::into_inner(stage).context("an operation goes on")?;
    let (world, timeline) = stage.leave();
    let samples = async {
        // Nothing is wedged: with all faults gone every node can be drained, and everybody comes back.
        world.whole().await?;
        for node in world.sandbox.nodes() {
            world.drain(node.name(), &[]).await?;
            world.kubectl(&["uncordon", node.name()]).await?.success()?;
            world.whole().await?;
        }
        world.settled().await
    };
    let wedged = samples.await.context("something is wedged");
    let samples = witness.stop().await?;
    let events = audit.events(world.namespace())?;
    let members = world.etcd.pod_names();
    let judged = verdict::every_permission_was_right(&samples, &events, &timeline, &members);
    let told = judged.and_then(|told| wedged.map(|()| told));
    let told = told.map_err(|error| anyhow!("{error:#}\n{timeline}"))?;
    println!("{told}");
    let report = writer.stop().await?;
    report.assert_nothing_lost(&world.etcd).await?;
    world.close().await
}
