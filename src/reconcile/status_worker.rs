//! The observer of one cluster, which looks at the cluster outside of admission and reports on it.
//!
//! Only the leader writes, so that all reports come from one replica. The other replicas look too
//! while the cluster is in a state whose duration a rule needs
//! ([`crate::observe::Observer::watch`]), and write nothing. A write is a compare-and-swap. It is
//! not made while this process judges the cluster, because observations must not starve grants.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{Resource as _, ResourceExt as _};
use tokio::time::Instant;
use tracing::{info, warn};

use super::backups::Backups;
use super::enrol::made_here;
use super::look::{Look, Problem, ReadPermit, look};
use super::members::Members;
use super::report::{self, ReportFacts, Urgency};
use super::volumes::{Directories, Joins, Notes};
use super::ways::Ways;
use super::workers::{RESYNC, Wake};
use super::{Run, companion, defragmentation, redrive, replacement, strategy, volumes};
use crate::api::{MemberRole, QuorumDisruptionBudget, QuorumDisruptionBudgetStatus, condition};
use crate::causes::causes;
use crate::ledger::{Page, StatusUpdate};
use crate::observe::{ObserveError, is_enrolled, opts_out, words_of_way};
use crate::quorum::{ClusterRef, PodName, Role, Snapshot, Trust, progress_of_claims};
use crate::telemetry::events::{Notice, Severity};
use crate::telemetry::metrics::{ClusterNumbers, ClusterState};

/// The shortest time between two writes of numbers.
const NUMBERS: Duration = Duration::from_secs(10);
/// The shortest time between two looks, however many wakes there are.
const PAUSE: Duration = Duration::from_millis(400);
/// The time for which looks have to show a loss of data before it is recorded.
const LOSS_LASTS: Duration = Duration::from_secs(1);
/// The time between two looks at an unhealthy cluster.
const UNEASY: Duration = Duration::from_secs(2);
/// The time between two looks at a healthy cluster. With many clusters the time is longer, by
/// [`CALM_PER_CLUSTER`] each. Each cluster has its own moment in this time ([`until_its_turn`]):
/// otherwise clusters that were looked at together, as all are after a start, would always be.
const CALM: Duration = Duration::from_secs(15);
const CALM_PER_CLUSTER: Duration = Duration::from_millis(100);
/// The pause while a judgement of the cluster is under way.
const POLITE: Duration = Duration::from_millis(300);
/// The pause after a failure that time may cure.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// The observer's state.
struct Eyes {
    run: Arc<Run>,
    cluster: ClusterRef,
    wake: Arc<Wake>,
    /// When this worker last wrote the status.
    written: Option<Instant>,
    asked_again: HashMap<String, Instant>,
    ways: Ways,
    directories: Directories,
    notes: Notes,
    joins: Joins,
    backups: Backups,
    /// `None` until the feature asks for it, since there may be ten thousand workers.
    members: Option<Box<Members>>,
    /// When a look first showed that data is lost, if the latest did, too.
    lost_since: Option<Instant>,
}

/// Looks at a cluster and reports on it until cancelled.
pub(super) async fn keep(run: Arc<Run>, cluster: ClusterRef, wake: Arc<Wake>) {
    let mut leading = run.leading.begun_now();
    let mut eyes = Eyes {
        run,
        cluster,
        wake: Arc::clone(&wake),
        written: None,
        asked_again: HashMap::new(),
        ways: Ways::default(),
        directories: Directories::default(),
        notes: Notes::default(),
        joins: Joins::default(),
        backups: Backups::default(),
        members: None,
        lost_since: None,
    };
    loop {
        let next = eyes.turn(leading.now()).await;
        tokio::time::sleep(PAUSE).await;
        tokio::select! {
            () = wake.for_observer() => {}
            () = leading.changed() => {}
            () = tokio::time::sleep(next) => {}
        }
    }
}

/// Whether the StatefulSet has the label that enrols it. `None` where the label does not matter:
/// the StatefulSet is gone or opts out, or somebody else wrote the budget.
fn labelled(budget: &QuorumDisruptionBudget, set: Option<&StatefulSet>) -> Option<bool> {
    let set = set.filter(|set| made_here(budget) && !opts_out(set))?;
    Some(is_enrolled(set))
}

/// The permissions to replace members.
enum Replaced {
    /// No permission is open.
    None,
    /// Some permissions are open.
    Open,
    /// A permission has just ended, and the look is older than that.
    Settled,
}

