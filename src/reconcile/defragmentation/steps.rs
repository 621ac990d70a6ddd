//! The steps of a run: the grant, the move of leadership, the call, and the settlement.
//!
//! Grant and call are permitted by the judge, like every disruption. Its second yes renews the
//! grant right before the call.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tracing::{info, warn};

use super::gather::{Gathered, Open};
use super::{Driver, calls, runs};
use crate::api::DefragmentationStatus;
use crate::causes::causes;
use crate::judge::{Allowed, Asker, DefragmentationQuestion, Refused, SeenVersions};
use crate::ledger::StatusUpdate;
use crate::plan::defragmentation::{Due, Refusal};
use crate::quorum::evidence::{Alarm, AlarmKind};
use crate::quorum::{Actor, Defragmentation, LeaderMove, MemberId, PodName, TargetPod};
use crate::reconcile::look::{Look, Problem};

/// The time limit of the judge, and of the move of leadership.
const PATIENCE: Duration = Duration::from_secs(10);
const MOVE: Duration = Duration::from_secs(1);

/// The time for which the gate does not try to move leadership again after etcd refused to.
const AFTER_REFUSAL: Duration = Duration::from_mins(10);

/// The pauses after a step, and after one that was refused.
pub(super) const STEP: Duration = Duration::from_millis(100);
const AFTER_FAILURE: Duration = Duration::from_secs(10);

impl Driver {
    /// Takes the grant for a member.
    pub(super) async fn grant(
        &mut self,
        look: &Look,
        gathered: &Gathered,
        pod: &TargetPod,
        due: Due,
    ) -> Duration {
        match self.ask(look, gathered, pod, None).await {
            Ok(_) => {
                info!(cluster = %self.cluster, pod = %pod.name, %due, "it may be defragmented");
                STEP
            }
            Err(refused) => self.refused(pod, &refused),
        }
    }

    /// Renews the grant, and makes the call.
    pub(super) async fn begin(
        &mut self,
        look: &Look,
        gathered: &Gathered,
        pod: &TargetPod,
    ) -> Duration {
        let member = look.snapshot.member(&pod.name);
        let (Some(member), Some(endpoint)) = (member, look.world.endpoint_of(&pod.name)) else {
            return STEP;
        };
        let latest = self.run.clock.instant() + PATIENCE;
        let now = self.run.clock.now();
        let begins = runs::begun(&look.snapshot, member, &pod.name, &gathered.facts, now);
        let (reason, size) = (begins.reason.clone(), begins.size_before);
        let allowed = match self.ask(look, gathered, pod, Some(begins)).await {
            Ok(allowed) => allowed,
            Err(refused) => return self.refused(pod, &refused),
        };
        let Some(proof) = allowed.recorded() else {
            return STEP;
        };
        // The age of the grant counts from now on for others, so a process that was held up does
        // not make the call any more.
        if self.run.clock.instant() < latest {
            info!(cluster = %self.cluster, pod = %pod.name, reason, size, "it is being defragmented");
            calls::make(&self.run, &self.cluster, proof, endpoint.clone());
        }
        STEP
    }

    async fn ask(
        &self,
        look: &Look,
        gathered: &Gathered,
        pod: &TargetPod,
        begins: Option<DefragmentationStatus>,
    ) -> Result<Allowed, Refused> {
        let run = &self.run;
        let question = DefragmentationQuestion {
            cluster: self.cluster.clone(),
            pod: pod.clone(),
            asker: Asker {
                name: run.own_username.clone(),
                actor: Actor::Gate,
            },
            holder: run.me.clone(),
            timeout: gathered.facts.settings.timeout,
            begins,
            deadline: run.clock.instant() + PATIENCE,
            seen: SeenVersions::of(&look.page, &look.world),
        };
        let answer = run.judge.judge_defragmentation(question).boxed().await;
        let allowed = answer.decision?;
        // Without a proof the pod is going, or is another one.
        match allowed.recorded() {
            Some(_) => Ok(allowed),
            None => Err(Refused::Outdated),
        }
    }

    fn refused(&self, pod: &TargetPod, refused: &Refused) -> Duration {
        match refused {
            Refused::Outdated | Refused::NoSuchPod => STEP,
            Refused::Wait(because) | Refused::Deny(because) => {
                info!(cluster = %self.cluster, pod = %pod.name, %because, "it is not defragmented now");
                AFTER_FAILURE
            }
        }
    }

