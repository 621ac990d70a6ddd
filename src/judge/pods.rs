//! The evaluation of a disruption of one pod.

use tracing::Instrument as _;

use super::decision::{Ground, Refused, unavailable};
use super::deps::JudgeDeps;
use super::evaluation::{Evaluable, Evaluation, EvaluationInput, LedgerRead, Stop};
use super::leadership::{self, Transfer};
use super::question::{DryRun, Question, SeenVersions};
use crate::causes::causes;
use crate::ledger::{LedgerError, Page, Recorded, StatusUpdate};
use crate::observe::{
    ClusterLook, ClusterView, Identity, Ledgerless, ObserveError, PodData, PodLook, data_in_pods,
    leaves_by,
};
use crate::quorum::pod::Pod;
use crate::quorum::{
    Actor, Allowance, Basis, ClusterRef, Disruption, GrantKind, Kind, PodUid, Reason, Snapshot,
    Succession, Verdict, Waiver, decide, decide_early, decide_with_data_in_pod,
    decide_with_terminating_claim, decide_without_ledger, succession, takes_data,
};
use crate::telemetry::traces::step;

/// A question about a pod that is being evaluated.
pub(super) struct PodCase<'a> {
    evaluation: &'a Evaluation<'a>,
    deps: &'a JudgeDeps,
    question: &'a Question,
    seen: Option<SeenVersions>,
    /// Whether a move of leadership was tried. One request moves it once at most.
    moved_leadership: bool,
}

/// The Kubernetes half, the snapshot unless the circumstances decided early, the disruption, and
/// the verdict. `None` if the pod does not exist.
type Judged = Option<(Box<ClusterView>, Option<Snapshot>, Disruption, Verdict)>;

/// The facts that a decision about a pod was made on.
pub(super) struct Found {
    input: EvaluationInput,
    disruption: Disruption,
    succession: Succession,
}

impl<'a> PodCase<'a> {
    pub(super) fn new(evaluation: &'a Evaluation<'a>, question: &'a Question) -> Self {
        Self {
            evaluation,
            deps: evaluation.deps,
            question,
            seen: question.seen,
            moved_leadership: false,
        }
    }

    /// Evaluates the question to its end, however long that takes.
    pub(super) async fn evaluate(mut self) -> Result<Ground, Stop> {
        let evaluation = self.evaluation;
        evaluation.doing("it was being found out whose pod it is");
        let observer = &self.deps.observer;
        let Question {
            namespace,
            pod,
            shown,
            ..
        } = self.question;
        let identified = observer.identify(namespace, pod, shown.as_deref());
        let identified = identified.instrument(step!("cluster of the pod, and its ledger"));
        let page = match identified.await? {
            Identity::Guarded(page) => page,
            Identity::Unrecorded(..) if !self.question.only_if_etcd_is.is_empty() => {
                return Ok(Ground::Waived(Waiver::RestartsNothing));
            }
            Identity::Foreign => return Ok(Ground::Waived(Waiver::Foreign)),
            Identity::NoSuchPod => return Err(self.no_such_pod()),
            Identity::Unrecorded(cluster, error) => {
                let because = evaluation.about_unrecorded(&cluster, error);
                return Box::pin(self.without_ledger(&cluster, because)).await;
            }
        };
        let of_etcd = &self.question.only_if_etcd_is;
        let named = page.etcd_container();
        if !of_etcd.is_empty() && !of_etcd.iter().any(|name| Some(name.as_str()) == named) {
            return Ok(Ground::Waived(Waiver::RestartsNothing));
        }
        let cluster = page.cluster.clone();
        evaluation.about(&cluster);
        Box::pin(evaluation.run(&mut self, &cluster, Ok(Some(*page)))).await
    }

    /// Decides where nothing can be recorded. Only a request that needs no record may pass, or one
    /// that a person takes responsibility for.
    async fn without_ledger(&self, cluster: &ClusterRef, because: Reason) -> Result<Ground, Stop> {
        let observer = &self.deps.observer;
        let found = observer
            .without_ledger(cluster, &self.question.pod, None)
            .await?
            .ok_or_else(|| self.no_such_pod())?;
        let (_, verdict) = self.alone(&found, self.question.kind, because);
        self.evaluation.unrecorded(verdict, Ground::Ungranted)
    }

    /// The decision by the pod, its namespace and its StatefulSet alone.
    fn alone(&self, found: &Ledgerless, kind: Kind, because: Reason) -> (Disruption, Verdict) {
        let Ledgerless {
            pod,
            circumstances,
            goes_at_once,
        } = found;
        let grace = self.question.grace.for_request(kind, *goes_at_once);
        let disruption = self.question.disruption(kind, &pod.uid, grace);
        let verdict = decide_without_ledger(circumstances, pod, &disruption, because);
        (disruption, verdict)
    }

