//! Settlement by observation: permissions whose pod is gone, or whose delete can no longer come, are taken back.
//!
//! Any replica does this, each by its own stopwatches ([`crate::ledger::Seen`]). What was seen decides, never what a request
//! was answered; the pod is looked at after the ledger was read, and the ledger written at the version that was read.

use std::time::Duration;

use crate::ledger::{Ledger, LedgerError, Page};

/// A pod takes as long as it takes to terminate. Its end wakes the keeper; this is for an event that was lost.
const WHILE_TERMINATING: Duration = Duration::from_secs(15);

/// Takes back what has ended. The page afterwards, and when to look again where nothing wakes before.
pub(super) async fn step(
    ledger: &Ledger,
    page: Page,
    settle_time: Duration,
) -> Result<(Page, Option<Duration>), LedgerError> {
    if page.grants.iter().next().is_none() {
        return Ok((page, None));
    }
    let page = ledger.settle_due(&page, settle_time).await?.unwrap_or(page);
    let next = next_look(ledger, &page, settle_time);
    Ok((page, next))
}

/// When the first of the open permissions may end by its age.
fn next_look(ledger: &Ledger, page: &Page, settle_time: Duration) -> Option<Duration> {
    let causes = page.grants.iter().flat_map(|(_, grant)| &grant.causes);
    causes
        .map(|cause| {
            let watched = ledger.seen().cause_for(&page.cluster, &page.uid, cause.seq);
            match settle_time.checked_sub(watched) {
                None | Some(Duration::ZERO) => WHILE_TERMINATING,
                Some(left) => left,
            }
        })
        .min()
}

#[cfg(test)]
mod tests;
