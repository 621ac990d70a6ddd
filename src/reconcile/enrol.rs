//! Enrolment: a budget for every enrolled StatefulSet, and the label that selects a namespace for
//! the webhooks.
//!
//! A budget has no owner reference. It must outlive its StatefulSet, which operators delete and
//! create again, because open grants would be lost with the budget. Budgets that the gate created
//! are deleted when their StatefulSet and all its pods have been gone for a settle time and no
//! grant is open. Budgets that people wrote stay.
//!
//! The label is set before a budget is created, so that no ledger exists that the API server does
//! not ask about. The label is applied and removed under its own field manager: it stays if another
//! client has applied it too.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Error, Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::in_force::is_gated;
use super::run::{Bounds, MANAGER};
use super::watches::{SlimPod, StatefulSetState, Watches};
use crate::api::{Enforcement, QuorumDisruptionBudget, names};
use crate::lists;
use crate::named;
use crate::observe::opts_out;
use crate::quorum::ClusterRef;
use crate::telemetry::events::{Notice, Notices, Severity};

/// The most budgets that are deleted in one pass, and the time for that. Other tenants wait
/// meanwhile for their labels and budgets.
const DISMISSED_AT_ONCE: usize = 20;
const DISMISSAL: Duration = Duration::from_secs(10);

/// Whether the gate created this budget.
pub(super) fn made_here(budget: &QuorumDisruptionBudget) -> bool {
    budget.labels().get(names::MANAGED_BY).map(String::as_str) == Some(MANAGER)
}

/// The actions that the caches call for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Work {
    /// The namespaces to label.
    label: BTreeSet<String>,
    /// The clusters to create a budget for.
    create: BTreeSet<ClusterRef>,
    /// The clusters whose namespace has as many budgets as the gate creates.
    beyond: BTreeSet<ClusterRef>,
    /// Budgets that the gate created and that seem to guard nothing any more.
    abandoned: BTreeSet<ClusterRef>,
    /// Labelled namespaces without enrolled clusters.
    unlabel: BTreeSet<String>,
}

/// The cached facts that enrolment depends on. They may be of ten thousand clusters, so no objects
/// are copied.
struct Cached<'a> {
    sets: &'a [(ClusterRef, StatefulSetState)],
    /// The clusters with budgets, each with whether the gate created its budget.
    budgets: &'a [(ClusterRef, bool)],
    /// The clusters that have pods, which are searched only if a budget has lost its StatefulSet.
    with_pods: &'a dyn Fn() -> BTreeSet<ClusterRef>,
    namespaces: &'a [Arc<Namespace>],
    bounds: &'a Bounds,
}

