//! etcd asks who its clients are: evidence needs a certificate only, moving leadership needs the root role.

use anyhow::{Result, ensure};
use quorumgate_testbed::etcd_cluster::Auth;

use crate::leadership::Held;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn with_the_root_role_the_gate_moves_leadership() -> Result<()> {
    let world = with_auth("auth-root", Auth::GateIsRoot).await?;
    let held = Held::leader(&world).await?;
    let warnings = delete(&world, held.pod()).await?;
    ensure!(!warnings.contains("leader"), "{warnings}");
    held.has_handed_over().await?;
    held.release().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_it_the_leader_goes_as_such_with_a_warning() -> Result<()> {
    let world = with_auth("auth-user", Auth::GateIsUser).await?;
    let held = Held::leader(&world).await?;
    let warnings = delete(&world, held.pod()).await?;
    for part in [
        "Warning:",
        "leadership could not be moved",
        "permission denied",
    ] {
        ensure!(warnings.contains(part), "no {part:?} in {warnings:?}");
    }
    held.goes_as_leader().await?;
    held.release().await?;
    world.close().await
}

async fn with_auth(name: &str, auth: Auth) -> Result<World> {
    let world = World::builder(name)
        .etcd(|etcd| etcd.auth(auth))
        .start()
        .await?;
    world.etcd.enable_auth().await?;
    world.whole().await?;
    Ok(world)
}

/// What kubectl says besides, which is where the gate's warnings are.
async fn delete(world: &World, pod: &str) -> Result<String> {
    let output = world
        .kubectl(&["delete", "pod", pod, "--wait=false"])
        .await?;
    ensure!(output.succeeded(), "{}", output.stderr);
    Ok(output.stderr)
}
