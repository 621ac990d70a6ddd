//! Turns changes of objects into wakes of workers, and keeps one set of workers per cluster.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Resource as _;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::cluster;
use super::enrol::Enrolment;
use super::run::{Bounds, Run};
use super::watches::{Change, StatefulSetState};
use super::workers::{Broke, RESYNC, Wake, Workers};
use crate::quorum::ClusterRef;
use crate::supervise::Supervisor;
use crate::telemetry::events::{Notice, Severity};

/// The pause before enrolment after a change, since changes come in bursts.
const BURST: Duration = Duration::from_millis(50);

type Duty = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A function that starts a duty, for the first time or again.
type Begin = Box<dyn FnMut() -> Duty + Send>;

struct Dispatch<'a> {
    run: &'a Arc<Run>,
    workers: Workers,
    enrolment: Enrolment,
    /// The time of the next check of enrolment.
    enrol_at: Instant,
    nodes: HashMap<String, NodeState>,
    sets: HashMap<ClusterRef, StatefulSetState>,
}

/// The properties of a node that matter for its pods.
#[derive(Debug, PartialEq)]
struct NodeState {
    ready: Option<String>,
    taints: Vec<Taint>,
}

impl NodeState {
    fn new(node: &Node) -> Self {
        let conditions = node.status.as_ref().and_then(|s| s.conditions.as_deref());
        let mut conditions = conditions.unwrap_or_default().iter();
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
        Self {
            ready: conditions
                .find(|c| c.type_ == "Ready")
                .map(|c| c.status.clone()),
            taints: taints.unwrap_or_default(),
        }
    }
}

/// Dispatches until cancelled.
pub(super) async fn until_cancelled(
    run: &Arc<Run>,
    mut changes: UnboundedReceiver<Change>,
    supervisor: &Supervisor,
    cancel: &CancellationToken,
) {
    let bounds = Bounds::new(&run.settings);
    let now = run.clock.instant();
    let mut dispatch = Dispatch {
        run,
        workers: Workers::new(supervisor.clone(), broke(run), cancel.child_token()),
        enrolment: Enrolment::new(
            run.client.clone(),
            bounds,
            run.settings.settle_time,
            run.settings.enforcement,
            Arc::clone(&run.events),
        ),
        enrol_at: now,
        nodes: HashMap::new(),
        sets: HashMap::new(),
    };
    dispatch.begin(&mut changes);
    let mut leading = run.leading.begun_now();
    let mut resync = tokio::time::interval_at(now + RESYNC, RESYNC);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            change = changes.recv() => match change {
                Some(change) => dispatch.take(change),
                None => return,
            },
            () = leading.changed() => dispatch.enrol_within(Duration::ZERO),
            _ = resync.tick() => dispatch.look_around(),
            () = tokio::time::sleep_until(dispatch.enrol_at) => dispatch.enrol().await,
        }
    }
}