    /// Moves leadership from the member that has the grant, once. What failed is not tried again:
    /// the grant is given up.
    pub(super) async fn move_leader(
        &mut self,
        look: &Look,
        open: &Open,
        pod: &TargetPod,
        to: MemberId,
    ) -> Result<Duration, Problem> {
        let run = Arc::clone(&self.run);
        let endpoint = look.world.endpoint_of(&pod.name);
        let (Some(endpoint), Some(from)) = (endpoint, look.snapshot.leader) else {
            return Ok(STEP);
        };
        if self.moved == Some(open.seq) {
            self.leadership_stays_until = Some(run.clock.instant() + AFTER_REFUSAL);
            return self.give_up(look, &pod.name, None).await;
        }
        // No other replica begins a move meanwhile.
        let begun = LeaderMove {
            from,
            to,
            term: look.snapshot.term.unwrap_or_default(),
        };
        let update = StatusUpdate {
            leader_move: Some(begun),
            ..StatusUpdate::default()
        };
        run.ledger().update(&look.page, update).await?;
        self.moved = Some(open.seq);
        let deadline = run.clock.instant() + MOVE;
        let moving = run.judge.admin().move_leader(endpoint, to, deadline);
        match moving.await {
            Ok(()) => {
                info!(cluster = %self.cluster, from = %pod.name, %to, "leadership was moved");
            }
            Err(error) => {
                let because = causes(&error);
                warn!(cluster = %self.cluster, from = %pod.name, %to, because, "leadership could not be moved");
            }
        }
        Ok(STEP)
    }

    /// Settles the grant of a call that was not made.
    pub(super) async fn give_up(
        &mut self,
        look: &Look,
        pod: &PodName,
        because: Option<&Refusal>,
    ) -> Result<Duration, Problem> {
        let seen = Defragmentation::NotBegun;
        let settle_time = self.run.settings.settle_time;
        let ledger = self.run.ledger();
        let settling = ledger.settle_defragmentation(&look.page, pod, seen, settle_time, |all| {
            runs::take_back(all, pod);
        });
        settling.await?;
        self.served = None;
        let because = because.map(ToString::to_string);
        info!(cluster = %self.cluster, %pod, because, "it is not defragmented after all");
        Ok(STEP)
    }

    /// Settles a grant if its run is over by what `seen` says of it. Returns whether it was.
    pub(super) async fn settle(
        &mut self,
        look: &Look,
        open: &Open,
        seen: Defragmentation,
    ) -> Result<bool, Problem> {
        let run = Arc::clone(&self.run);
        let pod = &open.pod;
        let ours = open.holder == run.me;
        let end = run.calls.end_of(&self.cluster, open.seq).filter(|_| ours);
        let sizes = look.snapshot.member(pod).and_then(|member| member.sizes);
        let size = sizes.map(|sizes| sizes.db);
        let (ledger, now) = (run.ledger(), run.clock.now());
        let settle_time = run.settings.settle_time;
        let settling = ledger.settle_defragmentation(&look.page, pod, seen, settle_time, |all| {
            runs::end(all, pod, end.as_ref(), size, now);
        });
        if settling.await?.is_none() {
            return Ok(false);
        }
        run.calls.forget(&self.cluster);
        self.served = None;
        let holder = &open.holder;
        match &end {
            Some(end) => {
                info!(cluster = %self.cluster, %pod, size, took = ?end.took, error = end.error, "its defragmentation is over");
            }
            None => {
                info!(cluster = %self.cluster, %pod, holder, size, "the permission to defragment it has ended by its age");
            }
        }
        Ok(true)
    }

    /// Disarms the NOSPACE alarms of these members, which were seen.
    pub(super) async fn disarm(&self, look: &Look, members: &[MemberId]) -> Duration {
        let snapshot = &look.snapshot;
        let mut serving = snapshot.members.iter().filter(|m| m.serves_quorum());
        let endpoint = serving.find_map(|m| look.world.endpoint_of(m.pod_name()?));
        let Some(endpoint) = endpoint else {
            return AFTER_FAILURE;
        };
        for member in members {
            let deadline = self.run.clock.instant() + MOVE;
            let admin = self.run.judge.admin();
            let alarm = Alarm {
                member: *member,
                kind: AlarmKind::NoSpace,
            };
            if let Err(error) = admin.disarm(endpoint, alarm, deadline).await {
                let because = causes(&error);
                warn!(cluster = %self.cluster, %member, because, "its NOSPACE alarm could not be disarmed");
                return AFTER_FAILURE;
            }
            info!(cluster = %self.cluster, %member, "its NOSPACE alarm is disarmed: every member has room again");
        }
        STEP
    }
}
