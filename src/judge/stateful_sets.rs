//! The evaluation of a change of a StatefulSet.

use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::StatefulSet;
use tokio::time::Instant;

use super::decision::Ground;
use super::evaluation::{Evaluable, Evaluation, LedgerRead, Stop};
use super::question::SetQuestion;
use crate::api::{OrdinalRange, OverrideState, RecordedDelete, RecordedScaleIn, standing};
use crate::causes::causes;
use crate::ledger::{LedgerError, Page, Recorded};
use crate::observe::{
    Intents, ObserveError, SetOwner, SetSurroundings, first_ordinal, is_enrolled, takes_data,
};
use crate::quorum::DataTaken;
use crate::quorum::Serving;
use crate::quorum::stateful_set::{
    Change, Listed, Owner, StatefulSetInput, TeardownPolicy, decide,
};
use crate::quorum::{
    Allowance, Basis, ClusterRef, Reason, Scope, Snapshot, Teardown, Verdict, Waiver,
};

/// A source of snapshots of a whole cluster as it is now.
pub trait Looking: Send + Sync + 'static {
    /// The cluster as it is after `page` was read. A member that has not answered by `latest` did
    /// not answer.
    fn look<'a>(
        &'a self,
        page: &'a Page,
        latest: Instant,
    ) -> BoxFuture<'a, Result<Snapshot, ObserveError>>;
}

/// A question about a StatefulSet that is being evaluated.
pub(super) struct SetCase<'a> {
    pub(super) evaluation: &'a Evaluation<'a>,
    pub(super) looking: &'a dyn Looking,
    pub(super) question: &'a SetQuestion,
}

/// The ledger and the StatefulSet, with which a change is recorded.
pub(super) struct Found {
    page: Result<Page, Unread>,
    uid: String,
    first_ordinal: u32,
}

/// The reason why there is no ledger to record a change in.
enum Unread {
    /// There is no budget.
    NoBudget,
    /// The budget could not be read or understood.
    Failed(LedgerError),
}

impl SetCase<'_> {
    /// Evaluates the question to its end, however long that takes.
    pub(super) async fn evaluate(mut self) -> Result<Ground, Stop> {
        let (evaluation, set) = (self.evaluation, &self.question.set);
        evaluation.run_about(&mut self, set).await
    }

    /// Notes whether the change passes even if something cannot be read or written. A teardown is
    /// not held back for that, and an override neither.
    fn passes_regardless(&self, passes: bool) {
        let ground = passes.then_some(Ground::Unrecorded);
        self.evaluation.regardless(ground);
    }

    fn input(
        &self,
        scope: Scope,
        page: Option<&Page>,
        around: &SetSurroundings,
        set: &StatefulSet,
    ) -> StatefulSetInput {
        let now = self.evaluation.deps.clock.now();
        let written = self.question.intents.clone();
        let intents = written
            .unwrap_or_else(|| Intents::of_stored(&set.metadata))
            .as_recorded(set, page.and_then(Page::status));
        let on_budget = page.and_then(|page| page.budget().metadata.annotations.as_ref());
        let is_valid = |annotations| matches!(standing(annotations, now), OverrideState::Valid(_));
        StatefulSetInput {
            set: self.question.set.clone(),
            // Without the definition there is no record, and there will be none.
            collected: self.question.collected
                && (around.is_owner_known || scope == Scope::NoDefinition),
            scope,
            teardown: teardown(around),
            overridden: is_valid(intents.overrides()) || is_valid(on_budget),
            intent: intents.announced(now),
            ignored: intents.ignored(now),
            owner: owner(&around.owner),
            teardown_policy: page.map_or_else(TeardownPolicy::default, |page| {
                page.budget().spec.policy.teardown()
            }),
            takes_data: page
                .filter(|page| page.is_formed())
                .and_then(|page| takes_data(set, page.etcd(), &self.question.change)),
            listed: Listed::Unknown {
                because: Vec::new(),
            },
            serving: None,
        }
    }

    /// Asks the members: those that serve, and those of the leaving ordinals that etcd still lists.
    async fn ask(
        &self,
        page: &Page,
        set: &StatefulSet,
        input: &mut StatefulSetInput,
    ) -> Result<(), Stop> {
        let snapshot = self
            .looking
            .look(page, self.evaluation.members_until())
            .await?;
        input.serving = Some(Serving::from_snapshot(&snapshot));
        if let Change::Resize { from, to } = self.question.change {
            let leaving = from.leaving(to, first_ordinal(set).0);
            input.listed = Listed::among(&leaving, &snapshot);
        }
        Ok(())
    }

    /// Writes the change to the budget.
    async fn write(
        &self,
        page: &Page,
        found: &Found,
        basis: Basis,
    ) -> Result<Recorded, LedgerError> {
        let deps = self.evaluation.deps;
        let uid = found.uid.clone();
        let by = self.question.asker.name.clone();
        let time = deps.clock.now().to_string();
        let (from, to) = match self.question.change {
            Change::Delete => {
                let keeps_claims = basis == Basis::NobodyServes && page.is_formed();
                let admitted = RecordedDelete {
                    uid,
                    by,
                    keeps_claims,
                    time,
                };
                let recorded = deps.ledger().admit_delete(page, admitted).await;
                return recorded.map(|(_, proof)| proof);
            }
            Change::Resize { to, .. } if to.count == 0 => {
                let admitted = RecordedDelete {
                    uid,
                    by,
                    keeps_claims: false,
                    time,
                };
                let recorded = deps.ledger().admit_hibernation(page, admitted).await;
                return recorded.map(|(_, proof)| proof);
            }
            Change::Resize { from, to } => (from, to),
        };
        let before = page
            .status()
            .and_then(|s| s.recorded_deletes.scale_in.as_ref());
        let before = before.filter(|before| before.stateful_set_uid == uid);
        // Pods of an earlier scale-in may still be on their way.
        let mut taken = before.map(RecordedScaleIn::taken).unwrap_or_default();
        taken.extend(from.leaving(to, found.first_ordinal).ranges());
        let admitted = RecordedScaleIn {
            stateful_set_uid: uid,
            ordinals: OrdinalRange::covering(taken),
            by,
            time,
        };
        let recorded = deps.ledger().admit_scale_in(page, admitted).await;
        recorded.map(|(_, proof)| proof)
    }
}

