//! The controller of update strategies. Keeps `OnDelete` on enrolled StatefulSets while the feature
//! is on, and restores the owner's strategy on all others.
//!
//! The webhook changes writes when they are made. This controller repairs the writes that the
//! webhook did not see: StatefulSets that are older than the feature, and writes while the gate was
//! away. It first writes the object unchanged, so that the webhook makes the change. Fields that
//! only a webhook changed still belong to their owner, so an operator with server-side apply gets
//! no conflict. If that changes nothing, the controller writes the strategy itself. After a rollout
//! it has the StatefulSet controller record the new revision ([`crate::strategy`]). A strategy that
//! another client keeps writing back past the webhook is repaired less and less often.

pub(super) mod unchecked;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Client, Error, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::run::{Bounds, Run};
use super::watches::CachedSet;
use super::workers::RESYNC;
use crate::api::names::PREVIOUS_UPDATE_STRATEGY;
use crate::api::{StrategyChoice, UpdateStrategyStatus, Updater};
use crate::features::Features;
use crate::ledger::{Ledger, LedgerError, Page};
use crate::named;
use crate::observe::labels_enrol;
use crate::quorum::ClusterRef;
use crate::strategy::{LeaderCommand, ON_DELETE, ROLLING_UPDATE, SetStrategy};
use crate::supervise::caught;
use unchecked::Unchecked;

/// The pause after a change, since changes come in bursts.
const BURST: Duration = Duration::from_millis(50);
/// The time limit of a repair.
const PATIENCE: Duration = Duration::from_secs(10);
/// The shortest and the longest pause between two repairs of one StatefulSet.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The number of concurrent repairs.
const AT_ONCE: usize = 8;

/// The update strategy as the budget's status shows it.
pub(super) fn shown(set: &StatefulSet, features: Features) -> UpdateStrategyStatus {
    let kind = kind(set);
    let remembers = set.annotations().contains_key(PREVIOUS_UPDATE_STRATEGY);
    UpdateStrategyStatus {
        kind: kind.to_owned(),
        set_by: match (kind, remembers) {
            (ON_DELETE, true) => StrategyChoice::Gate,
            _ => StrategyChoice::Owner,
        },
        updated_by: match (kind, features.on_delete) {
            (ON_DELETE, true) => Updater::Gate,
            (ON_DELETE, false) => Updater::Nobody,
            _ => Updater::StatefulSetController,
        },
    }
}

/// The type of the StatefulSet's present strategy.
pub(super) fn kind(set: &StatefulSet) -> &str {
    let strategy = set.spec.as_ref().and_then(|s| s.update_strategy.as_ref());
    let kind = strategy.and_then(|strategy| strategy.type_.as_deref());
    kind.unwrap_or(ROLLING_UPDATE)
}

/// The books of the StatefulSet controller: whether its status records that all pods have the
/// update revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Books {
    /// `status.currentRevision` is the update revision, or the status is unknown.
    Closed,
    /// `status.currentRevision` is older, and some pods are outdated, missing or not Ready.
    Open,
    /// `status.currentRevision` is older, and all pods have the update revision and are Ready, so
    /// that it can be written.
    Due,
}

impl Books {
    fn read(set: &StatefulSet) -> Self {
        let Some(status) = &set.status else {
            return Self::Closed;
        };
        let revisions = (&status.current_revision, &status.update_revision);
        let (Some(current), Some(update)) = revisions else {
            return Self::Closed;
        };
        if current == update {
            return Self::Closed;
        }
        let wanted = set
            .spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(1);
        let counts = [
            Some(status.replicas),
            status.updated_replicas,
            status.ready_replicas,
        ];
        let observed = status.observed_generation == set.metadata.generation;
        if observed && counts.iter().all(|count| count.unwrap_or(0) == wanted) {
            Self::Due
        } else {
            Self::Open
        }
    }
}

/// Whether a StatefulSet has the strategy by which its books are closed, and has to keep it until
/// they are.
fn is_closing(set: &StatefulSet) -> bool {
    let strategy = set.spec.as_ref().map(|spec| json!(spec.update_strategy));
    let memory = set.annotations().get(PREVIOUS_UPDATE_STRATEGY);
    let sight = SetStrategy {
        strategy: strategy.as_ref(),
        memory: memory.map(String::as_str),
    };
    sight.owners_while_closing(None).is_some() && Books::read(set) == Books::Due
}

