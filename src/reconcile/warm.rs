//! The temperature of a ledger: written down once a replica has watched it for a settle time, taken back when the gate was
//! not in force. Any replica does this, each by its own clock.

use std::time::Duration;

use super::force::OutOfForce;
use crate::ledger::{Ledger, LedgerError, Page, WHILE_IT_WARNS};
use crate::quorum::Temperature;

/// Whether it is written that this very ledger is warm. A status may have been copied from another budget.
pub(super) fn is_warm(page: &Page) -> bool {
    page.status().is_some_and(|status| {
        status.ledger.warm && status.ledger.budget_uid.as_deref() == Some(page.uid.as_str())
    })
}

/// Whether nothing is to be written of a gate that stands as `force` says.
pub(super) fn is_settled(page: &Page, force: &Result<String, OutOfForce>) -> bool {
    let Some(status) = page.status() else {
        return false;
    };
    match force {
        // Being suspended for another reason before, it is to say that it is so for this one.
        Ok(_) if page.budget().only_warns() => {
            let told = status.ledger.cold_because.as_deref();
            status.ledger.suspended && told == Some(WHILE_IT_WARNS)
        }
        Ok(by) => is_warm(page) && status.ledger.in_force_by.as_ref() == Some(by),
        Err(_) => status.ledger.suspended,
    }
}

/// Writes down whether the gate is in force, and that it was not at some moment since this was last written. The page afterwards.
pub(super) async fn note_force(
    ledger: &Ledger,
    mut page: Page,
    force: &Result<String, OutOfForce>,
    lapse: Option<&OutOfForce>,
) -> Result<Page, LedgerError> {
    if let Some(why) = force.as_ref().err().or(lapse) {
        page = ledger
            .suspend(&page, &why.to_string())
            .await?
            .unwrap_or(page);
    }
    if let Ok(by) = force {
        page = ledger.in_force(&page, by).await?.unwrap_or(page);
    }
    Ok(page)
}

/// Writes down that a ledger has become warm. When to look again, where it has not.
pub(super) async fn note_temperature(
    ledger: &Ledger,
    page: &Page,
    now: Temperature,
) -> Result<Option<Duration>, LedgerError> {
    match now {
        Temperature::Warm => ledger.warm(page).await.map(|_| None),
        Temperature::Cold { remaining } => Ok(remaining),
    }
}

#[cfg(test)]
mod tests;
