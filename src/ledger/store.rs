//! Reads and writes of budgets. Every read is uncached, and every write is a compare-and-swap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::Value;

use super::due::{self, Due, due};
use super::error::LedgerError;
use super::error::no_such_resource;
use super::locks::LedgerLocks;
use super::page::Page;
use super::recorded::Recorded;
use super::seen::Seen;
use super::status_update::StatusUpdate;
use super::wire;
use crate::api::{
    DefragmentationStatus, QuorumDisruptionBudget, QuorumDisruptionBudgetStatus, RecordedDelete,
    RecordedScaleIn, ReplacementStatus,
};
use crate::clock::Clock;
use crate::lists;
use crate::named;
use crate::quorum::{
    CauseState, ClusterId, ClusterRef, DefragmentationProgress, Grants, PodName, PodRead, PodUid,
    ReplacementProgress, Trust, TrustEvent, VolumeRecords,
};

/// The number of admitted deletions of StatefulSets that a budget remembers. A StatefulSet is
/// created again only a few times within a settle time.
const DELETES_KEPT: usize = 8;

/// The ledgers of all clusters, behind the API server.
#[derive(Clone)]
pub struct Ledger {
    client: Client,
    seen: Arc<Seen>,
    locks: LedgerLocks,
}

/// A ledger whose ended permissions have been removed.
#[derive(Debug)]
pub struct Settled {
    /// The page afterwards.
    pub page: Page,
    /// The number of permissions of which nobody made use.
    pub unused: usize,
}

impl Ledger {
    /// The ledgers behind this client's API server. The clock's monotonic time says how long
    /// something has been seen.
    pub fn new(client: Client, clock: Clock) -> Self {
        Self {
            client,
            seen: Arc::new(Seen::new(clock)),
            locks: LedgerLocks::default(),
        }
    }

    /// The things that this replica has seen, and since when.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The queue in front of each ledger.
    pub fn locks(&self) -> &LedgerLocks {
        &self.locks
    }

    /// Reads a cluster's budget, uncached. `None` if there is none.
    pub async fn read(&self, cluster: &ClusterRef) -> Result<Option<Page>, LedgerError> {
        match named::get(&self.budgets(cluster), named::OF_OBJECT, &cluster.name).await {
            Ok(budget) => self.page(budget).map(Some),
            Err(error) if is_missing_object(&error) => {
                self.seen.forget(cluster);
                Ok(None)
            }
            Err(error) => Err(LedgerError::reading(cluster, error)),
        }
    }

    /// Whether the API server knows budgets at all.
    ///
    /// # Errors
    /// [`LedgerError::NoDefinition`] if it does not; others if it could not be asked.
    pub async fn defined(&self) -> Result<(), LedgerError> {
        let budgets: Api<QuorumDisruptionBudget> = Api::all(self.client.clone());
        let any = lists::any(&budgets).await;
        any.map(drop).map_err(LedgerError::listing)
    }

    /// The other clusters whose budgets report this etcd cluster id and may guard members of this
    /// one, uncached (rule 8). The id of a cluster follows from its settings, so anybody can run a
    /// copy under it: one in another namespace guards members of this one only if it records a pod
    /// of a member that has none here.
    pub async fn sharing(
        &self,
        page: &Page,
        id: ClusterId,
    ) -> Result<Vec<ClusterRef>, LedgerError> {
        let own = page.status().map_or(&[][..], |status| &status.members);
        let elsewhere = own.iter().filter(|member| member.pod.is_none());
        let elsewhere: BTreeSet<&str> = elsewhere
            .filter_map(|member| member.member_id.as_deref())
            .collect();
        // A budget that cannot be read is named like the others.
        let kind = ApiResource::erase::<QuorumDisruptionBudget>(&());
        let budgets: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        let same_id = ListParams::default().fields(&format!("status.clusterID={id}"));
        let mut others = Vec::new();
        let found = lists::each(&budgets, &same_id, |budget| {
            let at = &budget.metadata;
            let other = ClusterRef::new(
                at.namespace.clone().unwrap_or_default(),
                at.name.clone().unwrap_or_default(),
            );
            let is_here = other.namespace == page.cluster.namespace;
            let members = budget.data.pointer("/status/members");
            let mut members = members.and_then(Value::as_array).into_iter().flatten();
            let has_one = members.any(|member| {
                let id = member["memberID"].as_str();
                member["pod"].is_string() && id.is_some_and(|id| elsewhere.contains(id))
            });
            if other != page.cluster && (is_here || own.is_empty() || has_one) {
                others.push(other);
            }
        });
        found.await.map_err(LedgerError::listing)?;
        Ok(others)
    }

