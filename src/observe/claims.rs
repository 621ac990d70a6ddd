//! The claims of members: whose a claim is, and whether the data of a pod outlives the pod.
//!
//! A claim that is deleted stays, terminating, as long as a pod uses it, and its data goes with
//! that pod.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::ListParams;

use super::patience::soon;
use super::{ObserveError, Observer, World, belonging, labels_enrol};
use crate::causes::causes;
use crate::ledger::{LedgerError, Page};
use crate::quorum::{ClaimState, ClusterRef, PodName};

/// The claims that were read, by name. An error says for people why one could not be.
pub(super) type ClaimReads = BTreeMap<String, Result<ClaimState, String>>;

/// The member whose claim a claim is.
#[derive(Debug)]
pub enum ClaimIdentity {
    /// The claim is that of no member of a cluster that the gate guards.
    Foreign,
    /// The claim is that of the member in this pod. The budget of its cluster was just read.
    Guarded(Box<Page>, PodName),
    /// The claim is that of the member in this pod, and nothing can be recorded for its cluster: it
    /// has no budget yet, or the budget cannot be used for this reason.
    Unrecorded(ClusterRef, PodName, Option<LedgerError>),
}

/// Whether the data of a pod outlives the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodData {
    /// No claim of the pod is terminating.
    Stays,
    /// A claim of the pod is terminating, so its data goes with the pod.
    Goes,
    /// A claim of the pod could not be read, for this reason.
    Unknown(String),
}

impl World {
    /// Whether the data of the pod in question outlives it. The claims of other pods were not read.
    pub fn data_of(&self, pod: &PodName) -> PodData {
        let claims = self.pod(pod).into_iter().flat_map(claims_of);
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
    /// Finds the member whose claim a claim is, by the name that a StatefulSet gives its claims: of
    /// the template, of the StatefulSet, and the ordinal. The name of the template counts where the
    /// StatefulSet exists, and so does what its pod uses.
    ///
    /// A name may be read in several ways (`data-etcd-main-0`). So the names of budgets and
    /// StatefulSets are listed, which costs two calls, and others only for names that fit.
    pub async fn identify_claim(
        &self,
        namespace: &str,
        claim: &str,
    ) -> Result<ClaimIdentity, ObserveError> {
        if possible(claim).is_none() {
            return Ok(ClaimIdentity::Foreign);
        }
        let sets: Api<StatefulSet> = Api::namespaced(self.client().clone(), namespace);
        let every = ListParams::default();
        let (budgets, sets) =
            tokio::join!(self.ledger().names(namespace), sets.list_metadata(&every));
        let sets = sets.map_err(ObserveError::StatefulSet)?;
        let defined = match budgets {
            Ok(names) => Some(names),
            // Without the definition a cluster that only a budget enrols cannot be told from a
            // foreign one.
            Err(LedgerError::NoDefinition) => None,
            Err(error) => return Err(ObserveError::Ledger(error)),
        };
        let sets = sets.items.into_iter().filter(|set| {
            let labels = set.metadata.labels.as_ref();
            defined.is_none() || labels.is_some_and(labels_enrol)
        });
        let enrolled: BTreeSet<String> = sets.filter_map(|set| set.metadata.name).collect();
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
            if !self.is_claim_of(claim, template, &pod, &cluster).await? {
                continue;
            }
            match self.ledger().read(&cluster).await {
                Ok(Some(page)) => return Ok(ClaimIdentity::Guarded(Box::new(page), pod)),
                Ok(None) if enrolled.contains(name) => {
                    return Ok(ClaimIdentity::Unrecorded(cluster, pod, None));
                }
                Ok(None) => {}
                Err(error @ (LedgerError::NoDefinition | LedgerError::Unreadable { .. })) => {
                    return Ok(ClaimIdentity::Unrecorded(cluster, pod, Some(error)));
                }
                Err(error) => return Err(ObserveError::Ledger(error)),
            }
        }
        Ok(ClaimIdentity::Foreign)
    }

    /// Whether the claim is one of the cluster's: its StatefulSet has this template or is gone, or
    /// the pod uses the claim.
    async fn is_claim_of(
        &self,
        claim: &str,
        template: &str,
        pod: &PodName,
        cluster: &ClusterRef,
    ) -> Result<bool, ObserveError> {
        let (set, pod) = tokio::try_join!(self.set(cluster), self.pod(&cluster.namespace, pod))?;
        let is_given = set.is_none_or(|set| templates(&set).any(|name| name == template));
        let is_used = pod.is_some_and(|pod| claims_of(&pod).any(|name| name == claim));
        Ok(is_given || is_used)
    }

    /// The state of every claim of the member that belongs in a pod of this name, read now. The
    /// error says for people which one could not be read.
    pub async fn claims_of_member(
        &self,
        cluster: &ClusterRef,
        world: &World,
        member: &PodName,
    ) -> Result<Vec<ClaimState>, String> {
        let names = world.claims_of_member(member);
        self.claims(cluster, names.iter())
            .await
            .into_values()
            .collect()
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
                let state = match soon(claims.get_metadata_opt(name)).await {
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

/// The names of the claims that a pod uses.
pub(super) fn claims_of(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        let claim = volume.persistent_volume_claim.as_ref()?;
        Some(claim.claim_name.as_str())
    })
}

/// The names of the StatefulSet's claim templates.
pub(super) fn templates(set: &StatefulSet) -> impl Iterator<Item = &str> {
    let spec = set.spec.iter();
    let templates = spec.flat_map(|spec| spec.volume_claim_templates.iter().flatten());
    templates.filter_map(|template| template.metadata.name.as_deref())
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
