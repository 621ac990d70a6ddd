//! The API server's objects for a cluster, all read after the ledger, and the facts in them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod as PodObject, PodSpec};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::belonging;
use super::claim_names::ClaimReads;
use super::etcd_container::{self, EtcdContainer};
use super::find::Find;
use super::initial_state::{InitialState, initial_state};
use super::intents::Intents;
use super::owner;
use super::reach::Reach;
use super::settings::Settings;
use super::teardown::{self, Around, Owner, first_ordinal, kept_ordinals};
use super::{containers, disruption_budget, endpoints, lease, nodes, overrides, peer_tls, pods};
use crate::api::{EtcdDirectories, OwnerStatus, RecordedEtcd, Way, names};
use crate::etcd::Endpoint;
use crate::ledger::{OwnerSeen, Page, SetFound, SetSeen, StandingSet, StatusUpdate};
use crate::plan::replacement::Exit;
use crate::quorum::evidence::Round;
use crate::quorum::pod::{Node, Pod};
use crate::quorum::{
    Circumstances, ClusterRef, EvictionBudget, Grace, Kind, MemberId, Observation, Override,
    PodName, PodUid, Policy, Scope, Snapshot, Switch, Trust,
};

/// A cluster as the API server shows it.
#[derive(Debug)]
pub struct ClusterView {
    cluster: ClusterRef,
    /// The container of etcd, where the budget names it.
    etcd_container: Option<String>,
    /// The directories of etcd on record.
    directories: Option<EtcdDirectories>,
    /// The word of other objects on etcd in a pod that starts now.
    told: ReferencedSettings,
    policy: Policy,
    objects: Objects,
}

/// The objects as they were read.
#[derive(Debug)]
pub(super) struct Objects {
    pub(super) namespace_terminating: bool,
    pub(super) set: Option<StatefulSet>,
    pub(super) selector: Option<String>,
    pub(super) owners: Vec<(OwnerStatus, Owner)>,
    /// The cluster's pods by name.
    pub(super) pods: Vec<PodObject>,
    pub(super) pods_found: Find,
    /// The claims of the pod in question.
    pub(super) claims: ClaimReads,
    /// The nodes that make a difference. Any other counts as unread.
    pub(super) nodes: BTreeMap<String, Node>,
    /// The ages of etcd's processes, by their own word. Only some are asked.
    pub(super) etcd_ages: BTreeMap<PodUid, Duration>,
    pub(super) leases: Vec<Lease>,
    pub(super) disruption_budgets: Vec<PodDisruptionBudget>,
    /// The other clusters that report the same etcd. `None` if they have not been looked for.
    pub(super) sharing: Option<Vec<ClusterRef>>,
    /// The time for which the last recorded StatefulSet has been gone.
    pub(super) set_gone_for: Duration,
    pub(super) reach: Reach,
    /// The way in which the members are asked.
    pub(super) way: Way,
    /// Derived from the ledger's record and from the time for which this replica has watched it.
    pub(super) trust: Trust,
    pub(super) scale_out_for: Option<Duration>,
    pub(super) now: Timestamp,
    pub(super) settle_time: Duration,
}

/// Durations that were measured over several looks.
#[derive(Debug, Clone, Default)]
pub struct Ages {
    /// The time for which quorum has been lost without a gap. `None` if it is not lost, or the loss
    /// is not confirmed.
    pub quorum_lost_for: Option<Duration>,
    /// The time for which the same pods have been mute. `None` if they are not.
    pub mute_for: Option<Duration>,
    /// The time for which each learner has made no progress.
    pub learners_stuck_for: BTreeMap<MemberId, Duration>,
}

/// The settings of etcd by the objects that its container refers to.
#[derive(Debug, Default)]
pub struct ReferencedSettings {
    /// The directories. `None` if the container itself states them all, or nothing does.
    pub directories: Option<EtcdDirectories>,
    /// Whether etcd makes a new cluster of its data, by its container or by these objects.
    pub is_forced: bool,
    /// Whether one of them could not be read just now, and may say something else.
    pub is_late: bool,
}

impl ClusterView {
    /// Takes in what other objects say of etcd in a pod that starts now.
    pub fn take_referenced_settings(&mut self, told: ReferencedSettings) {
        self.told = told;
    }

    /// The word of other objects on etcd in a pod that starts now.
    pub(super) fn referenced_settings(&self) -> &ReferencedSettings {
        &self.told
    }

