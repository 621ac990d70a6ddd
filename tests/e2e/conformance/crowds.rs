//! Many concurrent requests.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::future::try_join_all;
use quorumgate_testbed::eventually;
use serde_json::json;
use tokio::time::sleep;

use super::raw::evict;
use crate::asking::{By, eviction, refusal};
use crate::rollouts::template;
use crate::vigil::Vigil;
use crate::world::{SOON, World};

/// The majority of five.
const MAJORITY: usize = 3;
/// The pause before a refused client asks again.
const AGAIN: Duration = Duration::from_millis(250);

pub(super) async fn n2_many_deletes_of_one_pod_are_one_grant(world: &World) -> Result<()> {
    let mut followers = world.etcd.followers().await?.into_iter();
    let (Some(wanted), Some(second), Some(third)) =
        (followers.next(), followers.next(), followers.next())
    else {
        bail!("too few followers");
    };
    let node = world.agent_of(&wanted).await?;
    let uid = world.etcd.pod_uid(&wanted).await?;
    // The frozen node does nothing, so the pod stays, and every request is about the same
    // incarnation.
    node.freeze()?;
    try_join_all((0..12).map(|_| world.lets_go(By::Delete, &wanted))).await?;
    let granted = world.granted().await?;
    ensure!(granted == [wanted.clone()], "grants: {granted:?}");

    // All these requests cost one of the two members that five can spare.
    let other = world.etcd.pod_uid(&second).await?;
    eventually(SOON, "another one may go", || world.delete(&second)).await?;
    world.has_to_wait_by(By::Delete, &third, &[&wanted]).await?;
    node.thaw()?;
    world.replaced(&wanted, &uid).await?;
    world.replaced(&second, &other).await?;
    world.whole().await
}

pub(super) async fn p19_concurrent_evictions_meet_429_alone_and_all_go_in_the_end(
    world: &World,
) -> Result<()> {
    let before = uids(world).await?;
    let vigil = Vigil::start(&world.etcd).await?;
    let waited = try_join_all(
        before
            .iter()
            .map(|(pod, uid)| until_it_goes(world, pod, uid)),
    );
    let waited: usize = waited.await?.into_iter().sum();
    for (pod, uid) in &before {
        world.replaced(pod, uid).await?;
    }
    world.whole().await?;
    vigil.assert_never_below(MAJORITY).await?;
    ensure!(waited > 0, "five went at once");
    Ok(())
}

/// Asks for this incarnation until it goes. Returns the number of refusals.
async fn until_it_goes(world: &World, pod: &str, uid: &str) -> Result<usize> {
    let body = eviction(pod, &json!({"preconditions": {"uid": uid}}));
    let mut waited = 0;
    let asking = async {
        loop {
            let answer = evict(world, pod, &body).await?;
            match answer.code {
                201 => return Ok(waited),
                429 => waited += 1,
                code => bail!("{pod}: {code}: {answer:?}"),
            }
            sleep(AGAIN).await;
        }
    };
    tokio::time::timeout(SOON, asking).await?
}

async fn uids(world: &World) -> Result<BTreeMap<String, String>> {
    let pods = world.etcd.pods().await?.into_iter();
    Ok(pods
        .filter_map(|pod| Some((pod.metadata.name?, pod.metadata.uid?)))
        .collect())
}

/// Runs a rollout, while other clients delete and evict arbitrary members.
pub(super) async fn n6_mixed_requests_through_three_replicas_never_exceed_the_budget(
    world: &World,
) -> Result<()> {
    let vigil = Vigil::start(&world.etcd).await?;
    let revision = template::change(world, "crowd").await?;
    let work = async {
        let strangers = [
            (By::Delete, 0),
            (By::Eviction, 1),
            (By::Delete, 3),
            (By::Eviction, 4),
        ];
        try_join_all(strangers.map(|(by, first)| two_of_them(world, by, first))).await?;
        eventually(SOON, "all members are updated", || async {
            let outdated = template::outdated(world, &revision).await?;
            ensure!(outdated.is_empty(), "{outdated:?} are not");
            Ok(())
        })
        .await?;
        world.whole().await
    };
    tokio::select! {
        done = work => done?,
        exceeded = never_more_than_spare(world) => exceeded?,
    }
    vigil.assert_never_below(MAJORITY).await?;
    let asked = world.gate.balancer().connections();
    ensure!(
        asked.len() == 3 && asked.iter().all(|connections| *connections > 0),
        "one replica was never asked: {asked:?}"
    );
    Ok(())
}

/// Asks for one member after another until two requests were permitted.
async fn two_of_them(world: &World, by: By, first: usize) -> Result<()> {
    let asking = async {
        let pods = world.etcd.pod_names();
        let mut allowed = 0;
        for pod in pods.iter().cycle().skip(first) {
            match world.ask(by, pod).await {
                Ok(()) => allowed += 1,
                answer => {
                    // Since it was chosen, the member may have gone or been replaced.
                    let (code, message) = refusal(answer)?;
                    ensure!(
                        [404, 409, 429].contains(&code),
                        "{by:?} of {pod}: {code}: {message}"
                    );
                }
            }
            if allowed == 2 {
                break;
            }
            sleep(AGAIN).await;
        }
        Ok(())
    };
    tokio::time::timeout(SOON, asking).await?
}

/// Returns an error as soon as more members have a grant than five can spare.
async fn never_more_than_spare(world: &World) -> Result<()> {
    loop {
        let granted = world.granted().await?;
        ensure!(granted.len() <= 5 - MAJORITY, "grants: {granted:?}");
        sleep(Duration::from_millis(50)).await;
    }
}
