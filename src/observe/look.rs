//! A look at a cluster: what the Kubernetes API says of it, and what its members answer.
//!
//! Every look comes after a page of the ledger, and everything in it is younger than that page.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, join_all, select};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::error::ObserveError;
use super::find::Find;
use super::observer::Observer;
use super::pods;
use super::view::{Ages, ClusterView};
use crate::etcd::{Endpoint, Prober, TimeLimit};
use crate::ledger::Page;
use crate::quorum::evidence::{Probe, Round, Unanswered};
use crate::quorum::pod::Pod;
use crate::quorum::{ClusterRef, Grace, Kind, PodName, PodUid, Snapshot};
use crate::telemetry::metrics::Phase;
use crate::telemetry::traces::step;

/// The time for a round that nobody waits for.
const AT_LEISURE: Duration = Duration::from_secs(2);

/// The time for the metrics of a member that has not answered in time.
pub(super) const METRICS: Duration = Duration::from_millis(500);

/// The result of one look.
#[derive(Debug)]
pub struct ClusterLook {
    /// The Kubernetes half, as it was read.
    pub view: ClusterView,
    /// The conclusions from both halves.
    pub snapshot: Snapshot,
    /// The answers of the members.
    pub round: Round,
}

/// The result of a look at the pod of a request.
#[derive(Debug)]
pub enum PodLook<E> {
    /// The pod does not exist.
    NoPod,
    /// The Kubernetes half was enough for an answer, so no answer of a member was waited for.
    Early(Box<ClusterView>, E),
    /// Both halves, with the UID of the pod.
    Full(Box<ClusterLook>, PodUid),
}

/// The result of a look that the Kubernetes half may have made unnecessary.
#[derive(Debug)]
pub enum EarlyOr<E> {
    /// The Kubernetes half was enough for an answer, so no answer of a member was waited for.
    Early(Box<ClusterView>, E),
    /// Both halves.
    Full(Box<ClusterLook>),
}

impl Observer {
    /// Looks at a whole cluster for a decision about no pod in particular. A member that has not
    /// answered by `latest` counts as silent.
    pub async fn look(&self, page: &Page, latest: Instant) -> Result<ClusterLook, ObserveError> {
        let usual = self.time_limit(page)?;
        let mut view = self.view(page, None, Kind::Delete, Find::Listed).await?;
        let mut round = self.ask(view.endpoints(), &usual, latest).await;
        self.ask_for_metrics(&mut view, &mut round, latest).await;
        self.count(&round);
        let ages = self.ages(page, self.clock().instant());
        self.assemble(page, None, view, (round, ages)).await
    }

    /// Looks at a cluster for a decision about one of its pods. `early` sees the pod as well. See
    /// [`Self::look_unless`].
    pub async fn look_for<E>(
        &self,
        page: &Page,
        (name, kind, grace): (&PodName, Kind, Grace),
        latest: Instant,
        early: impl Fn(&ClusterView, &Pod) -> Option<E>,
    ) -> Result<PodLook<E>, ObserveError> {
        let early = |view: &ClusterView| match view.pod_facts(page, name) {
            None => Some(None),
            Some(pod) => early(view, &pod).map(Some),
        };
        let asked = (name, kind, grace);
        let looked = self.look_unless(page, asked, latest, early).await?;
        Ok(match looked {
            EarlyOr::Early(_, None) => PodLook::NoPod,
            EarlyOr::Early(view, Some(early)) => PodLook::Early(view, early),
            EarlyOr::Full(look) => match look.view.pod(name).map(pods::uid) {
                None => PodLook::NoPod,
                Some(uid) => PodLook::Full(look, uid),
            },
        })
    }

