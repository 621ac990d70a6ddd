//! The one way to a yes: read the ledger, gather evidence that is younger, decide, record, answer.
//!
//! The webhooks and the rollout ask here alike, so a rollout never takes what the webhook would
//! refuse.

mod afterwards;
mod claims;
mod decision;
mod deps;
mod evaluation;
mod leadership;
mod maintenance;
mod pods;
mod question;
mod stateful_sets;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::Instant;

pub use decision::{Allowed, Answer, Decision, Ground, Refused};
pub use deps::{Afterwards, JudgeDeps};
pub use question::{
    Asker, ClaimChange, ClaimQuestion, DryRun, Judging, Maintenance, MaintenanceQuestion, Question,
    SeenVersions, SetQuestion,
};

use crate::etcd::Admin;
use crate::ledger::Page;
use crate::observe::ObserveError;
use crate::quorum::{Snapshot, rests};
use evaluation::Evaluation;
use maintenance::MaintenanceCase;
use pods::PodCase;
pub use stateful_sets::Looking;
use stateful_sets::SetCase;

/// The judge. A clone is cheap, and shares what the original remembers.
#[derive(Clone)]
pub struct Judge {
    deps: Arc<JudgeDeps>,
}

impl Judge {
    /// A judge with these parts.
    pub fn new(deps: JudgeDeps) -> Self {
        Self {
            deps: Arc::new(deps),
        }
    }

    /// The client for the calls that change etcd.
    pub fn admin(&self) -> &Admin {
        &self.deps.admin
    }

    /// For how long leadership has to stay where it is, because it moved a moment ago. `None` if it
    /// may move.
    pub fn leadership_rests(&self, page: &Page, snapshot: &Snapshot) -> Option<Duration> {
        rests(snapshot, self.deps.open_move(page, snapshot).as_ref())
    }

    /// Answers a question about maintenance.
    pub async fn judge_maintenance(&self, question: MaintenanceQuestion) -> Answer {
        let (asker, deadline) = (&question.asker, question.deadline);
        let evaluation = Evaluation::new(&self.deps, asker, DryRun::No, deadline);
        let case = MaintenanceCase {
            evaluation: &evaluation,
            question: &question,
        };
        evaluation.answer(case.evaluate()).await
    }

    async fn judge_pod(&self, question: Question) -> Answer {
        let Question {
            asker,
            dry_run,
            deadline,
            ..
        } = &question;
        let evaluation = Evaluation::new(&self.deps, asker, *dry_run, *deadline);
        let case = PodCase::new(&evaluation, &question);
        let answer = evaluation.answer(case.evaluate()).await;
        afterwards::follow_up(&self.deps, &answer, *dry_run);
        answer
    }

    async fn judge_claim_deletion(&self, question: ClaimQuestion) -> Answer {
        let ClaimQuestion {
            asker,
            dry_run,
            deadline,
            ..
        } = &question;
        let evaluation = Evaluation::new(&self.deps, asker, *dry_run, *deadline);
        let answer = evaluation.answer(claims::evaluate(&evaluation, &question));
        let answer = answer.await;
        afterwards::follow_up(&self.deps, &answer, *dry_run);
        answer
    }

    async fn judge_stateful_set(&self, question: SetQuestion, looking: &dyn Looking) -> Answer {
        let SetQuestion {
            asker,
            dry_run,
            deadline,
            ..
        } = &question;
        let evaluation = Evaluation::new(&self.deps, asker, *dry_run, *deadline);
        let case = SetCase {
            evaluation: &evaluation,
            looking,
            question: &question,
        };
        let answer = evaluation.answer(case.evaluate()).await;
        afterwards::follow_up(&self.deps, &answer, *dry_run);
        answer
    }
}

impl Judging for Judge {
    fn judge(&self, question: Question) -> BoxFuture<'_, Answer> {
        self.judge_pod(question).boxed()
    }

    fn judge_set(&self, question: SetQuestion) -> BoxFuture<'_, Answer> {
        self.judge_stateful_set(question, self).boxed()
    }

    fn judge_claim(&self, question: ClaimQuestion) -> BoxFuture<'_, Answer> {
        self.judge_claim_deletion(question).boxed()
    }
}

impl Looking for Judge {
    fn look<'a>(
        &'a self,
        page: &'a Page,
        latest: Instant,
    ) -> BoxFuture<'a, Result<Snapshot, ObserveError>> {
        async move {
            let look = self.deps.observer.look(page, latest);
            Ok(Box::pin(look).await?.snapshot)
        }
        .boxed()
    }
}
