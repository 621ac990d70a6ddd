//! The readings for one judgement, with as few in sequence as possible.
//!
//! The first wave requests everything that the last reading needed. The second wave requests the
//! rest. So a cluster that has not changed costs one wave, and a changed cluster is still read
//! correctly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;

use super::claim_names::{ClaimReads, claims_of};
use super::error::ObserveError;
use super::find::Find;
use super::identities::Identities;
use super::index::DisruptionBudgetNames;
use super::memory::{Hint, Memory};
use super::owner::Owners;
use super::reach::reach;
use super::read_limits::in_time;
use super::sights::Sights;
use super::teardown::Owner;
use super::view::{ClusterView, Objects};
use super::ways::credentials::Credentials;
use super::{belonging, needed};
use crate::api::OwnerStatus;
use crate::clock::Clock;
use crate::etcd::{Endpoint, Prober, TlsIdentity};
use crate::ledger::{Ledger, Page};
use crate::quorum::{ClusterRef, Kind, PodName, Policy};
use crate::telemetry::metrics::Metrics;
use crate::turns::{Turn, Turns};

/// The namespaces of which all pods are listed at one time, for a claim that somebody changes.
const LISTS_AT_ONCE: usize = 4;

pub(super) type Tls = Result<Option<Arc<TlsIdentity>>, String>;

/// Looks at clusters, and owns everything that is remembered of them from one look to the next.
/// Meant to be shared by the webhooks and the reconcile loop.
pub struct Observer {
    sources: Sources,
    owners: Owners,
    identities: Identities,
    disruption_budgets: Arc<DisruptionBudgetNames>,
    memory: Memory,
    sights: OnceLock<Sights>,
    /// The turns at lists of all pods of a namespace, for which anybody there can ask.
    listing: Turns,
}

/// The sources that an observer reads.
pub struct Sources {
    /// The Kubernetes API.
    pub client: Client,
    /// The ledgers.
    pub ledger: Ledger,
    /// The members of etcd.
    pub prober: Prober,
    /// The time that a member may take to answer, where its budget does not say and the cluster has
    /// not been slow.
    pub probe_timeout: Duration,
    /// The time for which a ledger is watched before it is trusted.
    pub settle_time: Duration,
    /// The time.
    pub clock: Clock,
    /// Where looks for decisions are counted.
    pub metrics: Arc<Metrics>,
}

/// The result of the first wave.
struct FirstWave {
    set: Option<StatefulSet>,
    namespace_terminating: bool,
    pods: Option<Pods>,
    disruption_budgets: Vec<PodDisruptionBudget>,
    leases: Vec<Lease>,
    sharing: Option<Vec<ClusterRef>>,
    owners: Vec<(OwnerStatus, Owner)>,
    tls: Option<(Credentials, Tls)>,
}

/// Pods of a cluster, by name.
#[derive(Debug)]
pub(super) struct Pods {
    pub(super) objects: Vec<Pod>,
    pub(super) found: Find,
}

/// How the other clusters that report the same etcd are found (rule 8). The API server compares all
/// budgets for it.
enum Sharing {
    /// A cache knows them, which must not decide about admission.
    Cached(Vec<ClusterRef>),
    /// A list of all budgets says it.
    Listed,
    /// The list is read when the members were asked, unless all of them have pods of this cluster:
    /// rule 8 makes no difference then.
    IfNeeded,
}

impl Observer {
    /// An observer that remembers nothing yet.
    pub fn new(sources: Sources) -> Self {
        Self {
            owners: Owners::new(sources.client.clone()),
            identities: Identities::new(sources.client.clone()),
            disruption_budgets: Arc::default(),
            memory: Memory::default(),
            sights: OnceLock::new(),
            listing: Turns::new(LISTS_AT_ONCE, 1),
            sources,
        }
    }

    /// The ledgers that the observer reads.
    pub fn ledger(&self) -> &Ledger {
        &self.sources.ledger
    }