impl Eyes {
    /// Takes one look. Returns the time until the next if no wake comes before.
    async fn turn(&mut self, leads: bool) -> Duration {
        if !leads && !self.run.is_uneasy(&self.cluster) {
            return RESYNC;
        }
        let permit = ReadPermit::wait(&self.run).await;
        match Box::pin(self.look_and_show(leads, permit)).await {
            Ok(next) => next,
            Err(Problem::Ledger(error)) if error.begin_again() => Duration::ZERO,
            Err(problem) => {
                let because = causes(&problem);
                warn!(cluster = %self.cluster, because, "could not look at it");
                AFTER_FAILURE
            }
        }
    }

    async fn look_and_show(
        &mut self,
        leads: bool,
        permit: ReadPermit,
    ) -> Result<Duration, Problem> {
        let prober = self.run.observer.prober().in_passing();
        let Some(look) = look(&self.run, &self.cluster, permit, &prober).await? else {
            return Ok(RESYNC);
        };
        let period = self.period(&look);
        // When something asks for another look, if that is before the period has passed.
        let mut soon = period;
        let mut others_look = false;
        if leads {
            match self.settle_replacements(&look).await? {
                Replaced::Settled => return Ok(Duration::ZERO),
                Replaced::Open => soon = soon.min(UNEASY),
                Replaced::None => {}
            }
            if defragmentation::is_worth_a_look(&look) {
                self.wake.defragmentation();
                others_look = true;
            }
            if replacement::is_worth_a_look(&look) {
                self.wake.replacement();
                others_look = true;
            }
            let again = Box::pin(self.ways.after(&self.run, &look)).await;
            if let Some(again) = again {
                soon = soon.min(again);
            }
            self.backups.read(&self.run, &look).await;
            if let Some(deferred) = self.show(&look).await? {
                soon = soon.min(deferred);
            }
            if self.lost_since.is_some() {
                soon = soon.min(UNEASY);
            }
            Box::pin(self.notes.write(&self.run, &look)).await;
            self.plan_companion(&look).await;
            self.keep_members(&look).await;
            if let Some(again) = self.redrive(&look).await {
                soon = soon.min(again);
            }
        }
        if !others_look && !self.has_written_lately() {
            prober.leave(look.world.endpoints(), soon);
        }
        Ok(soon.min(self.until_next(period)))
    }

    /// Removes the first permission to replace a member that has ended.
    async fn settle_replacements(&self, look: &Look) -> Result<Replaced, Problem> {
        let (run, page) = (&self.run, &look.page);
        let members = page.grants.iter().map(|(member, _)| member.clone());
        // A replacement of the gate's own ends by its record.
        let is_open = |member: &PodName| {
            page.grants.permit_replacement(member) && !replacement::is_under_way(page, member)
        };
        let open: Vec<PodName> = members.filter(is_open).collect();
        if open.is_empty() {
            return Ok(Replaced::None);
        }
        for member in &open {
            let claims = run
                .observer
                .claims_of_member(&self.cluster, &look.world, member);
            let claims = match claims.await {
                Ok(claims) => claims,
                Err(because) => {
                    warn!(cluster = %self.cluster, %member, because, "the permission to replace it stays open");
                    continue;
                }
            };
            let seen = progress_of_claims(&look.snapshot, member, &claims);
            let settle_time = run.settings.settle_time;
            let settled =
                run.ledger()
                    .settle_replacement(page, member, seen, settle_time, |_, _| ());
            if settled.await?.is_some() {
                info!(cluster = %self.cluster, %member, "the permission to replace it has ended");
                return Ok(Replaced::Settled);
            }
        }
        Ok(Replaced::Open)
    }

    /// Whether a write of this worker's own may have it look again soon. Each wakes it, and numbers
    /// that change all the time are written every [`NUMBERS`].
    fn has_written_lately(&self) -> bool {
        self.since_write().is_some_and(|since| since < 2 * NUMBERS)
    }