impl Cached<'_> {
    fn work(&self) -> Work {
        let alive: HashMap<&str, bool> = self.living().collect();
        let guarded: HashSet<&ClusterRef> = self
            .budgets
            .iter()
            .map(|(cluster, _)| cluster)
            .filter(|cluster| self.bounds.contain(&cluster.namespace))
            .collect();
        let asking: HashSet<&ClusterRef> = self
            .sets
            .iter()
            .filter(|(_, sight)| sight.is_enrolled && !sight.terminates)
            .map(|(cluster, _)| cluster)
            .filter(|cluster| alive.contains_key(cluster.namespace.as_str()))
            .collect();
        let wanted: HashSet<&str> = guarded
            .union(&asking)
            .map(|cluster| cluster.namespace.as_str())
            .collect();
        let (create, beyond) = self.within_bounds(&asking, &guarded);
        let mut work = Work {
            create,
            beyond,
            abandoned: self.abandoned(),
            ..Work::default()
        };
        for (name, is_gated) in alive {
            match (wanted.contains(name), is_gated) {
                (true, false) => work.label.insert(name.to_owned()),
                (false, true) => work.unlabel.insert(name.to_owned()),
                (true, true) | (false, false) => false,
            };
        }
        work
    }

    /// The clusters to create a budget for, and those that are too many for their namespace. Every
    /// budget counts, whoever created it. The first names come first.
    fn within_bounds(
        &self,
        asking: &HashSet<&ClusterRef>,
        guarded: &HashSet<&ClusterRef>,
    ) -> (BTreeSet<ClusterRef>, BTreeSet<ClusterRef>) {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for cluster in guarded {
            *counts.entry(cluster.namespace.as_str()).or_default() += 1;
        }
        let waiting: BTreeSet<&ClusterRef> = asking.difference(guarded).copied().collect();
        let (mut create, mut beyond) = (BTreeSet::new(), BTreeSet::new());
        for cluster in waiting {
            let count = counts.entry(cluster.namespace.as_str()).or_default();
            if *count < self.bounds.most {
                *count += 1;
                create.insert(cluster.clone());
            } else {
                beyond.insert(cluster.clone());
            }
        }
        (create, beyond)
    }

    /// The namespaces in which StatefulSets may be enrolled, each with whether the webhooks select
    /// it. Terminating namespaces are left out.
    fn living(&self) -> impl Iterator<Item = (&str, bool)> {
        let living = self
            .namespaces
            .iter()
            .filter(|namespace| namespace.meta().deletion_timestamp.is_none());
        living
            .filter_map(|namespace| Some((namespace.meta().name.as_deref()?, is_gated(namespace))))
            .filter(|(name, _)| self.bounds.contain(name))
    }

    fn abandoned(&self) -> BTreeSet<ClusterRef> {
        let sets = self.sets.iter();
        let opts_out: HashMap<&ClusterRef, bool> = sets
            .map(|(cluster, sight)| (cluster, sight.opts_out))
            .collect();
        let made_here = self.budgets.iter().filter(|(_, made_here)| *made_here);
        let made_here = made_here.map(|(cluster, _)| cluster);
        let mut without: BTreeSet<ClusterRef> = made_here
            .clone()
            .filter(|cluster| !opts_out.contains_key(cluster))
            .cloned()
            .collect();
        if !without.is_empty() {
            let with_pods = (self.with_pods)();
            without.retain(|cluster| !with_pods.contains(cluster));
        }
        // A cluster that opts out loses its budget, although it has members.
        let out = made_here.filter(|cluster| opts_out.get(cluster) == Some(&true));
        without.extend(out.cloned());
        without
    }
}

/// The controller of enrolment.
pub(super) struct Enrolment {
    client: Client,
    bounds: Bounds,
    settle_time: Duration,
    /// The enforcement of new budgets.
    enforcement: Enforcement,
    /// The clusters whose budgets enforced when they were last seen. A budget that is deleted is
    /// made again as it was: nobody asked for `Warn`.
    enforced: BTreeSet<ClusterRef>,
    /// For each budget that guards nothing, since when by this replica's clock.
    abandoned_since: HashMap<ClusterRef, Instant>,
    /// The clusters that were told that they are too many.
    told: BTreeSet<ClusterRef>,
    events: Arc<dyn Notices>,
    /// Namespaces whose label the gate has removed, and that another client keeps labelled.
    given_back: BTreeSet<String>,
}

impl Enrolment {
    pub(super) fn new(
        client: Client,
        bounds: Bounds,
        settle_time: Duration,
        enforcement: Enforcement,
        events: Arc<dyn Notices>,
    ) -> Self {
        Self {
            client,
            bounds,
            settle_time,
            enforcement,
            enforced: BTreeSet::new(),
            abandoned_since: HashMap::new(),
            told: BTreeSet::new(),
            events,
            given_back: BTreeSet::new(),
        }
    }

    /// Takes the actions that the caches call for. Failures are logged, and tried again at the next
    /// pass.
    pub(super) async fn pass(&mut self, watches: &Watches, now: Instant) {
        let sets = watches
            .stateful_sets
            .map(|place, set| (place.cluster(), set.sight));
        let here: HashSet<&ClusterRef> = sets.iter().map(|(cluster, _)| cluster).collect();
        self.enforced.retain(|cluster| here.contains(cluster));
        let work = Cached {
            sets: &sets,
            budgets: &watches
                .budgets
                .map(|place, budget| (place.cluster(), made_here(budget))),
            with_pods: &|| watches.clusters_of_pods(|_| true),
            namespaces: &watches.namespaces.all(),
            bounds: &self.bounds,
        }
        .work();
        let mut unlabelled = BTreeSet::new();
        for namespace in &work.label {
            self.given_back.remove(namespace);
            match self.label(namespace, true).await {
                Ok(()) => info!(namespace, "namespace labelled"),
                Err(error) => {
                    warn!(namespace, %error, "cannot label the namespace");
                    unlabelled.insert(namespace.as_str());
                }
            }
        }
        for cluster in &work.create {
            if !unlabelled.contains(cluster.namespace.as_str()) {
                self.create(cluster).await;
            }
        }
        self.report(work.beyond);
        self.give_back(work.unlabel).await;
        self.dismiss(work.abandoned, now).await;
    }

