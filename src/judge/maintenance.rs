//! The evaluation of what only the gate itself asks for: the defragmentation of a member, its
//! replacement, its removal, and its start alone after a loss of quorum.
//!
//! The first two are asked twice: for the grant, which is written together with the record, and
//! once more right before the call or the removal, which renews the grant. Leadership is moved by
//! the asker between the two.

use super::decision::{Ground, Refused};
use super::evaluation::{Evaluable, Evaluation, EvaluationInput, LedgerRead, Stop};
use super::question::{Maintenance, MaintenanceQuestion, SeenVersions};
use crate::api::RecoveryStatus;
use crate::ledger::StatusUpdate;
use crate::quorum::{
    Actor, Basis, ClusterRef, Disruption, GrantKind, Grants, Kind, PodName, Reason, Snapshot,
    Verdict, decide, decide_with_terminating_claim, replacement_of,
};

/// A question about maintenance that is being evaluated.
pub(super) struct MaintenanceCase<'a> {
    pub(super) evaluation: &'a Evaluation<'a>,
    pub(super) question: &'a MaintenanceQuestion,
}

impl MaintenanceCase<'_> {
    /// Evaluates the question to its end, however long that takes.
    pub(super) async fn evaluate(mut self) -> Result<Ground, Stop> {
        let (evaluation, cluster) = (self.evaluation, &self.question.cluster);
        evaluation.run_about(&mut self, cluster).await
    }
}

impl Maintenance {
    /// The pod of the member.
    fn member(&self) -> &PodName {
        match self {
            Self::Defragment { pod, .. } | Self::Remove { pod } | Self::Recover { pod, .. } => {
                &pod.name
            }
            Self::Replace { member, .. } => member,
        }
    }

    /// Whether the asker would choose otherwise by this snapshot: it defragments while every voter
    /// serves, and neither calls nor removes a leader that could hand over.
    fn is_outdated(&self, snapshot: &Snapshot) -> bool {
        let leads = snapshot.member(self.member()).is_some_and(|m| m.leader);
        match self {
            Self::Defragment { begins, .. } => {
                let hands_over = begins.is_some() && leads && snapshot.members.len() > 1;
                hands_over || !snapshot.all_voters_serve()
            }
            Self::Replace { begins, .. } => begins.is_none() && leads,
            Self::Remove { .. } => leads,
            Self::Recover { .. } => false,
        }
    }

    fn verdict(&self, snapshot: &Snapshot, grants: &Grants) -> Verdict {
        match self {
            Self::Defragment { pod, .. } => {
                let disruption = Disruption::of_gate(pod.clone(), Kind::Defragment);
                decide(snapshot, grants, &disruption)
            }
            Self::Remove { pod } => {
                let disruption = Disruption::of_gate(pod.clone(), Kind::Remove);
                decide(snapshot, grants, &disruption)
            }
            Self::Recover { pod, .. } => {
                let disruption = Disruption::of_gate(pod.clone(), Kind::Recover);
                decide(snapshot, grants, &disruption)
            }
            Self::Replace { member, .. } => {
                let disruption = replacement_of(snapshot, member, Actor::Gate);
                decide_with_terminating_claim(snapshot, grants, &disruption)
            }
        }
    }

    /// The permission, and the record that is written with it.
    fn record(&self) -> (GrantKind, StatusUpdate) {
        match self {
            Self::Defragment {
                holder,
                timeout,
                begins,
                ..
            } => (
                GrantKind::Defragment {
                    holder: holder.clone(),
                    timeout_seconds: timeout.as_secs(),
                },
                StatusUpdate {
                    defragmentation: begins.clone(),
                    ..StatusUpdate::default()
                },
            ),
            // Its pod follows, and the grant settles with that.
            Self::Remove { pod } => (
                GrantKind::Delete {
                    uid: pod.uid.clone(),
                    rollout: false,
                },
                StatusUpdate::default(),
            ),
            Self::Recover { pod, record } => (
                GrantKind::Delete {
                    uid: pod.uid.clone(),
                    rollout: false,
                },
                StatusUpdate {
                    recovery: Some(Some(RecoveryStatus::clone(record))),
                    ..StatusUpdate::default()
                },
            ),
            Self::Replace { begins, .. } => (
                GrantKind::Replace,
                StatusUpdate {
                    replacement: begins.clone(),
                    ..StatusUpdate::default()
                },
            ),
        }
    }
}

impl Evaluable for MaintenanceCase<'_> {
    type Found = EvaluationInput;

    async fn consider(
        &mut self,
        _cluster: &ClusterRef,
        ledger: LedgerRead,
    ) -> Result<(EvaluationInput, Verdict), Stop> {
        let page = ledger?.ok_or(Refused::Wait(Reason::NoLedger))?;
        let observer = &self.evaluation.deps.observer;
        let look = Box::pin(observer.look(&page, self.evaluation.members_until())).await?;
        let MaintenanceQuestion { what, seen, .. } = self.question;
        if SeenVersions::new(&page, &look.view) != *seen || what.is_outdated(&look.snapshot) {
            return Err(Refused::Outdated.into());
        }
        let verdict = what.verdict(&look.snapshot, &page.grants);
        Ok((EvaluationInput::from_look(page, look), verdict))
    }

    async fn record(&self, input: &EvaluationInput, basis: Basis) -> Result<Ground, Stop> {
        let what = &self.question.what;
        let (permitted, begins) = what.record();
        let proof = self
            .evaluation
            .grant(input, what.member(), [permitted], begins);
        Ok(Ground::Recorded(basis, proof.await?))
    }
}
