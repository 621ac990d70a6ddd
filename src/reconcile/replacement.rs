//! The replacement of one cluster's members whose data is lost, and the pods that are kept from
//! starting meanwhile.
//!
//! Only the leader acts. It makes one step per look, as the planner says
//! ([`crate::plan::replacement`]), and looks again. A replacement goes on from what is seen and
//! from the record in the budget's status, so a replica that ends between any two effects loses
//! nothing.

mod data;
mod gather;
mod record;
mod steps;
mod tell;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Run;
use super::condition::find;
use super::look::{self, Look, Problem, ReadPermit};
use super::workers::{RESYNC, Wake};
use crate::api::condition;
use crate::causes::causes;
use crate::observe::{World, is_held};
use crate::plan::replacement::{CrashLoop, Mode, Next, Step, next};
use crate::quorum::{ClusterRef, Comparison, Condition, PodUid};
use data::Compared;
use gather::{Gathered, gather};
pub(super) use record::is_under_way;

/// The pauses: after a step, while a replacement waits, between two looks at a cluster with
/// something to report, and after a failure.
const STEP: Duration = Duration::from_millis(100);
const WAITING: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(10);
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// The time for which no move of leadership is tried again after etcd refused one.
const AFTER_REFUSAL: Duration = Duration::from_mins(10);

/// Looks after the members of one cluster until cancelled. The observer wakes it when a look shows
/// that there may be something to do.
pub(super) async fn keep(run: Arc<Run>, cluster: ClusterRef, wake: Arc<Wake>) {
    let mut leading = run.leading.begun_now();
    let mut driver = Driver {
        run,
        cluster,
        leadership_stays_until: None,
        members_stay: None,
        compared: None,
        crash_loops: BTreeMap::new(),
    };
    let mut woken = false;
    loop {
        if leading.now() && (woken || driver.is_open()) {
            let pause = Box::pin(driver.turn()).await;
            if pause < LONG {
                tokio::time::sleep(pause).await;
                continue;
            }
        }
        // The observer looks as soon as this replica leads, so a second look of every cluster would
        // find nothing more.
        woken = tokio::select! {
            () = wake.for_replacement() => true,
            () = wake_for_open(&driver) => true,
            () = leading.changed() => false,
        };
    }
}

/// Returns when a replacement may have to go on although nobody woke the driver.
async fn wake_for_open(driver: &Driver) {
    loop {
        tokio::time::sleep(RESYNC).await;
        if driver.is_open() {
            return;
        }
    }
}

/// Whether a look of the observer shows that a closer look may find something to do.
pub(super) fn is_worth_a_look(look: &Look) -> bool {
    let Look {
        page,
        world,
        snapshot,
        ..
    } = look;
    let is_protected = page.status().is_some_and(|status| {
        find(&status.conditions, condition::DATA_PROTECTED).is_some_and(|c| c.status == "True")
    });
    let open = record::open(page).is_some();
    let held = world.pods().iter().any(is_held);
    let ill = || {
        let is_ill = |member: &crate::quorum::Member| member.condition != Condition::Serving;
        snapshot.members.iter().any(is_ill)
            || !snapshot.not_members.is_empty()
            || !snapshot.accused.is_empty()
    };
    let mut records = page.volume_records().into_values();
    let auto = gather::mode(page.budget()) == Mode::Auto
        || records.any(|record| record.volume.is_in_pod());
    let may_begin = || ill() && (auto || !gather::exits(world).is_empty());
    !is_protected || open || held || gather::requested(page).is_some() || may_begin()
}

/// The driver of one cluster.
struct Driver {
    run: Arc<Run>,
    cluster: ClusterRef,
    /// The time until which leadership is not moved, because etcd refused to.
    leadership_stays_until: Option<Instant>,
    /// The time until which no member is removed, and the words with which etcd refused to.
    members_stay: Option<(Instant, String)>,
    /// The latest comparison of what the members have.
    compared: Option<Compared>,
    /// When this replica first saw that etcd ends over and over, by pod.
    crash_loops: BTreeMap<PodUid, Instant>,
}

impl Driver {
    /// Whether a replacement is under way, by the cache.
    fn is_open(&self) -> bool {
        let budget = self.run.watches.budgets.of(&self.cluster);
        let status = budget.as_ref().and_then(|budget| budget.status.as_ref());
        status.is_some_and(|s| s.replacements.iter().any(|r| r.finished.is_none()))
    }

    /// Takes one turn. Returns when to take the next; from [`LONG`] on, a wake comes first.
    async fn turn(&mut self) -> Duration {
        let permit = ReadPermit::wait(&self.run).await;
        match self.look_and_step(permit).boxed().await {
            Ok(pause) => pause,
            Err(Problem::Ledger(error)) if error.begin_again() => STEP,
            Err(problem) => {
                let because = causes(&problem);
                warn!(cluster = %self.cluster, because, "could not look after the data of its members");
                AFTER_FAILURE
            }
        }
    }