    /// Takes in a budget that was made or changed.
    pub(super) fn note(&mut self, cluster: &ClusterRef, budget: &QuorumDisruptionBudget) {
        if budget.only_warns() {
            self.enforced.remove(cluster);
        } else {
            self.enforced.insert(cluster.clone());
        }
    }

    /// Says once of each cluster that its namespace has too many.
    fn report(&mut self, beyond: BTreeSet<ClusterRef>) {
        let most = self.bounds.most;
        for cluster in beyond.difference(&self.told) {
            warn!(%cluster, most, "enrolment refused: the namespace has too many clusters");
            self.events.notify(Notice {
                regarding: ObjectReference {
                    api_version: Some("apps/v1".into()),
                    kind: Some("StatefulSet".into()),
                    namespace: Some(cluster.namespace.clone()),
                    name: Some(cluster.name.clone()),
                    ..ObjectReference::default()
                },
                severity: Severity::Warning,
                reason: "TooManyClusters".into(),
                action: "Enrol",
                note: format!(
                    "not enrolled: namespace {} has {most} budgets, the most that the gate creates in one namespace; its pods have to stay until there is a budget: write a QuorumDisruptionBudget for it, remove the label, or raise --max-clusters-per-namespace",
                    cluster.namespace
                ),
            });
        }
        self.told = beyond;
    }

