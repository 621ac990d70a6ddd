//! One question from its arrival to its answer.

use std::error::Error;

use tokio::time::Instant;

use super::evidence::{self, Reading};
use super::leadership::{self, Transfer};
use super::noted::Noted;
use super::{Answer, Bench, DryRun, Memory, Question, Refusal, Sighting, Yes};
use crate::causes::causes;
use crate::ledger::{LedgerError, Page, Recorded, Witness};
use crate::observe::{Identity, Ledgerless, ObserveError, World};
use crate::quorum::{
    Actor, Basis, ClusterRef, Disruption, EvidenceMode, Kind, Permission, Permitted, Reason,
    Snapshot, Succession, Verdict, Waiver, decide, decide_without_ledger, succession,
};
use crate::telemetry::metrics::Phase;

/// The verdict on what an override lets go.
const BY_OVERRIDE: Verdict = Verdict::Allow(Permission::Grant(Basis::Override));

/// One question being heard.
pub(super) struct Hearing<'a> {
    pub(super) bench: &'a Bench,
    pub(super) memory: &'a Memory,
    pub(super) question: &'a Question,
    pub(super) noted: &'a Noted,
}

/// Where leadership stands in this hearing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leadership {
    /// Nobody touched it.
    Untouched,
    /// A move was tried, at most one per request.
    Tried,
}

/// What a verdict was reached on.
struct Judged {
    world: Box<World>,
    snapshot: Option<Snapshot>,
    disruption: Disruption,
    verdict: Verdict,
}