    /// Decides after `error`. A teardown passes even then, and so does what a person takes
    /// responsibility for, with its grant.
    async fn consider_alone(
        &self,
        page: Page,
        error: ObserveError,
    ) -> Result<(Found, Verdict), Stop> {
        self.evaluation.regardless(None);
        let observer = &self.deps.observer;
        let found = observer.without_ledger(&page.cluster, &self.question.pod, Some(&page));
        // The first error says more than a second one would.
        let Ok(Some(found)) = found.await else {
            return Err(error.into());
        };
        let because = unavailable(causes(&error));
        let (disruption, verdict) = self.alone(&found, self.kind(&page), because);
        let found = Found {
            input: EvaluationInput::from_ledger(page),
            disruption,
            succession: Succession::Unneeded,
        };
        Ok((found, verdict))
    }

    /// The kind of disruption. The gate's own delete or eviction of a pod with an open grant for a
    /// rollout step is that step; a dry run never is.
    fn kind(&self, page: &Page) -> Kind {
        let Question {
            kind,
            asker,
            pod,
            dry_run,
            ..
        } = self.question;
        let is_step = |what: &GrantKind| matches!(what, GrantKind::Delete { rollout: true, .. });
        let grant = page.grants.get(pod);
        let stepping = grant.is_some_and(|g| g.causes.iter().any(|c| is_step(&c.what)));
        let ours = asker.actor == Actor::Gate && *dry_run == DryRun::No;
        match kind {
            Kind::Delete if ours && stepping => Kind::RolloutStep,
            Kind::Evict if ours && stepping => Kind::RolloutEviction,
            kind => *kind,
        }
    }

    /// Looks at the cluster, and decides on all facts.
    async fn judge(&self, page: &Page) -> Result<Judged, ObserveError> {
        let (question, kind) = (self.question, self.kind(page));
        let disruption = |view: &ClusterView, uid: &PodUid| {
            let grace = view.grace(&question.pod, kind, question.grace);
            question.disruption(kind, uid, grace)
        };
        let early = |view: &ClusterView, pod: &Pod| {
            let disruption = disruption(view, &pod.uid);
            let circumstances = view.circumstances(page, Some(&question.pod));
            let verdict = decide_early(&circumstances, Some(pod), &disruption)?;
            Some((disruption, verdict))
        };
        let asked = (&question.pod, kind, question.grace);
        let latest = self.evaluation.members_until();
        let look = self.deps.observer.look_for(page, asked, latest, early);
        Ok(match Box::pin(look).await? {
            PodLook::NoPod => None,
            PodLook::Early(view, (disruption, verdict)) => Some((view, None, disruption, verdict)),
            PodLook::Full(look, uid) => {
                let ClusterLook { view, snapshot, .. } = *look;
                let disruption = disruption(&view, &uid);
                let verdict = with_data(&view, page, &snapshot, &disruption);
                Some((Box::new(view), Some(snapshot), disruption, verdict))
            }
        })
    }

    /// The facts of a decision, unless the asker chose by other ones.
    fn found(&self, page: Page, judged: Judged) -> Result<(Found, Verdict), Stop> {
        let (view, snapshot, disruption, verdict) = judged.ok_or_else(|| self.no_such_pod())?;
        let is_outdated = self
            .seen
            .is_some_and(|seen| seen != SeenVersions::new(&page, &view));
        let leaves = view.pod(&self.question.pod).and_then(leaves_by);
        if let Some(container) = leaves {
            self.evaluation.warn(format!(
                "a preStop hook of its container {container} removes its member from etcd"
            ));
        }
        let input = EvaluationInput {
            page,
            view: Some(view),
            snapshot,
        };
        self.evaluation.log(&input, &self.question.pod, &verdict);
        if is_outdated {
            return Err(Refused::Outdated.into());
        }
        let found = Found {
            input,
            disruption,
            succession: Succession::Unneeded,
        };
        Ok((found, verdict))
    }

    async fn write(&self, found: &Found, basis: Basis) -> Result<Recorded, LedgerError> {
        let Found {
            input,
            disruption,
            succession,
        } = found;
        // An override may let a pod restart in place. That is recorded like a delete: the member
        // counts as out until another incarnation exists, or until this one has outlived a settle
        // time.
        let deleted = GrantKind::Delete {
            uid: disruption.target.uid.clone(),
            rollout: disruption.kind.is_rollout_step(),
        };
        let pod = &self.question.pod;
        let data = input
            .view
            .as_ref()
            .map(|view| view.data_of(&input.page, pod));
        let data_goes = data == Some(PodData::Goes) && takes_data(basis);
        let replaced = data_goes.then_some(GrantKind::Replace);
        if data_goes {
            self.evaluation
                .warn("its claim is terminating: its data is destroyed with it");
        }
        // A move of leadership that is to follow is recorded with the grant, so that no other
        // replica begins one meanwhile.
        let leader_move = match succession {
            Succession::Move(begun) => Some(*begun),
            Succession::Unneeded | Succession::Wait(_) | Succession::GoesAsLeader => None,
        };
        let begins = StatusUpdate {
            leader_move,
            ..StatusUpdate::default()
        };
        let permitted = std::iter::once(deleted).chain(replaced);
        let grant = self.evaluation.grant(input, pod, permitted, begins);
        grant.await
    }

