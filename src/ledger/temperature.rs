//! Whether a ledger is known to hold every open grant.
//!
//! A ledger that was just created, or whose gate was not in force for a while, may miss permissions that were given under
//! another one and whose requests are still on their way. After a settle time, far above the life of any API request, there
//! can be none left.

use std::time::Duration;

use super::{Page, Seen};
use crate::quorum::Temperature;

/// The temperature of the ledger on this page: warm where a replica wrote so for this very budget, or where this replica has
/// seen it for one settle time since it was created or last turned cold. Cold in any case while its gate is not in force, or is in force by
/// other webhook configurations than those that the ledger was last in force by, and for a settle time after this replica saw it out of force,
/// whether anybody has written that down or not.
///
/// While refusals are only reported, they are to be those that there would be with every permission known: such a ledger is judged as
/// warm. It is kept suspended meanwhile, so that it is cold as soon as refusals count again.
pub fn temperature(page: &Page, seen: &Seen, settle_time: Duration) -> Temperature {
    if page.budget().only_warns() {
        return Temperature::Warm;
    }
    let ledger = page.status().map(|s| s.ledger.clone()).unwrap_or_default();
    // What a replica writes when it finds other configurations, or none, comes late: they may have been made anew while none ran.
    let by_others = ledger.in_force_by.as_deref();
    let by_others = by_others.is_some_and(|by| seen.are_others_than(by));
    // So does what it writes of an outage, which may be over by then.
    let lapsed = seen.has_lapsed_within(&page.cluster, &page.uid, settle_time);
    if ledger.suspended || by_others || lapsed {
        return Temperature::Cold { remaining: None };
    }
    let for_this_budget = ledger.budget_uid.as_deref() == Some(page.uid.as_str());
    if ledger.warm && for_this_budget {
        return Temperature::Warm;
    }
    let watched = seen.ledger_for(&page.cluster, &page.uid, ledger.epoch);
    match settle_time.checked_sub(watched) {
        None | Some(Duration::ZERO) => Temperature::Warm,
        Some(remaining) => Temperature::Cold {
            remaining: Some(remaining),
        },
    }
}
