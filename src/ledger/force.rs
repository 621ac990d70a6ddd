//! What a ledger makes of its gate being in force, or not.
//!
//! While the API server does not ask the gate, pods go without a permission, and their deletes may still be on their way when
//! it asks again. So a ledger is suspended for as long as that lasts, which is cold however long anybody watches it, and begins
//! anew afterwards. It remembers by which webhook configurations it was in force, and in which generation: it may have been out of
//! force in between.

use super::{Ledger, LedgerError, Page};

/// Why a ledger is suspended whose budget's refusals are only reported.
pub const WHILE_IT_WARNS: &str = "what was refused was allowed (enforcement: Warn)";

impl Ledger {
    /// The gate is not in force: the ledger is cold until [`Ledger::in_force`] and one settle time more. `None` where that was
    /// known.
    pub async fn suspend(&self, page: &Page, because: &str) -> Result<Option<Page>, LedgerError> {
        let (_, mut status) = page.draft();
        let ledger = &mut status.ledger;
        if ledger.suspended {
            return Ok(None);
        }
        ledger.suspended = true;
        ledger.warm = false;
        ledger.epoch = ledger.epoch.saturating_add(1);
        ledger.cold_because = Some(because.to_owned());
        self.put(page, status).await.map(Some)
    }

    /// Says why a suspended ledger goes on being so.
    async fn explain(&self, page: &Page, because: &str) -> Result<Option<Page>, LedgerError> {
        let (_, mut status) = page.draft();
        status.ledger.cold_because = Some(because.to_owned());
        self.put_changed(page, status).await
    }

    /// Refusals are only reported, so pods go without a permission as if the gate were not in force.
    pub async fn suspend_while_it_warns(&self, page: &Page) -> Result<Option<Page>, LedgerError> {
        match self.suspend(page, WHILE_IT_WARNS).await? {
            Some(page) => Ok(Some(page)),
            None => self.explain(page, WHILE_IT_WARNS).await,
        }
    }

    /// The gate is in force, by these webhook configurations. A ledger that was suspended, or in force by others, or by an earlier generation that
    /// this replica did not follow, is cold for one settle time from now. `None` where nothing changes.
    pub async fn in_force(&self, page: &Page, by: &str) -> Result<Option<Page>, LedgerError> {
        if page.budget().only_warns() {
            return self.suspend_while_it_warns(page).await;
        }
        let (_, mut status) = page.draft();
        let ledger = &mut status.ledger;
        let was = ledger.in_force_by.as_deref();
        let others = was.is_some_and(|was| self.seen().may_have_lapsed_between(was, by));
        if others || ledger.suspended {
            ledger.epoch = ledger.epoch.saturating_add(1);
            ledger.warm = false;
        }
        if others {
            ledger.cold_because = Some(
                "the webhook configurations were made anew, or changed while nobody looked".into(),
            );
        }
        ledger.suspended = false;
        ledger.in_force_by = Some(by.to_owned());
        self.put_changed(page, status).await
    }
}
