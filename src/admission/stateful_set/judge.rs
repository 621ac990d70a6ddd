//! Judges changes of StatefulSets: reads the ledger and what surrounds the set, asks etcd where that matters, decides, records.
//!
//! Like a judgement of a pod, everything is read after the ledger and recorded by compare-and-swap: whoever wrote in between makes it
//! begin again from the reading.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::StatefulSet;

use crate::api::names::OVERRIDE_UNTIL;
use crate::api::{RecordedDelete, RecordedScaleIn};
use crate::clock::Clock;
use crate::judge::{DryRun, Looking};
use crate::ledger::{Ledger, LedgerError, Page};
use crate::observe::{
    ObserveError, Observer, SetOwner, SetSurroundings, Standing, is_enrolled, standing,
};
use crate::quorum::{ClusterRef, Scope, Teardown};

use super::change::Change;
use super::decide::{Because, Facts, Listed, Owner, Passing, SetReason, SetVerdict, decide};
use super::intent::Intents;
use super::listed;
use super::{SetAnswer, SetJudging, SetQuestion, SetRefusal, SetYes};

/// Proof that the API server accepted the record of an admission.
#[derive(Debug)]
#[must_use]
pub struct OnRecord(());

/// Judges changes of StatefulSets.
pub struct StatefulSetJudge {
    observer: Arc<Observer>,
    looking: Arc<dyn Looking>,
    clock: Clock,
}

/// A failure to find out or to write down.
enum Trouble {
    /// Somebody else wrote: begin again.
    Again,
    /// It is not to be had.
    Unavailable(String),
}

/// One reading of everything but etcd.
struct Reading {
    page: Option<Page>,
    scope: Scope,
    around: SetSurroundings,
}

impl StatefulSetJudge {
    /// Judges by what this observer reads and by what `looking` finds true of the members.
    pub fn new(observer: Arc<Observer>, looking: Arc<dyn Looking>, clock: Clock) -> Self {
        Self {
            observer,
            looking,
            clock,
        }
    }

    async fn judge_in_turn(&self, question: &SetQuestion) -> SetAnswer {
        let _turn = self.ledger().turnstile().enter(&question.set).await;
        loop {
            match self.attempt(question).await {
                Ok(answer) => return answer,
                Err(Trouble::Again) => {}
                Err(Trouble::Unavailable(what)) => {
                    return SetAnswer::wait(SetReason::Unavailable { what });
                }
            }
        }
    }

    async fn attempt(&self, question: &SetQuestion) -> Result<SetAnswer, Trouble> {
        let reading = match self.read(&question.set).await {
            // What is torn down is never held back for want of something to read.
            Err(Trouble::Unavailable(what)) if question.collected => {
                let warning = format!("its delete passed unrecorded: {what}");
                return Ok(yes(SetYes::Unrecorded, Some(warning)));
            }
            reading => reading?,
        };
        let set = match (&reading.around.set, &question.uid) {
            (Some(set), Some(uid)) if set.metadata.uid.as_deref() == Some(uid.as_str()) => set,
            (Some(set), None) => set,
            // The review showed an incarnation that is gone: the API server will find out itself, and ask again about a newer one.
            (Some(_) | None, _) => return Ok(SetAnswer::passes(Passing::Terminating)),
        };
        let now = self.clock.now();
        let stored = Intents::of_stored(&set.metadata);
        let intents = question.intents.as_ref().unwrap_or(&stored);
        let mut facts = Facts {
            scope: reading.scope.clone(),
            teardown: teardown(&reading.around),
            collected: question.collected,
            lifted: self.is_lifted(&reading, intents),
            intent: intents.announced(now),
            owner: owner(&reading.around.owner),
            listed: Listed::Unknown {
                because: Vec::new(),
            },
        };
        let ignored = intents.ignored(now);
        let mut verdict = decide(&question.change, &facts, ignored.clone());
        if let (SetVerdict::Wait(SetReason::MembersUnknown { .. }), Some(page)) =
            (&verdict, &reading.page)
        {
            facts.listed = self.listed(question, page, set).await?;
            verdict = decide(&question.change, &facts, ignored);
        }
        let only_warns = reading
            .page
            .as_ref()
            .is_some_and(|p| p.budget().only_warns());
        let answer = match verdict {
            SetVerdict::Pass(passing) => Ok(SetAnswer::passes(passing)),
            SetVerdict::Wait(reason) => Ok(SetAnswer::wait(reason)),
            SetVerdict::Deny(reason) => Ok(SetAnswer::deny(reason)),
            SetVerdict::Record(because) => {
                self.admit(question, set, reading.page.as_ref(), because)
                    .await
            }
        };
        answer.map(|answer| {
            if only_warns {
                answer.only_warning()
            } else {
                answer
            }
        })
    }

