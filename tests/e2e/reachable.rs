//! The replicas keep the endpoints of the gate's Service, whatever happens to some of them.
//!
//! No kube-proxy runs in the test bed, so no call goes through the Service. The tests check the
//! content of the EndpointSlices and its timing.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use quorumgate_testbed::gate::{Gate, GateBuilder};
use quorumgate_testbed::pki::Authority;
use quorumgate_testbed::{Bed, Sandbox, eventually};

use crate::world::{SOON, gate};

/// The time limit for the removal of a lost replica. The gate promises 2 s; a machine that compiles
/// beside the test may take longer.
const OUT: Duration = Duration::from_secs(6);

struct Service {
    gate: Gate,
    sandbox: Sandbox,
}

impl Service {
    /// Starts three replicas, and waits until all are in the Service.
    async fn start(name: &str) -> Result<Self> {
        let sandbox = Bed::up().await?.sandbox(name).await?;
        Self::start_in(sandbox, gate()).await
    }

    async fn start_in(sandbox: Sandbox, gate: GateBuilder) -> Result<Self> {
        let gate = gate.replicas(3).keeping_endpoints();
        let gate = gate.start(&sandbox).await?;
        let service = Self { gate, sandbox };
        service.comes_to([true; 3]).await?;
        Ok(service)
    }

    /// Waits for this state of the endpoints, and returns how long that took. Fails if the Service
    /// is empty at any moment.
    async fn comes_to(&self, wanted: [bool; 3]) -> Result<Duration> {
        let begun = Instant::now();
        eventually(
            SOON,
            format!("the endpoints come to {wanted:?}"),
            || async {
                let standing = self.gate.standing().await?;
                ensure!(standing == wanted, "they are {standing:?}");
                anyhow::Ok(())
            },
        )
        .await?;
        Ok(begun.elapsed())
    }

    async fn close(self) -> Result<()> {
        self.gate.close().await?;
        self.sandbox.close().await
    }
}

fn soon(what: &str, took: Duration) -> Result<()> {
    tracing::info!(?took, what);
    ensure!(took < OUT, "{what}: out after {took:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_hangs_dies_or_ends_is_out_of_the_service_and_comes_back() -> Result<()> {
    let service = Service::start("reachable").await?;
    let replica = service.gate.replica(1);
    replica.freeze()?;
    let took = service.comes_to([true, false, true]).await?;
    soon("a frozen replica", took)?;
    replica.thaw()?;
    service.comes_to([true; 3]).await?;

    replica.kill().await?;
    let took = service.comes_to([true, false, true]).await?;
    soon("a killed replica", took)?;
    replica.restart().await?;
    service.comes_to([true; 3]).await?;

    // A replica that ends removes itself while it still answers.
    let (ended, out) = tokio::join!(replica.term(), async {
        service.comes_to([true, false, true]).await?;
        ensure!(replica.is_running(), "it ended before it was out");
        anyhow::Ok(())
    });
    ended.and(out)?;
    service.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_three_replicas_two_are_lost_at_once_and_the_last_one_stays() -> Result<()> {
    let service = Service::start("reachable-last").await?;
    service.gate.replica(0).freeze()?;
    service.gate.replica(2).kill().await?;
    let took = service.comes_to([false, true, false]).await?;
    soon("two replicas", took)?;
    // The last replica hangs as well. No other replica is left to remove its endpoint, so the
    // endpoint stays.
    service.gate.replica(1).freeze()?;
    service.gate.replica(0).thaw()?;
    let back = service.comes_to([true, false, false]).await?;
    soon("the last one", back)?;
    service.gate.replica(1).thaw()?;
    service.comes_to([true, true, false]).await?;
    service.close().await
}

/// A replica has no client certificate. With client certificates required, each replica answers API
/// servers only, and turns other replicas away.
#[tokio::test(flavor = "multi_thread")]
async fn where_callers_show_certificates_a_replica_that_was_lost_comes_back_as_well() -> Result<()>
{
    let bed = Bed::up().await?;
    let sandbox = bed.sandbox("reachable-callers").await?;
    let authority = sandbox.directory().join("callers.crt");
    std::fs::create_dir_all(sandbox.directory())?;
    std::fs::write(&authority, Authority::new("callers")?.certificate())?;
    let asked = gate().argument(format!("--client-ca={}", authority.display()));
    let service = Service::start_in(sandbox, asked.unregistered()).await?;
    let replica = service.gate.replica(1);
    replica.kill().await?;
    let took = service.comes_to([true, false, true]).await?;
    soon("a killed replica", took)?;
    replica.restart().await?;
    service.comes_to([true; 3]).await?;
    service.close().await
}
