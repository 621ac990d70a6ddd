//! A look at a whole cluster, without a question about one of its pods.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::{Judge, evidence};
use crate::ledger::Page;
use crate::observe::ObserveError;
use crate::quorum::{Kind, Snapshot};

/// Somebody who can tell what is true of a cluster now.
pub trait Looking: Send + Sync + 'static {
    /// The cluster as it is after `page` was read. Members that have not answered by `latest` did not answer.
    fn look<'a>(
        &'a self,
        page: &'a Page,
        latest: Instant,
    ) -> BoxFuture<'a, Result<Snapshot, ObserveError>>;
}

impl Looking for Judge {
    fn look<'a>(
        &'a self,
        page: &'a Page,
        latest: Instant,
    ) -> BoxFuture<'a, Result<Snapshot, ObserveError>> {
        async move {
            let Self { bench, memory } = self;
            let world = bench.observer.world(page, None, Kind::Delete).await?;
            let round =
                evidence::ask_all(bench, &memory.paces, page, world.endpoints(), latest).await?;
            let ages = (bench.ages)(&page.cluster);
            let observation = world.observation(page, None, round, ages);
            let snapshot = Snapshot::assemble(&observation);
            bench
                .observer
                .ledger()
                .seen()
                .note_leader(&page.cluster, &snapshot);
            Ok(snapshot)
        }
        .boxed()
    }
}