    async fn read(&self, cluster: &ClusterRef) -> Result<Reading, Trouble> {
        let page = self.ledger().read(cluster).await;
        let around = self.observer.set_surroundings(cluster).await;
        let around = around.map_err(|error| unobserved(&error))?;
        let enrolled = around.set.as_ref().is_some_and(is_enrolled);
        let (page, scope) = match page {
            Ok(Some(page)) => (Some(page), Scope::Enrolled),
            Ok(None) if enrolled => (None, Scope::NoLedger),
            Ok(None) => (None, Scope::Foreign),
            // Whoever is enrolled by a budget alone cannot be told from a foreign one now.
            Err(LedgerError::NoDefinition) => (None, Scope::NoDefinition),
            Err(error) => return Err(unwritten(&error)),
        };
        Ok(Reading {
            page,
            scope,
            around,
        })
    }

    /// Rule 6: on the StatefulSet, as it is or would be, or on the budget.
    fn is_lifted(&self, reading: &Reading, intents: &Intents) -> bool {
        let now = self.clock.now();
        let own = intents
            .override_until
            .as_ref()
            .map(|until| BTreeMap::from([(OVERRIDE_UNTIL.to_owned(), until.clone())]));
        let budget = reading.page.as_ref();
        let budget = budget.and_then(|page| page.budget().metadata.annotations.as_ref());
        [own.as_ref(), budget]
            .into_iter()
            .any(|annotations| matches!(standing(annotations, now), Standing::Valid(_)))
    }

    async fn listed(
        &self,
        question: &SetQuestion,
        page: &Page,
        set: &StatefulSet,
    ) -> Result<Listed, Trouble> {
        let Change::Resize { from, to } = question.change else {
            return Ok(Listed::Members(Vec::new()));
        };
        let left = question
            .deadline
            .saturating_duration_since(self.clock.instant());
        // What is found out has to be written down as well.
        let latest = question.deadline - left / 4;
        let snapshot = self.looking.look(page, latest).await;
        let snapshot = snapshot.map_err(|error| unobserved(&error))?;
        let leaving = from.leaving(to, start(set));
        Ok(listed::among(&leaving, &snapshot))
    }

    async fn admit(
        &self,
        question: &SetQuestion,
        set: &StatefulSet,
        page: Option<&Page>,
        because: Because,
    ) -> Result<SetAnswer, Trouble> {
        if question.dry_run == DryRun::Yes {
            return Ok(yes(SetYes::DryRun(because), None));
        }
        let Some(page) = page else {
            let warning = "there is no budget to record this in: its pods are judged one by one";
            return Ok(yes(SetYes::Unrecorded, Some(warning.to_owned())));
        };
        match self.record(question, set, page).await {
            Ok(Some(proof)) => Ok(yes(SetYes::Recorded(because, proof), None)),
            Ok(None) => {
                let warning =
                    "a range that moves cannot be recorded: its pods are judged one by one";
                Ok(yes(SetYes::Unrecorded, Some(warning.to_owned())))
            }
            Err(error) if error.begin_again() => Err(Trouble::Again),
            // Rules 3 and 6 pass even then; rule 3 catches up with the pods after a settle time.
            Err(error) if matches!(because, Because::Override | Because::OwnerGone) => {
                let warning = format!("it passed unrecorded: {error}");
                Ok(yes(SetYes::Unrecorded, Some(warning)))
            }
            Err(error) => Err(unwritten(&error)),
        }
    }

