//! The report on the defragmentation of one cluster: which members are due, and what holds it
//! back. Nothing is defragmented yet, neither by itself nor when the annotation asks: the condition
//! says so.
//!
//! Permissions on record, of a release that does defragment, are settled: by any replica, when
//! their age says that nobody can be at it any more, and the member does not say otherwise.

mod gather;
mod tell;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Run;
use super::keeper::{RESYNC, Wake};
use super::look::{Look, Problem};
use crate::api::{cause_kind, condition};
use crate::causes::causes;
use crate::ledger::Page;
use crate::observe::{self, ObserveError};
use crate::plan::defragmentation::{Mode, Next, Refusal, disarm, next, progress};
use crate::quorum::evidence::AlarmKind;
use crate::quorum::{ClusterRef, Grants, PodName, Snapshot};
use gather::{Gathered, gather, open, request};
use tell::Story;

/// The time for the answers of the members.
const LOOK: Duration = Duration::from_secs(3);
/// The longest time between two looks of which the first still says that all have served. Nothing
/// is done by it yet.
const GAP: Duration = Duration::from_secs(45);
/// The pauses: after a settlement, while a permission is open, between two looks at a cluster with
/// something to report, and after a failure.
const STEP: Duration = Duration::from_millis(100);
const RUNNING: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(30);
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// The bytes that a look at the sizes alone takes for worth a closer look. No run frees less.
const WORTH: u64 = 32 << 20;

/// Looks after the defragmentation of one cluster until cancelled. The observer wakes it when a
/// look at the members shows that there may be something to do.
pub(super) async fn keep(run: Arc<Run>, cluster: ClusterRef, wake: Arc<Wake>) {
    let mut leading = run.leading.begun_now();
    let mut driver = Driver {
        run,
        cluster,
        served: None,
        at_work: false,
    };
    let mut woken = false;
    loop {
        let leads = leading.now();
        let pause = if woken && leads || driver.at_work || driver.is_open() {
            Box::pin(driver.turn(leads)).await
        } else {
            RESYNC
        };
        woken = false;
        let until = driver.run.clock.instant() + pause;
        let asked = driver.request();
        loop {
            tokio::select! {
                () = wake.for_defragmentation() => woken = true,
                () = leading.changed() => break,
                () = tokio::time::sleep_until(until) => break,
            }
            // The observer wakes at each of its looks. Only a new request shortens a pause.
            if pause == RESYNC || driver.request() != asked {
                break;
            }
        }
    }
}

/// Whether a look of the observer shows that a closer look may find something to do.
pub(super) fn is_worth_a_look(look: &Look) -> bool {
    let Ok(wishes) = look.page.budget().spec.defragmentation() else {
        return false;
    };
    if open(&look.page).is_some() || is_shown(&look.page) {
        return true;
    }
    let least = WORTH.min(wishes.min_reclaim);
    let is_worth = |member: &crate::quorum::Member| {
        let sizes = member.sizes;
        sizes.is_some_and(|sizes| sizes.db.saturating_sub(sizes.in_use) >= least)
            || member.alarms.contains(&AlarmKind::NoSpace)
    };
    gather::settings(&wishes).mode != Mode::Off
        && (is_requested(&look.page) || look.snapshot.members.iter().any(is_worth))
}

/// Whether the budget says that a member is due.
fn is_shown(page: &Page) -> bool {
    let status = page.status();
    status.is_some_and(|status| {
        let mut conditions = status.conditions.iter();
        conditions.any(|c| c.type_ == condition::DEFRAGMENTED && c.status != "True")
    })
}

/// Whether a run of some member is asked for that was not made yet.
fn is_requested(page: &Page) -> bool {
    let Some(request) = request(page.budget()) else {
        return false;
    };
    let status = page.status();
    status.is_none_or(|status| {
        let served = |pod: &str| {
            let mut runs = status.defragmentations.iter();
            runs.any(|run| run.member == pod && run.request.as_ref() == Some(&request))
        };
        let mut pods = status.members.iter().filter_map(|m| m.pod.as_deref());
        !pods.all(served)
    })
}

