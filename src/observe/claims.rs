//! The claims of members: whose a claim is, and whether the data of a pod outlives the pod.
//!
//! A claim that is deleted stays, terminating, as long as a pod uses it, and its data goes with
//! that pod.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use futures::future::{join_all, try_join_all};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::ListParams;

use super::belonging;
use super::claim_names::{CLAIM_NAME, ClaimReads, claims_of, templates};
use super::cluster_of_pod::Identity;
use super::data_on::{DataOn, data_on};
use super::enrolment::labels_enrol;
use super::error::ObserveError;
use super::observer::Observer;
use super::read_limits::soon;
use super::teardown::kept_pods;
use super::view::ClusterView;
use crate::api::RecordedEtcd;
use crate::causes::causes;
use crate::ledger::{LedgerError, Page};
use crate::lists;
use crate::named;
use crate::quorum::{ClaimState, ClusterRef, PodName};

/// The members whose claim a claim is.
#[derive(Debug)]
pub enum ClaimIdentity {
    /// The claim is that of no member of a cluster that the gate guards.
    Foreign,
    /// The claim is that of the members in these pods. The budget of their cluster was just read.
    Guarded(Box<Page>, Vec<PodName>),
    /// The claim is that of the members in these pods, and nothing can be recorded for their
    /// cluster: it has no budget yet, or the budget cannot be used for this reason.
    Unrecorded(ClusterRef, Vec<PodName>, Option<LedgerError>),
}

/// The pods of one cluster that mount a claim.
struct Users {
    cluster: ClusterRef,
    ledger: Result<Option<Box<Page>>, LedgerError>,
    pods: Vec<Pod>,
}

impl Users {
    /// The identity of the claim, of which these pods are the users.
    /// `of` also gets what is on record of etcd.
    fn identity(self, of: impl Fn(&Pod, RecordedEtcd<'_>) -> bool) -> ClaimIdentity {
        let page = self.ledger.as_ref().ok().and_then(Option::as_ref);
        let etcd = page.map_or_else(RecordedEtcd::default, |page| page.etcd());
        let pods = self.pods.iter().filter(|pod| of(pod, etcd));
        let names: Vec<PodName> = pods.map(belonging::name).collect();
        match self.ledger {
            _ if names.is_empty() => ClaimIdentity::Foreign,
            Ok(Some(page)) => ClaimIdentity::Guarded(page, names),
            Ok(None) => ClaimIdentity::Unrecorded(self.cluster, names, None),
            Err(error) => ClaimIdentity::Unrecorded(self.cluster, names, Some(error)),
        }
    }
}

/// Whether the data of a pod outlives the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodData {
    /// No claim of the pod is terminating.
    Stays,
    /// A claim of the pod is terminating, so its data goes with the pod.
    Goes,
    /// The data is in the pod itself, or in a directory of a node that the pod may leave.
    InPod,
    /// A claim of the pod could not be read, for this reason.
    Unknown(String),
}

impl ClusterView {
    /// Whether the data of the pod in question outlives it. The claims of other pods were not read.
    pub fn data_of(&self, page: &Page, pod: &PodName) -> PodData {
        let claims = self.pod(pod).into_iter().flat_map(|pod| {
            claims_of(pod).filter(move |claim| may_have_data(claim, pod, self.etcd()))
        });
        // The next pod of the member is bound to the node on record.
        let comes_back = || {
            let recorded = page.recorded_volumes();
            recorded.get(pod).is_some_and(|own| own.node().is_some())
        };
        match self.data_on(pod) {
            DataOn::Pod if self.has_never_started(pod) => return PodData::Stays,
            DataOn::Pod => return PodData::InPod,
            DataOn::Node { bound, .. } if !bound && !comes_back() => return PodData::InPod,
            DataOn::Node { .. } | DataOn::Claims(_) | DataOn::AnyOf(_) | DataOn::Unknown => {}
        }
        let mut data = PodData::Stays;
        for claim in claims {
            match self.claim_reads().get(claim) {
                Some(Ok(ClaimState::Here {
                    terminating: true, ..
                })) => return PodData::Goes,
                Some(Ok(ClaimState::Here { .. } | ClaimState::Gone)) => {}
                Some(Err(why)) => data = PodData::Unknown(why.clone()),
                None => data = PodData::Unknown(format!("the claim {claim} was not read")),
            }
        }
        data
    }

    /// Whether the pod has no node yet, so that nothing can be in it.
    fn has_never_started(&self, pod: &PodName) -> bool {
        let spec = self.pod(pod).and_then(|pod| pod.spec.as_ref());
        spec.is_some_and(|spec| spec.node_name.is_none())
    }