    /// Looks at a cluster for a decision about the member in one pod, which need not exist.
    ///
    /// Members are asked at their last known endpoints while their pods are still being read. Those
    /// answers count only if the same pods turn out to be at the same addresses. `early` sees the
    /// Kubernetes half first, and may make the answers of the members unnecessary.
    ///
    /// Pods are read by their names where each member of etcd had a pod at the last look. If that
    /// has changed, a pod that nobody expects may run one of the members, so all are listed. If
    /// there is such a pod, the look begins again with the list.
    pub async fn look_unless<E>(
        &self,
        page: &Page,
        asked: (&PodName, Kind, Grace),
        latest: Instant,
        early: impl Fn(&ClusterView) -> Option<E>,
    ) -> Result<EarlyOr<E>, ObserveError> {
        let find = self.memory().find(&page.cluster);
        let sooner = Box::pin(self.look_once(page, asked, latest, &early, find)).await?;
        if let EarlyOr::Full(look) = &sooner
            && look.view.may_lack_pods()
            && !look.snapshot.has_all_members_here()
            && self.has_further_pods(&look.view).await?
        {
            let again = self.look_once(page, asked, latest, &early, Find::Listed);
            return Box::pin(again).await;
        }
        Ok(sooner)
    }

    async fn look_once<E>(
        &self,
        page: &Page,
        (name, kind, grace): (&PodName, Kind, Grace),
        latest: Instant,
        early: &impl Fn(&ClusterView) -> Option<E>,
        find: Find,
    ) -> Result<EarlyOr<E>, ObserveError> {
        let usual = self.time_limit(page)?;
        let likely = self.likely_endpoints(&page.cluster);
        let view = self.view(page, Some(name), kind, find);
        let view = pin!(view.instrument(step!("Kubernetes objects")));
        let asked = pin!(self.ask(&likely, &usual, latest));
        let (mut view, asked) = match select(view, asked).await {
            Either::Left((view, asked)) => (view?, Either::Left(asked)),
            Either::Right((round, view)) => (view.await?, Either::Right(round)),
        };
        // A forced delete starts the next pod at once, so it depends on the node whatever the
        // member answers (rule 5).
        if view.grace(name, kind, grace) == Grace::Forced {
            self.read_nodes(&mut view, std::slice::from_ref(name)).await;
        }
        if let Some(early) = early(&view) {
            return Ok(EarlyOr::Early(Box::new(view), early));
        }
        let mut round = if view.confirms(&likely) {
            match asked {
                Either::Left(asked) => asked.await,
                Either::Right(round) => round,
            }
        } else {
            self.ask(view.endpoints(), &usual, latest).await
        };
        self.ask_for_metrics(&mut view, &mut round, latest).await;
        self.count(&round);
        let ages = self.ages(page, self.clock().instant());
        let look = self.assemble(page, Some(name), view, (round, ages)).await?;
        Ok(EarlyOr::Full(Box::new(look)))
    }

    /// Completes a look that nobody waits for, and lets the stopwatches take it in. `view` comes
    /// from [`Self::world_at_leisure`]. `prober` asks the members.
    pub async fn watch(
        &self,
        page: &Page,
        mut view: ClusterView,
        prober: &Prober,
    ) -> Result<ClusterLook, ObserveError> {
        let usual = self.time_limit(page)?;
        let asked = self.clock().instant();
        let latest = asked + AT_LEISURE;
        let round = prober.round_within(view.endpoints(), &usual, latest);
        let mut round = round.await;
        self.ask_for_metrics(&mut view, &mut round, latest).await;
        // The stopwatches count from the beginning of one round to the beginning of the next.
        let ages = self.ages(page, asked);
        let look = self.assemble(page, None, view, (round, ages)).await?;
        self.memory().note(&look.snapshot, &look.round, asked);
        Ok(look)
    }

    /// The time that the members of a cluster may take to answer.
    pub fn round_limit(&self, page: &Page) -> Result<Duration, ObserveError> {
        self.time_limit(page).map(|limit| limit.timeout())
    }

    /// Forgets everything about a cluster that is no longer guarded.
    pub fn forget(&self, cluster: &ClusterRef) {
        self.memory().forget(cluster);
        self.tls_identities().forget(&cluster.namespace);
        self.ledger().seen().forget(cluster);
        self.metrics().clusters.forget(cluster);
    }

