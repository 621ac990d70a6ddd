//! The model's budget in the types of the shipped code, and back. `quorum::Grants` issues and
//! settles grants, and `ledger::temperature` tells temperatures.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use quorumgate::api::{QuorumDisruptionBudget, QuorumDisruptionBudgetStatus};
use quorumgate::clock::Clock;
use quorumgate::ledger::{Page, Seen as Watch, temperature};
use quorumgate::quorum::{
    Cause as Permission, ClusterRef, Grant as Entry, Grants, Incarnation, Look, Permitted,
    Replacement, Seen, Settlement, Temperature, settlement,
};

use crate::appearance::{self, Appearance, NAME, pod_name, uid};
use crate::memo::{Memo, remembered};
use crate::set::Set;
use crate::state::{Cause, Grant, MEMBERS};

/// The length of one tick.
const TICK: Duration = Duration::from_secs(60);

/// The grants of every member.
pub(crate) type Open = [Grant; MEMBERS];

/// The purpose of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum For {
    /// The delete of an incarnation: whether that one is the pod that exists now, and whether a
    /// rollout asked.
    Delete { stands: bool, rollout: bool },
    /// The replacement of the volume.
    Replace,
}

/// The grants in the types of the shipped code.
pub(crate) fn grants(open: &Open) -> Grants {
    let mut entries = BTreeMap::new();
    for (n, grant) in open.iter().enumerate().filter(|(_, grant)| grant.is_open()) {
        let delete = grant.delete.map(|cause| {
            let what = Permitted::Delete {
                uid: uid(n, cause.stands),
                rollout: cause.rollout,
            };
            permission(what, seq(n, false))
        });
        let replace = grant
            .replace
            .then(|| permission(Permitted::Replace, seq(n, true)));
        entries.insert(
            pod_name(n),
            Entry {
                causes: delete.into_iter().chain(replace).collect(),
            },
        );
    }
    Grants::recorded(entries, 0)
}

/// A number for every cause that there can be.
fn seq(n: usize, replace: bool) -> u64 {
    1 + 2 * u64::try_from(n).unwrap() + u64::from(replace)
}

fn permission(what: Permitted, seq: u64) -> Permission {
    // The username and the time are for people. A wrong clock changes nothing.
    Permission {
        what,
        seq,
        by: "somebody".into(),
        at: "whenever".into(),
    }
}

/// The grants after one more permission, and whether writing them is a fence (changes the
/// resourceVersion).
pub(crate) fn issued(open: Open, n: usize, what: For) -> (Open, bool) {
    thread_local!(static MEMO: Memo<(Open, usize, For), (Open, bool)> = Memo::default());
    remembered(&MEMO, (open, n, what), |(open, n, what)| {
        let permitted = match what {
            For::Delete { stands, rollout } => Permitted::Delete {
                uid: uid(n, stands),
                rollout,
            },
            For::Replace => Permitted::Replace,
        };
        let before = grants(&open);
        let after = before.issue(&pod_name(n), permitted, "somebody".into(), "now".into());
        (
            taken_over(&open, &after),
            after.last_seq() > before.last_seq(),
        )
    })
}

/// By mutation: old grants, written again as they were. `now` are the present ones, which tell what
/// became of the incarnations.
pub(crate) fn as_they_were(then: Open, now: Open) -> Open {
    std::array::from_fn(|n| match (then[n].delete, now[n].delete) {
        (Some(_), Some(cause)) => Grant {
            delete: Some(cause),
            ..then[n]
        },
        (Some(cause), None) => Grant {
            // The cause was settled because its incarnation is gone.
            delete: Some(Cause {
                stands: false,
                ..cause
            }),
            ..then[n]
        },
        (None, _) => then[n],
    })
}

/// The grants without the deletes of these members.
pub(crate) fn without(open: Open, ended: Set) -> Open {
    thread_local!(static MEMO: Memo<(Open, Set), Open> = Memo::default());
    remembered(&MEMO, (open, ended), |(open, ended)| {
        let mut left = grants(&open);
        for n in ended.iter() {
            left = left.settle(&pod_name(n), seq(n, false)).unwrap_or(left);
        }
        taken_over(&open, &left)
    })
}

/// The grants without the replacement of this member.
pub(crate) fn without_replacement(open: Open, n: usize) -> Open {
    let ended = settlement(
        &permission(Permitted::Replace, seq(n, true)),
        Seen::Replacement(Replacement::Serves),
        Duration::ZERO,
        Duration::MAX,
    );
    assert_eq!(
        ended,
        Settlement::Done,
        "a replacement whose voter serves is done"
    );
    let left = grants(&open).settle(&pod_name(n), seq(n, true));
    left.map_or(open, |left| taken_over(&open, &left))
}