    /// `None` where a budget has no form for it: ordinals that leave at the lower end.
    async fn record(
        &self,
        question: &SetQuestion,
        set: &StatefulSet,
        page: &Page,
    ) -> Result<Option<OnRecord>, LedgerError> {
        let uid = set.metadata.uid.clone().unwrap_or_default();
        let by = question.asker.name.clone();
        let at = self.clock.now().to_string();
        match question.change {
            Change::Delete => {
                let admitted = RecordedDelete { uid, by, at };
                self.ledger().admit_delete(page, admitted).await?;
            }
            Change::Resize { from, to } => {
                let (Ok(from_count), Ok(to_count)) =
                    (i32::try_from(from.count), i32::try_from(to.count))
                else {
                    return Ok(None);
                };
                if from.start != to.start {
                    return Ok(None);
                }
                let before = page
                    .status()
                    .and_then(|s| s.recorded_deletes.scale_in.as_ref());
                let before = before.filter(|before| before.stateful_set_uid == uid);
                let admitted = RecordedScaleIn {
                    // Pods of an earlier scale-in may still be on their way.
                    from: before.map_or(from_count, |before| before.from.max(from_count)),
                    stateful_set_uid: uid,
                    to: to_count,
                    by,
                    at,
                };
                self.ledger().admit_scale_in(page, admitted).await?;
            }
        }
        Ok(Some(OnRecord(())))
    }

    fn ledger(&self) -> &Ledger {
        self.observer.ledger()
    }
}

impl SetJudging for StatefulSetJudge {
    fn judge(&self, question: SetQuestion) -> BoxFuture<'_, SetAnswer> {
        Box::pin(async move {
            let judged = self.judge_in_turn(&question);
            match tokio::time::timeout_at(question.deadline, judged).await {
                Ok(answer) => answer,
                Err(_) => SetAnswer::wait(SetReason::Unavailable {
                    what: "no judgement was reached in time".to_owned(),
                }),
            }
        })
    }
}

fn yes(yes: SetYes, warning: Option<String>) -> SetAnswer {
    SetAnswer {
        outcome: Ok::<_, SetRefusal>(yes),
        warnings: warning.into_iter().collect(),
    }
}

fn teardown(around: &SetSurroundings) -> Option<Teardown> {
    if around.namespace_terminating {
        Some(Teardown::Namespace)
    } else if around.owner == SetOwner::Goes {
        Some(Teardown::Owner)
    } else {
        None
    }
}

fn owner(owner: &SetOwner) -> Owner {
    match owner {
        // One that goes is a teardown, which comes first.
        SetOwner::None | SetOwner::Goes => Owner::None,
        SetOwner::Lives(owner) => Owner::Lives {
            owner: owner.clone(),
        },
        SetOwner::Unknown { owner, why } => Owner::Unread {
            owner: owner.clone(),
            why: why.clone(),
        },
    }
}

fn start(set: &StatefulSet) -> u32 {
    let ordinals = set.spec.as_ref().and_then(|spec| spec.ordinals.as_ref());
    let start = ordinals.and_then(|ordinals| ordinals.start);
    u32::try_from(start.unwrap_or_default()).unwrap_or_default()
}

fn unobserved(error: &ObserveError) -> Trouble {
    Trouble::Unavailable(with_cause(error))
}

fn unwritten(error: &LedgerError) -> Trouble {
    Trouble::Unavailable(with_cause(error))
}

fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        None => error.to_string(),
        Some(cause) => format!("{error}: {cause}"),
    }
}
