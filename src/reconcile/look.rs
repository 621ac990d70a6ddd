//! A look at a cluster that nobody waits for: the ledger first, then the Kubernetes half, then the
//! members.

use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Container;

use super::fleet::is_under_way;
use super::run::Run;
use super::strategy::kind;
use crate::api::{QuorumDisruptionBudget, ReplaceMode};
use crate::etcd::Prober;
use crate::ledger::{LedgerError, Page};
use crate::observe::{self, ClusterView, EtcdContainer, ObserveError, is_held};
use crate::plan::replacement::Mode;
use crate::plan::{Handover, Version};
use crate::quorum::evidence::Round;
use crate::quorum::{ClusterRef, Snapshot};
use crate::strategy::ON_DELETE;
use crate::turns::Turn;

/// The reason why a look failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReconcileError {
    #[error("the ledger")]
    Ledger(#[from] LedgerError),
    #[error("the cluster")]
    Observe(#[from] ObserveError),
    #[error("what an operation needs besides: {0}")]
    Gather(String),
    #[error("the Kubernetes API did not show the cluster within {} s", .0.as_secs())]
    Late(Duration),
}

/// The result of a look, with the page of the ledger that was read before.
pub(super) struct Look {
    pub(super) page: Page,
    pub(super) view: ClusterView,
    pub(super) snapshot: Snapshot,
    pub(super) round: Round,
}

/// The ledger and the Kubernetes half. `None` if the cluster has no budget. The permit ends with
/// this: members are asked without one, so that a cluster that hangs delays no other.
pub(super) async fn read(
    run: &Run,
    cluster: &ClusterRef,
    _permit: Turn,
) -> Result<Option<(Page, ClusterView)>, ReconcileError> {
    let Some(page) = run.ledger().read(cluster).await? else {
        return Ok(None);
    };
    let sharing = run.sharing(&page);
    let mut view = run.observer.world_at_leisure(&page, sharing).await?;
    // A pod that waits would start with what the objects name now, as when it was held.
    if view.pods().iter().any(is_held) {
        let told = run.observer.told(&view).boxed().await;
        view.take_referenced_settings(told);
    }
    Ok(Some((page, view)))
}

/// The members, who are asked after the page and the Kubernetes half were read.
pub(super) async fn ask(
    run: &Run,
    page: Page,
    view: ClusterView,
    prober: &Prober,
) -> Result<Look, ReconcileError> {
    let observe::ClusterLook {
        view,
        snapshot,
        round,
    } = run.observer.watch(&page, view, prober).await?;
    Ok(Look {
        page,
        view,
        snapshot,
        round,
    })
}

/// Whether leadership may be moved. `is_refused`: etcd refused to a short time ago.
pub(super) fn handover(run: &Run, look: &Look, is_refused: bool) -> Handover {
    match run.judge.leadership_rests(&look.page, &look.snapshot) {
        _ if is_refused => Handover::Refused,
        Some(remaining) => Handover::Resting { remaining },
        None => Handover::Possible,
    }
}

/// The versions that the members report. A member that does not answer is left out.
pub(super) fn versions(look: &Look) -> Vec<Version> {
    let answers = look.round.probes.iter();
    let answers = answers.filter_map(|probe| probe.status.as_ref().ok());
    answers
        .filter_map(|status| status.version.parse().ok())
        .collect()
}

/// Whether a rollout is under way, by the gate or by the StatefulSet controller.
pub(super) fn rolls_out(budget: &QuorumDisruptionBudget, set: Option<&StatefulSet>) -> bool {
    let rollout = budget.status.as_ref().and_then(|s| s.rollout.as_ref());
    let ours = rollout.is_some_and(|rollout| rollout.target.is_some() && is_under_way(rollout));
    let status = set.and_then(|set| set.status.as_ref());
    let theirs = status.is_some_and(|s| s.current_revision != s.update_revision);
    ours || theirs && set.is_some_and(|set| kind(set) != ON_DELETE)
}

/// Whether the gate replaces members.
pub(super) fn mode(budget: &QuorumDisruptionBudget) -> Mode {
    match budget.spec.replace() {
        ReplaceMode::Off => Mode::Off,
        ReplaceMode::Manual => Mode::Manual,
        ReplaceMode::Auto => Mode::Auto,
    }
}

/// The container of etcd in the template of the StatefulSet. The error says for people why that is
/// not certain. `None` without a template.
pub(super) fn template_etcd(look: &Look) -> Option<Result<&Container, String>> {
    let set = look.view.stateful_set()?;
    let spec = set.spec.as_ref()?.template.spec.as_ref()?;
    let etcd = EtcdContainer::find(spec, look.view.etcd_container()).certain();
    Some(etcd.ok_or_else(|| {
        "several containers may be etcd's: name it in spec.members.container of the budget"
            .to_owned()
    }))
}