/// The failure of a repair.
#[derive(Debug, thiserror::Error)]
enum RepairError {
    #[error("the ledger: {0}")]
    Ledger(#[from] LedgerError),
    #[error("the API server: {0}")]
    Api(#[from] Error),
    #[error("the API server took longer than {PATIENCE:?}")]
    TooSlow,
}

/// Repairs until cancelled, while this replica leads. A StatefulSet is checked when it is added to
/// `unchecked`, for as long as it needs a repair, and with all others when this replica begins to
/// lead.
pub(super) async fn run(run: Arc<Run>, unchecked: Arc<Unchecked>) {
    let repairer = Repairer {
        client: run.client.clone(),
        ledger: run.ledger().clone(),
        features: run.settings.features,
        bounds: Bounds::new(&run.settings),
    };
    let mut leading = run.leading.begun_now();
    let mut backoffs = Backoffs::default();
    let mut due = Vec::new();
    let mut all = true;
    loop {
        let mut next = RESYNC;
        let mut changed = unchecked.take();
        if leading.now() {
            if std::mem::take(&mut all) {
                let sets = &run.watches.stateful_sets;
                changed.extend(sets.map(|place, _| place.cluster()));
            }
            changed.extend(due);
            changed.retain(|cluster| {
                let set = run.watches.stateful_sets.of_cluster(cluster);
                let is_guarded = run.watches.budgets.of_cluster(cluster).is_some();
                set.is_some_and(|set| repairer.is_due(cluster, &set, is_guarded))
            });
            due = changed.into_iter().collect();
            let (ready, wait) = backoffs.take(&due, run.clock.instant());
            next = wait.unwrap_or(RESYNC).min(RESYNC);
            futures::stream::iter(ready)
                .for_each_concurrent(AT_ONCE, |cluster| {
                    let (repairer, metrics) = (&repairer, &run.metrics);
                    async move {
                        // A panic over one StatefulSet must not keep others from their repair. The
                        // StatefulSet has its turn again after its pause.
                        if let Err(how) = caught(repairer.repair(cluster.clone())).await {
                            error!(%cluster, %how, "repair of the update strategy ended unexpectedly (please report)");
                            metrics.duty_broke("repair of an update strategy");
                        }
                    }
                })
                .await;
        }
        tokio::time::sleep(BURST).await;
        tokio::select! {
            () = unchecked.added() => {}
            () = leading.changed() => all = true,
            () = tokio::time::sleep(next) => {}
        }
    }
}

/// The pauses of all StatefulSets that were repaired.
#[derive(Debug, Default)]
struct Backoffs(HashMap<ClusterRef, Backoff>);

#[derive(Debug)]
struct Backoff {
    last: Instant,
    pause: Duration,
}

impl Backoffs {
    /// The StatefulSets that may be repaired now, and the time until the next of the others may be.
    fn take(&mut self, due: &[ClusterRef], now: Instant) -> (Vec<ClusterRef>, Option<Duration>) {
        let since = |backoff: &Backoff| now.saturating_duration_since(backoff.last);
        // A StatefulSet that needed no repair for twice its pause starts without history.
        self.0
            .retain(|_, backoff| since(backoff) < backoff.pause * 2);
        let mut wait: Option<Duration> = None;
        let mut ready = Vec::new();
        for cluster in due {
            let pause = match self.0.get(cluster) {
                Some(backoff) if since(backoff) < backoff.pause => {
                    let left = backoff.pause.saturating_sub(since(backoff));
                    wait = Some(wait.map_or(left, |wait| wait.min(left)));
                    continue;
                }
                Some(backoff) => (backoff.pause * 2).min(LONGEST_PAUSE),
                None => PAUSE,
            };
            // A failed repair is tried again after the same pause.
            wait = Some(wait.map_or(pause, |wait| wait.min(pause)));
            self.0.insert(cluster.clone(), Backoff { last: now, pause });
            ready.push(cluster.clone());
        }
        (ready, wait)
    }
}

struct Repairer {
    client: Client,
    ledger: Ledger,
    features: Features,
    bounds: Bounds,
}

impl Repairer {
    /// Whether a StatefulSet seems to need a repair, by the caches. `is_guarded` says whether the
    /// cluster has a budget.
    fn is_due(&self, cluster: &ClusterRef, cached: &CachedSet, is_guarded: bool) -> bool {
        if !self.bounds.contain(&cluster.namespace) || cached.sight.terminates {
            return false;
        }
        let set = cached.stateful_set(cluster);
        let kept = kind(&set) == ON_DELETE;
        let changed = set.annotations().contains_key(PREVIOUS_UPDATE_STRATEGY);
        let enrolled = self.features.on_delete && (cached.sight.is_enrolled || is_guarded);
        match (enrolled, kept) {
            (true, true) => Books::read(&set) == Books::Due,
            (true, false) => !is_closing(&set),
            (false, _) => changed,
        }
    }

    async fn repair(&self, cluster: ClusterRef) {
        let repaired = tokio::time::timeout(PATIENCE, self.bring_in_line(&cluster)).await;
        match repaired.unwrap_or(Err(RepairError::TooSlow)) {
            Ok(()) => {}
            // Another client wrote, and that change wakes this controller again.
            Err(RepairError::Api(Error::Api(status))) if status.is_conflict() => {}
            Err(problem) => {
                warn!(%cluster, %problem, "cannot update the update strategy");
            }
        }
    }

    /// Repairs one StatefulSet, based on the version that is read now.
    async fn bring_in_line(&self, cluster: &ClusterRef) -> Result<(), RepairError> {
        let sets = untyped(&self.client, cluster);
        let Some(set) = named::get_opt(&sets, named::OF_OBJECT, &cluster.name).await? else {
            return Ok(());
        };
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let Some(order) = self.order(cluster, &set).await? else {
            return Ok(());
        };
        carry_out(&sets, cluster, set, order).await?;
        Ok(())
    }

    /// The strategy that the StatefulSet should have. `None` while its books are being closed.
    async fn order(
        &self,
        cluster: &ClusterRef,
        set: &DynamicObject,
    ) -> Result<Option<LeaderCommand>, LedgerError> {
        if !self.features.on_delete {
            return Ok(Some(LeaderCommand::GiveBack));
        }
        let page = match self.ledger.read(cluster).await {
            Err(_) if labels_enrol(set.labels()) => None,
            page => page?,
        };
        if page.is_none() && !labels_enrol(set.labels()) {
            return Ok(Some(LeaderCommand::GiveBack));
        }
        let Ok(typed) = set.clone().try_parse::<StatefulSet>() else {
            return Ok(Some(LeaderCommand::Keep));
        };
        if is_closing(&typed) {
            return Ok(None);
        }
        let due = kind(&typed) == ON_DELETE && Books::read(&typed) == Books::Due;
        Ok(Some(
            if due && page.is_some_and(|page| all_serve(&page, &typed)) {
                LeaderCommand::CloseBooks
            } else {
                LeaderCommand::Keep
            },
        ))
    }
}

/// Gives a StatefulSet the strategy of its owner back, where the gate had replaced it. Does nothing
/// to any other.
pub(super) async fn give_back(client: &Client, cluster: &ClusterRef) -> Result<(), Error> {
    let sets = untyped(client, cluster);
    match named::get_opt(&sets, named::OF_OBJECT, &cluster.name).await? {
        Some(set) => carry_out(&sets, cluster, set, LeaderCommand::GiveBack).await,
        None => Ok(()),
    }
}

/// The StatefulSets beside this one. The objects are untyped, since a strategy may have fields that
/// this version does not know.
fn untyped(client: &Client, cluster: &ClusterRef) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<StatefulSet>(&());
    Api::namespaced_with(client.clone(), &cluster.namespace, &kind)
}

/// Makes the change that `order` asks for to this version of a StatefulSet, if it needs one.
async fn carry_out(
    sets: &Api<DynamicObject>,
    cluster: &ClusterRef,
    mut set: DynamicObject,
    order: LeaderCommand,
) -> Result<(), Error> {
    if sight(&set).obey(order, None).is_none() {
        return Ok(());
    }
    let by: &str = order.into();
    let params = PatchParams {
        field_manager: Some(by.to_owned()),
        ..PatchParams::default()
    };
    let as_it_is = at_version(&set, json!({}));
    set = sets
        .patch(&cluster.name, &params, &Patch::Merge(&as_it_is))
        .await?;
    if let Some(change) = sight(&set).obey(order, None) {
        info!(%cluster, "update strategy written without the webhook");
        let direct = at_version(&set, change.merge_patch(strategy(&set)));
        set = sets
            .patch(&cluster.name, &params, &Patch::Merge(&direct))
            .await?;
    }
    let SetStrategy { memory, .. } = sight(&set);
    info!(%cluster, strategy = sight(&set).kind(), previous = memory, "update strategy updated");
    Ok(())
}

/// Whether every member served at the budget's last write, and no pod may be terminating. A
/// hibernating cluster has no members.
fn all_serve(page: &Page, set: &StatefulSet) -> bool {
    let hibernates = set.spec.as_ref().and_then(|spec| spec.replicas) == Some(0);
    let members = page.status().map(|status| status.members.as_slice());
    let members = members.unwrap_or_default();
    let all = !members.is_empty() && members.iter().all(|member| member.serving);
    page.grants.iter().next().is_none() && (hibernates || all)
}

fn strategy(set: &DynamicObject) -> Option<&Value> {
    set.data.pointer("/spec/updateStrategy")
}

fn sight(set: &DynamicObject) -> SetStrategy<'_> {
    let memory = set.annotations().get(PREVIOUS_UPDATE_STRATEGY);
    SetStrategy {
        strategy: strategy(set),
        memory: memory.map(String::as_str),
    }
}

/// A patch that applies to this version of the object only.
fn at_version(set: &DynamicObject, mut patch: Value) -> Value {
    let (version, uid) = (set.resource_version(), set.uid());
    let only = json!({"metadata": {"resourceVersion": version, "uid": uid}});
    json_patch::merge(&mut patch, &only);
    patch
}

#[cfg(test)]
mod tests;