    async fn look_and_step(&mut self, permit: ReadPermit) -> Result<Duration, Problem> {
        let run = Arc::clone(&self.run);
        let prober = run.observer.prober();
        let Some(mut look) = look::look(&run, &self.cluster, permit, prober).await? else {
            return Ok(RESYNC);
        };
        // A pod that waits would start with what the objects name now, as when it was held.
        if look.world.pods().iter().any(is_held)
            && let Some(directories) = run.observer.directories(&look.world).boxed().await
        {
            look.world.learn_directories(directories);
        }
        let now = run.clock.instant();
        let leadership_stays = self.leadership_stays_until.is_some_and(|until| now < until);
        let data = if gather::mode(look.page.budget()) == Mode::Off && !self.is_open() {
            Comparison::Unknown
        } else {
            self.compare(&look).boxed().await
        };
        let loops = self.crash_loops(&look.world, now);
        let gathered = match gather(&run, &look, leadership_stays, data, loops)
            .boxed()
            .await
        {
            Ok(gathered) => gathered,
            Err(because) => {
                warn!(cluster = %self.cluster, because, "it is not known whether a member has lost its data");
                return Ok(AFTER_FAILURE);
            }
        };
        if let Some(pause) = self.disarm(&look, &gathered).await {
            return Ok(pause);
        }
        let next = next(&look.snapshot, &look.page.grants, &gathered.facts);
        let refused = self.members_stay.as_ref().filter(|(until, _)| now < *until);
        if let Some((_, because)) = refused.cloned() {
            match &next {
                Next::Act(Step::RemoveMember { pod, .. }) => {
                    return self.undo(&look, pod, &because).await;
                }
                Next::Act(Step::Grant { .. }) => {
                    warn!(cluster = %self.cluster, because, "no member is replaced: etcd refused to remove one");
                    return Ok(LONG);
                }
                Next::Act(_) | Next::Wait { .. } | Next::Nothing => {}
            }
        }
        // A pod that etcd expects starts, also where a person changed the member list.
        let released = if matches!(next, Next::Act(_)) {
            None
        } else {
            self.release_any(&look, &gathered).await?
        };
        if let Some(pause) = released {
            return Ok(pause);
        }
        tell::tell_held(&run, &look, &gathered).boxed().await;
        tell::show(&run, &look, &gathered, &next).await?;
        match next {
            Next::Wait { .. } if gathered.facts.record.is_some() => Ok(WAITING),
            Next::Wait { .. } | Next::Nothing => Ok(LONG),
            Next::Act(step) => self.act(&look, &gathered, step).boxed().await,
        }
    }

    /// The pods in which etcd ends over and over, with the time for which this replica has seen it.
    fn crash_loops(&mut self, world: &World, now: Instant) -> BTreeMap<PodUid, CrashLoop> {
        let exits = gather::exits(world);
        self.crash_loops.retain(|uid, _| exits.contains_key(uid));
        let loops = exits.into_iter().map(|(uid, exit)| {
            let since = *self.crash_loops.entry(uid.clone()).or_insert(now);
            let lasted = now.saturating_duration_since(since);
            (uid, CrashLoop { exit, lasted })
        });
        loops.collect()
    }

    async fn act(
        &mut self,
        look: &Look,
        gathered: &Gathered,
        step: Step,
    ) -> Result<Duration, Problem> {
        let slug = step.slug();
        info!(cluster = %self.cluster, step = slug, "{step}");
        let done = match &step {
            Step::Grant { record, proof } => self.grant(look, record, proof.as_ref()).await,
            Step::MoveLeader { pod, to } => return self.move_leader(look, pod, *to).await,
            Step::RemoveMember { pod, id } => self.remove(look, pod, *id).await,
            Step::AddLearner { pod, peer_urls } => self.add(look, pod, peer_urls).await,
            Step::DeleteClaim { pod, uid } => self.delete_claim(look, gathered, pod, uid).await,
            Step::DeletePod { pod, uid } => self.delete_pod(look, pod, uid).await,
            Step::Release { pod, uid } => self.release(look, pod, uid).await,
            Step::RecordVolume { pod, id } => {
                return self.record_volume(look, gathered, pod, *id).await;
            }
            Step::Renew { record } => self.renew(look, record).await,
            Step::Promote { pod, id } => self.promote(look, pod, *id).await,
            Step::Settle { pod } => return self.settle(look, gathered, pod).await,
            Step::Undo { pod, because } => {
                return self.undo(look, pod, &because.to_string()).await;
            }
        };
        if let Err(because) = done {
            info!(cluster = %self.cluster, step = slug, because, "the step is tried again");
            if gathered.facts.record.is_some() {
                match tell::show_failed(&self.run, look, &step, &because).await {
                    // The step itself has written the ledger, such as the renewed permission of a
                    // removal that etcd refused. It is tried again after the usual pause.
                    Err(error) if error.begin_again() => {}
                    told => told?,
                }
            }
            return Ok(WAITING);
        }
        self.run.metrics.replacement_step(slug);
        Ok(STEP)
    }
}
