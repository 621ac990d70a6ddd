//! The facts of a defragmentation that a look does not have.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};

use crate::api::{
    self, BadField, DefragmentationMode, DefragmentationStatus, QuorumDisruptionBudget, names,
};
use crate::ledger::Page;
use crate::plan::defragmentation::{
    Call, DefragmentationInput, LastRun, MemberFacts, Mode, Settings,
};
use crate::quorum::evidence::Target;
use crate::quorum::{DefragmentationProgress, GrantKind, Member, PodName};
use crate::reconcile::look::{Look, handover, rolls_out};
use crate::reconcile::run::Run;

/// The time for a page of metrics.
const METRICS: Duration = Duration::from_millis(1500);
/// The number of members whose metrics and claims are read at one time.
const ASKED_AT_ONCE: usize = 8;

/// The facts, and for each member whose metrics could not be read the reason.
pub(in crate::reconcile) struct Input {
    pub(super) facts: DefragmentationInput,
    /// The open permission.
    pub(super) open: Option<Open>,
    /// The state of the member by which the open permission is over.
    pub(super) over: Option<DefragmentationProgress>,
    pub(super) unread: BTreeMap<PodName, String>,
}

/// The settings of a budget.
pub(super) fn settings(of: &api::Defragmentation) -> Settings {
    Settings {
        mode: match of.mode {
            DefragmentationMode::Off => Mode::Off,
            DefragmentationMode::Report => Mode::Report,
            DefragmentationMode::Auto => Mode::Auto,
        },
        min_reclaim: of.min_reclaim,
        min_percent: of.min_percent,
        quota_pressure: of.quota_pressure,
        timeout: of.timeout,
    }
}

/// The request on a budget.
pub(super) fn request(budget: &QuorumDisruptionBudget) -> Option<String> {
    let annotations = budget.metadata.annotations.as_ref()?;
    let request = annotations.get(names::DEFRAGMENT)?;
    (!request.is_empty()).then(|| request.clone())
}

/// An open permission to defragment.
pub(super) struct Open {
    /// The pod of the member.
    pub(super) pod: PodName,
    /// The process that holds the permission.
    pub(super) holder: String,
    /// The sequence number.
    pub(super) seq: u64,
}

/// The open permission to defragment a member.
pub(super) fn open(page: &Page) -> Option<Open> {
    page.grants.iter().find_map(|(pod, grant)| {
        grant.causes.iter().find_map(|cause| match &cause.what {
            GrantKind::Defragment { holder, .. } => Some(Open {
                pod: pod.clone(),
                holder: holder.clone(),
                seq: cause.seq,
            }),
            GrantKind::Delete { .. } | GrantKind::Replace => None,
        })
    })
}

/// The facts that the driver knows from before this look.
pub(super) struct Known {
    /// The time for which every voter has served.
    pub(super) served_for: Duration,
    /// Whether etcd refused to move leadership a short time ago.
    pub(super) leadership_stays: bool,
    /// The call under the open permission.
    pub(super) call: Call,
}

/// Gathers the facts of this look.
pub(super) async fn gather(run: &Run, look: &Look, known: Known) -> Result<Input, BadField> {
    let page = &look.page;
    let budget = page.budget();
    let wishes = budget.spec.defragmentation()?;
    let set = look.view.stateful_set();
    let mut asked: Vec<BoxFuture<'_, _>> = Vec::new();
    for member in &look.snapshot.members {
        if let Some(pod) = &member.pod {
            asked.push(of_member(run, look, member, pod.name.clone()).boxed());
        }
    }
    let mut facts = BTreeMap::new();
    let mut unread = BTreeMap::new();
    let asked = stream::iter(asked).buffer_unordered(ASKED_AT_ONCE);
    for (pod, own, why) in asked.collect::<Vec<_>>().await {
        if let Some(why) = why {
            unread.insert(pod.clone(), why);
        }
        facts.insert(pod, own);
    }
    let facts = DefragmentationInput {
        settings: settings(&wishes),
        request: request(budget),
        in_window: wishes.window.as_ref().is_none_or(|hours| {
            let read = hours.read("spec.defragmentation.window");
            read.is_ok_and(|window| window.is_open(run.clock.now()))
        }),
        other_schedule: look.view.sidecar_schedule(),
        rolling_out: rolls_out(budget, set),
        all_served_for: known.served_for,
        handover: handover(run, look, known.leadership_stays),
        me: run.me.clone(),
        call: known.call,
        members: facts,
    };
    Ok(Input {
        open: open(page),
        over: None,
        facts,
        unread,
    })
}

async fn of_member(
    run: &Run,
    look: &Look,
    member: &Member,
    pod: PodName,
) -> (PodName, MemberFacts, Option<String>) {
    let page = &look.page;
    let database = member.sizes.map_or(0, |sizes| sizes.db);
    let metrics = async {
        let target = member.pod.as_ref().map(|pod| Target::Pod(pod.uid.clone()));
        let endpoint = target.and_then(|target| look.view.metrics_endpoint(&target));
        let endpoint = endpoint.ok_or("it has no address".to_owned())?;
        let metrics = run.observer.prober().metrics(&endpoint, METRICS).await;
        metrics.map_err(|why| format!("/metrics at {}: {why}", endpoint.address))
    };
    let room = run.observer.room(&page.cluster, &look.view, &pod, database);
    let (metrics, room) = tokio::join!(metrics.boxed(), room.boxed());
    let (metrics, why) = match metrics {
        Ok(metrics) => (metrics, None),
        Err(why) => (crate::etcd::MemberMetrics::default(), Some(why)),
    };
    let answered = look
        .round
        .probes
        .iter()
        .filter_map(|p| p.status.as_ref().ok());
    let mut own = answered.filter(|status| Some(status.member_id) == member.id);
    let facts = MemberFacts {
        version: own.next().and_then(|status| status.version.parse().ok()),
        quota: metrics.quota,
        room,
        in_flight: metrics.defragmenting,
        liveness: look.view.liveness(&pod),
        last: last(run, page, &pod),
    };
    (pod, facts, why)
}

/// The latest run on record. The end of one that nobody saw is its beginning and the time limit.
fn last(run: &Run, page: &Page, pod: &PodName) -> Option<LastRun> {
    let runs = &page.status()?.defragmentations;
    let last: &DefragmentationStatus = runs.iter().find(|run| run.member == pod.as_str())?;
    let ended = last.completion_time.as_ref().unwrap_or(&last.start_time).0;
    let natural = |number: i64| u64::try_from(number).unwrap_or_default();
    Some(LastRun {
        ended_ago: Duration::try_from(run.clock.now().duration_since(ended)).unwrap_or_default(),
        took: last
            .took_milliseconds
            .map(|took| Duration::from_millis(natural(took))),
        size_before: natural(last.size_before_bytes),
        size_after: last.size_after_bytes.map(natural),
        request: last.request.clone(),
    })
}
