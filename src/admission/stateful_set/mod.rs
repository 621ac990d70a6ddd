//! `/validate/statefulsets`: may this StatefulSet be deleted, or lose replicas?
//!
//! Either takes members without asking for each of them, so it is judged before it starts; what is admitted is recorded in
//! the budget and cascades freely from there.

mod change;
mod decide;
mod intent;
mod judge;
mod listed;
mod ordinals;

pub use change::{Change, Dependents};
pub use decide::{Because, Facts, Listed, Owner, Passing, SetReason, SetVerdict, decide};
pub use intent::{Intent, Intents};
pub use judge::{OnRecord, StatefulSetJudge};
pub use listed::among as listed_among;
pub use ordinals::{Leaving, Ordinals};

use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::judge::{Asker, DryRun};
use crate::quorum::{ClusterRef, PodUid};

use super::actor;
use super::deadline::Deadline;
use super::handle::{Answered, Call};
use super::malformed::Malformed;
use super::report::Subject;
use super::room::Readable;
use super::ruling::Ruling;

/// One change of a StatefulSet that asks for permission.
#[derive(Debug, Clone)]
pub struct SetQuestion {
    /// The StatefulSet.
    pub set: ClusterRef,
    /// Its incarnation, where the request showed it.
    pub uid: Option<PodUid>,
    /// What would be done.
    pub change: Change,
    /// What the object would say after an update of itself; `None` where only the stored object can say it.
    pub intents: Option<Intents>,
    /// Who asks.
    pub asker: Asker,
    /// Whether the garbage collector deletes exactly this incarnation, which proves that its owner is gone or goes with its dependents.
    pub collected: bool,
    /// Whether anything may be written.
    pub dry_run: DryRun,
    /// When the answer has to be there.
    pub deadline: Instant,
}

/// The answer to a [`SetQuestion`].
#[derive(Debug)]
#[must_use]
pub struct SetAnswer {
    /// Yes or no.
    pub outcome: Result<SetYes, SetRefusal>,
    /// What the asker should know besides.
    pub warnings: Vec<String>,
}

/// A yes, and what it stands on.
#[derive(Debug)]
pub enum SetYes {
    /// It takes nothing that would have to be recorded.
    Passes(Passing),
    /// The admission was recorded in the budget.
    Recorded(Because, OnRecord),
    /// It passes without a record, because there is no budget to write to or none that would take it: its pods are judged one by one.
    Unrecorded,
    /// It would be admitted; nothing was written.
    DryRun(Because),
    /// It would be refused, and passes because the budget's refusals are only reported (`enforcement: Warn`).
    Warned(SetRefusal),
}

/// A no, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetRefusal {
    /// Ask again later: 429.
    Wait(SetReason),
    /// Not like this: 403.
    Deny(SetReason),
}

/// Somebody who answers questions about StatefulSets.
pub trait SetJudging: Send + Sync + 'static {
    /// Answers one question before its deadline.
    fn judge(&self, question: SetQuestion) -> BoxFuture<'_, SetAnswer>;
}

pub(super) async fn answer(
    call: Call<'_>,
    body: Readable<'_>,
    deadline: Deadline,
) -> Result<Answered, Malformed> {
    let read = body.read(change::read)?;
    let subject = Subject::stateful_set(&read.set.namespace, &read.set.name, read.uid.as_deref());
    let asker = actor::asker(read.user, &call.admission.own_username);
    let ruling = match read.asks {
        // Nothing has to be found out, so nobody has to be reachable.
        Err(passing) => Ruling::on_set(&read.set, SetAnswer::passes(passing)),
        Ok((change, intents)) => {
            let question = SetQuestion {
                set: read.set,
                uid: read.uid.as_deref().map(Into::into),
                change,
                intents,
                asker: asker.clone(),
                collected: read.collected,
                dry_run: read.dry_run,
                deadline: deadline.judge,
            };
            call.judged_set(question, deadline).await
        }
    };
    Ok(Answered {
        review: read.review,
        subject,
        asker,
        dry_run: read.dry_run,
        ruling,
    })
}

impl SetAnswer {
    /// A yes that needs no record.
    pub fn passes(passing: Passing) -> Self {
        Self {
            outcome: Ok(SetYes::Passes(passing)),
            warnings: Vec::new(),
        }
    }

    /// A no for now.
    pub fn wait(reason: SetReason) -> Self {
        Self {
            outcome: Err(SetRefusal::Wait(reason)),
            warnings: Vec::new(),
        }
    }

    /// The same where refusals are only reported.
    fn only_warning(self) -> Self {
        let outcome = match self.outcome {
            Err(refusal) => Ok(SetYes::Warned(refusal)),
            outcome => outcome,
        };
        Self { outcome, ..self }
    }

    /// A no to this way of doing it.
    pub fn deny(reason: SetReason) -> Self {
        Self {
            outcome: Err(SetRefusal::Deny(reason)),
            warnings: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