    async fn label(&self, namespace: &str, gated: bool) -> Result<(), Error> {
        let labels = if gated {
            json!({ names::GATED: names::TRUE })
        } else {
            json!({})
        };
        let patch = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": namespace, "labels": labels },
        });
        let params = PatchParams::apply(MANAGER).force();
        Api::<Namespace>::all(self.client.clone())
            .patch(namespace, &params, &Patch::Apply(&patch))
            .await
            .map(drop)
    }

    async fn give_back(&mut self, namespaces: BTreeSet<String>) {
        self.given_back.retain(|name| namespaces.contains(name));
        for namespace in namespaces {
            if self.given_back.contains(&namespace) || !self.is_unguarded(&namespace).await {
                continue;
            }
            match self.label(&namespace, false).await {
                Ok(()) => {
                    info!(
                        namespace,
                        "namespace label removed: nothing is enrolled any more"
                    );
                    self.given_back.insert(namespace);
                }
                Err(error) => warn!(namespace, %error, "cannot remove the namespace label"),
            }
        }
    }

    /// Whether the namespace has no budget, by an uncached list. A cache is empty too while the
    /// definition is missing.
    async fn is_unguarded(&self, namespace: &str) -> bool {
        let budgets: Api<QuorumDisruptionBudget> = Api::namespaced(self.client.clone(), namespace);
        match lists::any(&budgets).await {
            Ok(any) => !any,
            Err(error) => {
                warn!(namespace, %error, "cannot list what is enrolled, so the namespace keeps its label");
                false
            }
        }
    }

    async fn create(&self, cluster: &ClusterRef) {
        let mut budget = QuorumDisruptionBudget::with_defaults(cluster);
        // The default is not written.
        budget.spec.enforcement = if self.enforced.contains(cluster) {
            Enforcement::Enforce
        } else {
            self.enforcement
        };
        budget
            .labels_mut()
            .insert(names::MANAGED_BY.into(), MANAGER.into());
        let budgets: Api<QuorumDisruptionBudget> =
            Api::namespaced(self.client.clone(), &cluster.namespace);
        match budgets.create(&PostParams::default(), &budget).await {
            Ok(_) => info!(%cluster, "enrolled"),
            Err(Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => warn!(%cluster, %error, "cannot create the budget"),
        }
    }

    /// Deletes budgets that have guarded nothing for a settle time: few in one pass, all of one
    /// namespace, whose pods are listed once. Labels and new budgets of other namespaces do not
    /// wait for a tenant that abandons many clusters beside many pods.
    async fn dismiss(&mut self, abandoned: BTreeSet<ClusterRef>, now: Instant) {
        self.abandoned_since
            .retain(|cluster, _| abandoned.contains(cluster));
        let mut due = Vec::new();
        for cluster in abandoned {
            let since = *self.abandoned_since.entry(cluster.clone()).or_insert(now);
            if now.saturating_duration_since(since) >= self.settle_time {
                due.push(cluster);
            }
        }
        let Some(namespace) = due.first().map(|cluster| cluster.namespace.clone()) else {
            return;
        };
        due.retain(|cluster| cluster.namespace == namespace);
        due.truncate(DISMISSED_AT_ONCE);
        let deleted = timeout(DISMISSAL, self.delete_unused(&namespace, &due)).await;
        match deleted {
            Ok(Ok(deleted)) => {
                for cluster in deleted {
                    info!(%cluster, "budget deleted: nothing is left to guard");
                }
            }
            Ok(Err(error)) => warn!(namespace, %error, "cannot delete unused budgets"),
            Err(_) => warn!(namespace, "no time to delete unused budgets"),
        }
        for cluster in &due {
            self.abandoned_since.remove(cluster);
        }
    }

    /// Deletes budgets of one namespace, each at the version that is read here. A record that is
    /// written meanwhile keeps a budget. Returns those that were deleted.
    async fn delete_unused<'a>(
        &self,
        namespace: &str,
        clusters: &'a [ClusterRef],
    ) -> Result<Vec<&'a ClusterRef>, Error> {
        let budgets: Api<QuorumDisruptionBudget> = Api::namespaced(self.client.clone(), namespace);
        let mut unused = Vec::new();
        for cluster in clusters {
            let budget = named::get_opt(&budgets, named::OF_OBJECT, &cluster.name).await?;
            let has_grants = |budget: &QuorumDisruptionBudget| {
                let status = budget.status.as_ref();
                status.is_some_and(|status| !status.grants.is_empty())
            };
            unused.extend(
                budget
                    .filter(|budget| made_here(budget) && !has_grants(budget))
                    .map(|budget| (cluster, budget)),
            );
        }
        let pods: Api<SlimPod> = Api::namespaced(self.client.clone(), namespace);
        // The pods are read now, with those that lost their labels, because no deletion may be
        // based on caches.
        let (mut with_pods, mut with_held) = (BTreeSet::new(), BTreeSet::new());
        lists::each(&pods, &ListParams::default(), |pod| {
            if let Some(cluster) = pod.cluster() {
                if pod.is_held() {
                    with_held.insert(cluster.clone());
                }
                with_pods.insert(cluster);
            }
        })
        .await?;
        let sets: Api<StatefulSet> = Api::namespaced(self.client.clone(), namespace);
        let mut deleted = Vec::new();
        for (cluster, budget) in unused {
            let set = named::get_opt(&sets, named::OF_OBJECT, &cluster.name).await?;
            let is_guarded = match &set {
                Some(set) => !opts_out(set),
                None => with_pods.contains(cluster),
            };
            // A pod that waits for its member to be replaced would wait for ever.
            if is_guarded || with_held.contains(cluster) {
                continue;
            }
            let only_this = DeleteParams::default().preconditions(Preconditions {
                uid: budget.uid(),
                resource_version: budget.resource_version(),
            });
            match budgets.delete(&cluster.name, &only_this).await {
                Ok(_) => deleted.push(cluster),
                Err(Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }

    /// The time until the next pass if no change comes before.
    pub(super) fn next(&self, now: Instant) -> Option<Duration> {
        let left = |since: &Instant| {
            self.settle_time
                .saturating_sub(now.saturating_duration_since(*since))
        };
        self.abandoned_since.values().map(left).min()
    }
}

#[cfg(test)]
mod tests;