    /// The time since this worker last wrote the status, if it ever did.
    fn since_write(&self) -> Option<Duration> {
        let now = self.run.clock.instant();
        self.written.map(|at| now.saturating_duration_since(at))
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

    /// Writes the report if it has changed. Returns the pause until a deferred write.
    async fn show(&mut self, look: &Look) -> Result<Option<Duration>, Problem> {
        let run = &Arc::clone(&self.run);
        let tolerance = look.snapshot.tolerance(&look.page.grants);
        run.metrics.clusters.numbers(
            &self.cluster,
            ClusterNumbers {
                disruptions_allowed: tolerance.disruptions_allowed().into(),
                voters: tolerance.voters.into(),
                serving: tolerance.serving.into(),
            },
        );
        if run.ledger().turnstile().pending(&self.cluster) > 0 {
            return Ok(Some(POLITE));
        }
        let now = run.clock.instant();
        let lost = look.snapshot.went_back;
        self.lost_since = lost.map(|_| self.lost_since.unwrap_or(now));
        let lasts = self
            .lost_since
            .is_some_and(|since| now.saturating_duration_since(since) >= LOSS_LASTS);
        let update = StatusUpdate {
            no_bootstrap: !run
                .observer
                .announces_bootstrap(look.page.budget(), look.world.stateful_set()),
            lost: lost
                .filter(|lost| lasts || lost.is_plain())
                .map(|lost| (lost, run.clock.now())),
            volumes: volumes::recorded(run, look).await,
            directories: self.directories.read(run, look).await,
            ..look.world.status_update(Some(&look.snapshot))
        };
        let page = match run.ledger().update(&look.page, update).await? {
            Some(page) => page,
            None => look.page.clone(),
        };
        let before = page.status().cloned().unwrap_or_default();
        let max_age = page.budget().spec.max_age_of_backups();
        let max_age = max_age.map_err(ObserveError::Spec)?;
        let mut after = self.shown(look, &page, &before);
        if look.world.stateful_set().is_some() {
            after.joins_by = Box::pin(self.joins.read(run, look)).await;
        }
        let (generation, at) = (page.budget().metadata.generation, Time(run.clock.now()));
        self.backups
            .show(&mut after.conditions, max_age, generation, &at);
        let state = ClusterState {
            backups: self.backups.times(),
            ..state(page.budget(), &after)
        };
        run.metrics.clusters.state(&self.cluster, &state);
        match report::urgency(&before, &after) {
            Urgency::None => return Ok(None),
            Urgency::Numbers => {
                if let Some(since) = self.since_write()
                    && since < NUMBERS
                {
                    return Ok(Some(NUMBERS.saturating_sub(since)));
                }
            }
            Urgency::Now => {}
        }
        run.ledger()
            .write_status(&page, |status| *status = after.clone())
            .await?;
        self.written = Some(run.clock.instant());
        self.tell(page.budget(), &before, &after);
        Ok(None)
    }

    fn shown(
        &self,
        look: &Look,
        page: &Page,
        before: &QuorumDisruptionBudgetStatus,
    ) -> QuorumDisruptionBudgetStatus {
        let mut after = before.clone();
        ReportFacts {
            snapshot: &look.snapshot,
            round: &look.round,
            grants: &look.page.grants,
            trust: if page.budget().only_warns() {
                Trust::Untrusted { remaining: None }
            } else {
                look.world.trust()
            },
            untrusted_because: before.ledger.untrusted_because.as_deref(),
            force: &self.run.force(&self.cluster.namespace),
            way: look.world.way(),
            told: &words_of_way(look.world.way(), &page.budget().spec.members),
            advice: self.ways.advice(),
            labelled: labelled(page.budget(), look.world.stateful_set()),
            places: &volumes::places(look),
            troubles: &look.world.troubles(),
            generation: page.budget().metadata.generation,
            now: &Time(self.run.clock.now()),
        }
        .show(&mut after);
        if let Some(way) = self.ways.to_record(before.way.as_deref()) {
            after.way = Some(Box::new(way));
        }
        let set = look.world.stateful_set();
        after.update_strategy = set.map(|set| strategy::shown(set, self.run.settings.features));
        after
    }

    /// Records Events on the budget for the conditions that changed.
    fn tell(
        &self,
        budget: &QuorumDisruptionBudget,
        before: &QuorumDisruptionBudgetStatus,
        after: &QuorumDisruptionBudgetStatus,
    ) {
        for turned in report::turned(&before.conditions, &after.conditions) {
            let known = before.conditions.iter().any(|c| c.type_ == turned.type_);
            let good = turned.status == "True";
            if !known && good {
                continue;
            }
            info!(
                cluster = %self.cluster, condition = turned.type_, status = turned.status,
                reason = turned.reason, message = turned.message, "condition"
            );
            self.run.events.notify(Notice {
                regarding: reference(budget),
                severity: if good {
                    Severity::Normal
                } else {
                    Severity::Warning
                },
                reason: format!("{}{}", turned.type_, turned.status),
                action: "Observe",
                note: format!("{}: {}", turned.reason, turned.message),
            });
        }
    }

    async fn plan_companion(&self, look: &Look) {
        let run = &self.run;
        let tolerance = look.snapshot.tolerance(&look.page.grants);
        let set = look.world.stateful_set();
        let wanted = companion::Wanted {
            budget: look.page.budget(),
            selector: set.and_then(|set| Some(&set.spec.as_ref()?.selector)),
            min_available: companion::min_available(
                tolerance.voters,
                tolerance.majority,
                unseen_by_planners(tolerance.voters, &look.snapshot),
                look.world.policy(),
                companion::Evictions::of(look.page.budget()),
            ),
        };
        let namespace = &self.cluster.namespace;
        let here = run.watches.disruption_budgets(namespace);
        let leaving = run
            .watches
            .namespace(namespace)
            .is_none_or(|ns| ns.meta().deletion_timestamp.is_some());
        if leaving || !wanted.is_due(&here, look.world.pods()) {
            return;
        }
        if let Err(error) = wanted.apply(&run.client, look.world.pods()).await {
            warn!(cluster = %self.cluster, %error, "its PodDisruptionBudget for planners is out of date");
        }
    }

    /// Keeps the `EtcdMember`s. A failure concerns nothing else, so it is only reported.
    async fn keep_members(&mut self, look: &Look) {
        if !self.run.settings.features.etcd_members {
            return;
        }
        let members = self.members.get_or_insert_default();
        if let Err(error) = Box::pin(members.keep(&self.run, look)).await {
            warn!(cluster = %self.cluster, %error, "its EtcdMembers are out of date");
        }
    }

    /// Repeats the next delete for the taint eviction controller that can pass. Returns the time
    /// until the next look while some are due.
    async fn redrive(&mut self, look: &Look) -> Option<Duration> {
        let run = &self.run;
        let now = run.clock.now();
        let due = look.world.pods().iter().filter(|pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            let node = node.and_then(|name| run.watches.node(name));
            node.is_some_and(|node| redrive::is_due(pod, &node, now))
        });
        let due: Vec<_> = due.collect();
        let uids: Vec<String> = due.iter().filter_map(|pod| pod.uid()).collect();
        self.asked_again.retain(|uid, _| uids.contains(uid));
        if due.is_empty() {
            return None;
        }
        let instant = run.clock.instant();
        let mut ready = due.into_iter().filter(|pod| {
            let asked = pod.uid().and_then(|uid| self.asked_again.get(&uid));
            let patient =
                asked.is_none_or(|at| instant.saturating_duration_since(*at) >= redrive::AGAIN);
            patient && redrive::may_go(pod, &look.snapshot, &look.page.grants)
        });
        if let Some(pod) = ready.next() {
            self.asked_again
                .insert(pod.uid().unwrap_or_default(), instant);
            redrive::ask(&run.client, pod).await;
        }
        Some(UNEASY)
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

/// The facts that the metrics show of a budget besides the numbers of its cluster.
fn state<'a>(
    budget: &QuorumDisruptionBudget,
    status: &'a QuorumDisruptionBudgetStatus,
) -> ClusterState<'a> {
    let causes = status.grants.iter().flat_map(|grant| &grant.causes);
    let conditions = status.conditions.iter();
    let conditions = conditions.map(|c| [&c.type_, &c.status, &c.reason].map(String::as_str));
    ClusterState {
        enforced: !budget.only_warns(),
        open_grants: i64::try_from(status.grants.len()).unwrap_or(i64::MAX),
        oldest_grant: causes.filter_map(|cause| cause.at.parse().ok()).min(),
        conditions: conditions.collect(),
        backups: Vec::new(),
    }
}

