//! The model's budget in the types of the shipped code, and back. `quorum::Grants` issues and
//! settles grants.

use std::collections::BTreeMap;
use std::time::Duration;

use quorumgate_core::quorum::{
    Cause as Permission, CauseState, DefragmentationProgress, Grant as Entry, GrantKind, Grants,
    Incarnation, PodRead, ReplacementProgress, Settlement, settlement,
};

use crate::appearance::{self, Appearance, pod_name, uid};
use crate::memo::{Memo, remembered};
use crate::set::Set;
use crate::state::{Cause, Grant, MEMBERS};

/// The length of one tick.
pub(crate) const TICK: Duration = Duration::from_secs(60);

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
    /// The defragmentation of the member.
    Defragment,
}

/// The kinds of permissions. There is at most one of each for a member.
#[derive(Clone, Copy)]
enum Sort {
    Delete,
    Replace,
    Defragment,
}

/// The grants in the types of the shipped code.
pub(crate) fn grants(open: &Open) -> Grants {
    let mut entries = BTreeMap::new();
    for (n, grant) in open.iter().enumerate().filter(|(_, grant)| grant.is_open()) {
        let delete = grant.delete.map(|cause| {
            let what = GrantKind::Delete {
                uid: uid(n, cause.stands),
                rollout: cause.rollout,
            };
            permission(what, seq(n, Sort::Delete))
        });
        let replace = grant
            .replace
            .map(|_| permission(GrantKind::Replace, seq(n, Sort::Replace)));
        let defragment = grant
            .defragment
            .map(|_| permission(defragment(), seq(n, Sort::Defragment)));
        entries.insert(
            pod_name(n),
            Entry {
                causes: delete
                    .into_iter()
                    .chain(replace)
                    .chain(defragment)
                    .collect(),
            },
        );
    }
    Grants::recorded(entries, 0)
}

/// A number for every cause that there can be.
fn seq(n: usize, sort: Sort) -> u64 {
    1 + 3 * u64::try_from(n).unwrap() + sort as u64
}

/// The permission to defragment. Only one process does, so its name does not matter.
fn defragment() -> GrantKind {
    GrantKind::Defragment {
        holder: "gate".into(),
        timeout_seconds: 0,
    }
}

fn permission(what: GrantKind, seq: u64) -> Permission {
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
            For::Delete { stands, rollout } => GrantKind::Delete {
                uid: uid(n, stands),
                rollout,
            },
            For::Replace => GrantKind::Replace,
            For::Defragment => defragment(),
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
            left = left
                .settle(&pod_name(n), seq(n, Sort::Delete))
                .unwrap_or(left);
        }
        taken_over(&open, &left)
    })
}

/// The grants without the defragmentations of these members.
pub(crate) fn without_defragmentation(open: Open, ended: Set) -> Open {
    let mut left = grants(&open);
    for n in ended.iter() {
        let seq = seq(n, Sort::Defragment);
        left = left.settle(&pod_name(n), seq).unwrap_or(left);
    }
    taken_over(&open, &left)
}

/// The grants without the replacement of this member, which has come to this end.
pub(crate) fn without_replacement(open: Open, n: usize, end: ReplacementProgress) -> Open {
    let ended = settlement(
        &permission(GrantKind::Replace, seq(n, Sort::Replace)),
        CauseState::Replacement(end),
        Duration::ZERO,
        Duration::MAX,
    );
    assert_ne!(ended, Settlement::Keep, "{end:?} is an end");
    let left = grants(&open).settle(&pod_name(n), seq(n, Sort::Replace));
    left.map_or(open, |left| taken_over(&open, &left))
}

/// The grants as the shipped code has changed them. A cause with a new number has not been watched
/// yet.
fn taken_over(before: &Open, after: &Grants) -> Open {
    let mut open = [Grant::default(); MEMBERS];
    for (n, grant) in open.iter_mut().enumerate() {
        let Some(entry) = after.get(&pod_name(n)) else {
            continue;
        };
        for cause in &entry.causes {
            match &cause.what {
                GrantKind::Delete {
                    uid: named,
                    rollout,
                } => {
                    let watched = before[n]
                        .delete
                        .filter(|_| cause.seq == seq(n, Sort::Delete));
                    let age = watched.map_or(0, |known| known.age);
                    let stands = *named == uid(n, true);
                    grant.delete = Some(Cause {
                        stands,
                        age,
                        rollout: *rollout,
                    });
                }
                GrantKind::Replace => {
                    let is_known = cause.seq == seq(n, Sort::Replace);
                    let watched = before[n].replace.filter(|_| is_known);
                    grant.replace = Some(watched.unwrap_or(0));
                }
                GrantKind::Defragment { .. } => {
                    let is_known = cause.seq == seq(n, Sort::Defragment);
                    let watched = before[n].defragment.filter(|_| is_known);
                    grant.defragment = Some(watched.unwrap_or(0));
                }
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
            let what = GrantKind::Delete {
                uid: named.clone(),
                rollout: cause.rollout,
            };
            let pod = appearance::pod(n, shown, None, false);
            let look = pod.map_or(PodRead::Gone, |pod| PodRead::Here {
                uid: pod.uid,
                terminating: pod.terminating,
            });
            let seen = CauseState::Incarnation(Incarnation::read(&named, &look));
            let (age, settle_time) = (TICK * u32::from(cause.age), TICK * u32::from(settle_time));
            settlement(
                &permission(what, seq(n, Sort::Delete)),
                seen,
                age,
                settle_time,
            ) != Settlement::Keep
        },
    )
}

/// Whether a defragmentation has ended, for a replica that sees this progress, has seen the grant
/// for `age` ticks, and waits for `settle_time` ticks.
pub(crate) fn has_ended_defragmenting(
    progress: DefragmentationProgress,
    age: u8,
    settle_time: u8,
) -> bool {
    let (age, settle_time) = (TICK * u32::from(age), TICK * u32::from(settle_time));
    let permitted = permission(defragment(), seq(0, Sort::Defragment));
    let seen = CauseState::Defragmentation(progress);
    settlement(&permitted, seen, age, settle_time) != Settlement::Keep
}