/// The driver of one cluster.
struct Driver {
    run: Arc<Run>,
    cluster: ClusterRef,
    /// Since when every voter has served, and the last look that said so.
    served: Option<(Instant, Instant)>,
    /// Whether the last turn left something to do soon.
    at_work: bool,
}

impl Driver {
    /// The request on the budget, by the cache.
    fn request(&self) -> Option<String> {
        let ClusterRef { namespace, name } = &self.cluster;
        request(self.run.watches.budgets.get(namespace, name)?.as_ref())
    }

    /// Whether a permission is open, by the cache.
    fn is_open(&self) -> bool {
        let ClusterRef { namespace, name } = &self.cluster;
        let budget = self.run.watches.budgets.get(namespace, name);
        let status = budget.as_ref().and_then(|budget| budget.status.as_ref());
        let mut causes = status
            .into_iter()
            .flat_map(|s| &s.grants)
            .flat_map(|g| &g.causes);
        causes.any(|cause| cause.kind == cause_kind::DEFRAGMENT)
    }

    /// Takes one turn. Returns when to take the next.
    async fn turn(&mut self, leads: bool) -> Duration {
        let ended = self.look_and_step(leads).boxed().await;
        let pause = match ended {
            Ok(pause) => pause,
            Err(Problem::Ledger(error)) if error.begin_again() => STEP,
            Err(problem) => {
                let because = causes(&problem);
                warn!(cluster = %self.cluster, because, "could not look after its defragmentation");
                AFTER_FAILURE
            }
        };
        self.at_work = pause < LONG;
        pause
    }

    async fn look_and_step(&mut self, leads: bool) -> Result<Duration, Problem> {
        let run = Arc::clone(&self.run);
        let Some(page) = run.ledger().read(&self.cluster).await? else {
            return Ok(RESYNC);
        };
        let asked = run.clock.instant();
        let observe::Look {
            world,
            snapshot,
            round,
        } = Box::pin(run.observer.look(&page, asked + LOOK)).await?;
        let look = Look {
            page,
            world,
            snapshot,
            round,
        };
        let served_for = self.note_served(&look.snapshot, asked);
        let gathered = gather(&run, &look, served_for).boxed().await;
        let gathered = gathered.map_err(ObserveError::Spec)?;
        let next = next(&look.snapshot, &look.page.grants, &gathered.facts);
        if let Next::Watch { pod, because } = &next {
            let watch = self.watch(&look, &gathered, pod, because, leads);
            return watch.boxed().await;
        }
        if !leads {
            return Ok(RESYNC);
        }
        let alarms = disarm(&look.snapshot, &gathered.facts);
        let story = Story::Resting(&next, &alarms);
        tell::show(&run, &look, &gathered, &story).boxed().await?;
        Ok(LONG)
    }

    /// Notes whether all voters serve. Returns for how long they have.
    fn note_served(&mut self, snapshot: &Snapshot, now: Instant) -> Duration {
        let none = Grants::default();
        let all = snapshot.serving(&none, None) >= snapshot.voters(&none, None);
        let before = self.served.take();
        let before = before.filter(|(_, last)| now.saturating_duration_since(*last) < GAP);
        let since = before.map_or(now, |(since, _)| since);
        self.served = all.then_some((since, now));
        if all {
            now.saturating_duration_since(since)
        } else {
            Duration::ZERO
        }
    }

    /// Watches a run, of this process or another one.
    async fn watch(
        &self,
        look: &Look,
        gathered: &Gathered,
        pod: &PodName,
        because: &Refusal,
        leads: bool,
    ) -> Result<Duration, Problem> {
        let Some((_, holder)) = open(&look.page) else {
            return Ok(STEP);
        };
        let seen = progress(&look.snapshot, pod, &holder, &gathered.facts);
        let (ledger, settle_time) = (self.run.ledger(), self.run.settings.settle_time);
        let settled = ledger.settle_defragmentation(&look.page, pod, seen, settle_time);
        if settled.await?.is_some() {
            info!(cluster = %self.cluster, %pod, holder, "the permission to defragment it is given up");
            return Ok(STEP);
        }
        if leads {
            let story = Story::Running(pod, because);
            tell::show(&self.run, look, gathered, &story).await?;
        }
        Ok(RUNNING)
    }
}