    /// The names of the budgets in a namespace, uncached.
    pub async fn names(&self, namespace: &str) -> Result<Vec<String>, LedgerError> {
        let budgets: Api<QuorumDisruptionBudget> = Api::namespaced(self.client.clone(), namespace);
        let mut names = Vec::new();
        let every = ListParams::default();
        let found = lists::each_metadata(&budgets, &every, |budget| {
            names.extend(budget.metadata.name);
        });
        found.await.map_err(LedgerError::listing)?;
        Ok(names)
    }

    /// The budget on whose record members have their data on the claim with this UID, and the pods
    /// of these members. Uncached.
    pub async fn with_data_on(
        &self,
        namespace: &str,
        claim: &str,
    ) -> Result<Option<(Page, Vec<PodName>)>, LedgerError> {
        let budgets: Api<QuorumDisruptionBudget> = Api::namespaced(self.client.clone(), namespace);
        let mut found = None;
        let every = ListParams::default();
        let listed = lists::each(&budgets, &every, |budget| {
            // A budget that cannot be read has no record that can be used.
            let Ok(page) = self.page(budget) else {
                return;
            };
            let volumes = page.recorded_volumes().into_iter();
            let here = volumes.filter(|(_, volume)| volume.is_on_claim(claim));
            let pods: Vec<PodName> = here.map(|(pod, _)| pod).collect();
            if found.is_none() && !pods.is_empty() {
                found = Some((page, pods));
            }
        });
        listed.await.map_err(LedgerError::listing)?;
        Ok(found)
    }

