//! A page: one reading of a ledger.

use std::collections::BTreeMap;
use std::fmt;

use super::error::LedgerError;
use super::wire;
use crate::api::{
    BadField, MemberRole, MemberStatus, QuorumDisruptionBudget, QuorumDisruptionBudgetStatus,
    RecordedEtcd, RecoveryPhase, RecoveryStatus, ReplacementStatus,
};
use crate::quorum::{
    ClusterId, ClusterRef, ExpectedVoters, Grants, LeaderMove, MemberId, PodName, PodUid, Policy,
    TrustEvent, TrustRecord, Volume, VolumeRecords,
};

/// The UID of a budget. A budget that is created again is another ledger.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BudgetUid(String);

impl fmt::Display for BudgetUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl BudgetUid {
    pub(super) fn from_budget(budget: &QuorumDisruptionBudget) -> Self {
        Self(budget.metadata.uid.clone().unwrap_or_default())
    }

    /// The UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A budget as the API server held it at one resourceVersion, with its grants.
#[derive(Debug, Clone)]
pub struct Page {
    /// The cluster of the budget.
    pub cluster: ClusterRef,
    /// The identity of the ledger.
    pub uid: BudgetUid,
    /// The version at which a write has to find the budget.
    pub resource_version: String,
    /// The open grants.
    pub grants: Grants,
    /// The most voters seen, and the replicas at that time.
    pub expected: ExpectedVoters,
    budget: QuorumDisruptionBudget,
}

impl Page {
    /// Reads a budget.
    ///
    /// # Errors
    /// [`LedgerError::Unreadable`] for a budget that this version does not understand.
    pub fn read(budget: QuorumDisruptionBudget) -> Result<Self, LedgerError> {
        let cluster = budget.cluster();
        let unreadable = |problem: String| LedgerError::Unreadable {
            cluster: cluster.clone(),
            problem,
        };
        let resource_version = budget
            .metadata
            .resource_version
            .clone()
            .filter(|version| !version.is_empty())
            .ok_or_else(|| unreadable("it has no resourceVersion".into()))?;
        let uid = BudgetUid::from_budget(&budget);
        if uid.as_str().is_empty() {
            return Err(unreadable("it has no UID".into()));
        }
        let status = budget.status.clone().unwrap_or_default();
        wire::is_understood(&status).map_err(unreadable)?;
        let grants = wire::read_grants(&status).map_err(unreadable)?;
        let expected = wire::read_expected(&status).map_err(unreadable)?;
        Ok(Self {
            cluster,
            uid,
            resource_version,
            grants,
            expected,
            budget,
        })
    }

    /// The page of a cluster that has no budget: nothing is on record, and nothing can be written.
    pub fn unwritten(cluster: &ClusterRef) -> Self {
        Self {
            cluster: cluster.clone(),
            uid: BudgetUid(String::new()),
            // No object ever has this version.
            resource_version: "unwritten".to_owned(),
            grants: Grants::default(),
            expected: ExpectedVoters::default(),
            budget: QuorumDisruptionBudget::with_defaults(cluster),
        }
    }

    /// The budget itself.
    pub fn budget(&self) -> &QuorumDisruptionBudget {
        &self.budget
    }

    /// The container of etcd, where the budget names it.
    pub fn etcd_container(&self) -> Option<&str> {
        self.budget.spec.members.container.as_deref()
    }

    /// The record of etcd in the cluster's pods.
    pub fn etcd(&self) -> RecordedEtcd<'_> {
        let status = self.status();
        RecordedEtcd {
            container: self.etcd_container(),
            directories: status.and_then(|status| status.directories.as_ref()),
        }
    }

    /// The budget's status; `None` if nothing was ever written.
    pub fn status(&self) -> Option<&QuorumDisruptionBudgetStatus> {
        self.budget.status.as_ref()
    }

    /// The budget's record of the trust of its ledger.
    pub fn trust_record(&self) -> TrustRecord {
        wire::trust_record(&self.budget)
    }

    /// The record of trust after some events.
    pub(super) fn trust_after(&self, events: &[TrustEvent<'_>]) -> TrustRecord {
        let events = events.iter();
        events.fold(self.trust_record(), |record, event| record.after(*event))
    }

    /// The choices of the budget's owner.
    pub fn policy(&self) -> Result<Policy, BadField> {
        self.budget.spec.policy()
    }

    /// The etcd cluster id that the members last agreed on.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.status()?.cluster_id.as_ref()?.parse().ok()
    }

