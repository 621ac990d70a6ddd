//! The loop of one cluster: settle, look, at most one step, report.
//!
//! The turn at the ledger comes first, on every replica ([`super::ledger_turn`]). The leader looks
//! at the cluster, lets the operations take their turns ([`super::operations`]), and reports what
//! the look has shown ([`super::status`]). The other replicas look too while the cluster is in a
//! state whose duration a rule needs ([`crate::observe::Observer::watch`]), and write nothing.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::ledger_turn;
use super::look::{self, Look, ReconcileError};
use super::operation::OperationContext;
use super::operations::Operations;
use super::run::Run;
use super::settle::{self, GivenUp};
use super::status::Reports;
use super::upkeep::Upkeep;
use super::workers::{RESYNC, Wake};
use crate::causes::causes;
use crate::quorum::{ClusterRef, Role};
use crate::turns::Turn;

/// The shortest time between two looks while no operation asks for one, however many wakes there
/// are.
const PAUSE: Duration = Duration::from_millis(400);
/// The time between two looks at an unhealthy cluster.
const UNEASY: Duration = Duration::from_secs(2);
/// The time between two looks at a healthy cluster. With many clusters the time is longer, by
/// [`CALM_PER_CLUSTER`] each. Each cluster has its own moment in this time ([`until_its_turn`]):
/// otherwise clusters that were looked at together, as all are after a start, would always be.
const CALM: Duration = Duration::from_secs(15);
const CALM_PER_CLUSTER: Duration = Duration::from_millis(100);
/// The pause after a failure that time may cure.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// The time limit for what Kubernetes shows of a cluster. Others wait for the turn meanwhile.
const READ: Duration = Duration::from_secs(20);

/// The loop of one cluster.
struct ClusterLoop {
    run: Arc<Run>,
    cluster: ClusterRef,
    operations: Operations,
    reports: Reports,
    upkeep: Upkeep,
}

/// The next time for something, and whether it was asked for since the last.
struct Timer {
    at: Instant,
    not_before: Instant,
    woken: bool,
}

impl Timer {
    fn at(now: Instant) -> Self {
        Self {
            at: now,
            not_before: now,
            woken: false,
        }
    }

    /// The time. A wake shortens it.
    fn time(&self) -> Instant {
        if self.woken {
            self.not_before
        } else {
            self.at.max(self.not_before)
        }
    }
}

