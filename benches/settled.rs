//! Waiting until the gate has written what growth made it write: a ledger turns warm a settle time after it was made, and there are many.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use quorumgate::api::{QuorumDisruptionBudget, condition};
use quorumgate_testbed::eventually;

/// Budgets that are read at one time.
const PAGE: u32 = 500;

/// Waits until every budget shows a warm ledger, which is the last that is written of a new one.
pub(crate) async fn settled(client: &Client, within: Duration) -> Result<()> {
    let budgets: Api<QuorumDisruptionBudget> = Api::all(client.clone());
    eventually(within, "every ledger is shown to be warm", async || {
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = budgets.list(&page).await?;
            for budget in &list {
                ensure!(is_warm(budget), "that of {} is not", budget.name_any());
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return anyhow::Ok(()),
            }
        }
    })
    .await
}

fn is_warm(budget: &QuorumDisruptionBudget) -> bool {
    let mut shown = budget.status.iter().flat_map(|status| &status.conditions);
    shown.any(|shown| shown.type_ == condition::LEDGER_WARM && shown.status == "True")
}