    /// The latest move of leadership that the gate began.
    pub fn leader_move(&self) -> Option<LeaderMove> {
        wire::read_leader_move(self.status()?)
    }

    /// The member id last recorded for this incarnation of a pod, or else for a pod of this name.
    pub fn recorded_id(&self, pod: &PodName, uid: &PodUid) -> Option<MemberId> {
        let members = &self.status()?.members;
        let by_uid = members
            .iter()
            .find(|m| m.pod_uid.as_deref() == Some(uid.as_str()));
        let by_name = || {
            members
                .iter()
                .find(|m| m.pod.as_deref() == Some(pod.as_str()))
        };
        by_uid.or_else(by_name)?.member_id.as_ref()?.parse().ok()
    }

    /// The volume on which each member last served.
    pub fn volume_records(&self) -> VolumeRecords {
        self.status().map(wire::read_volumes).unwrap_or_default()
    }

    /// The volumes alone, to compare with ([`crate::quorum::volume_finding`]).
    pub fn recorded_volumes(&self) -> BTreeMap<PodName, Volume> {
        let records = self.volume_records().into_iter();
        records.map(|(pod, record)| (pod, record.volume)).collect()
    }

    /// The record of the replacement that is under way: one without an end, whose permission is
    /// open. A permission that somebody else ended leaves a record that counts no more.
    pub fn open_replacement(&self) -> Option<&ReplacementStatus> {
        let mut all = self.status()?.replacements.iter();
        all.find(|one| {
            let permitted = || self.grants.permit_replacement(&PodName::new(&one.member));
            one.completion_time.is_none() && permitted()
        })
    }

    /// The recovery from a loss of quorum that is under way.
    pub fn open_recovery(&self) -> Option<&RecoveryStatus> {
        let recovery = self.status()?.recovery.as_deref()?;
        recovery.completion_time.is_none().then_some(recovery)
    }

    /// Whether the data of the member in this pod is given up for that of another one.
    pub fn is_given_up(&self, pod: &PodName) -> bool {
        let Some(open) = self
            .open_recovery()
            .filter(|open| *open.member != *pod.as_str())
        else {
            return false;
        };
        let records = self.volume_records();
        let id = records.get(pod).map(|record| record.id.to_string());
        open.phase != RecoveryPhase::Rejoining
            || id.is_some_and(|id| open.given_up_ids.contains(&id))
    }

    /// The pod of the member that starts alone. Those of all others wait meanwhile.
    pub fn recovering(&self) -> Option<PodName> {
        let open = self.open_recovery()?;
        let holds = open.phase != RecoveryPhase::Rejoining;
        holds.then(|| PodName::new(&open.member))
    }

    /// Whether the cluster is known to have worked at some time.
    pub fn is_formed(&self) -> bool {
        self.cluster_id().is_some() || self.status().is_some_and(|status| status.formed)
    }

    /// The external members on record.
    pub fn externals(&self) -> impl Iterator<Item = &MemberStatus> {
        let set = self.cluster.name.as_str();
        let members = self.status().map(|status| status.members.as_slice());
        let members = members.unwrap_or_default().iter();
        members.filter(move |member| member.is_external_to(set))
    }

    /// The number of external members on record that vote.
    pub fn recorded_externals(&self) -> u32 {
        let voters = self
            .externals()
            .filter(|member| member.role == MemberRole::Voter);
        u32::try_from(voters.count()).unwrap_or(u32::MAX)
    }

    /// The pod in which each member was last seen.
    pub fn recorded_pods(&self) -> BTreeMap<MemberId, PodName> {
        let members = self.status().map(|status| status.members.as_slice());
        let members = members.unwrap_or_default().iter();
        members
            .filter_map(|member| {
                let id = member.member_id.as_ref()?.parse().ok()?;
                Some((id, PodName::new(member.pod.clone()?)))
            })
            .collect()
    }

    /// Copies of the budget and of its status, to be changed and written at this page's
    /// resourceVersion.
    pub(super) fn draft(&self) -> (QuorumDisruptionBudget, QuorumDisruptionBudgetStatus) {
        let budget = self.budget.clone();
        let status = budget.status.clone().unwrap_or_default();
        (budget, status)
    }
}