    /// Creates a cluster's budget with every default. Reads the budget if somebody else created it
    /// first.
    pub async fn create(&self, cluster: &ClusterRef) -> Result<Page, LedgerError> {
        let budget = QuorumDisruptionBudget::with_defaults(cluster);
        match self
            .budgets(cluster)
            .create(&PostParams::default(), &budget)
            .await
        {
            Ok(created) => self.page(created),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                self.read(cluster).await?.ok_or(LedgerError::Gone)
            }
            Err(error) => Err(LedgerError::writing(cluster, error)),
        }
    }

    /// Records grants with one more permission than the page has, and what was seen besides. The
    /// proof exists only if the API server accepted the grants over exactly this page.
    pub async fn record(
        &self,
        page: &Page,
        grants: &Grants,
        update: StatusUpdate,
    ) -> Result<(Page, Recorded), LedgerError> {
        if grants.last_seq() <= page.grants.last_seq() {
            return Err(LedgerError::NoFence);
        }
        let (_, mut status) = page.draft();
        wire::write_grants(grants, &mut status).map_err(|problem| unreadable(page, problem))?;
        update.apply(page, &mut status);
        let after = self.put(page, status).await?;
        if after.resource_version == page.resource_version {
            return Err(LedgerError::NoFence);
        }
        let proof = Recorded::by(&after);
        Ok((after, proof))
    }

    /// Removes causes that have ended. `None` if none of them is on the page.
    pub async fn settle(&self, page: &Page, ended: &[Due]) -> Result<Option<Page>, LedgerError> {
        self.settle_and_note(page, ended, |_| ()).await
    }

    /// As [`Self::settle`], and changes what belongs to the grants in the same write.
    async fn settle_and_note(
        &self,
        page: &Page,
        ended: &[Due],
        note: impl FnOnce(&mut QuorumDisruptionBudgetStatus),
    ) -> Result<Option<Page>, LedgerError> {
        let mut grants = page.grants.clone();
        for Due { member, seq, .. } in ended {
            grants = grants.settle(member, *seq).unwrap_or(grants);
        }
        if grants == page.grants {
            return Ok(None);
        }
        let (_, mut status) = page.draft();
        wire::write_grants(&grants, &mut status).map_err(|problem| unreadable(page, problem))?;
        note(&mut status);
        self.put(page, status).await.map(Some)
    }

    /// Looks at every pod with a grant on the page, uncached, and removes the permissions to delete
    /// that have ended. Those of other kinds end with what they were given for. `None` if none has.
    pub async fn settle_due(
        &self,
        page: &Page,
        settle_time: Duration,
    ) -> Result<Option<Settled>, LedgerError> {
        let looks = self.look_at_granted(page).await?;
        let ended = due(page, &looks, &self.seen, settle_time);
        let settled = self.settle(page, &ended).await?;
        let unused = ended.iter().filter(|due| due.unused).count();
        Ok(settled.map(|page| Settled { page, unused }))
    }

    /// Whether the permission to defragment `member` has ended by this look at the member.
    pub fn is_defragmentation_over(
        &self,
        page: &Page,
        member: &PodName,
        look: DefragmentationProgress,
        settle_time: Duration,
    ) -> bool {
        let state = CauseState::Defragmentation(look);
        due::ended(page, member, state, &self.seen, settle_time).is_some()
    }

    /// Removes the permission to defragment `member` if it has ended by this look at the member,
    /// which was made after the page was read. `note` changes the record of the runs in the same
    /// write. `None` if it has not ended.
    pub async fn settle_defragmentation(
        &self,
        page: &Page,
        member: &PodName,
        look: DefragmentationProgress,
        settle_time: Duration,
        note: impl FnOnce(&mut Vec<DefragmentationStatus>),
    ) -> Result<Option<Page>, LedgerError> {
        let state = CauseState::Defragmentation(look);
        match due::ended(page, member, state, &self.seen, settle_time) {
            Some(ended) => {
                let note = |status: &mut QuorumDisruptionBudgetStatus| {
                    note(&mut status.defragmentations);
                };
                self.settle_and_note(page, &[ended], note).await
            }
            None => Ok(None),
        }
    }

    /// Removes the permission to replace `member` if it has ended by this look at the member and
    /// its claims, which was made after the page was read. The records of the replacement and of
    /// the member's volume are changed in the same write, by `note`. `None` if it has not.
    pub async fn settle_replacement(
        &self,
        page: &Page,
        member: &PodName,
        look: ReplacementProgress,
        settle_time: Duration,
        note: impl FnOnce(&mut Vec<ReplacementStatus>, &mut VolumeRecords),
    ) -> Result<Option<Page>, LedgerError> {
        let state = CauseState::Replacement(look);
        match due::ended(page, member, state, &self.seen, settle_time) {
            Some(ended) => {
                let mut volumes = page.volume_records();
                let note = |status: &mut QuorumDisruptionBudgetStatus| {
                    note(&mut status.replacements, &mut volumes);
                    wire::write_volumes(volumes, status);
                };
                self.settle_and_note(page, &[ended], note).await
            }
            None => Ok(None),
        }
    }

    /// Changes what the budget shows, and nothing on record. `None` if nothing changes.
    pub async fn write_status(
        &self,
        page: &Page,
        show: impl FnOnce(&mut QuorumDisruptionBudgetStatus),
    ) -> Result<Option<Page>, LedgerError> {
        self.report(page, StatusUpdate::default(), show).await
    }

    /// Records what was seen of the cluster, and whether the ledger is trusted. `None` if nothing
    /// changes.
    pub async fn update(
        &self,
        page: &Page,
        update: StatusUpdate,
    ) -> Result<Option<Page>, LedgerError> {
        self.report(page, update, |_| ()).await
    }

    /// Records what was seen, and shows it, in one write. The record is as `update` leaves it,
    /// whatever `show` does to it. `None` if nothing changes.
    pub async fn report(
        &self,
        page: &Page,
        update: StatusUpdate,
        show: impl FnOnce(&mut QuorumDisruptionBudgetStatus),
    ) -> Result<Option<Page>, LedgerError> {
        let recorded = page.status_after(update);
        let mut shown = recorded.clone();
        show(&mut shown);
        let status = recorded.reporting(shown);
        self.put_changed(page, status).await
    }

    /// Whether the ledger on this page is trusted, by what is recorded and by what this replica has
    /// seen.
    pub fn trust(&self, page: &Page, settle_time: Duration) -> Trust {
        self.seen.trust(page, settle_time)
    }

    /// Records events that concern the trust of the ledger, in one write. `None` if the record
    /// stays as it is.
    pub async fn note_trust(
        &self,
        page: &Page,
        events: &[TrustEvent<'_>],
    ) -> Result<Option<Page>, LedgerError> {
        let (_, mut status) = page.draft();
        wire::write_trust(page.trust_after(events), &mut status);
        self.put_changed(page, status).await
    }

    /// Remembers that the deletion of a StatefulSet was admitted, so that its pods may follow.
    pub async fn admit_delete(
        &self,
        page: &Page,
        admitted: RecordedDelete,
    ) -> Result<(Page, Recorded), LedgerError> {
        let (_, mut status) = page.draft();
        let sets = &mut status.recorded_deletes.stateful_sets;
        sets.retain(|earlier| earlier.uid != admitted.uid);
        sets.push(admitted);
        let too_many = sets.len().saturating_sub(DELETES_KEPT);
        sets.drain(..too_many);
        self.put_admitted(page, status).await
    }

    /// Remembers that a scale-in was admitted, so that the pods it takes may go.
    pub async fn admit_scale_in(
        &self,
        page: &Page,
        admitted: RecordedScaleIn,
    ) -> Result<(Page, Recorded), LedgerError> {
        let (_, mut status) = page.draft();
        status.recorded_deletes.scale_in = Some(admitted);
        self.put_admitted(page, status).await
    }

    /// Remembers that a scale to 0 was admitted, so that the pods of that StatefulSet may go.
    pub async fn admit_hibernation(
        &self,
        page: &Page,
        admitted: RecordedDelete,
    ) -> Result<(Page, Recorded), LedgerError> {
        let (_, mut status) = page.draft();
        status.recorded_deletes.hibernation = Some(admitted);
        self.put_admitted(page, status).await
    }

    /// Forgets the cluster that the budget has on record, because a new one begins in its place
    /// with these pods: its id, its voters, its volumes and its replacements.
    pub async fn begin_anew(
        &self,
        page: &Page,
        pods: impl Iterator<Item = PodUid>,
    ) -> Result<Option<Page>, LedgerError> {
        let (_, mut status) = page.draft();
        status.begins_anew = pods.map(|uid| uid.to_string()).collect();
        status.cluster_id = None;
        status.formed = false;
        status.expected_members = None;
        status.observed_replicas = None;
        status.volumes.clear();
        status.directories = None;
        status.membership = None;
        status.members.clear();
        wire::drop_replacements(&mut status);
        status.recovery = None;
        status.scale_out = None;
        status.log_end = None;
        status.data_loss = None;
        status.refills.clear();
        self.put_changed(page, status).await
    }

    async fn put_admitted(
        &self,
        page: &Page,
        status: QuorumDisruptionBudgetStatus,
    ) -> Result<(Page, Recorded), LedgerError> {
        let after = self.put(page, status).await?;
        let proof = Recorded::by(&after);
        Ok((after, proof))
    }

    async fn look_at_granted(
        &self,
        page: &Page,
    ) -> Result<BTreeMap<PodName, PodRead>, LedgerError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &page.cluster.namespace);
        let looks = page.grants.iter().map(|(member, _)| {
            let pods = pods.clone();
            async move {
                let pod = named::get_opt(&pods, "status.grants", member.as_str()).await;
                let look = match pod.map_err(LedgerError::Read)? {
                    None => PodRead::Gone,
                    Some(pod) => PodRead::Here {
                        uid: PodUid::new(pod.metadata.uid.unwrap_or_default()),
                        terminating: pod.metadata.deletion_timestamp.is_some(),
                    },
                };
                Ok::<_, LedgerError>((member.clone(), look))
            }
        });
        Ok(try_join_all(looks).await?.into_iter().collect())
    }

    async fn put_changed(
        &self,
        page: &Page,
        status: QuorumDisruptionBudgetStatus,
    ) -> Result<Option<Page>, LedgerError> {
        let (_, before) = page.draft();
        if status == before {
            return Ok(None);
        }
        self.put(page, status).await.map(Some)
    }

    /// The compare-and-swap: the whole status, at the page's resourceVersion and of the page's UID.
    async fn put(
        &self,
        page: &Page,
        mut status: QuorumDisruptionBudgetStatus,
    ) -> Result<Page, LedgerError> {
        let (mut budget, _) = page.draft();
        wire::write_schema(&mut status);
        let written = status.clone();
        budget.status = Some(status);
        let stored = self
            .budgets(&page.cluster)
            .replace_status(&page.cluster.name, &PostParams::default(), &budget)
            .await
            .map_err(|error| LedgerError::writing(&page.cluster, error))?;
        let kept = stored.status.clone().unwrap_or_default();
        if kept.reporting(written.clone()) != written {
            return Err(LedgerError::NotKept);
        }
        self.page(stored)
    }

    fn page(&self, budget: QuorumDisruptionBudget) -> Result<Page, LedgerError> {
        self.seen.note(&budget);
        Page::read(budget)
    }

    fn budgets(&self, cluster: &ClusterRef) -> Api<QuorumDisruptionBudget> {
        Api::namespaced(self.client.clone(), &cluster.namespace)
    }
}

fn is_missing_object(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.is_not_found() && !no_such_resource(error),
        _ => false,
    }
}

fn unreadable(page: &Page, problem: String) -> LedgerError {
    LedgerError::Unreadable {
        cluster: page.cluster.clone(),
        problem,
    }
}
