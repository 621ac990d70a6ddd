//! The evaluation of the replacement of a member, for which the gate itself asks.
//!
//! It is asked twice: for the grant, which is written together with the record, and once more right
//! before the member is removed, which renews the grant. Leadership is moved by the asker.

use super::decision::{Ground, Refused};
use super::evaluation::{Case, Evaluation, LedgerRead, Stop};
use super::question::{ReplacementQuestion, Sighting};
use crate::ledger::{Page, StatusUpdate};
use crate::observe::Look;
use crate::quorum::{
    Actor, Basis, ClusterRef, Disruption, Grace, Kind, Permitted, PodUid, Reason, TargetPod,
    Verdict, decide_with_terminating_claim,
};

/// A question about a replacement that is being evaluated.
pub(super) struct ReplacementCase<'a> {
    pub(super) evaluation: &'a Evaluation<'a>,
    pub(super) question: &'a ReplacementQuestion,
}

/// The facts that a decision about a replacement was made on.
pub(super) struct Found {
    page: Page,
    look: Look,
}

impl ReplacementCase<'_> {
    /// Evaluates the question to its end, however long that takes.
    pub(super) async fn evaluate(mut self) -> Result<Ground, Stop> {
        let (evaluation, cluster) = (self.evaluation, &self.question.cluster);
        evaluation.about(cluster);
        let ledger = evaluation.read_ledger(cluster).await;
        evaluation.run(&mut self, cluster, ledger).await
    }
}

impl Case for ReplacementCase<'_> {
    type Found = Found;

    async fn consider(
        &mut self,
        _cluster: &ClusterRef,
        ledger: LedgerRead,
    ) -> Result<(Found, Verdict), Stop> {
        let page = ledger?.ok_or(Refused::Wait(Reason::NoLedger))?;
        let observer = &self.evaluation.deps.observer;
        let look = Box::pin(observer.look(&page, self.evaluation.latest())).await?;
        let ReplacementQuestion { member, seen, .. } = self.question;
        let leads = look.snapshot.member(member).is_some_and(|m| m.leader);
        let removes = self.question.begins.is_none();
        if Sighting::of(&page, &look.world) != *seen || removes && leads {
            return Err(Refused::Outdated.into());
        }
        let uid = look.snapshot.pod(member).map(|pod| pod.uid.clone());
        let disruption = Disruption {
            target: TargetPod {
                name: member.clone(),
                uid: uid.unwrap_or_else(|| PodUid::new("")),
            },
            kind: Kind::Replace,
            actor: Actor::Gate,
            grace: Grace::Graceful,
            precondition: None,
        };
        let verdict = decide_with_terminating_claim(&look.snapshot, &page.grants, &disruption);
        Ok((Found { page, look }, verdict))
    }

    async fn record(&self, found: &Found, basis: Basis) -> Result<Ground, Stop> {
        let Found { page, look } = found;
        let deps = self.evaluation.deps;
        let ReplacementQuestion {
            member,
            asker,
            begins,
            ..
        } = self.question;
        let at = deps.clock.now().to_string();
        let asker = asker.name.clone();
        let grants = page.grants.issue(member, Permitted::Replace, asker, at);
        let update = StatusUpdate {
            tolerance: Some(look.snapshot.tolerance(&grants)),
            replacement: begins.clone(),
            ..look.world.status_update(Some(&look.snapshot))
        };
        let (_, proof) = deps.ledger().record(page, &grants, update).await?;
        Ok(Ground::Recorded(basis, proof))
    }
}
