//! The trust of the model's ledger, by the shipped code: `quorum::TrustRecord`, with what a replica
//! has seen in `quorum::TrustWatch` and `quorum::WebhookHistory`.

use std::time::Duration;

use quorumgate_core::quorum::{Trust, TrustEvent, TrustRecord, TrustWatch, WebhookHistory};

use crate::ledger::TICK;
use crate::memo::{Memo, remembered};

/// The time since the start of the replica, long after everything that it remembers.
const NOW: Duration = Duration::from_hours(24);
const BUDGET: &str = "this one";

/// The record of trust in the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recorded {
    /// For how long the ledger has been watched while it is not trusted; `None` if it is recorded
    /// as trusted.
    pub(crate) untrusted_for: Option<u8>,
    /// Whether the budget says that the gate is out of force.
    pub(crate) suspended: bool,
    /// Whether the gate was last in force by other webhook configurations than those that stand.
    pub(crate) by_others: bool,
}

/// Two webhook configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Webhooks {
    /// The configurations by which the ledger was last in force.
    Recorded,
    /// Others, which stand.
    Others,
    /// Others, which were made anew since.
    Former,
}

/// An event that is to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    Watched,
    OutOfForce,
    InForce(Webhooks),
}

/// The facts that a replica goes by, besides the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sight {
    /// The webhook configurations that stand; `None` while they are missing.
    pub(crate) webhooks: Option<Webhooks>,
    /// The number of ticks since the replica saw the gate out of force.
    pub(crate) outage_ago: Option<u8>,
    pub(crate) settle_time: u8,
}

impl Webhooks {
    fn identity(self) -> &'static str {
        match self {
            Self::Recorded => "recorded@1,recorded@1",
            Self::Others => "others@1,others@1",
            Self::Former => "former@1,former@1",
        }
    }
}

impl Recorded {
    /// The webhook configurations that stand, or will again, unless they are made anew.
    pub(crate) fn standing(self) -> Webhooks {
        if self.by_others {
            Webhooks::Others
        } else {
            Webhooks::Recorded
        }
    }

    /// The record after an event.
    pub(crate) fn after(self, event: Event) -> Self {
        thread_local!(static MEMO: Memo<(Recorded, Event), Recorded> = Memo::default());
        remembered(&MEMO, (self, event), |(before, event)| {
            let record = before.record();
            let history = &seen(Some(before.standing()));
            let after = record.after(match event {
                Event::Watched => TrustEvent::Watched,
                Event::OutOfForce => TrustEvent::OutOfForce { because: "so" },
                Event::InForce(by) => TrustEvent::InForce {
                    by: by.identity(),
                    history,
                },
            });
            let begins_anew = after.epoch > record.epoch;
            assert!(
                begins_anew || after.is_trusted() || !record.is_trusted(),
                "what is watched would not begin anew: {after:?}"
            );
            let untrusted_for = before.untrusted_for.filter(|_| !begins_anew);
            Self {
                untrusted_for: (!after.is_trusted()).then(|| untrusted_for.unwrap_or(0)),
                suspended: after.suspended,
                by_others: after.in_force_by.as_deref() != Some(before.standing().identity()),
            }
        })
    }

    /// Whether a replica that has read the record trusts the ledger.
    pub(crate) fn is_trusted(self, sight: Sight) -> bool {
        thread_local!(static MEMO: Memo<(Recorded, Sight), bool> = Memo::default());
        remembered(&MEMO, (self, sight), |(recorded, sight)| {
            let record = recorded.record();
            let ago = |ticks: u8| NOW.saturating_sub(TICK * u32::from(ticks));
            let since = ago(recorded.untrusted_for.unwrap_or_default());
            let mut watch = TrustWatch::new(record.epoch, since);
            if let Some(ticks) = sight.outage_ago {
                watch.note_namespace(false, ago(ticks));
            }
            let settle_time = TICK * u32::from(sight.settle_time);
            record.trust(&watch, &seen(sight.webhooks), NOW, settle_time) == Trust::Trusted
        })
    }

    fn record(self) -> TrustRecord {
        TrustRecord {
            budget: BUDGET.to_owned(),
            trusted_in: self.untrusted_for.is_none().then(|| BUDGET.to_owned()),
            epoch: 1,
            suspended: self.suspended,
            in_force_by: Some(Webhooks::Recorded.identity().to_owned()),
            ..TrustRecord::default()
        }
    }
}

/// The history of a replica whose watch shows these configurations.
fn seen(webhooks: Option<Webhooks>) -> WebhookHistory {
    let mut history = WebhookHistory::default();
    history.note(webhooks.map(|webhooks| webhooks.identity().to_owned()));
    history
}
