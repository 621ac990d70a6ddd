//! The wait until the gate has written the consequences of growth: a ledger becomes trusted a
//! settle time after its creation, and there are many ledgers.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use quorumgate::api::{QuorumDisruptionBudget, condition};
use quorumgate_testbed::eventually;

/// The number of budgets in one page of a list.
const PAGE: u32 = 500;

/// Waits until every budget reports a trusted ledger, which is the last write for a new one.
pub(crate) async fn settled(client: &Client, within: Duration) -> Result<()> {
    let budgets: Api<QuorumDisruptionBudget> = Api::all(client.clone());
    eventually(within, "every ledger is shown to be trusted", async || {
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = budgets.list(&page).await?;
            for budget in &list {
                ensure!(is_trusted(budget), "that of {} is not", budget.name_any());
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return anyhow::Ok(()),
            }
        }
    })
    .await
}

fn is_trusted(budget: &QuorumDisruptionBudget) -> bool {
    let mut shown = budget.status.iter().flat_map(|status| &status.conditions);
    shown.any(|shown| shown.type_ == condition::LEDGER_TRUSTED && shown.status == "True")
}