impl Dispatch<'_> {
    /// Starts with the objects that the watches have listed. Workers look at their cluster when
    /// they start, so changes that were listed before wake none of them. Otherwise every cluster
    /// would be looked at twice, of which there may be ten thousand.
    fn begin(&mut self, changes: &mut UnboundedReceiver<Change>) {
        let listed: Vec<Change> = std::iter::from_fn(|| changes.try_recv().ok()).collect();
        for change in &listed {
            match change {
                Change::Budget(cluster) => {
                    self.sight(cluster);
                }
                Change::Node(name) => {
                    self.sight_node(name);
                }
                _ => {}
            }
        }
        self.update_workers();
        self.sight_all_sets();
        for outage in listed.into_iter().filter(Change::is_outage) {
            self.take(outage);
        }
    }

    fn take(&mut self, change: Change) {
        match change {
            Change::Budget(cluster) => self.budget(&cluster),
            Change::StatefulSet(cluster) => {
                self.wake(&cluster);
                if self.sight_set(&cluster) {
                    self.enrol_within(BURST);
                }
                self.run.strategies.add(cluster);
            }
            Change::Pod(cluster) => self.wake(&cluster),
            Change::DisruptionBudget(namespace) => {
                for wake in self.workers.within(&namespace) {
                    // Steps that evict wait for a budget that allows the eviction.
                    wake.look();
                }
            }
            Change::Namespace { name, outage } => {
                for wake in self.workers.within(&name) {
                    match &outage {
                        Some(outage) => wake.out_of_force(outage.clone()),
                        None => wake.ledger(),
                    }
                    wake.look();
                }
                self.enrol_within(BURST);
            }
            Change::Webhooks { outage } => {
                for wake in self.workers.all() {
                    match &outage {
                        Some(outage) => wake.out_of_force(outage.clone()),
                        None => wake.ledger(),
                    }
                    wake.look();
                }
            }
            Change::Node(name) => self.node(&name),
            Change::Listed => self.look_around(),
        }
    }

    /// Wakes the workers of a cluster for a change of a pod. Grants are settled by pods, and the
    /// status shows them.
    fn wake(&self, cluster: &ClusterRef) {
        if let Some(wake) = self.workers.get(cluster) {
            wake.ledger();
            wake.look();
        }
    }

    /// Records the present state of a budget, or forgets everything about a budget that is gone.
    /// Returns whether the budget exists.
    fn sight(&mut self, cluster: &ClusterRef) -> bool {
        let run = self.run;
        let Some(budget) = run.watches.budgets.of_cluster(cluster) else {
            run.observer.forget(cluster);
            run.fleet.leave(cluster);
            return false;
        };
        // Stopwatches of open grants start here, before the ledger is read.
        run.ledger().seen().note(&budget);
        self.enrolment.note(cluster, &budget);
        true
    }

    fn budget(&mut self, cluster: &ClusterRef) {
        match (self.sight(cluster), self.workers.get(cluster).is_some()) {
            (true, false) => self.workers.tend(cluster, duties(self.run)),
            (false, true) => self.workers.leave(cluster),
            // The status is written often, and matters only to the cluster's own workers.
            (true, true) | (false, false) => return self.wake(cluster),
        }
        self.run.strategies.add(cluster.clone());
        self.enrol_within(BURST);
    }

    /// Records the present state of a StatefulSet. Returns whether there may be something to enrol
    /// or to give up, for which every cluster is looked at: a property changed that matters, or an
    /// enrolled StatefulSet still has no budget. StatefulSets write their status often.
    fn sight_set(&mut self, cluster: &ClusterRef) -> bool {
        let watches = &self.run.watches;
        let set = watches.stateful_sets.of_cluster(cluster);
        let Some(sight) = set.map(|set| set.sight) else {
            return self.sets.remove(cluster).is_some();
        };
        let changed = self.sets.insert(cluster.clone(), sight) != Some(sight);
        let waits = sight.is_enrolled && !sight.terminates;
        changed || (waits && watches.budgets.of_cluster(cluster).is_none())
    }

    /// Records the present state of all StatefulSets, and has their update strategies checked.
    fn sight_all_sets(&mut self) {
        self.sets.clear();
        self.run.watches.stateful_sets.each(|place, set| {
            let cluster = place.cluster();
            self.sets.insert(cluster.clone(), set.sight);
            self.run.strategies.add(cluster);
        });
    }

    /// Records the present state of a node. Returns whether a property changed that matters for its
    /// pods. Nodes write their status often.
    fn sight_node(&mut self, name: &str) -> bool {
        let sight = self
            .run
            .watches
            .node(name)
            .map(|node| NodeState::new(&node));
        if self.nodes.get(name) == sight.as_ref() {
            return false;
        }
        match sight {
            Some(sight) => self.nodes.insert(name.to_owned(), sight),
            None => self.nodes.remove(name),
        };
        true
    }

    /// Wakes the workers of clusters with pods on a node.
    fn node(&mut self, name: &str) {
        if !self.sight_node(name) {
            return;
        }
        let here = self
            .run
            .watches
            .clusters_of_pods(|pod| pod.node() == Some(name));
        for cluster in here {
            if let Some(wake) = self.workers.get(&cluster) {
                // The node decides whether a silent member counts as down.
                wake.look();
            }
        }
    }

    /// Looks at everything anew, since events may have been lost while a watch was down.
    fn look_around(&mut self) {
        self.update_workers();
        self.sight_all_sets();
        for wake in self.workers.all() {
            wake.ledger();
        }
        self.enrol_within(Duration::ZERO);
    }

    fn update_workers(&mut self) {
        let budgets = &self.run.watches.budgets;
        let clusters = budgets.map(|place, _| place.cluster());
        // The end of a budget is not told where it came while a watch was down.
        for gone in self.workers.set_clusters(&clusters, duties(self.run)) {
            self.run.observer.forget(&gone);
            self.run.fleet.leave(&gone);
        }
    }

    fn enrol_within(&mut self, delay: Duration) {
        self.enrol_at = self.enrol_at.min(self.run.clock.instant() + delay);
    }

    async fn enrol(&mut self) {
        let now = self.run.clock.instant();
        if self.run.leading.now() {
            self.enrolment.pass(&self.run.watches, now).await;
        }
        let next = self.enrolment.next(now).unwrap_or(RESYNC).min(RESYNC);
        self.enrol_at = now + next.max(BURST);
    }
}

/// The loop for each cluster.
fn duties(run: &Arc<Run>) -> impl Fn(ClusterRef, Arc<Wake>) -> Vec<(&'static str, Begin)> {
    |cluster, wake| {
        let run = Arc::clone(run);
        let begin: Begin = Box::new(move || {
            let (run, cluster, wake) = (Arc::clone(&run), cluster.clone(), Arc::clone(&wake));
            Box::pin(cluster::run(run, cluster, wake))
        });
        vec![("loop of a cluster", begin)]
    }
}

/// Reports a duty that panicked or ended: in the log, by a metric, and on the budget of its
/// cluster.
fn broke(run: &Arc<Run>) -> Broke {
    let run = Arc::clone(run);
    Arc::new(move |cluster, duty, how, rest| {
        error!(
            %cluster, duty, %how, begins_again_after = ?rest,
            "worker ended unexpectedly and starts again (please report)"
        );
        run.metrics.duty_broke(duty);
        if let Some(budget) = run.watches.budgets.of_cluster(cluster) {
            run.events.notify(Notice {
                regarding: budget.object_ref(&()),
                severity: Severity::Warning,
                reason: "DutyBroke".into(),
                action: "BeginAgain",
                note: format!(
                    "the {duty} {how}, and begins again after {rest:?}: a bug, so report it"
                ),
            });
        }
    })
}