/// The grants as the shipped code has changed them. A cause with a new number has not been watched
/// yet.
fn taken_over(before: &Open, after: &Grants) -> Open {
    let mut open = [Grant::default(); MEMBERS];
    for (n, grant) in open.iter_mut().enumerate() {
        let Some(entry) = after.of(&pod_name(n)) else {
            continue;
        };
        for cause in &entry.causes {
            match &cause.what {
                Permitted::Delete {
                    uid: named,
                    rollout,
                } => {
                    let watched = before[n].delete.filter(|_| cause.seq == seq(n, false));
                    let age = watched.map_or(0, |known| known.age);
                    let stands = *named == uid(n, true);
                    grant.delete = Some(Cause {
                        stands,
                        age,
                        rollout: *rollout,
                    });
                }
                Permitted::Replace => grant.replace = true,
                Permitted::Defragment { .. } => panic!("nobody defragments here"),
            }
        }
    }
    open
}

/// Whether a delete has ended, for a settler that sees the pod like this and waits for that many
/// ticks.
pub(crate) fn has_ended(n: usize, cause: Cause, shown: Appearance, settle_time: u8) -> bool {
    thread_local!(static MEMO: Memo<(usize, Cause, Appearance, u8), bool> = Memo::default());
    remembered(
        &MEMO,
        (n, cause, shown, settle_time),
        |(n, cause, shown, settle_time)| {
            let named = uid(n, cause.stands);
            let what = Permitted::Delete {
                uid: named.clone(),
                rollout: cause.rollout,
            };
            let pod = appearance::pod(n, shown, true, false);
            let look = pod.map_or(Look::Gone, |pod| Look::Here {
                uid: pod.uid,
                terminating: pod.terminating,
            });
            let seen = Seen::Incarnation(Incarnation::of(&named, &look));
            let (age, settle_time) = (TICK * u32::from(cause.age), TICK * u32::from(settle_time));
            settlement(&permission(what, seq(n, false)), seen, age, settle_time) != Settlement::Keep
        },
    )
}

/// The facts on which the temperature of a ledger depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Warmth {
    /// The number of ticks for which the ledger was watched while it was cold; `None` if it is
    /// recorded to be warm.
    pub(crate) cold_for: Option<u8>,
    pub(crate) suspended: bool,
    pub(crate) webhooks: Webhooks,
    /// The number of ticks since this replica saw the gate out of force.
    pub(crate) lapsed_for: Option<u8>,
    pub(crate) settle_time: u8,
}

/// The webhook configurations that a watch shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Webhooks {
    /// The configurations by which the ledger was last in force.
    Same,
    Others,
    Missing,
}

/// The temperature that the shipped code works out.
pub(crate) fn told_temperature(warmth: Warmth) -> Temperature {
    thread_local!(static MEMO: Memo<Warmth, Temperature> = Memo::default());
    remembered(&MEMO, warmth, |warmth| {
        let (clock, hands) = Clock::frozen(Timestamp::UNIX_EPOCH);
        let watch = Watch::new(clock);
        let webhooks = match warmth.webhooks {
            Webhooks::Same => Some("these"),
            Webhooks::Others => Some("others"),
            Webhooks::Missing => None,
        };
        watch.hear_of_webhooks(Box::new(move || webhooks.map(str::to_owned)));
        let watched = warmth.cold_for.unwrap_or_default();
        watch.note(&budget(warmth, 0));
        for ago in (0..=watched.max(warmth.lapsed_for.unwrap_or_default())).rev() {
            if warmth.lapsed_for == Some(ago) {
                watch.note_lapse(None);
            }
            if watched == ago {
                watch.note(&budget(warmth, 1));
            }
            hands.advance(TICK * u32::from(ago.min(1)));
        }
        let page = Page::of(budget(warmth, 1)).unwrap();
        temperature(&page, &watch, TICK * u32::from(warmth.settle_time))
    })
}

/// The budget, in which the ledger has turned cold so often.
fn budget(warmth: Warmth, epoch: i64) -> QuorumDisruptionBudget {
    let mut object = QuorumDisruptionBudget::of(&ClusterRef::new("ns", NAME));
    object.metadata.uid = Some("this one".into());
    object.metadata.resource_version = Some("1".into());
    let mut status = QuorumDisruptionBudgetStatus::default();
    status.ledger.warm = warmth.cold_for.is_none();
    status.ledger.budget_uid = Some("this one".into());
    status.ledger.in_force_by = Some("these".into());
    status.ledger.suspended = warmth.suspended;
    status.ledger.epoch = epoch;
    object.status = Some(status);
    object
}