    fn time_limit(&self, page: &Page) -> Result<Arc<TimeLimit>, ObserveError> {
        let members = &page.budget().spec.members;
        let base = members.probe_timeout().map_err(ObserveError::Spec)?;
        let base = base.unwrap_or(self.probe_timeout());
        Ok(self.memory().time_limit(&page.cluster, base))
    }

    /// Asks members for a decision.
    async fn ask(&self, endpoints: &[Endpoint], limit: &TimeLimit, latest: Instant) -> Round {
        let start = self.clock().instant();
        let round = self.prober().round_within(endpoints, limit, latest);
        let round = round.instrument(step!("members")).await;
        self.metrics()
            .took(Phase::Probe, self.clock().instant() - start);
        round
    }

    /// Asks members for what only their metrics say.
    ///
    /// - Those that have not answered in time: whether they are defragmenting. Whoever began that,
    ///   such a member answers nothing else, and is known not to serve.
    /// - Those that serve and are not Ready: how old their process is.
    async fn ask_for_metrics(&self, view: &mut ClusterView, round: &mut Round, latest: Instant) {
        let asked = round.probes.iter_mut().map(|probe| async {
            let is_silent = matches!(probe.status, Err(Unanswered::Deadline | Unanswered::Mute));
            let young = view.unready(&probe.target).filter(|_| probe.read.is_ok());
            if !is_silent && young.is_none() {
                return None;
            }
            let endpoint = view.metrics_endpoint(&probe.target)?;
            let left = latest.saturating_duration_since(self.clock().instant());
            let metrics = self.prober().metrics(&endpoint, left.min(METRICS)).await;
            let metrics = metrics.ok()?;
            if is_silent && metrics.defragmenting == Some(true) {
                probe.status = Err(Unanswered::Defragmenting);
            }
            young.zip(metrics.age)
        });
        let ages = Box::pin(join_all(asked)).await;
        view.learn_etcd_ages(ages.into_iter().flatten().collect());
    }

    fn count(&self, round: &Round) {
        self.metrics().probed(round.probes.len());
        for why in round.probes.iter().filter_map(Probe::failure) {
            self.metrics().probe_failed(why.into());
        }
    }

    fn ages(&self, page: &Page, now: Instant) -> Ages {
        self.memory().ages(&page.cluster, now)
    }

    /// Draws the conclusions, and doubts the certificates until all members have answered. What the
    /// answers of the members make necessary is read first: the nodes of members that gave no
    /// status, and the budgets of the same etcd where not all members have pods of this cluster.
    async fn assemble(
        &self,
        page: &Page,
        target: Option<&PodName>,
        mut view: ClusterView,
        (round, ages): (Round, Ages),
    ) -> Result<ClusterLook, ObserveError> {
        let are_all = round.probes.iter().all(|probe| probe.failure().is_none());
        self.tls_identities()
            .note_answers(&page.cluster.namespace, are_all);
        let mut observation = view.observation(page, target, round, ages);
        if self.announces_bootstrap(page.budget(), view.stateful_set()) {
            // Whatever the members have is what a person wants them to have.
            observation.recorded_log_end = None;
        }
        let in_question = Snapshot::nodes_in_question(&observation);
        if !in_question.is_empty() {
            let read = self.read_nodes(&mut view, &in_question);
            Box::pin(read.instrument(step!("nodes"))).await;
            observation.pods = view.facts(page);
        }
        let mut snapshot = Snapshot::assemble(&observation);
        if view.is_sharing_unread() && !snapshot.has_all_members_here() {
            let list = self
                .sharing(page)
                .instrument(step!("budgets of the same etcd"));
            view.learn_sharing(Box::pin(list).await?);
            snapshot.circumstances.shared_with = view.shared_with();
        }
        let all_here = snapshot.has_all_members_here();
        self.memory().keep_all_here(&page.cluster, all_here);
        self.ledger().seen().note_leader(&page.cluster, &snapshot);
        Ok(ClusterLook {
            view,
            snapshot,
            round: observation.round,
        })
    }
}
