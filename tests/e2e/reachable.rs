//! Who keeps the endpoints of the gate: its replicas, whatever becomes of some of them.
//!
//! Nobody is sent there here, since no kube-proxy runs: what is asserted is what the EndpointSlices say, and when.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use quorumgate_testbed::gate::{Gate, GateBuilder};
use quorumgate_testbed::pki::Authority;
use quorumgate_testbed::{Bed, Sandbox, eventually};

use crate::world::{SOON, gate};

/// A lost replica is out within 2 s; a machine that compiles beside the test may take longer.
const OUT: Duration = Duration::from_secs(6);

struct Service {
    gate: Gate,
    sandbox: Sandbox,
}

impl Service {
    /// Three replicas, all of them in.
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

    /// Waits for this; at no time is the Service empty. How long it took.
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

    // One that ends takes itself out while it still answers.
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
    // The last one hangs as well: nobody is there to take it out, and nobody has to.
    service.gate.replica(1).freeze()?;
    service.gate.replica(0).thaw()?;
    let back = service.comes_to([true, false, false]).await?;
    soon("the last one", back)?;
    service.gate.replica(1).thaw()?;
    service.comes_to([true, true, false]).await?;
    service.close().await
}

/// No replica has a certificate for another: each answers only API servers, and turns the others away.
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