    /// The names of `PodDisruptionBudget`s, to be fed by a watch. Until they are complete, the
    /// namespace's are listed.
    pub fn disruption_budget_names(&self) -> &Arc<DisruptionBudgetNames> {
        &self.disruption_budgets
    }

    /// Sets the answers of the watches. Only the first call counts.
    pub fn see_by(&self, sights: Sights) {
        let _ = self.sights.set(sights);
    }

    /// The answers of the watches. `None` until there are any.
    pub fn sights(&self) -> Option<&Sights> {
        self.sights.get()
    }

    /// The time for which a ledger is watched before it is trusted.
    pub fn settle_time(&self) -> Duration {
        self.sources.settle_time
    }

    /// The endpoints of a cluster's members from the last reading, so that a round can start while
    /// the pods are still being read. Its answers count only if [`ClusterView::confirms`] these
    /// endpoints.
    pub fn likely_endpoints(&self, cluster: &ClusterRef) -> Vec<Endpoint> {
        self.memory.hint(cluster).endpoints.clone()
    }

    /// Reads everything about the cluster that a judgement may need, but for the nodes and the
    /// budgets of the same etcd: whether they make a difference is known only when the members have
    /// been asked. `page` has to be read before. `target` is the pod in question, if there is one.
    /// `kind` says whether `PodDisruptionBudget`s matter.
    pub(super) async fn view(
        &self,
        page: &Page,
        target: Option<&PodName>,
        kind: Kind,
        find: Find,
    ) -> Result<ClusterView, ObserveError> {
        self.read(page, target, kind, find, Sharing::IfNeeded).await
    }

    /// The reading of [`Self::view`] without a target, for background looks. `sharing` has the
    /// other clusters that report the same etcd, if a cache knows them. The API server is not asked
    /// for them for each of many clusters again and again.
    pub async fn world_at_leisure(
        &self,
        page: &Page,
        sharing: Option<Vec<ClusterRef>>,
    ) -> Result<ClusterView, ObserveError> {
        let sharing = sharing.map_or(Sharing::Listed, Sharing::Cached);
        self.read(page, None, Kind::Delete, Find::Listed, sharing)
            .await
    }

