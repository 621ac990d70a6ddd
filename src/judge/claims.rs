//! The evaluation of a change of a claim: its delete, or the end of its protection.

use super::decision::{Ground, Refused, unavailable};
use super::evaluation::{Evaluable, Evaluation, EvaluationInput, LedgerRead, Stop};
use super::question::{ClaimChange, ClaimQuestion};
use crate::causes::causes;
use crate::ledger::{Page, StatusUpdate};
use crate::observe::{
    ClaimIdentity, ClusterLook, ClusterView, EarlyOr, Intents, ObserveError, ends_claims_with_pods,
    kept_ordinals,
};
use crate::quorum::Intent;
use crate::quorum::stateful_set::TeardownPolicy;
use crate::quorum::{
    Allowance, Basis, ClaimDeletion, ClusterRef, Grace, GrantKind, Kind, Ordinal, PodName, Reason,
    Snapshot, Verdict, Waiver, decide_claim, decide_claim_early,
};
use k8s_openapi::api::apps::v1::StatefulSet;

/// A question about the claim of members that is being evaluated.
struct ClaimCase<'a> {
    evaluation: &'a Evaluation<'a>,
    question: &'a ClaimQuestion,
    /// The pods of the members, at least one.
    members: Vec<PodName>,
    /// The first of them, whose grant stands for the delete.
    member: PodName,
    /// Whether pods use the claim, which keeps its protection and its volume.
    in_use: bool,
}

/// The fate of a claim whose owners are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The claim ends by the retention policy, as somebody meant it.
    GivenUp,
    /// The pod of the claim comes back. Another owner than the policy writes is somebody's word.
    ComesBack,
    /// The claim is judged like any other.
    Judged,
}

/// Evaluates the question to its end, however long that takes.
pub(super) async fn evaluate(
    evaluation: &Evaluation<'_>,
    question: &ClaimQuestion,
) -> Result<Ground, Stop> {
    evaluation.doing("it was being found out whose claim it is");
    let ClaimQuestion {
        namespace, claim, ..
    } = question;
    let observer = &evaluation.deps.observer;
    let (found, in_use) = match &question.change {
        ClaimChange::Delete { .. } => (observer.identify_claim(namespace, claim).await?, false),
        ClaimChange::Unprotect => (observer.identify_users(namespace, claim).await?, true),
        ClaimChange::TakeVolume(volume)
            if !observer.is_bound_to(namespace, claim, volume).await? =>
        {
            (ClaimIdentity::Foreign, false)
        }
        ClaimChange::TakeVolume(_) => match observer.identify_users(namespace, claim).await? {
            // No pod runs on it. The data of a stopped or waiting member goes with it all the same.
            ClaimIdentity::Foreign => (observer.identify_by_record(namespace, claim).await?, false),
            used => (used, true),
        },
    };
    let case = |members: Vec<PodName>| {
        let member = members.first().cloned()?;
        Some(ClaimCase {
            evaluation,
            question,
            members,
            member,
            in_use,
        })
    };
    let foreign = || Ok(Ground::Waived(Waiver::Foreign));
    match found {
        ClaimIdentity::Foreign => foreign(),
        ClaimIdentity::Guarded(page, members) => {
            let Some(mut case) = case(members) else {
                return foreign();
            };
            let cluster = page.cluster.clone();
            evaluation.about(&cluster);
            if let Some(protected) = case.protected() {
                evaluation.only_warns_by(&Ok(Some(*page.clone())));
                let verdict = case.alone(&cluster, Some(&page), protected).await?;
                return evaluation.unrecorded(verdict, Ground::Unrecorded);
            }
            let ledger = Ok(Some(*page));
            evaluation.run(&mut case, &cluster, ledger).await
        }
        ClaimIdentity::Unrecorded(cluster, members, error) => {
            let Some(case) = case(members) else {
                return foreign();
            };
            let unrecorded = evaluation.about_unrecorded(&cluster, error);
            let because = case.protected().unwrap_or(unrecorded);
            let verdict = Box::pin(case.alone(&cluster, None, because)).await?;
            // Only a teardown and an override pass.
            evaluation.unrecorded(verdict, Ground::Unrecorded)
        }
    }
}

