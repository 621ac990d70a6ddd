//! The least time of a rollout that restarts one member at a time: the members' restarts, each
//! measured by itself.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use quorumgate_testbed::writer::Writer;

use crate::arena::Arena;
use crate::majority::Majority;

const SOON: Duration = Duration::from_secs(60);

/// Deletes one pod after another. Returns the sum of the times from a delete until the new pod is
/// Ready and its member serves.
pub(crate) async fn sum(arena: &Arena) -> Result<Duration> {
    // etcd needs time to end while clients are connected. The clients are the same as in a rollout.
    let majority = Majority::watch(&arena.etcd, &arena.watch).await?;
    let writer = Writer::start(&arena.etcd).await?;
    let start = Instant::now();
    let mut sum = Duration::ZERO;
    for pod in arena.etcd.pod_names() {
        sum += restart(arena, &pod).await?;
        arena.etcd.quorate(SOON).await?;
    }
    let lost = majority.lost_since(start, None).await?;
    ensure!(lost.is_zero(), "the majority was lost for {lost:?}");
    writer
        .stop()
        .await?
        .assert_nothing_lost(&arena.etcd)
        .await?;
    Ok(sum)
}

async fn restart(arena: &Arena, pod: &str) -> Result<Duration> {
    let before = arena.etcd.pod_uid(pod).await?;
    let pods = arena.etcd.pod_api();
    let start = Instant::now();
    pods.delete(pod, &DeleteParams::default()).await?;
    arena
        .watch
        .until("another incarnation is Ready", SOON, |pods| {
            pods.get(pod)
                .is_some_and(|now| now.uid != before && now.ready)
        })
        .await
        .context(pod.to_owned())?;
    arena.etcd.serves(pod, SOON).await?;
    Ok(start.elapsed())
}