impl Hearing<'_> {
    /// Hears the question to its end, however long that takes.
    pub(super) async fn hear(&self) -> Answer {
        self.noted.doing("it was being found out whose pod it is");
        let Question {
            namespace,
            pod,
            shown,
            ..
        } = self.question;
        let observer = &self.bench.observer;
        let page = match observer.identify(namespace, pod, shown.as_deref()).await {
            Ok(Identity::Guarded(page)) => page,
            Ok(Identity::Foreign) => return self.answer(Ok(Yes::Waived(Waiver::Foreign))),
            Ok(Identity::NoSuchPod) => return self.answer(self.no_such_pod()),
            Ok(Identity::Unrecorded(cluster, because)) => {
                self.noted.about(&cluster);
                // Its budget will say what new ones say.
                let new = because == Reason::NoLedger && self.bench.enforcement.only_warns();
                self.noted.only_warning(new);
                return Box::pin(self.without_ledger(&cluster, because)).await;
            }
            Err(error) => return self.unavailable(&error),
        };
        let cluster = page.cluster.clone();
        self.noted.about(&cluster);
        self.noted.only_warning(page.budget().only_warns());
        self.noted
            .doing("other questions about the same cluster were answered");
        let turnstile = observer.ledger().turnstile();
        let pass = turnstile.enter(&cluster).await;
        // Whoever had to wait would begin with a page that is out of date by now.
        let page = (!pass.has_waited()).then_some(*page);
        Box::pin(self.judge(&cluster, page)).await
    }

    /// Nothing can be recorded for the cluster, so only what needs no record may go, and what a person takes responsibility for.
    async fn without_ledger(&self, cluster: &ClusterRef, because: Reason) -> Answer {
        let Self {
            bench, question, ..
        } = self;
        let found = match bench
            .observer
            .without_ledger(cluster, &question.pod, None)
            .await
        {
            Ok(Some(found)) => found,
            Ok(None) => return self.answer(self.no_such_pod()),
            Err(error) => return self.unavailable(&error),
        };
        let Ledgerless {
            pod,
            circumstances,
            goes_at_once,
        } = found;
        let disruption = evidence::disruption(question, question.kind, &pod.uid, goes_at_once);
        let verdict = decide_without_ledger(&circumstances, &pod, &disruption, because);
        self.answer(match verdict {
            Verdict::Allow(Permission::Waived(waiver)) => Ok(Yes::Waived(waiver)),
            Verdict::Allow(Permission::Grant(basis)) if question.dry_run == DryRun::Yes => {
                Ok(Yes::DryRun(basis))
            }
            Verdict::Allow(Permission::Grant(_)) => Ok(Yes::Ungranted),
            Verdict::Wait(reason) => Err(Refusal::Wait(reason)),
            Verdict::Deny(reason) => Err(Refusal::Deny(reason)),
        })
    }

    /// Reads, decides and records until a verdict holds. After a lost race everything begins anew: an old verdict is never sent again.
    /// `first`: the ledger as it was read just now, where it was.
    async fn judge(&self, cluster: &ClusterRef, mut first: Option<Page>) -> Answer {
        let mut leadership = Leadership::Untouched;
        let mut seen = self.question.seen;
        loop {
            self.noted.doing("its budget was being read");
            let page = match first.take() {
                Some(page) => Ok(Some(page)),
                None => self.read_ledger(cluster).await,
            };
            let page = match page {
                Ok(Some(page)) => page,
                Ok(None) => return self.wait(Reason::NoLedger),
                Err(error) => return self.ledger_failed(&error),
            };
            self.noted.only_warning(page.budget().only_warns());
            self.noted.doing("its members were being asked");
            let judged = match Box::pin(self.consider(&page)).await {
                Ok(Some(judged)) => judged,
                Ok(None) => return self.answer(self.no_such_pod()),
                Err(error) => match Box::pin(self.by_the_pod_alone(&page, &error)).await {
                    Some(answer) => return answer,
                    None => continue,
                },
            };
            if seen.is_some_and(|seen| seen != Sighting::of(&page, &judged.world)) {
                return self.answer(Err(Refusal::Outdated));
            }
            let headroom = headroom(&judged, &page);
            let basis = match &judged.verdict {
                Verdict::Wait(reason) => {
                    return self.refuse(Refusal::Wait(reason.clone()), headroom);
                }
                Verdict::Deny(reason) => {
                    return self.refuse(Refusal::Deny(reason.clone()), headroom);
                }
                Verdict::Allow(Permission::Waived(waiver)) => {
                    return self.allow(Yes::Waived(*waiver), headroom);
                }
                Verdict::Allow(Permission::Grant(basis)) => *basis,
            };
            let succession = match leadership {
                Leadership::Untouched => self.succession(&page, &judged, basis),
                Leadership::Tried => Succession::Unneeded,
            };
            if let Succession::Wait(remaining) = succession {
                let moved = Reason::LeadershipMoved { remaining };
                return self.refuse(Refusal::Wait(moved), headroom);
            }
            if self.question.dry_run == DryRun::Yes {
                return self.allow(Yes::DryRun(basis), headroom);
            }
            self.noted.doing("the permission was being recorded");
            let snapshot = judged.snapshot.as_ref();
            // A move of leadership that is to follow is recorded with the grant, so that no other replica begins one meanwhile.
            let witness = Witness {
                leader_move: match succession {
                    Succession::Move(begun) => Some(begun),
                    Succession::Unneeded | Succession::Wait(_) | Succession::NotNow => None,
                },
                ..judged.world.witness(snapshot)
            };
            let recorded = self.record(&page, &judged.disruption, snapshot, witness);
            let proof = match recorded.await {
                Ok(proof) => proof,
                Err(error) if error.begin_again() => {
                    self.bench.metrics.ledger_conflict();
                    continue;
                }
                Err(error) => return self.ledger_failed(&error),
            };
            if self.moves_leadership(&judged, succession).await {
                leadership = Leadership::Tried;
                if let Some(seen) = &mut seen {
                    // Our own: what is seen from now on has it in it.
                    seen.last_seq = proof.seq();
                }
                continue;
            }
            return self.allow(Yes::Recorded { basis, proof }, headroom);
        }
    }

    /// Something that was to be read could not be, which is `error`. What goes by the pod, its namespace and its StatefulSet alone goes all the
    /// same: a teardown, and what a person takes responsibility for, with its grant. `None`: somebody else wrote the ledger, so everything
    /// begins anew.
    async fn by_the_pod_alone(&self, page: &Page, error: &ObserveError) -> Option<Answer> {
        let Self {
            bench, question, ..
        } = self;
        let observer = &bench.observer;
        let found = observer.without_ledger(&page.cluster, &question.pod, Some(page));
        // What failed first says more than what fails now.
        let Ok(Some(found)) = found.await else {
            return Some(self.unavailable(error));
        };
        let uid = &found.pod.uid;
        let disruption = evidence::disruption(question, self.kind(page), uid, found.goes_at_once);
        let what = causes(error);
        let because = Reason::Unavailable { what };
        let verdict = decide_without_ledger(&found.circumstances, &found.pod, &disruption, because);
        self.noted.overridden(verdict == BY_OVERRIDE);
        let basis = match verdict {
            Verdict::Allow(Permission::Grant(basis)) => basis,
            Verdict::Allow(Permission::Waived(waiver)) => {
                return Some(self.answer(Ok(Yes::Waived(waiver))));
            }
            Verdict::Wait(reason) => return Some(self.wait(reason)),
            Verdict::Deny(reason) => return Some(self.answer(Err(Refusal::Deny(reason)))),
        };
        if question.dry_run == DryRun::Yes {
            return Some(self.answer(Ok(Yes::DryRun(basis))));
        }
        self.noted.doing("the permission was being recorded");
        let recorded = self.record(page, &disruption, None, Witness::default());
        match recorded.await {
            Ok(proof) => Some(self.answer(Ok(Yes::Recorded { basis, proof }))),
            Err(error) if error.begin_again() => {
                bench.metrics.ledger_conflict();
                None
            }
            Err(error) => Some(self.ledger_failed(&error)),
        }
    }

    /// What would be done. A delete or an eviction of the gate's own is the rest of a rollout step, where the ledger says that one was
    /// permitted. A dry run is the rest of nothing.
    fn kind(&self, page: &Page) -> Kind {
        let Question {
            kind,
            asker,
            pod,
            dry_run,
            ..
        } = self.question;
        let is_rest_of_step =
            |what: &Permitted| matches!(what, Permitted::Delete { rollout: true, .. });
        let grant = page.grants.of(pod);
        let stepping = grant.is_some_and(|g| g.causes.iter().any(|c| is_rest_of_step(&c.what)));
        let ours = asker.actor == Actor::Gate && *dry_run == DryRun::No;
        match kind {
            Kind::Delete if ours && stepping => Kind::RolloutStep,
            Kind::Evict if ours && stepping => Kind::RolloutEviction,
            kind => *kind,
        }
    }

    async fn read_ledger(&self, cluster: &ClusterRef) -> Result<Option<Page>, LedgerError> {
        let start = self.bench.clock.instant();
        let page = self.bench.observer.ledger().read(cluster).await;
        self.bench
            .metrics
            .took(Phase::Ledger, self.bench.clock.instant() - start);
        page
    }

    /// Gathers evidence that is younger than the page, and decides. `None`: there is no such pod.
    async fn consider(&self, page: &Page) -> Result<Option<Judged>, ObserveError> {
        let Self {
            bench,
            memory,
            question,
            ..
        } = self;
        let reading = evidence::read(
            bench,
            &memory.paces,
            page,
            question,
            self.kind(page),
            self.latest(),
        );
        let reading = Box::pin(reading).await?;
        let judged = match reading {
            Reading::NoPod => return Ok(None),
            Reading::Early(world, disruption, verdict) => Judged {
                world,
                snapshot: None,
                disruption,
                verdict,
            },
            Reading::Full(world, disruption, round) => {
                let ages = (bench.ages)(&page.cluster);
                let observation = world.observation(page, Some(&question.pod), round, ages);
                let snapshot = Snapshot::assemble(&observation);
                let seen = bench.observer.ledger().seen();
                seen.note_leader(&page.cluster, &snapshot);
                let verdict = decide(&snapshot, &page.grants, &disruption);
                Judged {
                    world,
                    snapshot: Some(snapshot),
                    disruption,
                    verdict,
                }
            }
        };
        self.noted.overridden(judged.verdict == BY_OVERRIDE);
        self.warn_about(page, &judged);
        Ok(Some(judged))
    }

    /// What the asker should know besides: an override that lets the pod go, one that does not, evidence that is weak.
    fn warn_about(&self, page: &Page, judged: &Judged) {
        let world = &judged.world;
        match &judged.verdict {
            Verdict::Allow(Permission::Grant(Basis::Override)) => self
                .noted
                .warn("it goes by an override: what its cluster can spare was not asked".into()),
            Verdict::Wait(_) | Verdict::Deny(_) => {
                for ignored in world.ignored_overrides(page, &self.question.pod) {
                    self.noted.warn(ignored);
                }
            }
            Verdict::Allow(_) => {}
        }
        if judged.snapshot.is_some() && world.policy().evidence == EvidenceMode::Readiness {
            self.noted.warn(
                "judged by the readiness of pods, which lags behind etcd (evidence: Readiness)"
                    .into(),
            );
        }
    }

    /// A restart in place that an override lets through is recorded like a delete: the member counts as out until another incarnation is
    /// there, or a settle time has passed and this one still stands.
    async fn record(
        &self,
        page: &Page,
        disruption: &Disruption,
        snapshot: Option<&Snapshot>,
        witness: Witness,
    ) -> Result<Recorded, LedgerError> {
        let Self {
            bench, question, ..
        } = self;
        let permitted = Permitted::Delete {
            uid: disruption.target.uid.clone(),
            rollout: disruption.kind.is_rollout_step(),
        };
        let at = bench.clock.now().to_string();
        let asker = question.asker.name.clone();
        let grants = page.grants.issue(&question.pod, permitted, asker, at);
        let witness = Witness {
            tolerance: snapshot.map(|snapshot| snapshot.tolerance(&grants)),
            ..witness
        };
        let start = bench.clock.instant();
        let recorded = bench.observer.ledger().record(page, &grants, witness).await;
        bench
            .metrics
            .took(Phase::Ledger, bench.clock.instant() - start);
        recorded.map(|(_, proof)| proof)
    }

    /// What becomes of leadership where the target leads and may go.
    fn succession(&self, page: &Page, judged: &Judged, basis: Basis) -> Succession {
        let Some(snapshot) = &judged.snapshot else {
            return Succession::Unneeded;
        };
        let open = self.bench.open_move(page, snapshot);
        let disruption = &judged.disruption;
        succession(snapshot, &page.grants, disruption, basis, open.as_ref())
    }

    /// Moves leadership away from the target where that is due. Whether everything has to be looked at again.
    async fn moves_leadership(&self, judged: &Judged, succession: Succession) -> bool {
        let Self { bench, noted, .. } = self;
        let to = match succession {
            Succession::Move(begun) => begun.to,
            Succession::NotNow => {
                noted.warn(
                    "it leads the cluster, and leadership moved a moment ago: it goes as leader"
                        .into(),
                );
                return false;
            }
            Succession::Unneeded | Succession::Wait(_) => return false,
        };
        noted.doing("leadership was being moved");
        let from = &judged.disruption.target.uid;
        match leadership::transfer(bench, &judged.world, from, to, self.latest()).await {
            Transfer::LookAgain(trouble) => {
                if let Some(trouble) = trouble {
                    noted.warn(format!("leadership may not have moved: {trouble}"));
                }
                true
            }
            Transfer::Stays(why) => {
                noted.warn(format!(
                    "it goes as leader, because leadership could not be moved: {why}"
                ));
                false
            }
        }
    }

    /// Until when members may be asked, so that what they say can still be written down.
    fn latest(&self) -> Instant {
        let left = self
            .question
            .deadline
            .saturating_duration_since(self.bench.clock.instant());
        self.question.deadline - left / 4
    }

    /// A pod that is gone cannot be evicted. One that a delete or an update showed is deleted already: the API server will find that out.
    fn no_such_pod(&self) -> Result<Yes, Refusal> {
        match (self.question.kind, self.question.shown_uid()) {
            (Kind::Delete | Kind::RolloutStep | Kind::Restart(_), Some(_)) => {
                Ok(Yes::Waived(Waiver::WrongIncarnation))
            }
            _ => Err(Refusal::NoSuchPod),
        }
    }

    fn allow(&self, yes: Yes, headroom: Option<i64>) -> Answer {
        Answer {
            headroom,
            ..self.answer(Ok(yes))
        }
    }

    fn refuse(&self, refusal: Refusal, headroom: Option<i64>) -> Answer {
        Answer {
            headroom,
            ..self.answer(Err(refusal))
        }
    }

    fn wait(&self, reason: Reason) -> Answer {
        self.answer(Err(Refusal::Wait(reason)))
    }

    fn unavailable(&self, error: &(dyn Error + 'static)) -> Answer {
        self.wait(Reason::Unavailable {
            what: causes(error),
        })
    }

    /// A write that failed may have taken place. Where an override lets the pod go, it goes, and the ledger turns cold.
    fn ledger_failed(&self, error: &LedgerError) -> Answer {
        if let LedgerError::NoDefinition = error {
            return self.wait(Reason::NoDefinition);
        }
        if self.noted.is_overridden() {
            return self.answer(Ok(Yes::Ungranted));
        }
        self.unavailable(error)
    }

    fn answer(&self, outcome: Result<Yes, Refusal>) -> Answer {
        answer(self.noted, outcome)
    }
}

/// An answer with what has been noted on the way.
pub(super) fn answer(noted: &Noted, outcome: Result<Yes, Refusal>) -> Answer {
    Answer {
        cluster: noted.cluster(),
        outcome,
        headroom: None,
        warnings: noted.warnings(),
    }
}

fn headroom(judged: &Judged, page: &Page) -> Option<i64> {
    let snapshot = judged.snapshot.as_ref()?;
    Some(snapshot.tolerance(&page.grants).headroom())
}