    async fn read(
        &self,
        page: &Page,
        target: Option<&PodName>,
        kind: Kind,
        find: Find,
        sharing: Sharing,
    ) -> Result<ClusterView, ObserveError> {
        let policy = page.budget().spec.policy().map_err(ObserveError::Spec)?;
        let hint = self.memory.hint(&page.cluster);
        let likely = target.map(|target| hint.claims_of(target));
        let pods = self.likely_pods(page, target, &hint, find);
        let first = self.first_wave(page, kind, &policy, (&hint, pods), sharing);
        let likely = self.claims(&page.cluster, likely.into_iter().flatten());
        let (first, likely) = tokio::join!(Box::pin(first), likely);
        let first = first?;
        let selector = needed::selector(first.set.as_ref(), page)?;
        let set = first.set.as_ref();
        let usable = |pods: &Pods| match pods.found {
            Find::Named => set.is_some(),
            Find::Listed => hint.selector == selector,
        };
        let pods = match first.pods {
            // The first wave reads pods and StatefulSet concurrently. A StatefulSet that is deleted
            // without its pods loses their references before it goes. So pods that still refer to
            // another StatefulSet are listed again; otherwise they would seem to go with it.
            Some(pods) if usable(&pods) && all_belong(&pods.objects, set) => pods,
            _ => self.list_pods(&page.cluster, selector.as_deref()).await?,
        };
        let names = needed::pods(set, page, target);
        let pods = self.with_named(&page.cluster, pods, selector.as_deref(), names);
        let Pods {
            objects: pods,
            found: pods_found,
        } = pods.await?;
        let claims_by_pod = pods.iter().map(|pod| {
            // A pod may mount one claim by several volumes.
            let claims: BTreeSet<&str> = claims_of(pod).collect();
            let claims = claims.into_iter().map(str::to_owned);
            (belonging::name(pod), claims.collect())
        });
        let way = needed::way(page, first.set.as_ref(), &pods);
        let mut wanted = Hint {
            claims: claims_by_pod.collect(),
            owners: needed::owners(first.set.as_ref(), page),
            tls: needed::credentials(&policy, page, &way),
            selector,
            endpoints: Vec::new(),
        };
        let ((owners, tls), claims) = tokio::join!(
            self.second_wave(&page.cluster, &wanted, first.owners, first.tls),
            self.further_claims(&page.cluster, &wanted, target, likely),
        );
        let reach = reach(
            page,
            policy.evidence,
            first.set.as_ref(),
            (&way, &pods),
            tls,
        );
        wanted.endpoints.clone_from(&reach.endpoints);
        let selector = wanted.selector.clone();
        self.memory.keep_hint(&page.cluster, wanted);
        let set_gone_for = self.recorded_set_gone_for(page, first.set.as_ref());
        Ok(ClusterView::new(
            page,
            policy,
            Objects {
                namespace_terminating: first.namespace_terminating,
                set: first.set,
                selector,
                owners,
                pods,
                pods_found,
                nodes: BTreeMap::new(),
                claims,
                leases: first.leases,
                disruption_budgets: first.disruption_budgets,
                sharing: first.sharing,
                etcd_ages: BTreeMap::new(),
                set_gone_for,
                reach,
                way,
                trust: self.sources.ledger.trust(page, self.sources.settle_time),
                scale_out_for: self.scale_out_for(page),
                now: self.sources.clock.now(),
                settle_time: self.sources.settle_time,
            },
        ))
    }

    /// Waits for the turn to list all pods of a namespace. Whoever may change a claim there can
    /// make the gate do that at any rate.
    pub(super) async fn turn_to_list(&self, namespace: &str) -> Turn {
        self.listing.take(namespace).await
    }

    pub(super) fn client(&self) -> &Client {
        &self.sources.client
    }

    /// Asks the members.
    pub fn prober(&self) -> &Prober {
        &self.sources.prober
    }

    pub(super) fn probe_timeout(&self) -> Duration {
        self.sources.probe_timeout
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.sources.metrics
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.sources.clock
    }

    pub(super) fn owner_states(&self) -> &Owners {
        &self.owners
    }

    pub(super) fn tls_identities(&self) -> &Identities {
        &self.identities
    }

    async fn first_wave(
        &self,
        page: &Page,
        kind: Kind,
        policy: &Policy,
        (hint, pods): (
            &Hint,
            impl Future<Output = Result<Option<Pods>, ObserveError>>,
        ),
        sharing: Sharing,
    ) -> Result<FirstWave, ObserveError> {
        let cluster = &page.cluster;
        let tls = async {
            match &hint.tls {
                Some(wanted) => Some((wanted.clone(), self.tls(cluster, Some(wanted)).await)),
                None => None,
            }
        };
        let sharing = async {
            match sharing {
                Sharing::Cached(sharing) => Ok(Some(sharing)),
                Sharing::Listed => self.sharing(page).await.map(Some),
                Sharing::IfNeeded => Ok(None),
            }
        };
        let required = async {
            tokio::try_join!(
                self.set(cluster),
                self.namespace_terminating(cluster),
                pods,
                in_time(
                    "the PodDisruptionBudgets of the namespace",
                    self.disruption_budgets(cluster, kind)
                ),
                in_time("the member Leases", self.leases(cluster, policy.evidence)),
                sharing,
            )
        };
        let (required, owners, tls) =
            tokio::join!(required, self.owners(cluster, hint.owners.iter()), tls,);
        let (set, namespace_terminating, pods, disruption_budgets, leases, sharing) = required?;
        Ok(FirstWave {
            set,
            namespace_terminating,
            pods,
            disruption_budgets,
            leases,
            sharing,
            owners,
            tls,
        })
    }