    /// The names of the claims of the member that belongs in a pod of this name: those that the pod
    /// uses if it exists, and those that the StatefulSet would give it.
    fn claims_of_member(&self, member: &PodName) -> BTreeSet<String> {
        let used = self.pod(member).into_iter().flat_map(claims_of);
        let templates = self.stateful_set().into_iter().flat_map(templates);
        let given = templates.map(|template| format!("{template}-{member}"));
        used.map(str::to_owned).chain(given).collect()
    }
}

impl Observer {
    /// Finds the members whose data is on a claim: those whose pods mount it over etcd's data
    /// directory, whatever its name is.
    ///
    /// If no pod of a member mounts it, the name counts that a StatefulSet gives its claims: of the
    /// template, of the StatefulSet, and the ordinal. A name may be read in several ways
    /// (`data-etcd-main-0`). So the names of budgets and StatefulSets are listed, which costs two
    /// calls, and others only for names that fit.
    ///
    /// Pods, templates and names may have changed since the member served. So the records of the
    /// namespace's budgets have the last word.
    pub async fn identify_claim(
        &self,
        namespace: &str,
        claim: &str,
    ) -> Result<ClaimIdentity, ObserveError> {
        let users = self.users(namespace, claim, |_| true).await?;
        let mounted = !users.is_empty();
        for users in users {
            let found = users.identity(|pod, etcd| may_have_data(claim, pod, etcd));
            if !matches!(found, ClaimIdentity::Foreign) {
                return Ok(found);
            }
        }
        let by_name = if mounted || possible(claim).is_none() {
            None
        } else {
            self.identify_by_name(namespace, claim).await?
        };
        match by_name {
            Some(found) => Ok(found),
            // Whatever pods and templates say by now, a member may have its data on the claim.
            None => self.identify_by_record(namespace, claim).await,
        }
    }

    /// The member that a StatefulSet would give a claim of this name, if there is one.
    async fn identify_by_name(
        &self,
        namespace: &str,
        claim: &str,
    ) -> Result<Option<ClaimIdentity>, ObserveError> {
        let sets: Api<StatefulSet> = Api::namespaced(self.client().clone(), namespace);
        // Each name, with whether the labels of the StatefulSet enrol it.
        let mut enrol: Vec<(String, bool)> = Vec::new();
        let every = ListParams::default();
        let listed = lists::each_metadata(&sets, &every, |set| {
            let labels = set.metadata.labels.as_ref();
            let enrols = labels.is_some_and(labels_enrol);
            enrol.extend(set.metadata.name.map(|name| (name, enrols)));
        });
        let (budgets, listed) = tokio::join!(self.ledger().names(namespace), listed);
        listed.map_err(ObserveError::StatefulSet)?;
        let defined = match budgets {
            Ok(names) => Some(names),
            // Without the definition a cluster that only a budget enrols cannot be told from a
            // foreign one.
            Err(LedgerError::NoDefinition) => None,
            Err(error) => return Err(ObserveError::Ledger(error)),
        };
        enrol.retain(|(_, enrols)| defined.is_none() || *enrols);
        let enrolled: BTreeSet<String> = enrol.into_iter().map(|(name, _)| name).collect();
        let names: BTreeSet<&String> = enrolled.iter().chain(defined.iter().flatten()).collect();
        let mut names: Vec<&String> = names.into_iter().collect();
        // The templates of a StatefulSet that is gone are not known. So those with longer names,
        // which leave less to the template, come first.
        names.sort_by_key(|name| Reverse(name.len()));
        for name in names {
            let Some((template, pod)) = read_as(claim, name) else {
                continue;
            };
            let cluster = ClusterRef::new(namespace, name);
            let set = self.set(&cluster).await?;
            let is_given = |set: &StatefulSet| templates(set).any(|name| name == template);
            if set.as_ref().is_some_and(|set| !is_given(set)) {
                continue;
            }
            let ledger = self.ledger().read(&cluster).await;
            let page = ledger.as_ref().ok().and_then(Option::as_ref);
            // The template may say by now that the data is elsewhere.
            let by_template = set.as_ref().is_none_or(|set| {
                let etcd = page.map_or_else(RecordedEtcd::default, Page::etcd);
                has_data(set, etcd, claim, &pod)
            });
            if !by_template {
                continue;
            }
            let pods = vec![pod];
            match ledger {
                Ok(Some(page)) => return Ok(Some(ClaimIdentity::Guarded(Box::new(page), pods))),
                Ok(None) if enrolled.contains(name) => {
                    return Ok(Some(ClaimIdentity::Unrecorded(cluster, pods, None)));
                }
                Ok(None) => {}
                Err(error @ (LedgerError::NoDefinition | LedgerError::Unreadable { .. })) => {
                    return Ok(Some(ClaimIdentity::Unrecorded(cluster, pods, Some(error))));
                }
                Err(error) => return Err(ObserveError::Ledger(error)),
            }
        }
        Ok(None)
    }

