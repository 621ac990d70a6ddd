//! One look at a cluster outside of admission: the ledger first, then the Kubernetes half and etcd's answers.

use std::sync::Arc;
use std::time::Duration;

use super::Run;
use crate::etcd::Pace;
use crate::ledger::{LedgerError, Page};
use crate::observe::{ObserveError, World};
use crate::quorum::evidence::Round;
use crate::quorum::{ClusterRef, Snapshot};

/// A round outside of admission has time.
const ROUND: Duration = Duration::from_secs(2);

/// What kept a look from its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("the ledger")]
    Ledger(#[from] LedgerError),
    #[error("the cluster")]
    Observe(#[from] ObserveError),
}

/// What was seen in one look.
pub(super) struct Look {
    pub(super) page: Page,
    pub(super) world: World,
    pub(super) snapshot: Snapshot,
    pub(super) round: Round,
}

/// Looks at one cluster, and remembers at what pace it answers.
pub(super) struct Looker {
    run: Arc<Run>,
    cluster: ClusterRef,
    pace: (Option<Duration>, Pace),
}

impl Looker {
    pub(super) fn new(run: Arc<Run>, cluster: ClusterRef) -> Self {
        Self {
            run,
            cluster,
            pace: (None, Pace::default()),
        }
    }

    /// How long a member may take to answer, at the pace of its cluster.
    pub(super) fn patience(&self) -> Duration {
        self.pace.1.timeout()
    }

    /// Looks. `None`: the cluster has no budget.
    pub(super) async fn look(&mut self) -> Result<Option<Look>, Problem> {
        let Some((page, world)) = self.read().await? else {
            return Ok(None);
        };
        let run = &self.run;
        let base = page.budget().spec.members.probe_timeout();
        let base = base.map_err(ObserveError::Spec)?;
        if self.pace.0 != base {
            self.pace = (base, base.map_or_else(Pace::default, Pace::new));
        }
        let asked = run.clock.instant();
        let round = run
            .prober
            .round_at_pace(world.endpoints(), &self.pace.1, asked + ROUND)
            .await;
        let ages = run.stopwatches.ages(&self.cluster, asked);
        let observation = world.observation(&page, None, round, ages);
        let snapshot = Snapshot::assemble(&observation);
        run.ledger().seen().note_leader(&self.cluster, &snapshot);
        run.stopwatches.note(&snapshot, &observation.round, asked);
        let round = observation.round;
        Ok(Some(Look {
            page,
            world,
            snapshot,
            round,
        }))
    }

    /// The Kubernetes half, when it is its turn. Members are asked outside of the turn: a cluster that hangs holds nobody up.
    async fn read(&self) -> Result<Option<(Page, World)>, Problem> {
        let run = &self.run;
        let _turn = run.reading.acquire().await;
        let Some(page) = run.ledger().read(&self.cluster).await? else {
            return Ok(None);
        };
        let sharing = run.sharing(&page);
        let world = run.observer.world_at_leisure(&page, sharing).await?;
        Ok(Some((page, world)))
    }
}