impl Evaluable for SetCase<'_> {
    type Found = Found;

    async fn consider(
        &mut self,
        cluster: &ClusterRef,
        ledger: LedgerRead,
    ) -> Result<(Found, Verdict), Stop> {
        let SetQuestion { uid, change, .. } = self.question;
        self.passes_regardless(false);
        let known = ledger.as_ref().ok().and_then(Option::as_ref);
        let observer = &self.evaluation.deps.observer;
        let mut around = observer.set_surroundings(cluster, known).await?;
        let enrolled = around.set.as_ref().is_some_and(is_enrolled);
        let (page, scope) = match ledger {
            Ok(Some(page)) => (Ok(page), Scope::Enrolled),
            Ok(None) if enrolled => (Err(Unread::NoBudget), Scope::NoLedger),
            Ok(None) => (Err(Unread::NoBudget), Scope::Foreign),
            // A StatefulSet that is enrolled by its budget alone looks like a foreign one now.
            Err(LedgerError::NoDefinition) => (Err(Unread::NoBudget), Scope::NoDefinition),
            Err(error) => (Err(Unread::Failed(error)), Scope::NoLedger),
        };
        let set = around.set.take().filter(|set| {
            let stored = set.metadata.uid.as_deref();
            uid.as_ref().is_none_or(|uid| stored == Some(uid.as_str()))
        });
        let Some(set) = set else {
            // The request showed another incarnation. The API server will notice, and ask again
            // about a newer one.
            return Err(Stop::Known(Ok(Ground::Waived(Waiver::Terminating))));
        };
        let mut input = self.input(scope, page.as_ref().ok(), &around, &set);
        let mut verdict = decide(change, &input);
        // A teardown or an override needs no budget. For every other change the error is the reason
        // to wait.
        let page = match (page, &verdict) {
            (Err(Unread::Failed(error)), Verdict::Wait(_) | Verdict::Deny(_)) => {
                return Err(error.into());
            }
            (page, _) => page,
        };
        if let (Verdict::Wait(Reason::MembersUnknown { .. }), Ok(page)) = (&verdict, &page) {
            self.ask(page, &set, &mut input).await?;
            verdict = decide(change, &input);
        }
        let nobody_serves = verdict == Verdict::Allow(Allowance::Grant(Basis::NobodyServes));
        let is_refused = matches!(verdict, Verdict::Deny(Reason::Unannounced(_)));
        if let Ok(page) = &page
            && (nobody_serves || is_refused)
            && *change == Change::Delete
            && input.takes_data.is_none()
            && page.is_formed()
        {
            let owned = self.evaluation.deps.observer.owns_claims(page, &set).await;
            // It is refused all the same.
            if owned.or_else(|error| if is_refused { Ok(false) } else { Err(error) })? {
                input.takes_data = Some(DataTaken::OwnedClaims);
                verdict = decide(change, &input);
            }
        }
        let passes = Allowance::Grant(Basis::Override);
        let torn_down = Allowance::Grant(Basis::OwnerGone);
        self.passes_regardless([passes, torn_down].map(Verdict::Allow).contains(&verdict));
        let first_ordinal = first_ordinal(&set).0;
        let uid = set.metadata.uid.unwrap_or_default();
        let found = Found {
            page,
            uid,
            first_ordinal,
        };
        Ok((found, verdict))
    }

    async fn record(&self, found: &Found, basis: Basis) -> Result<Ground, Stop> {
        let page = match &found.page {
            Ok(page) => page,
            Err(unread) => {
                self.evaluation.warn(match unread {
                    Unread::NoBudget => {
                        "there is no budget to record this in: its pods are judged one by one"
                            .to_owned()
                    }
                    Unread::Failed(error) => format!("it passed unrecorded: {}", causes(error)),
                });
                return Ok(Ground::Unrecorded);
            }
        };
        let proof = self.write(page, found, basis).await?;
        Ok(Ground::Recorded(basis, proof))
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
        // An owner that goes is a teardown, which comes first.
        SetOwner::None | SetOwner::Goes => Owner::None,
        SetOwner::NeverSeen { owner } => Owner::NeverSeen {
            owner: owner.clone(),
        },
        SetOwner::Lives {
            owner,
            asks_for_none,
        } => Owner::Lives {
            owner: owner.clone(),
            asks_for_none: *asks_for_none,
        },
        SetOwner::Unknown { owner, why } => Owner::Unread {
            owner: owner.clone(),
            why: why.clone(),
        },
    }
}