    /// The members that last served with their data on the claim, by the record of a budget.
    pub async fn identify_by_record(
        &self,
        namespace: &str,
        claim: &str,
    ) -> Result<ClaimIdentity, ObserveError> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client().clone(), namespace);
        let found = named::get_metadata_opt(&claims, CLAIM_NAME, claim).await;
        let found = found.map_err(ObserveError::Claim)?;
        let Some(uid) = found.and_then(|found| found.metadata.uid) else {
            return Ok(ClaimIdentity::Foreign);
        };
        let found = match self.ledger().with_data_on(namespace, &uid).await {
            Ok(found) => found,
            Err(LedgerError::NoDefinition) => None,
            Err(error) => return Err(ObserveError::Ledger(error)),
        };
        Ok(found.map_or(ClaimIdentity::Foreign, |(page, pods)| {
            ClaimIdentity::Guarded(Box::new(page), pods)
        }))
    }

    /// Whether a claim is bound to the volume of this name. A volume that was released names its
    /// earlier claim all the same, and a new claim may have that name.
    pub async fn is_bound_to(
        &self,
        namespace: &str,
        claim: &str,
        volume: &str,
    ) -> Result<bool, ObserveError> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client().clone(), namespace);
        let claim = named::get_opt(&claims, CLAIM_NAME, claim)
            .await
            .map_err(ObserveError::Claim)?;
        let bound = claim.and_then(|claim| claim.spec?.volume_name);
        Ok(bound.as_deref() == Some(volume))
    }

    /// Finds the pods of members for which Kubernetes protects a claim: those that mount it, have a
    /// node and have not ended.
    pub async fn identify_users(
        &self,
        namespace: &str,
        claim: &str,
    ) -> Result<ClaimIdentity, ObserveError> {
        let users = self.users(namespace, claim, is_protected_for).await?;
        let first = users.into_iter().next();
        Ok(first.map_or(ClaimIdentity::Foreign, |users| users.identity(|_, _| true)))
    }

    /// The pods for which `counts` is true that mount a claim, by the cluster that they belong to.
    async fn users(
        &self,
        namespace: &str,
        claim: &str,
        counts: fn(&Pod) -> bool,
    ) -> Result<Vec<Users>, ObserveError> {
        let all: Api<Pod> = Api::namespaced(self.client().clone(), namespace);
        let mounts = |pod: &Pod| counts(pod) && claims_of(pod).any(|name| name == claim);
        let turn = self.turn_to_list(namespace).await;
        let mounting = lists::kept(&all, &ListParams::default(), mounts).await;
        drop(turn);
        let mounting = mounting.map_err(ObserveError::Pods)?;
        let mut found: Vec<Users> = Vec::new();
        for pod in &mounting {
            let name = belonging::name(pod);
            let is_among = |users: &Users| {
                users
                    .pods
                    .iter()
                    .any(|user| user.metadata.uid == pod.metadata.uid)
            };
            if found.iter().any(is_among) {
                continue;
            }
            let identity = self.identify(namespace, &name, Some(&pod.metadata)).await?;
            let (cluster, ledger) = match identity {
                Identity::Guarded(page) => (page.cluster.clone(), Ok(Some(page))),
                Identity::Unrecorded(cluster, None) => (cluster, Ok(None)),
                Identity::Unrecorded(cluster, Some(error)) => (cluster, Err(error)),
                Identity::NoSuchPod | Identity::Foreign => continue,
            };
            let of_cluster = |pod: &Pod| {
                let set = belonging::named_after(&pod.metadata);
                set.as_ref() == Some(&cluster.name)
            };
            found.push(Users {
                pods: mounting
                    .iter()
                    .filter(|pod| of_cluster(pod))
                    .cloned()
                    .collect(),
                cluster,
                ledger,
            });
        }
        Ok(found)
    }

    /// The state of every claim of the member that belongs in a pod of this name, read now. The
    /// error says for people which one could not be read.
    pub async fn claims_of_member(
        &self,
        cluster: &ClusterRef,
        view: &ClusterView,
        member: &PodName,
    ) -> Result<Vec<ClaimState>, String> {
        let names = view.claims_of_member(member);
        self.claims(cluster, names.iter())
            .await
            .into_values()
            .collect()
    }

    /// Whether a claim of a member names the StatefulSet as an owner, so that the garbage collector
    /// deletes the claim after it. The controller writes that for `whenDeleted: Delete`, and takes
    /// it back only where the pod of the claim is ready.
    pub async fn owns_claims(&self, page: &Page, set: &StatefulSet) -> Result<bool, ObserveError> {
        let recorded = page.recorded_volumes().into_keys();
        let members: BTreeSet<PodName> = kept_pods(set).chain(recorded).collect();
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client().clone(), &page.cluster.namespace);
        let reads = members.iter().flat_map(|member| {
            let names = templates(set).map(move |template| format!("{template}-{member}"));
            names.map(|name| {
                let claims = claims.clone();
                async move { named::get_metadata_opt(&claims, CLAIM_NAME, &name).await }
            })
        });
        let read = try_join_all(reads).await.map_err(ObserveError::Claim)?;
        let mut owners = read
            .iter()
            .flatten()
            .flat_map(|claim| claim.metadata.owner_references.iter().flatten());
        Ok(owners.any(|owner| set.metadata.uid.as_ref() == Some(&owner.uid)))
    }

    /// Reads claims. One that cannot be read is missing evidence, and no failure.
    pub(super) async fn claims(
        &self,
        cluster: &ClusterRef,
        names: impl Iterator<Item = &String>,
    ) -> ClaimReads {
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client().clone(), &cluster.namespace);
        let states = names.map(|name| {
            let claims = claims.clone();
            async move {
                let state = match soon(named::get_metadata_opt(&claims, CLAIM_NAME, name)).await {
                    Ok(Ok(None)) => Ok(ClaimState::Gone),
                    Ok(Ok(Some(claim))) => Ok(ClaimState::Here {
                        uid: claim.metadata.uid.unwrap_or_default(),
                        terminating: claim.metadata.deletion_timestamp.is_some(),
                    }),
                    Ok(Err(error)) => Err(causes(&error)),
                    Err(late) => Err(causes(&late)),
                };
                let state = state.map_err(|why| format!("could not read the claim {name}: {why}"));
                (name.clone(), state)
            }
        });
        join_all(states).await.into_iter().collect()
    }
}

