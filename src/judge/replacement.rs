//! The evaluation of the replacement of a member, for which the gate itself asks.
//!
//! It is asked twice: for the grant, which is written together with the record, and once more right
//! before the member is removed, which renews the grant. Leadership is moved by the asker.

use super::decision::{Ground, Refused};
use super::evaluation::{Case, Evaluation, Facts, LedgerRead, Stop};
use super::question::{ReplacementQuestion, SeenVersions};
use crate::ledger::StatusUpdate;
use crate::quorum::{
    Actor, Basis, ClusterRef, Permitted, Reason, Verdict, decide_with_terminating_claim,
    replacement,
};

/// A question about a replacement that is being evaluated.
pub(super) struct ReplacementCase<'a> {
    pub(super) evaluation: &'a Evaluation<'a>,
    pub(super) question: &'a ReplacementQuestion,
}

impl ReplacementCase<'_> {
    /// Evaluates the question to its end, however long that takes.
    pub(super) async fn evaluate(mut self) -> Result<Ground, Stop> {
        let (evaluation, cluster) = (self.evaluation, &self.question.cluster);
        evaluation.run_about(&mut self, cluster).await
    }
}

impl Case for ReplacementCase<'_> {
    type Found = Facts;

    async fn consider(
        &mut self,
        _cluster: &ClusterRef,
        ledger: LedgerRead,
    ) -> Result<(Facts, Verdict), Stop> {
        let page = ledger?.ok_or(Refused::Wait(Reason::NoLedger))?;
        let observer = &self.evaluation.deps.observer;
        let look = Box::pin(observer.look(&page, self.evaluation.latest())).await?;
        let ReplacementQuestion { member, seen, .. } = self.question;
        let leads = look.snapshot.member(member).is_some_and(|m| m.leader);
        let removes = self.question.begins.is_none();
        if SeenVersions::of(&page, &look.world) != *seen || removes && leads {
            return Err(Refused::Outdated.into());
        }
        let disruption = replacement(&look.snapshot, member, Actor::Gate);
        let verdict = decide_with_terminating_claim(&look.snapshot, &page.grants, &disruption);
        Ok((Facts::of_look(page, look), verdict))
    }

    async fn record(&self, facts: &Facts, basis: Basis) -> Result<Ground, Stop> {
        let ReplacementQuestion { member, begins, .. } = self.question;
        let begins = StatusUpdate {
            replacement: begins.clone(),
            ..StatusUpdate::default()
        };
        let permitted = [Permitted::Replace];
        let proof = self.evaluation.grant(facts, member, permitted, begins);
        Ok(Ground::Recorded(basis, proof.await?))
    }
}
