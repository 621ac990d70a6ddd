//! The defragmentation of one cluster's members: which are due, what holds them back, and the runs.
//!
//! The leader begins runs, by itself or when the annotation asks, as the planner says
//! ([`crate::plan::defragmentation`]). The process that holds a grant goes on with its run, also if
//! it leads no longer. A grant whose holder is gone is settled by any replica, when its age says
//! that nobody can be at it any more, and the member does not say otherwise.

mod calls;
pub(super) mod gather;
mod runs;
mod steps;
mod tell;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::Instant;
use tracing::warn;

use super::Run;
use super::condition::find;
use super::look::{self, Look, Problem, ReadPermit};
use super::workers::{RESYNC, Wake};
use crate::api::{cause_kind, condition};
use crate::causes::causes;
use crate::ledger::Page;
use crate::observe::{self, ObserveError};
use crate::plan::defragmentation::{
    Call, Disarm, Mode, Next, Refusal, Step, disarm, next, progress,
};
use crate::quorum::evidence::AlarmKind;
use crate::quorum::{ClusterRef, Snapshot};
pub(super) use calls::Calls;
use gather::{Gathered, Known, Open, gather, open, request};
use steps::STEP;
use tell::Story;

/// The longest time between two looks of which the first still says that all have served.
const GAP: Duration = Duration::from_secs(6);
/// The pauses: while a run of this process is under way, while all members have to serve for a
/// while, while another process holds the permission, between two looks at a cluster with something
/// to report, and after a failure.
const RUNNING: Duration = Duration::from_millis(500);
const SERVING: Duration = Duration::from_secs(1);
const OF_ANOTHER: Duration = Duration::from_secs(5);
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
        moved: None,
        leadership_stays_until: None,
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
        let asked = driver.asked();
        loop {
            tokio::select! {
                () = wake.for_defragmentation() => woken = true,
                () = leading.changed() => break,
                () = tokio::time::sleep_until(until) => break,
            }
            // The observer wakes at each of its looks. Only a new request and new settings shorten
            // a pause.
            if pause == RESYNC || driver.asked() != asked {
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
        find(&status.conditions, condition::DEFRAGMENTED).is_some_and(|c| c.status != "True")
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
    /// The sequence number of the permission under which leadership was moved.
    moved: Option<u64>,
    /// The time until which leadership is not moved, because etcd refused to.
    leadership_stays_until: Option<Instant>,
    /// Whether the last turn left something to do soon.
    at_work: bool,
}

impl Driver {
    /// The generation of the budget, and the request on it, by the cache.
    fn asked(&self) -> Option<(Option<i64>, Option<String>)> {
        let budget = self.run.watches.budgets.of(&self.cluster)?;
        Some((budget.metadata.generation, request(&budget)))
    }

    /// Whether a permission is open, by the cache.
    fn is_open(&self) -> bool {
        let budget = self.run.watches.budgets.of(&self.cluster);
        let status = budget.as_ref().and_then(|budget| budget.status.as_ref());
        let mut causes = status
            .into_iter()
            .flat_map(|s| &s.grants)
            .flat_map(|g| &g.causes);
        causes.any(|cause| cause.kind == cause_kind::DEFRAGMENT)
    }

    /// Takes one turn. Returns when to take the next.
    async fn turn(&mut self, leads: bool) -> Duration {
        let permit = ReadPermit::wait(&self.run).await;
        let ended = self.look_and_step(leads, permit).boxed().await;
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

    async fn look_and_step(
        &mut self,
        leads: bool,
        permit: ReadPermit,
    ) -> Result<Duration, Problem> {
        let run = Arc::clone(&self.run);
        let Some((page, world)) = look::read(&run, &self.cluster, permit).await? else {
            return Ok(RESYNC);
        };
        let open = open(&page);
        let ours = open.as_ref().filter(|open| open.holder == run.me);
        // The members are asked after this, so one that serves serves after the call.
        let call = run.calls.of(&self.cluster, ours.map(|open| open.seq));
        let asked = run.clock.instant();
        let observe::Look {
            world,
            snapshot,
            round,
        } = Box::pin(run.observer.watch(&page, world, run.observer.prober())).await?;
        let look = Look {
            page,
            world,
            snapshot,
            round,
        };
        let known = Known {
            served_for: self.note_served(&look.snapshot, asked),
            leadership_stays: self
                .leadership_stays_until
                .is_some_and(|until| asked < until),
            call,
        };
        let gathered = gather(&run, &look, known).boxed().await;
        let gathered = gathered.map_err(ObserveError::Spec)?;
        match &open {
            Some(open) if open.holder == run.me => {
                self.go_on(&look, &gathered, open, leads).boxed().await
            }
            Some(open) => self.watch(&look, &gathered, open, leads).boxed().await,
            None if leads => self.rest_or_begin(&look, &gathered).boxed().await,
            None => Ok(RESYNC),
        }
    }

    /// Goes on with the run under the permission of this process.
    async fn go_on(
        &mut self,
        look: &Look,
        gathered: &Gathered,
        open: &Open,
        leads: bool,
    ) -> Result<Duration, Problem> {
        match next(&look.snapshot, &look.page.grants, &gathered.facts) {
            // Another replica leads, and waits until the permission is gone.
            Next::Act(Step::MoveLeader { .. } | Step::Begin { .. }) if !leads => {
                self.give_up(look, &open.pod, None).await
            }
            Next::Act(Step::MoveLeader { pod, to }) => self.move_leader(look, open, &pod, to).await,
            Next::Act(Step::Begin { pod }) => Ok(self.begin(look, gathered, &pod).await),
            Next::Act(Step::GiveUp { pod, because }) => {
                self.give_up(look, &pod, Some(&because)).await
            }
            Next::Act(Step::Settle { .. } | Step::Grant { .. })
            | Next::Watch { .. }
            | Next::Wait { .. }
            | Next::Nothing => self.watch(look, gathered, open, leads).await,
        }
    }

    /// Begins the next run, or says what holds it back.
    async fn rest_or_begin(
        &mut self,
        look: &Look,
        gathered: &Gathered,
    ) -> Result<Duration, Problem> {
        let facts = &gathered.facts;
        let alarms = disarm(&look.snapshot, facts);
        if let Disarm::Disarm(members) = &alarms {
            return Ok(self.disarm(look, members).await);
        }
        let mut next = next(&look.snapshot, &look.page.grants, facts);
        if let Next::Act(Step::Grant { pod, due }) = &next {
            return Ok(self.grant(look, gathered, pod, *due).await);
        }
        if let Next::Wait { because, .. } = &next
            && matches!(because, Refusal::ServingTooShort { .. })
        {
            next = self::next(&look.snapshot, &look.page.grants, &facts.after_a_while());
            if let Next::Act(_) = next {
                return Ok(SERVING);
            }
        }
        let story = Story::Resting(&next, &alarms);
        tell::show(&self.run, look, gathered, &story).await?;
        Ok(LONG)
    }

    /// Notes whether all voters serve. Returns for how long they have.
    fn note_served(&mut self, snapshot: &Snapshot, now: Instant) -> Duration {
        let all = snapshot.all_voters_serve();
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

    /// Watches a run, of this process or another one, and settles its permission when it is over.
    async fn watch(
        &mut self,
        look: &Look,
        gathered: &Gathered,
        open: &Open,
        leads: bool,
    ) -> Result<Duration, Problem> {
        let facts = &gathered.facts;
        let seen = progress(&look.snapshot, &open.pod, &open.holder, facts);
        if self.settle(look, open, seen).await? {
            return Ok(STEP);
        }
        let ours = open.holder == self.run.me;
        if leads {
            let story = Story::Running(open, facts.call == Call::Running);
            tell::show(&self.run, look, gathered, &story).await?;
        }
        Ok(if ours { RUNNING } else { OF_ANOTHER })
    }
}
