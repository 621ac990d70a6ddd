//! One reading of a ledger.

use std::collections::BTreeMap;
use std::fmt;

use super::{LedgerError, wire};
use crate::api::{
    BadField, MemberRole, MemberStatus, QuorumDisruptionBudget, QuorumDisruptionBudgetStatus,
};
use crate::quorum::{
    ClusterId, ClusterRef, Grants, Latch, LeaderMove, MemberId, PodName, PodUid, Policy,
};

/// The UID of a budget: a recreated one is another ledger.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BudgetUid(String);

impl fmt::Display for BudgetUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl BudgetUid {
    pub(super) fn of(budget: &QuorumDisruptionBudget) -> Self {
        Self(budget.metadata.uid.clone().unwrap_or_default())
    }

    /// The UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A budget as the API server held it at one resourceVersion, with its grants understood.
#[derive(Debug, Clone)]
pub struct Page {
    /// The cluster it is about.
    pub cluster: ClusterRef,
    /// Which ledger it is.
    pub uid: BudgetUid,
    /// The version that a write must still find.
    pub resource_version: String,
    /// The open grants.
    pub grants: Grants,
    /// The most voters seen, and under which replicas.
    pub latch: Latch,
    budget: QuorumDisruptionBudget,
}

impl Page {
    /// Understands a budget, or says what about it is not understood.
    pub fn of(budget: QuorumDisruptionBudget) -> Result<Self, LedgerError> {
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
        let uid = BudgetUid::of(&budget);
        if uid.as_str().is_empty() {
            return Err(unreadable("it has no UID".into()));
        }
        let status = budget.status.clone().unwrap_or_default();
        wire::is_understood(&status).map_err(unreadable)?;
        let grants = wire::read_grants(&status).map_err(unreadable)?;
        let latch = wire::read_latch(&status).map_err(unreadable)?;
        Ok(Self {
            cluster,
            uid,
            resource_version,
            grants,
            latch,
            budget,
        })
    }

    /// The budget itself.
    pub fn budget(&self) -> &QuorumDisruptionBudget {
        &self.budget
    }

    /// Its status; `None` where nothing was ever written.
    pub fn status(&self) -> Option<&QuorumDisruptionBudgetStatus> {
        self.budget.status.as_ref()
    }

    /// The owner's choices.
    pub fn policy(&self) -> Result<Policy, BadField> {
        self.budget.spec.policy()
    }

    /// The etcd cluster id that the members last agreed on.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.status()?.cluster_id.as_ref()?.parse().ok()
    }

    /// The latest move of leadership that was begun.
    pub fn leader_move(&self) -> Option<LeaderMove> {
        wire::read_leader_move(self.status()?)
    }

    /// The member id last recorded for this incarnation, or else for a member of this name.
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

    /// Whether there is word that the cluster ever worked.
    pub fn is_formed(&self) -> bool {
        self.cluster_id().is_some() || self.status().is_some_and(|status| status.formed)
    }

    /// The external members that are on record.
    pub fn externals(&self) -> impl Iterator<Item = &MemberStatus> {
        let set = self.cluster.name.as_str();
        let members = self.status().map(|status| status.members.as_slice());
        let members = members.unwrap_or_default().iter();
        members.filter(move |member| member.is_external_to(set))
    }

    /// How many of them vote.
    pub fn recorded_externals(&self) -> u32 {
        let voters = self
            .externals()
            .filter(|member| member.role == MemberRole::Voter);
        u32::try_from(voters.count()).unwrap_or(u32::MAX)
    }

    /// The pod that each member was last seen in.
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

    /// A copy of the budget whose status can be changed and written at this page's resourceVersion.
    pub(super) fn draft(&self) -> (QuorumDisruptionBudget, QuorumDisruptionBudgetStatus) {
        let budget = self.budget.clone();
        let status = budget.status.clone().unwrap_or_default();
        (budget, status)
    }
}