    pub(super) fn new(page: &Page, policy: Policy, objects: Objects) -> Self {
        Self {
            cluster: page.cluster.clone(),
            etcd_container: page.etcd_container().map(str::to_owned),
            directories: page.etcd().directories.cloned(),
            told: ReferencedSettings::default(),
            policy,
            objects,
        }
    }

    pub(super) fn cluster(&self) -> &ClusterRef {
        &self.cluster
    }

    /// The container of etcd, where the budget names it.
    pub fn etcd_container(&self) -> Option<&str> {
        self.etcd_container.as_deref()
    }

    /// The record of etcd in the cluster's pods.
    pub(super) fn etcd(&self) -> RecordedEtcd<'_> {
        RecordedEtcd {
            container: self.etcd_container(),
            directories: self.directories.as_ref(),
        }
    }

    /// The record of etcd in this pod. One that waits finds the directories that other objects name
    /// now, and the others have theirs where they were.
    pub(super) fn etcd_of(&self, pod: &PodName) -> RecordedEtcd<'_> {
        let waits = self.pod(pod).is_some_and(pods::is_held);
        let told = self.told.directories.as_ref().filter(|_| waits);
        RecordedEtcd {
            directories: told.or(self.directories.as_ref()),
            ..self.etcd()
        }
    }

    /// The selector of the cluster's pods, if one is known.
    pub(super) fn selector(&self) -> Option<&str> {
        self.objects.selector.as_deref()
    }

    /// Whether pods that nobody expects may be missing here.
    pub(super) fn may_lack_pods(&self) -> bool {
        self.objects.pods_found == Find::Named
    }

    /// The endpoints of the cluster's members.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.objects.reach.endpoints
    }

    /// Whether a round that was sent to `asked` before the pods were read asked the right
    /// endpoints: the same pods at the same addresses.
    pub fn confirms(&self, asked: &[Endpoint]) -> bool {
        endpoints::same(asked, self.endpoints())
    }

    /// The way in which the members are asked.
    pub fn way(&self) -> &Way {
        &self.objects.way
    }

    /// The spec of the pods in the StatefulSet's template.
    pub(super) fn pod_template(&self) -> Option<&PodSpec> {
        let spec = self.objects.set.as_ref()?.spec.as_ref()?;
        spec.template.spec.as_ref()
    }

    /// The StatefulSet, if there is one.
    pub fn stateful_set(&self) -> Option<&StatefulSet> {
        self.objects.set.as_ref()
    }

    /// The StatefulSet's governing Service.
    pub(super) fn service(&self) -> Option<&str> {
        let spec = self.objects.set.as_ref()?.spec.as_ref()?;
        spec.service_name.as_deref()
    }

    /// The cluster's pods.
    pub fn pods(&self) -> &[PodObject] {
        &self.objects.pods
    }

    /// The pod of the cluster with this name.
    pub fn pod(&self, name: &PodName) -> Option<&PodObject> {
        self.objects
            .pods
            .iter()
            .find(|pod| belonging::name(pod) == *name)
    }

    /// The facts about the pod of the cluster with this name.
    pub fn pod_facts(&self, page: &Page, name: &PodName) -> Option<Pod> {
        self.pod(name).map(|pod| self.facts_of(page, pod))
    }

    /// The grace that a request leaves the pod.
    pub fn grace(&self, name: &PodName, kind: Kind, stated: Grace) -> Grace {
        stated.for_request(kind, self.pod(name).is_some_and(pods::goes_at_once))
    }

    /// Whether the other clusters that report the same etcd have not been looked for.
    pub(super) fn is_sharing_unread(&self) -> bool {
        self.objects.sharing.is_none()
    }

    /// Takes in the other clusters that report the same etcd.
    pub(super) fn learn_sharing(&mut self, sharing: Vec<ClusterRef>) {
        self.objects.sharing = Some(sharing);
    }

    /// Takes in nodes that were read.
    pub(super) fn learn_nodes(&mut self, nodes: BTreeMap<String, Node>) {
        self.objects.nodes.extend(nodes);
    }

    /// Takes in the ages of etcd's processes.
    pub(super) fn learn_etcd_ages(&mut self, ages: BTreeMap<PodUid, Duration>) {
        self.objects.etcd_ages = ages;
    }

    pub(super) fn claim_reads(&self) -> &ClaimReads {
        &self.objects.claims
    }

    /// The owner's choices.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether the ledger is trusted by this replica.
    pub fn trust(&self) -> Trust {
        self.objects.trust
    }

    /// `spec.replicas`. If the StatefulSet is gone, the last recorded number, or the number of the
    /// pods that it has made.
    pub fn replicas(&self, page: &Page) -> u32 {
        if let Some(set) = &self.objects.set {
            return teardown::replicas(set);
        }
        // Anybody can make a pod of a name that looks like theirs.
        let pods = self.objects.pods.iter();
        let made = pods.filter(|pod| pods::revision(pod).is_some()).count();
        let made = u32::try_from(made).unwrap_or(u32::MAX);
        page.expected.replicas.max(made)
    }

    /// The surroundings of a request for `target`, or of the cluster without a target.
    pub fn circumstances(&self, page: &Page, target: Option<&PodName>) -> Circumstances {
        let pod = target.and_then(|target| self.pod(target));
        let around = pod.map(|pod| (pod, self.around(page, Some(pod))));
        let around = around.as_ref();
        Circumstances {
            scope: Scope::Enrolled,
            teardown: around.and_then(|(pod, around)| teardown::of_pod(pod, around)),
            valid_override: pod.and_then(|_| self.valid_override(page, pod)),
            shared_with: self.shared_with(),
            ledger: self.objects.trust,
            forces_new_cluster: self.forces_new_cluster(),
            outside_ordinals: around.and_then(|(pod, a)| teardown::outside_ordinals(pod, a)),
            recovering: page.recovering(),
            disruption_budget: pod.map_or(EvictionBudget::Permits, |pod| {
                disruption_budget::verdict(pod, &self.objects.disruption_budgets)
            }),
        }
    }

    /// The surroundings of a request for a claim of `member`, whose pod need not exist.
    pub fn circumstances_of_claim(&self, page: &Page, member: &PodName) -> Circumstances {
        let pod = self.pod(member);
        Circumstances {
            teardown: teardown::of_claim(member, pod, &self.around(page, pod)),
            valid_override: self.valid_override(page, pod),
            ..self.circumstances(page, Some(member))
        }
    }

    /// Whether etcd's container in the template says that a new cluster is to be made of its data,
    /// or another object does.
    pub(super) fn forces_new_cluster(&self) -> bool {
        self.told.is_forced || self.is_forced_by(self.pod_template())
    }

    /// Whether etcd in this pod makes a new cluster of its data whenever it starts.
    pub fn is_forced(&self, pod: &PodName) -> bool {
        self.is_forced_by(self.pod(pod).and_then(|pod| pod.spec.as_ref()))
    }

    fn is_forced_by(&self, spec: Option<&PodSpec>) -> bool {
        let etcd = |spec| EtcdContainer::find(spec, self.etcd_container()).certain();
        let container = spec.and_then(etcd);
        container.is_some_and(|etcd| Settings::from_container(etcd).forces_new_cluster())
    }

    fn valid_override(&self, page: &Page, pod: Option<&PodObject>) -> Option<Override> {
        let set = self.objects.set.as_ref();
        overrides::of_pod(pod, set, Some(page.budget()), self.objects.now)
    }

    /// Another budget that may guard members of this etcd cluster.
    pub(super) fn shared_with(&self) -> Option<ClusterRef> {
        self.objects.sharing.iter().flatten().next().cloned()
    }

    /// The defects of invalid overrides for the pod.
    pub fn ignored_overrides(&self, page: &Page, target: &PodName) -> Vec<String> {
        let set = self.objects.set.as_ref();
        overrides::ignored(self.pod(target), set, page.budget(), self.objects.now)
    }

    /// Everything that a judgement may know. `round` has the answers of
    /// [`ClusterView::endpoints`]. Empty answers of members that could not be asked are added here.
    pub fn observation(
        &self,
        page: &Page,
        target: Option<&PodName>,
        mut round: Round,
        ages: Ages,
    ) -> Observation {
        let unreachable = self.objects.reach.unreachable.iter();
        round.probes.extend(unreachable.cloned());
        let replicas = self.replicas(page);
        Observation {
            cluster: self.cluster.clone(),
            circumstances: self.circumstances(page, target),
            policy: self.policy.clone(),
            replicas,
            update_revision: self.update_revision(),
            proceed_without_quorum: self.proceed_without_quorum(page),
            expected: page.expected,
            formed: page.is_formed(),
            scaled_out_for: self.scaled_out_for(page, replicas),
            quorum_lost_for: ages.quorum_lost_for,
            mute_for: ages.mute_for,
            learners_stuck_for: ages.learners_stuck_for,
            pods: self.facts(page),
            recorded_pods: page.recorded_pods(),
            recorded_externals: page.recorded_externals(),
            first_ordinal: self
                .objects
                .set
                .as_ref()
                .map_or(0, |set| first_ordinal(set).0),
            recorded_cluster: page.cluster_id(),
            recorded_log_end: page.log_end(),
            recorded_loss: page.loss(),
            recorded_refills: page.refills(),
            round,
        }
    }

    /// The facts that the budget should record. `snapshot` is the judged cluster, if it was judged.
    pub fn status_update(&self, snapshot: Option<&Snapshot>) -> StatusUpdate {
        self.complete(StatusUpdate::default(), snapshot)
    }

    /// Completes an update by the facts that the budget should record.
    pub fn complete(&self, update: StatusUpdate, snapshot: Option<&Snapshot>) -> StatusUpdate {
        let set = self.objects.set.as_ref();
        let grace = self.policy.scale_out_grace;
        StatusUpdate {
            // Without a StatefulSet the desired number is unknown, so the recorded one stays.
            expected: set.and(snapshot).map(|snapshot| snapshot.expected),
            // The recorded id is what a doubtful cluster is compared with, so it stays meanwhile.
            cluster_id: snapshot
                .filter(|snapshot| !snapshot.is_cluster_in_doubt)
                .and_then(|snapshot| snapshot.cluster_id),
            log_end: snapshot.and_then(|snapshot| snapshot.log_end),
            formed: snapshot.is_some_and(|snapshot| snapshot.formed),
            stateful_set: if let Some(set) = set {
                self.seen(set).map(SetFound::Here)
            } else {
                belonging::are_orphans(&self.objects.pods).then_some(SetFound::Orphaned)
            },
            // Any pod that is older than the StatefulSet counts.
            unfinished_deletes: set
                .filter(|_| !self.may_lack_pods())
                .and_then(|set| teardown::unfinished(set, &self.objects.pods)),
            standing: set
                .filter(|set| set.metadata.deletion_timestamp.is_none())
                .and_then(|set| {
                    Some(StandingSet {
                        uid: set.metadata.uid.clone()?,
                        kept: kept_ordinals(set),
                        now: self.objects.now,
                    })
                }),
            ordinals_here: set
                .filter(|_| !self.may_lack_pods())
                .map(|set| teardown::ordinals_here(set, &self.objects.pods)),
            selector: self.objects.selector.clone(),
            trust: Some(self.objects.trust),
            scale_out_settled: self.objects.scale_out_for.is_some_and(|age| age >= grace),
            ..update
        }
    }

    /// The facts about all pods of the cluster.
    pub(super) fn facts(&self, page: &Page) -> Vec<Pod> {
        let pods = self.objects.pods.iter();
        pods.map(|pod| self.facts_of(page, pod)).collect()
    }

    fn facts_of(&self, page: &Page, pod: &PodObject) -> Pod {
        let node = nodes::of_pod(pod, &self.objects.nodes);
        let role = lease::role_of(&belonging::name(pod), &self.objects.leases);
        let up_for = containers::up_for(pod, page.etcd_container(), self.objects.now);
        let etcd_age = self.objects.etcd_ages.get(&pods::uid(pod)).copied();
        Pod {
            up_for,
            ready_for: pods::ready_for(pod, self.objects.now),
            etcd_age: etcd_age.or(up_for),
            ..pods::facts(pod, node, role, Some(page))
        }
    }

    /// The pods in which etcd has ended and was started again, over and over.
    pub fn failing_pods(&self) -> BTreeSet<PodUid> {
        let restarts = |pod: &PodObject| containers::etcd_history(pod, self.etcd_container()).1;
        let many = |pod: &&PodObject| i64::from(restarts(pod)) >= containers::MANY_RESTARTS.into();
        let failing = self.objects.pods.iter().filter(many);
        failing.map(pods::uid).collect()
    }

    /// How etcd's container ends in each pod in which it was restarted over and over and does
    /// not last.
    pub fn crash_loops(&self) -> BTreeMap<PodUid, Exit> {
        let pods = self.objects.pods.iter();
        pods.filter_map(|pod| {
            let (named, now) = (self.etcd_container(), self.objects.now);
            Some((
                pods::uid(pod),
                containers::crash_loop(pod, named, containers::MANY_RESTARTS, now)?,
            ))
        })
        .collect()
    }

    /// The effect of a start without data, by the specs of the pods that stay.
    pub fn initial_states(&self) -> BTreeMap<PodName, InitialState> {
        let pods = self.objects.pods.iter();
        let stay = pods.filter(|pod| pod.metadata.deletion_timestamp.is_none());
        stay.map(|pod| {
            let etcd = etcd_container::of_pod(pod, self.etcd_container());
            let state = etcd.map_or(InitialState::Unread, initial_state);
            (belonging::name(pod), state)
        })
        .collect()
    }

    /// The words of nodes about containers that do not run, by pod.
    pub fn troubles(&self) -> BTreeMap<PodName, String> {
        let pods = self.objects.pods.iter();
        pods.filter_map(|pod| {
            let trouble = containers::trouble(pod, self.etcd_container())?;
            Some((belonging::name(pod), trouble))
        })
        .collect()
    }

    /// The switch of TLS between members in the StatefulSet's template, if there is one.
    pub fn switches_peer_tls(&self) -> Option<Switch> {
        peer_tls::switched(self.objects.set.as_ref()?, &self.objects.pods)
    }

    /// The revision that may proceed without quorum by the owner's annotation. `None` without an
    /// obstacle that needs it.
    fn proceed_without_quorum(&self, page: &Page) -> Option<String> {
        let annotations = page.budget().metadata.annotations.as_ref()?;
        let revision = annotations.get(names::PROCEED_WITHOUT_QUORUM)?;
        self.switches_peer_tls().map(|_| revision.clone())
    }

    /// The surroundings of a pod, or of the data of a member without one.
    fn around<'a>(&'a self, page: &'a Page, pod: Option<&PodObject>) -> Around<'a> {
        let uid = match (pod, &self.objects.set) {
            (Some(pod), _) => belonging::set_uid(&pod.metadata),
            (None, Some(set)) => set.metadata.uid.clone(),
            (None, None) => page
                .status()
                .and_then(|status| Some(status.stateful_set.as_ref()?.uid.clone())),
        };
        let uid = uid.unwrap_or_default();
        Around {
            namespace_terminating: self.objects.namespace_terminating,
            set: self.objects.set.as_ref(),
            owner: self.owner_of(page, &uid),
            status: page.status(),
            set_gone_for: self.objects.set_gone_for,
            settle_time: self.objects.settle_time,
            policy: page.budget().spec.policy.teardown(),
            etcd: page.etcd(),
            now: self.objects.now,
        }
    }

    /// The owner of the StatefulSet with this UID: from the StatefulSet, or from the budget's
    /// record.
    fn owner_of(&self, page: &Page, uid: &str) -> Owner {
        let set = self.objects.set.as_ref();
        let set = set.filter(|set| set.metadata.uid.as_deref() == Some(uid));
        let record = teardown::recorded_set(page.status(), uid);
        let owners = match (set, record) {
            (Some(set), _) => owner::named(&set.metadata),
            (None, Some(record)) => record.owners.clone(),
            (None, None) => return Owner::Unknown,
        };
        let states: Vec<_> = owners.iter().map(|of| (of, self.state_of(of))).collect();
        owner::together(&states, record)
    }

    fn state_of(&self, owner: &OwnerStatus) -> Owner {
        let mut states = self.objects.owners.iter();
        let state = states.find(|(of, _)| of == owner);
        state.map_or(Owner::Unknown, |(_, state)| *state)
    }

    fn seen(&self, set: &StatefulSet) -> Option<SetSeen> {
        let owners = owner::named(&set.metadata).into_iter();
        let seen = owners.map(|owner| {
            let seen = match self.state_of(&owner) {
                Owner::Lives => OwnerSeen::Alive,
                Owner::Goes => OwnerSeen::Gone,
                Owner::None | Owner::Unknown => OwnerSeen::Unread,
            };
            (owner, seen)
        });
        Some(SetSeen {
            uid: set.metadata.uid.clone()?,
            owners: seen.collect(),
            announced: Intents::of_stored(&set.metadata).into_announced(),
        })
    }

    fn scaled_out_for(&self, page: &Page, replicas: u32) -> Option<Duration> {
        if page.expected.replicas > 0 && replicas > page.expected.replicas {
            return Some(Duration::ZERO);
        }
        let grown = page.status()?.scale_out.as_ref()?;
        let is_this = u32::try_from(grown.to).is_ok_and(|to| to == replicas);
        (is_this && !grown.settled)
            .then_some(self.objects.scale_out_for)
            .flatten()
    }

    fn update_revision(&self) -> Option<String> {
        self.objects
            .set
            .as_ref()?
            .status
            .as_ref()?
            .update_revision
            .clone()
    }
}