fn reference(budget: &QuorumDisruptionBudget) -> ObjectReference {
    budget.object_ref(&())
}

/// Whether a status shows a state whose duration a rule needs.
pub(super) fn shows_unease(status: &QuorumDisruptionBudgetStatus) -> bool {
    let unhealthy = status.conditions.iter().any(is_unease);
    unhealthy || status.members.iter().any(|m| m.role == MemberRole::Learner)
}

/// Whether a condition shows a state whose duration a rule needs.
pub(super) fn is_unease(condition: &Condition) -> bool {
    condition.type_ == condition::QUORUM_HEALTHY && condition.status != "True"
}

/// The number of voters that a `PodDisruptionBudget` does not count although they serve or may
/// serve: voters beyond the replicas, which never have a pod here (a missing pod comes back), and
/// members that serve in pods that are not Ready.
fn unseen_by_planners(voters: u32, snapshot: &Snapshot) -> u32 {
    let elsewhere = voters.saturating_sub(snapshot.replicas);
    let unready = snapshot.members.iter().filter(|member| {
        let pod = member.pod_name().and_then(|name| snapshot.pod(name));
        member.serves_quorum() && pod.is_some_and(|pod| !pod.ready)
    });
    elsewhere.saturating_add(u32::try_from(unready.count()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

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