    /// Moves leadership away from the pod if that is due. Returns whether the facts have to be
    /// gathered again.
    async fn moves_leadership(&self, found: &Found) -> bool {
        let evaluation = self.evaluation;
        let (to, view) = match (found.succession, &found.input.view) {
            (Succession::Move(begun), Some(view)) => (begun.to, view),
            (Succession::GoesAsLeader, _) => {
                evaluation.warn(
                    "it leads the cluster, and leadership moved a moment ago: it goes as leader",
                );
                return false;
            }
            (Succession::Unneeded | Succession::Wait(_) | Succession::Move(_), _) => return false,
        };
        evaluation.doing("leadership was being moved");
        let from = &found.disruption.target.uid;
        match leadership::transfer(self.deps, view, from, to, evaluation.members_until()).await {
            Transfer::LookAgain(trouble) => {
                if let Some(trouble) = trouble {
                    evaluation.warn(format!("leadership may not have moved: {trouble}"));
                }
                true
            }
            Transfer::Stays(why) => {
                evaluation.warn(format!(
                    "it goes as leader, because leadership could not be moved: {why}"
                ));
                false
            }
        }
    }

    /// The end for a pod that does not exist. The pod that a delete or an update showed was deleted
    /// meanwhile, which the API server will notice.
    fn no_such_pod(&self) -> Stop {
        Stop::Known(match (self.question.kind, self.question.shown_uid()) {
            (Kind::Delete | Kind::RolloutStep | Kind::Restart(_), Some(_)) => {
                Ok(Ground::Waived(Waiver::WrongIncarnation))
            }
            _ => Err(Refused::NoSuchPod),
        })
    }
}

impl Evaluable for PodCase<'_> {
    type Found = Found;

    async fn consider(
        &mut self,
        _cluster: &ClusterRef,
        ledger: LedgerRead,
    ) -> Result<(Found, Verdict), Stop> {
        let page = ledger?.ok_or(Refused::Wait(Reason::NoLedger))?;
        let (found, verdict) = match self.judge(&page).await {
            Ok(judged) => self.found(page, judged)?,
            Err(error) => Box::pin(self.consider_alone(page, error)).await?,
        };
        let is_overridden = verdict == Verdict::Allow(Allowance::Grant(Basis::Override));
        self.evaluation
            .regardless(is_overridden.then_some(Ground::Ungranted));
        Ok((found, verdict))
    }

    fn prepare(&mut self, found: &mut Found, basis: Basis) -> Result<(), Stop> {
        let input = &found.input;
        let Some(snapshot) = input.snapshot.as_ref().filter(|_| !self.moved_leadership) else {
            return Ok(());
        };
        let (page, disruption) = (&input.page, &found.disruption);
        let open = self.deps.open_move(page, snapshot);
        found.succession = succession(snapshot, &page.grants, disruption, basis, open.as_ref());
        match found.succession {
            Succession::Wait(remaining) => {
                Err(Refused::Wait(Reason::LeadershipMoved { remaining }).into())
            }
            Succession::Unneeded | Succession::Move(_) | Succession::GoesAsLeader => Ok(()),
        }
    }

    async fn record(&self, found: &Found, basis: Basis) -> Result<Ground, Stop> {
        let proof = self.write(found, basis).await?;
        Ok(Ground::Recorded(basis, proof))
    }

    async fn conclude(&mut self, found: &Found, ground: &Ground) -> Result<(), Stop> {
        if !self.moves_leadership(found).await {
            return Ok(());
        }
        self.moved_leadership = true;
        if let (Some(seen), Ground::Recorded(_, proof)) = (&mut self.seen, ground) {
            // The next look shows this grant, which is the asker's own.
            seen.last_seq = proof.seq();
        }
        Err(Stop::Again)
    }
}

/// The verdict on all facts, the claims of the pod included. A permission to replace the member
/// counts like a claim that is terminating, because the delete of its claim may be on its way. A
/// claim that could not be read is a reason to wait only where it makes a difference.
fn with_data(
    view: &ClusterView,
    page: &Page,
    snapshot: &Snapshot,
    disruption: &Disruption,
) -> Verdict {
    let pod = &disruption.target.name;
    let grants = &page.grants;
    let plain = || decide(snapshot, grants, disruption);
    let by_data = || decide_with_terminating_claim(snapshot, grants, disruption);
    let stays_in_its_pod = matches!(disruption.kind, Kind::Restart(_));
    match view.data_of(page, pod) {
        _ if grants.permit_replacement(pod) => by_data(),
        PodData::InPod if stays_in_its_pod => plain(),
        PodData::InPod => {
            let policy = data_in_pods(page.budget(), view.stateful_set());
            decide_with_data_in_pod(snapshot, grants, disruption, policy)
        }
        PodData::Goes => by_data(),
        PodData::Stays => plain(),
        PodData::Unknown(why) => match (plain(), by_data()) {
            (Verdict::Allow(_), Verdict::Wait(_) | Verdict::Deny(_)) => {
                Verdict::Wait(unavailable(why))
            }
            (verdict, _) => verdict,
        },
    }
}
