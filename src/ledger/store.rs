//! Reads and writes of budgets. Every read is uncached, and every write is a compare-and-swap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};

use super::error::no_such_resource;
use super::{Due, LedgerError, Page, Recorded, Seen, StatusUpdate, Turnstile, due, wire};
use crate::api::{
    DefragmentationStatus, QuorumDisruptionBudget, QuorumDisruptionBudgetStatus, RecordedDelete,
    RecordedScaleIn, ReplacementStatus,
};
use crate::clock::Clock;
use crate::quorum::{
    CauseState, ClusterId, ClusterRef, Defragmentation, Grants, PodName, PodRead, PodUid,
    Replacement, Trust, TrustEvent, VolumeRecords,
};

/// The number of admitted deletions of StatefulSets that a budget remembers. A StatefulSet is
/// created again only a few times within a settle time.
const DELETES_KEPT: usize = 8;

/// The ledgers of all clusters, behind the API server.
#[derive(Clone)]
pub struct Ledger {
    client: Client,
    seen: Arc<Seen>,
    turnstile: Turnstile,
}

impl Ledger {
    /// The ledgers behind this client's API server. The clock's monotonic time says how long
    /// something has been seen.
    pub fn new(client: Client, clock: Clock) -> Self {
        Self {
            client,
            seen: Arc::new(Seen::new(clock)),
            turnstile: Turnstile::default(),
        }
    }

    /// The things that this replica has seen, and since when.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The queue in front of each ledger.
    pub fn turnstile(&self) -> &Turnstile {
        &self.turnstile
    }

    /// Reads a cluster's budget, uncached. `None` if there is none.
    pub async fn read(&self, cluster: &ClusterRef) -> Result<Option<Page>, LedgerError> {
        match self.budgets(cluster).get(&cluster.name).await {
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
        let first = budgets.list_metadata(&ListParams::default().limit(1)).await;
        first.map(drop).map_err(LedgerError::listing)
    }

    /// The other clusters whose budgets report this etcd cluster id, uncached (rule 8).
    pub async fn sharing(
        &self,
        cluster: &ClusterRef,
        id: ClusterId,
    ) -> Result<Vec<ClusterRef>, LedgerError> {
        let budgets: Api<QuorumDisruptionBudget> = Api::all(self.client.clone());
        let same_id = ListParams::default().fields(&format!("status.clusterID={id}"));
        // Only names are asked for, so a budget that cannot be read is named like the others.
        let found = budgets.list_metadata(&same_id).await;
        let found = found.map_err(LedgerError::listing)?;
        let others = found.items.into_iter().map(|budget| {
            let at = budget.metadata;
            ClusterRef::new(
                at.namespace.unwrap_or_default(),
                at.name.unwrap_or_default(),
            )
        });
        Ok(others.filter(|other| other != cluster).collect())
    }

    /// The names of the budgets in a namespace, uncached.
    pub async fn names(&self, namespace: &str) -> Result<Vec<String>, LedgerError> {
        let budgets: Api<QuorumDisruptionBudget> = Api::namespaced(self.client.clone(), namespace);
        let found = budgets.list_metadata(&ListParams::default()).await;
        let found = found.map_err(LedgerError::listing)?.items.into_iter();
        Ok(found.filter_map(|budget| budget.metadata.name).collect())
    }

    /// Creates a cluster's budget with every default. Reads the budget if somebody else created it
    /// first.
    pub async fn create(&self, cluster: &ClusterRef) -> Result<Page, LedgerError> {
        let budget = QuorumDisruptionBudget::of(cluster);
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
        for Due { member, seq } in ended {
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
    ) -> Result<Option<Page>, LedgerError> {
        let looks = self.look_at_granted(page).await?;
        let ended = due(page, &looks, &self.seen, settle_time);
        self.settle(page, &ended).await
    }

    /// Removes the permission to defragment `member` if it has ended by this look at the member,
    /// which was made after the page was read. `note` changes the record of the runs in the same
    /// write. `None` if it has not ended.
    pub async fn settle_defragmentation(
        &self,
        page: &Page,
        member: &PodName,
        look: Defragmentation,
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
        look: Replacement,
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

    /// Changes what the budget shows. Grants, the record of trust, admitted deletions, the move of
    /// leadership and the records of runs, replacements, volumes and a new cluster stay as they
    /// are, whatever the closure does to them. `None` if nothing changes.
    pub async fn write_status(
        &self,
        page: &Page,
        mutate: impl FnOnce(&mut QuorumDisruptionBudgetStatus),
    ) -> Result<Option<Page>, LedgerError> {
        let (_, before) = page.draft();
        let mut status = before.clone();
        mutate(&mut status);
        status.grants.clone_from(&before.grants);
        status.ledger.clone_from(&before.ledger);
        status.recorded_deletes.clone_from(&before.recorded_deletes);
        status.leader_move.clone_from(&before.leader_move);
        status.defragmentations.clone_from(&before.defragmentations);
        status.volumes.clone_from(&before.volumes);
        status.replacements.clone_from(&before.replacements);
        status.begins_anew.clone_from(&before.begins_anew);
        status.log_end.clone_from(&before.log_end);
        status.data_loss.clone_from(&before.data_loss);
        self.put_changed(page, status).await
    }

    /// Records what was seen of the cluster, and whether the ledger is trusted. `None` if nothing
    /// changes.
    pub async fn update(
        &self,
        page: &Page,
        update: StatusUpdate,
    ) -> Result<Option<Page>, LedgerError> {
        let (_, mut status) = page.draft();
        update.apply(page, &mut status);
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
        status.members.clear();
        // A replacement in the old cluster would go on with a member of the new one.
        status.replacements.clear();
        status.scale_out = None;
        status.log_end = None;
        status.data_loss = None;
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
                let pod = pods.get_opt(member.as_str()).await;
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
        let kept = stored.status.as_ref().is_some_and(|kept| {
            kept.grants == written.grants
                && kept.ledger == written.ledger
                && kept.recorded_deletes == written.recorded_deletes
                && kept.leader_move == written.leader_move
                && kept.defragmentations == written.defragmentations
                && kept.volumes == written.volumes
                && kept.replacements == written.replacements
        });
        if !kept {
            return Err(LedgerError::NotKept);
        }
        self.page(stored)
    }

    fn page(&self, budget: QuorumDisruptionBudget) -> Result<Page, LedgerError> {
        self.seen.note(&budget);
        Page::of(budget)
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
