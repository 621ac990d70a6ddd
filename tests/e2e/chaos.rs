//! Random faults and requests, all at once, and then the check that every permission of the gate
//! was right.
//!
//! Several etcd clusters run side by side on a control plane of their own. They share its nodes and
//! three replicas of the gate. One sequence of operations concerns each cluster, and one more
//! concerns the shared parts. All choices come from the seed. A run has rounds: at the end of each
//! all faults stop, every operation that has to finish must have finished, and all observations are
//! judged.
//!
//! A short run belongs to the tests. `make chaos OPS=10000 SEED=7` runs for longer. The same seed
//! chooses the same operations again, but does not repeat the same races.

mod asked;
mod chance;
mod clients;
mod data;
mod drains;
mod evidence;
mod gates;
mod guards;
mod hung;
mod operation;
mod pods;
mod power;
mod relabelled;
mod rounds;
mod sizes;
mod stage;
pub(crate) mod strangers;
mod tally;
mod timeline;
mod verdict;
mod witness;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use fastrand::Rng;
use quorumgate_testbed::etcd_cluster::{EtcdCluster, EtcdVersion, UpdateStrategy};

use crate::rollouts::scene::on_delete;
use crate::world::World;
use stage::Stage;
use tally::Tally;

/// The number of operations in a run, unless `make chaos` sets another.
const OPERATIONS: usize = 60;
/// The number of operations in a round.
const ROUND: usize = 300;
/// The names and versions of all clusters but the first, which is called `red` and runs the newest
/// etcd.
const BESIDE: [(&str, EtcdVersion); 2] =
    [("green", EtcdVersion::V3_6), ("blue", EtcdVersion::V3_5)];
/// The number of nodes for pods.
const NODES: usize = 5;
/// The number of replicas of the gate.
const REPLICAS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_no_permission_takes_the_majority() -> Result<()> {
    let operations = chosen("QUORUMGATE_CHAOS_OPS")?.map_or(Ok(OPERATIONS), usize::try_from)?;
    let seed = match chosen("QUORUMGATE_CHAOS_SEED")? {
        Some(seed) => seed,
        None => u64::from(SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos()),
    };
    let again = format!("make chaos OPS={operations} SEED={seed}");
    on_delete("chaos", |_| {
        EtcdCluster::builder("red").update_strategy(UpdateStrategy::OnDelete)
    })
    .nodes(NODES)
    .replicas(REPLICAS)
    .clocks_of_their_own()
    .reached_by_endpoints()
    .on_a_plane_of_its_own(|world| run(world, operations, Rng::with_seed(seed)))
    .await
    .map_err(|error| anyhow!("{error:#}\nto do the same again: {again}"))
}

fn chosen(variable: &str) -> Result<Option<u64>> {
    match std::env::var(variable) {
        Ok(text) if !text.is_empty() => Ok(Some(text.parse().context(variable.to_owned())?)),
        Ok(_) | Err(_) => Ok(None),
    }
}

async fn run(world: World, operations: usize, mut chance: Rng) -> Result<()> {
    let mut clusters = vec![world.etcd.clone()];
    for (name, version) in BESIDE {
        let beside = EtcdCluster::builder(name)
            .version(version)
            .update_strategy(UpdateStrategy::OnDelete);
        clusters.push(beside.apply(&world.sandbox).await?);
    }
    let stage = Arc::new(Stage::new(world, clusters).await?);
    let outcome = play(&stage, operations, &mut chance).await;
    let stage = Arc::into_inner(stage).context("an operation goes on")?;
    match outcome {
        Ok(()) => stage.world.close().await,
        Err(error) => {
            let kept = evidence::keep(&stage);
            let kept = kept.unwrap_or_else(|why| format!("nothing is kept: {why:#}"));
            Err(anyhow!("{error:#}\n{kept}"))
        }
    }
}

#[expect(clippy::print_stdout, reason = "what a run has seen is to be read")]
async fn play(stage: &Arc<Stage>, operations: usize, chance: &mut Rng) -> Result<()> {
    stage.ready().await?;
    let mut tally = Tally::default();
    while tally.operations < operations {
        let now = ROUND.min(operations - tally.operations);
        tally += rounds::play(stage, now, chance).await?;
        println!("{} {tally}", jiff::Timestamp::now());
    }
    stage.every_node_can_be_drained().await
}