    /// Completes the first wave by the objects that are needed besides.
    async fn second_wave(
        &self,
        cluster: &ClusterRef,
        wanted: &Hint,
        mut owners: Vec<(OwnerStatus, Owner)>,
        tls: Option<(Credentials, Tls)>,
    ) -> (Vec<(OwnerStatus, Owner)>, Tls) {
        let more_owners = wanted.owners.iter();
        let more_owners: Vec<&OwnerStatus> = more_owners
            .filter(|owner| !owners.iter().any(|(known, _)| known == *owner))
            .collect();
        let known_tls = tls.filter(|(known, _)| wanted.tls.as_ref() == Some(known));
        let tls = async {
            match known_tls {
                Some((_, tls)) => tls,
                None => self.tls(cluster, wanted.tls.as_ref()).await,
            }
        };
        let (more_owners, tls) = tokio::join!(self.owners(cluster, more_owners.into_iter()), tls);
        owners.extend(more_owners);
        (owners, tls)
    }

    /// Completes the claims of the pod in question.
    async fn further_claims(
        &self,
        cluster: &ClusterRef,
        wanted: &Hint,
        target: Option<&PodName>,
        mut known: ClaimReads,
    ) -> ClaimReads {
        let used = target.map(|target| wanted.claims_of(target));
        let used = used.into_iter().flatten();
        let further: Vec<&String> = used.filter(|claim| !known.contains_key(*claim)).collect();
        known.extend(self.claims(cluster, further.into_iter()).await);
        known
    }

    /// The time for which this replica has known that the StatefulSet in the budget's record is
    /// gone. Zero if it is not gone. StatefulSets that pods refer to are not tracked: a client that
    /// may change a pod can make it refer to anything.
    pub(super) fn recorded_set_gone_for(&self, page: &Page, set: Option<&StatefulSet>) -> Duration {
        let recorded = page.status().and_then(|s| s.stateful_set.as_ref());
        let current = set.and_then(|set| set.metadata.uid.as_deref());
        let gone = recorded.filter(|recorded| Some(recorded.uid.as_str()) != current);
        let seen = self.sources.ledger.seen();
        gone.map_or(Duration::ZERO, |gone| {
            seen.set_gone_for(&page.cluster, &page.uid, &gone.uid)
        })
    }

    /// The time for which the StatefulSet that the pod refers to has been gone, for a pod without a
    /// budget. Counts only while no other StatefulSet of this name exists.
    pub(super) fn set_gone_for(
        &self,
        namespace: &str,
        pod: &Pod,
        set: Option<&StatefulSet>,
    ) -> Duration {
        let seen = self.sources.ledger.seen();
        match (set, missing_set(pod, set)) {
            (None, Some(uid)) => seen.set_without_budget_gone_for(namespace, &uid),
            (Some(_), _) | (None, None) => Duration::ZERO,
        }
    }

    /// The time for which this replica has seen the recorded scale-out.
    fn scale_out_for(&self, page: &Page) -> Option<Duration> {
        let grown = page.status()?.scale_out.as_ref()?;
        let seen = self.sources.ledger.seen();
        Some(seen.scale_out_for(&page.cluster, &page.uid, grown.to))
    }
}

/// Whether no pod refers to a StatefulSet other than this one.
fn all_belong(pods: &[Pod], set: Option<&StatefulSet>) -> bool {
    pods.iter().all(|pod| missing_set(pod, set).is_none())
}

/// The UID of the StatefulSet that a pod refers to, if it is not this one.
fn missing_set(pod: &Pod, set: Option<&StatefulSet>) -> Option<String> {
    let current = set.and_then(|set| set.metadata.uid.as_deref());
    belonging::set_uid(&pod.metadata).filter(|uid| Some(uid.as_str()) != current)
}