/// Runs the loop of a cluster until cancelled.
pub(super) async fn run(run: Arc<Run>, cluster: ClusterRef, wake: Arc<Wake>) {
    let mut leading = run.leading.begun_now();
    let mut this = Box::new(ClusterLoop::new(Arc::clone(&run), cluster));
    let (mut ledger, mut look) = {
        let now = run.clock.instant();
        (Timer::at(now), Timer::at(now))
    };
    loop {
        let now = run.clock.instant();
        let leads = leading.now();
        if ledger.time() <= now {
            let next = ledger_turn::take(&run, &this.cluster, &wake).await;
            let now = run.clock.instant();
            ledger = Timer {
                at: now + next,
                not_before: now + ledger_turn::PAUSE,
                woken: false,
            };
            continue;
        }
        let asked = this.operations.look_at(&run, &this.cluster, leads, now);
        let by_operation = asked.is_some_and(|at| at <= now);
        if look.time() <= now || by_operation {
            let next = this.take_look(leads).await;
            let now = run.clock.instant();
            look = Timer {
                at: now + next,
                not_before: now + next.min(PAUSE),
                woken: false,
            };
            continue;
        }
        let until = ledger.time().min(look.time());
        let until = asked.map_or(until, |asked| until.min(asked));
        let prober = run.observer.prober();
        tokio::select! {
            () = wake.for_ledger() => ledger.woken = true,
            () = wake.for_look(), if !look.woken => look.woken = true,
            () = leading.changed() => look = Timer::at(run.clock.instant()),
            () = this.operations.until_otherwise(prober) => look = Timer::at(run.clock.instant()),
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

impl ClusterLoop {
    fn new(run: Arc<Run>, cluster: ClusterRef) -> Self {
        Self {
            run,
            cluster,
            operations: Operations::default(),
            reports: Reports::default(),
            upkeep: Upkeep::default(),
        }
    }

    /// Takes one look, and what follows from it. Returns the time until the next look if nothing
    /// wakes before.
    async fn take_look(&mut self, leads: bool) -> Duration {
        let now = self.run.clock.instant();
        let has_work = self
            .operations
            .look_at(&self.run, &self.cluster, leads, now);
        if !leads && !self.run.is_uneasy(&self.cluster) && has_work.is_none() {
            return RESYNC;
        }
        let permit = self.run.reading.take(&self.cluster.namespace).await;
        let run = Arc::clone(&self.run);
        let acting = Box::pin(self.look_and_act(leads, permit));
        match run.objects.account(acting).await {
            Ok(next) => next,
            Err(ReconcileError::Ledger(error)) if error.begin_again() => Duration::ZERO,
            Err(problem) => {
                let because = causes(&problem);
                warn!(cluster = %self.cluster, because, "cannot look at the cluster");
                AFTER_FAILURE
            }
        }
    }

    async fn look_and_act(
        &mut self,
        leads: bool,
        permit: Turn,
    ) -> Result<Duration, ReconcileError> {
        let run = &Arc::clone(&self.run);
        let prober = run.observer.prober().in_passing();
        let reading = timeout(READ, Box::pin(look::read(run, &self.cluster, permit)));
        let read = reading.await.map_err(|_| ReconcileError::Late(READ))??;
        let Some((page, view)) = read else {
            return Ok(RESYNC);
        };
        self.operations.before_members(run, &page);
        let asked = run.clock.instant();
        let look = &Box::pin(look::ask(run, page, view, &prober)).await?;
        let context = &OperationContext {
            run,
            cluster: &self.cluster,
            look,
            leads,
            asked,
        };
        let given_up = if leads {
            settle::claims(context).await?
        } else {
            GivenUp::None
        };
        let is_for_report = leads && run.leading.now() && self.reports.take_look(asked);
        let (stepped, reports) = match given_up {
            GivenUp::Settled => return Ok(Duration::ZERO),
            _ if is_for_report => (false, Vec::new()),
            _ => self.operations.take_turns(context).await,
        };
        if stepped {
            Box::pin(self.reports.show_step(context, &reports)).await?;
            return Ok(UNEASY);
        }
        let period = self.period(look);
        let mut soon = period;
        if leads {
            let shown = Box::pin(self.reports.show(context, &reports)).await?;
            let upkeep = self
                .upkeep
                .follow(run, look, self.reports.initialisations())
                .await;
            let given_up = (given_up == GivenUp::Open).then_some(UNEASY);
            soon = [shown, upkeep, given_up]
                .into_iter()
                .flatten()
                .fold(soon, Duration::min);
        }
        let now = run.clock.instant();
        let at_work = self.operations.look_at(run, &self.cluster, leads, now);
        if at_work.is_none() && !self.reports.has_written_lately(now) {
            prober.leave(look.view.endpoints(), soon);
        }
        Ok(soon.min(self.until_next(period)))
    }

    /// The time between two looks at a cluster that looks like this.
    fn period(&self, look: &Look) -> Duration {
        let headroom = look.snapshot.tolerance(&look.page.grants).headroom();
        let learning = look
            .snapshot
            .members
            .iter()
            .any(|m| m.role == Role::Learner);
        if look.snapshot.quorum_lost || headroom < 0 || learning {
            return UNEASY;
        }
        let clusters = u32::try_from(self.run.watches.budgets.len()).unwrap_or(u32::MAX);
        CALM.max(CALM_PER_CLUSTER.saturating_mul(clusters))
    }

    /// The time until the next look of a period. Calm clusters have a moment of their own in it.
    fn until_next(&self, period: Duration) -> Duration {
        if period < CALM {
            return period;
        }
        until_its_turn(&self.cluster, period, self.run.clock.now())
    }
}

/// The time until a cluster's own moment in a period comes next. Over many clusters these moments
/// are spread evenly.
fn until_its_turn(cluster: &ClusterRef, period: Duration, now: Timestamp) -> Duration {
    let mut hasher = DefaultHasher::new();
    cluster.hash(&mut hasher);
    let period = period.as_millis().max(1);
    let moment = u128::from(hasher.finish()) % period;
    let since = u128::from(now.as_millisecond().unsigned_abs()) % period;
    let left = (moment + period - since) % period;
    Duration::from_millis(u64::try_from(left).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_brings_the_next_turn_forward_but_not_before_the_shortest_pause() {
        let now = Instant::now();
        let mut next = Timer {
            at: now + CALM,
            not_before: now + PAUSE,
            woken: false,
        };
        assert_eq!(next.time(), now + CALM);
        next.woken = true;
        assert_eq!(next.time(), now + PAUSE);
        let soon = Timer {
            at: now,
            not_before: now + PAUSE,
            woken: false,
        };
        assert_eq!(soon.time(), now + PAUSE);
    }

    /// The numbers of clusters whose turn comes in each tenth of a period.
    fn turns(now: Timestamp) -> [u32; 10] {
        let mut turns = [0; 10];
        for number in 0..1_000 {
            let cluster = ClusterRef::new(format!("ns-{}", number / 10), format!("etcd-{number}"));
            let left = until_its_turn(&cluster, CALM, now);
            turns[usize::try_from(left.as_millis() * 10 / CALM.as_millis()).unwrap()] += 1;
        }
        turns
    }

    #[test]
    fn clusters_that_are_looked_at_together_have_their_next_turns_spread_over_the_period() {
        for second in [0, 7, 1_800_000_000] {
            let turns = turns(Timestamp::from_second(second).unwrap());
            assert!(
                turns.iter().all(|turns| (60..=140).contains(turns)),
                "{turns:?}"
            );
        }
    }

    #[test]
    fn a_cluster_has_one_turn_in_each_period() {
        let cluster = ClusterRef::new("ns", "etcd");
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        let first = until_its_turn(&cluster, CALM, start);
        let turn = start + first;
        assert_eq!(until_its_turn(&cluster, CALM, turn), Duration::ZERO);
        let after = turn + Duration::from_millis(1);
        assert_eq!(
            until_its_turn(&cluster, CALM, after),
            CALM.saturating_sub(Duration::from_millis(1))
        );
    }
}
