//! A look at a cluster that nobody waits for: the ledger first, then the Kubernetes half, then the
//! members.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::Run;
use crate::etcd::Prober;
use crate::ledger::{LedgerError, Page};
use crate::observe::{self, ObserveError, World};
use crate::quorum::evidence::Round;
use crate::quorum::{ClusterRef, Snapshot};

/// The reason why a look failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("the ledger")]
    Ledger(#[from] LedgerError),
    #[error("the cluster")]
    Observe(#[from] ObserveError),
}

/// The result of a look, with the page of the ledger that was read before.
pub(super) struct Look {
    pub(super) page: Page,
    pub(super) world: World,
    pub(super) snapshot: Snapshot,
    pub(super) round: Round,
}

/// A permit to read a cluster. Few clusters are read at one time.
///
/// A worker takes it before it begins its turn: thousands of turns that have begun and wait would
/// hold most of the process's memory.
pub(super) struct ReadPermit {
    _held: Option<OwnedSemaphorePermit>,
}

impl ReadPermit {
    /// Waits for a permit.
    pub(super) async fn wait(run: &Run) -> Self {
        let permit = Arc::clone(&run.reading).acquire_owned().await;
        // The semaphore is never closed.
        Self { _held: permit.ok() }
    }
}

/// Looks at a cluster. `None` if it has no budget. `prober` asks the members.
pub(super) async fn look(
    run: &Run,
    cluster: &ClusterRef,
    permit: ReadPermit,
    prober: &Prober,
) -> Result<Option<Look>, Problem> {
    // Boxed, since the readings of the API server make large futures.
    let Some((page, world)) = Box::pin(read(run, cluster, permit)).await? else {
        return Ok(None);
    };
    let observe::Look {
        world,
        snapshot,
        round,
    } = Box::pin(run.observer.watch(&page, world, prober)).await?;
    Ok(Some(Look {
        page,
        world,
        snapshot,
        round,
    }))
}

/// The ledger and the Kubernetes half. `None` if the cluster has no budget. The permit ends with
/// this: members are asked without one, so that a cluster that hangs delays no other.
pub(super) async fn read(
    run: &Run,
    cluster: &ClusterRef,
    _permit: ReadPermit,
) -> Result<Option<(Page, World)>, Problem> {
    let Some(page) = run.ledger().read(cluster).await? else {
        return Ok(None);
    };
    let sharing = run.sharing(&page);
    let world = run.observer.world_at_leisure(&page, sharing).await?;
    Ok(Some((page, world)))
}