impl ClaimCase<'_> {
    fn deletion(&self) -> ClaimDeletion {
        ClaimDeletion {
            claim: self.question.claim.clone(),
            members: self.members.clone(),
            // The webhook lets these pass unasked.
            terminating: false,
            other_uid: false,
            collected: self.question.change == ClaimChange::Delete { collected: true },
            waiting_pod: None,
            disowned: None,
            actor: self.question.asker.actor,
        }
    }

    /// The fate of the claims of the members in question, which the garbage collector deletes.
    fn fate(&self, page: &Page, set: Option<&StatefulSet>, snapshot: &Snapshot) -> Fate {
        let Some(set) = set else {
            // Nobody announced a delete that passed because nobody served, or that left the pods.
            let stays = page.status().is_some_and(|status| {
                let gone = status.stateful_set.as_ref();
                gone.is_some_and(|gone| {
                    gone.orphaned || status.recorded_deletes.keep_claims(&gone.uid)
                })
            });
            return if stays { Fate::Judged } else { Fate::GivenUp };
        };
        let kept = kept_ordinals(set);
        let has_left = |member: &PodName| {
            let ordinal = Ordinal::from_pod(member);
            ordinal.is_none_or(|ordinal| !kept.contains(&ordinal.0))
        };
        if !self.members.iter().all(has_left) {
            return Fate::ComesBack;
        }
        // That ordinals have left is no reason by itself: members that are stopped come back, and
        // a StatefulSet that was made anew with fewer replicas takes members that etcd lists.
        let now = self.evaluation.deps.clock.now();
        let intent = Intents::of_set(set, page.status()).announced(now);
        let allows_all = page.budget().spec.policy.teardown() == TeardownPolicy::Allow;
        let is_meant = if kept.is_empty() {
            allows_all || intent == Some(Intent::Delete)
        } else {
            let announced = matches!(intent, Some(Intent::Delete | Intent::ScaleIn));
            let mut members = self.members.iter();
            announced || members.all(|member| snapshot.is_no_member(member))
        };
        match (ends_claims_with_pods(set) && is_meant, kept.is_empty()) {
            (true, _) => Fate::GivenUp,
            (false, true) => Fate::ComesBack,
            (false, false) => Fate::Judged,
        }
    }

    /// The refusal to take the data away while pods use it, if that is the question.
    fn protected(&self) -> Option<Reason> {
        if !self.in_use {
            return None;
        }
        let (claim, pods) = (self.question.claim.clone(), self.members.clone());
        match &self.question.change {
            ClaimChange::Delete { .. } => None,
            ClaimChange::Unprotect => Some(Reason::ClaimProtected { claim, pods }),
            ClaimChange::TakeVolume(volume) => Some(Reason::VolumeInUse {
                volume: volume.clone(),
                claim,
                pods,
            }),
        }
    }

    /// The decision by the member's pod, its namespace and its StatefulSet alone.
    async fn alone(
        &self,
        cluster: &ClusterRef,
        page: Option<&Page>,
        because: Reason,
    ) -> Result<Verdict, ObserveError> {
        let observer = &self.evaluation.deps.observer;
        let found = observer.claim_without_ledger(cluster, &self.member, page);
        let early = decide_claim_early(&found.await?, &self.deletion());
        Ok(early.unwrap_or(match because {
            Reason::ClaimProtected { .. } | Reason::VolumeInUse { .. } => Verdict::Deny(because),
            because => Verdict::Wait(because),
        }))
    }

    /// Decides after `error`. A teardown and an override pass even then.
    async fn consider_alone(
        &self,
        page: Page,
        error: ObserveError,
    ) -> Result<(EvaluationInput, Verdict), Stop> {
        let because = unavailable(causes(&error));
        // The first error says more than a second one would.
        let Ok(verdict) = self.alone(&page.cluster, Some(&page), because).await else {
            return Err(error.into());
        };
        Ok((EvaluationInput::from_ledger(page), verdict))
    }

    /// Looks at the cluster, and decides on all facts.
    async fn judge(&self, page: Page) -> Result<(EvaluationInput, Verdict), (Page, ObserveError)> {
        let (evaluation, deletion) = (self.evaluation, self.deletion());
        let around = |view: &ClusterView| view.circumstances_of_claim(&page, &self.member);
        let early = |view: &ClusterView| decide_claim_early(&around(view), &deletion);
        let asked = (&self.member, Kind::Replace, Grace::Graceful);
        let observer = &evaluation.deps.observer;
        let looked = observer.look_unless(&page, asked, evaluation.members_until(), early);
        let (view, snapshot, verdict) = match Box::pin(looked).await {
            Err(error) => return Err((page, error)),
            Ok(EarlyOr::Early(view, verdict)) => (view, None, verdict),
            Ok(EarlyOr::Full(look)) => {
                let ClusterLook {
                    view, mut snapshot, ..
                } = *look;
                snapshot.circumstances = around(&view);
                // While the StatefulSet is there, only its policy has claims end with their pods.
                let fate = deletion
                    .collected
                    .then(|| self.fate(&page, view.stateful_set(), &snapshot));
                let disowned = (fate == Some(Fate::ComesBack)).then(|| self.member.clone());
                let deletion = ClaimDeletion {
                    collected: fate == Some(Fate::GivenUp),
                    waiting_pod: view.waiting_pod(&page, &self.members),
                    disowned,
                    ..deletion
                };
                let verdict = decide_claim(&snapshot, &page.grants, &deletion);
                (Box::new(view), Some(snapshot), verdict)
            }
        };
        let input = EvaluationInput {
            page,
            view: Some(view),
            snapshot,
        };
        evaluation.log(&input, &self.member, &verdict);
        Ok((input, verdict))
    }
}

impl Evaluable for ClaimCase<'_> {
    type Found = EvaluationInput;

    async fn consider(
        &mut self,
        _cluster: &ClusterRef,
        ledger: LedgerRead,
    ) -> Result<(EvaluationInput, Verdict), Stop> {
        let page = ledger?.ok_or(Refused::Wait(Reason::NoLedger))?;
        let (input, verdict) = match self.judge(page).await {
            Ok(judged) => judged,
            Err((page, error)) => Box::pin(self.consider_alone(page, error)).await?,
        };
        // The grant is that of the member that was judged.
        if let Some(snapshot) = &input.snapshot {
            let mut members = self.members.iter();
            if let Some(member) = members.find(|member| !snapshot.is_no_member(member)) {
                self.member = member.clone();
            }
        }
        // A claim is only marked by its delete, and the pod that ends it is judged by it. So the
        // ledger keeps its trust where an override cannot be recorded.
        let is_overridden = verdict == Verdict::Allow(Allowance::Grant(Basis::Override));
        self.evaluation
            .regardless(is_overridden.then_some(Ground::Unrecorded));
        Ok((input, verdict))
    }

    async fn record(&self, input: &EvaluationInput, basis: Basis) -> Result<Ground, Stop> {
        let (member, replaced) = (&self.member, [GrantKind::Replace]);
        let begins = StatusUpdate::default();
        let proof = self.evaluation.grant(input, member, replaced, begins);
        Ok(Ground::Recorded(basis, proof.await?))
    }
}
