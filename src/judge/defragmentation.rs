//! The evaluation of a defragmentation, for which the gate itself asks.
//!
//! The question comes twice: for the grant, and once more right before the call, which renews the
//! grant.
//! Leadership is not moved here: the asker has to move it to a follower that is defragmented.

use super::decision::{Ground, Refused};
use super::evaluation::{Case, Evaluation, Facts, LedgerRead, Stop};
use super::question::{DefragmentationQuestion, SeenVersions};
use crate::ledger::{Page, StatusUpdate};
use crate::observe::Look;
use crate::quorum::{Basis, ClusterRef, Disruption, Kind, Permitted, Reason, Verdict, decide};

/// A question about a defragmentation that is being evaluated.
pub(super) struct DefragmentationCase<'a> {
    pub(super) evaluation: &'a Evaluation<'a>,
    pub(super) question: &'a DefragmentationQuestion,
}

impl DefragmentationCase<'_> {
    /// Evaluates the question to its end, however long that takes.
    pub(super) async fn evaluate(mut self) -> Result<Ground, Stop> {
        let (evaluation, cluster) = (self.evaluation, &self.question.cluster);
        evaluation.run_about(&mut self, cluster).await
    }

    /// Whether the asker would choose otherwise by these facts: it chose while every voter served,
    /// and makes no call to a leader that could hand over.
    fn is_outdated(&self, page: &Page, look: &Look) -> bool {
        let DefragmentationQuestion {
            pod, begins, seen, ..
        } = self.question;
        let snapshot = &look.snapshot;
        let leads = snapshot.member(&pod.name).is_some_and(|m| m.leader);
        let hands_over = begins.is_some() && leads && snapshot.members.len() > 1;
        SeenVersions::of(page, &look.world) != *seen || hands_over || !snapshot.all_voters_serve()
    }
}

impl Case for DefragmentationCase<'_> {
    type Found = Facts;

    async fn consider(
        &mut self,
        _cluster: &ClusterRef,
        ledger: LedgerRead,
    ) -> Result<(Facts, Verdict), Stop> {
        let page = ledger?.ok_or(Refused::Wait(Reason::NoLedger))?;
        let observer = &self.evaluation.deps.observer;
        let look = Box::pin(observer.look(&page, self.evaluation.latest())).await?;
        if self.is_outdated(&page, &look) {
            return Err(Refused::Outdated.into());
        }
        let pod = &self.question.pod;
        let disruption = Disruption::of_gate(pod.clone(), Kind::Defragment);
        let verdict = decide(&look.snapshot, &page.grants, &disruption);
        Ok((Facts::of_look(page, look), verdict))
    }

    async fn record(&self, facts: &Facts, basis: Basis) -> Result<Ground, Stop> {
        let DefragmentationQuestion {
            pod,
            holder,
            timeout,
            begins,
            ..
        } = self.question;
        let permitted = [Permitted::Defragment {
            holder: holder.clone(),
            timeout_seconds: timeout.as_secs(),
        }];
        let begins = StatusUpdate {
            defragmentation: begins.clone(),
            ..StatusUpdate::default()
        };
        let proof = self.evaluation.grant(facts, &pod.name, permitted, begins);
        Ok(Ground::Recorded(basis, proof.await?))
    }
}