/// Whether Kubernetes keeps the claims of the pod for it.
fn is_protected_for(pod: &Pod) -> bool {
    let is_bound = pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.node_name.is_some());
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    // The garbage collector of pods writes the phase while a kubelet still runs the containers.
    let has_ended = matches!(phase, Some("Failed" | "Succeeded")) && !runs(pod);
    is_bound && !has_ended && pod.metadata.deletion_timestamp.is_none()
}

/// Whether a container of the pod runs, by its kubelet.
fn runs(pod: &Pod) -> bool {
    let seen = pod.status.as_ref();
    let containers = seen.and_then(|seen| seen.container_statuses.as_ref());
    let mut states = containers.into_iter().flatten().flat_map(|c| &c.state);
    states.any(|state| state.running.is_some())
}

/// Whether the data of the member in a pod may be on a claim that the pod mounts.
fn may_have_data(claim: &str, pod: &Pod, etcd: RecordedEtcd<'_>) -> bool {
    let spec = pod.spec.as_ref();
    spec.is_none_or(|spec| data_on(spec, etcd, None, &belonging::name(pod)).may_be(claim))
}

/// Whether the data of the member may be on this claim, by the template of its StatefulSet.
fn has_data(set: &StatefulSet, etcd: RecordedEtcd<'_>, claim: &str, pod: &PodName) -> bool {
    let spec = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    spec.is_none_or(|spec| data_on(spec, etcd, Some(set), pod).may_be(claim))
}

/// The parts of a claim's name before and after its last dash, if some StatefulSet may give such a
/// name.
fn possible(claim: &str) -> Option<(&str, &str)> {
    let (rest, ordinal) = claim.rsplit_once('-')?;
    let is_ordinal = belonging::ordinal("", &PodName::new(format!("-{ordinal}"))).is_some();
    (is_ordinal && rest.contains('-')).then_some((rest, ordinal))
}

/// The template and the pod in a claim's name, if the StatefulSet `set` may give it.
fn read_as<'c>(claim: &'c str, set: &str) -> Option<(&'c str, PodName)> {
    let (rest, ordinal) = possible(claim)?;
    let template = rest.strip_suffix(set)?.strip_suffix('-')?;
    (!template.is_empty()).then(|| (template, PodName::new(format!("{set}-{ordinal}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_claim_is_read_as_each_stateful_set_would_give_it() {
        let as_of =
            |claim, set| read_as(claim, set).map(|(template, pod)| (template, pod.to_string()));
        let main = || "main-0".to_owned();
        assert_eq!(as_of("data-main-0", "main"), Some(("data", main())));
        assert_eq!(
            as_of("data-etcd-main-0", "main"),
            Some(("data-etcd", main()))
        );
        let etcd_main = Some(("data", "etcd-main-0".to_owned()));
        assert_eq!(as_of("data-etcd-main-0", "etcd-main"), etcd_main);
        for other in [
            "main-0",
            "data-main",
            "data-main-00",
            "data-main-x",
            "-main-0",
            "datamain-0",
        ] {
            assert_eq!(as_of(other, "main"), None, "{other}");
        }
    }
}
