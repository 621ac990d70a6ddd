//! The end of grants: one place for every kind.
//!
//! The core says what ends a grant ([`crate::quorum::settlement`]); each settlement is a
//! compare-and-swap at the page that was read before the look. Permissions to delete end by a read
//! of the pods alone, on every replica. Those for claims that somebody gives up, for replacements
//! and for defragmentations end by what the leader, or the holder, sees of the members.

use std::time::Duration;

use tracing::{info, warn};

use super::operation::OperationContext;
use crate::api::{DefragmentationStatus, ReplacementStatus};
use crate::ledger::{Ledger, LedgerError, Page, Settled};
use crate::quorum::{
    DefragmentationProgress, PodName, ReplacementProgress, VolumeRecords, progress_of_claims,
};
use crate::telemetry::metrics::Metrics;

/// How often a pod is looked at that terminates. Its end wakes the loop; this is for an event that
/// was lost.
pub(super) const WHILE_TERMINATING: Duration = Duration::from_secs(15);

/// The state of the permissions to give up claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GivenUp {
    /// No permission is open.
    None,
    /// Some permissions are open.
    Open,
    /// A permission has just ended, and the look is older than that.
    Settled,
}

/// Removes the permissions to delete whose pod is gone, or whose delete can no longer come. Returns
/// the page afterwards, and when to look again if nothing wakes before.
pub(super) async fn deletes(
    ledger: &Ledger,
    metrics: &Metrics,
    page: Page,
    settle_time: Duration,
) -> Result<(Page, Option<Duration>), LedgerError> {
    if page.grants.iter().next().is_none() {
        return Ok((page, None));
    }
    let page = match ledger.settle_due(&page, settle_time).await? {
        Some(Settled { page, unused }) => {
            metrics.grants_unused(&page.cluster, unused);
            page
        }
        None => page,
    };
    let causes = page.grants.iter().flat_map(|(_, grant)| &grant.causes);
    let next = causes.map(|cause| {
        let watched = ledger.seen().cause_for(&page.cluster, &page.uid, cause.seq);
        match settle_time.saturating_sub(watched) {
            Duration::ZERO => WHILE_TERMINATING,
            left => left,
        }
    });
    let next = next.min();
    Ok((page, next))
}

/// Removes the first permission to give up a claim that has ended. A replacement of the gate's own
/// ends by its record.
pub(super) async fn claims(context: &OperationContext<'_>) -> Result<GivenUp, LedgerError> {
    let (observer, look, cluster) = (&context.run.observer, context.look, context.cluster);
    let page = &look.page;
    let members = page.grants.iter().map(|(member, _)| member.clone());
    let under_way = page.open_replacement().map(|one| one.member.as_str());
    let is_open = |member: &PodName| {
        page.grants.permit_replacement(member) && under_way != Some(member.as_str())
    };
    let open: Vec<PodName> = members.filter(is_open).collect();
    for member in &open {
        let claims = match observer.claims_of_member(cluster, &look.view, member).await {
            Ok(claims) => claims,
            Err(because) => {
                warn!(%cluster, %member, because, "cannot settle the grant to replace the member");
                continue;
            }
        };
        let seen = progress_of_claims(&look.snapshot, member, &claims);
        if replacement(context, member, seen, |_, _| ()).await? {
            info!(%cluster, %member, "grant to replace the member settled");
            return Ok(GivenUp::Settled);
        }
    }
    Ok(if open.is_empty() {
        GivenUp::None
    } else {
        GivenUp::Open
    })
}

/// Removes the permission to replace a member if it has ended by what was `seen`, and changes the
/// records in the same write. Returns whether it has.
pub(super) async fn replacement(
    context: &OperationContext<'_>,
    member: &PodName,
    seen: ReplacementProgress,
    note: impl FnOnce(&mut Vec<ReplacementStatus>, &mut VolumeRecords),
) -> Result<bool, LedgerError> {
    let (page, settle_time) = (&context.look.page, context.run.settings.settle_time);
    let ledger = context.run.ledger();
    let settled = ledger.settle_replacement(page, member, seen, settle_time, note);
    Ok(settled.await?.is_some())
}

/// Removes the permission to defragment a member if it has ended by what was `seen`, and changes
/// the record of the run in the same write. Returns whether it has.
pub(super) async fn defragmentation(
    context: &OperationContext<'_>,
    member: &PodName,
    seen: DefragmentationProgress,
    note: impl FnOnce(&mut Vec<DefragmentationStatus>),
) -> Result<bool, LedgerError> {
    let (page, settle_time) = (&context.look.page, context.run.settings.settle_time);
    let ledger = context.run.ledger();
    let settled = ledger.settle_defragmentation(page, member, seen, settle_time, note);
    Ok(settled.await?.is_some())
}
