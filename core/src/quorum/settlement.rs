//! The rules by which a cause of a grant settles, so that its member counts again.
//!
//! *Settling* removes a cause from the ledger: either the disruption has happened and is over, or
//! it can no longer happen. The *settler* is the replica that does so. Ages are measured by the
//! settler's own monotonic clock since it first saw the cause's sequence number. A wrong clock or a
//! replica that has just started can therefore not settle too early. A request that failed settles
//! nothing, because an API server may still be carrying it out.

use std::time::Duration;

use super::grants::{Cause, GrantKind};
use super::id::PodUid;

/// The settler's observation, made after it read the ledger in which it settles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CauseState {
    /// The pod's state in an uncached read, for [`GrantKind::Delete`].
    Incarnation(Incarnation),
    /// The progress of a defragmentation, for [`GrantKind::Defragment`].
    Defragmentation(DefragmentationProgress),
    /// The progress of a replacement, for [`GrantKind::Replace`].
    Replacement(ReplacementProgress),
}

/// The result of an uncached read of a pod by name, made after the ledger was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodRead {
    /// There is no pod of that name.
    Gone,
    /// There is a pod of that name.
    Here {
        /// The UID of the pod.
        uid: PodUid,
        /// Whether the pod is terminating.
        terminating: bool,
    },
}

/// The state of the incarnation that was permitted to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incarnation {
    /// No pod of this UID is left.
    Gone,
    /// The pod is terminating.
    Terminating,
    /// The pod is not terminating: the delete has not taken effect.
    Stands,
}

impl Incarnation {
    /// The state of the incarnation `permitted`, by a read of the pod's name.
    pub fn read(permitted: &PodUid, look: &PodRead) -> Self {
        match look {
            PodRead::Here {
                uid,
                terminating: true,
            } if uid == permitted => Self::Terminating,
            PodRead::Here { uid, .. } if uid == permitted => Self::Stands,
            PodRead::Here { .. } | PodRead::Gone => Self::Gone,
        }
    }
}

/// The progress of a defragmentation, as far as its settler knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefragmentationProgress {
    /// The settler carried it out, the call has returned, the member serves again, and nothing is
    /// in flight.
    Returned,
    /// The settler holds the grant, has not made the call, and will not make it.
    NotBegun,
    /// The call still runs, the member does not serve yet, or the member says that a
    /// defragmentation is in flight, whoever began it.
    Running,
    /// Another replica carries it out, or did, or nobody can say how the call ended. The age of the
    /// grant decides.
    NotMine,
}

/// The progress of the replacement of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplacementProgress {
    /// The new voter serves.
    Serves,
    /// The step was undone, and the old member stays.
    Undone,
    /// The member still has the claim that it had, and nothing of the replacement has been seen.
    /// The request for it may still be alive.
    Stands,
    /// The step is neither done nor undone.
    Underway,
}

/// Whether a cause settles, and for which reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// The cause stays open.
    Keep,
    /// The permitted disruption has happened and is over.
    Done,
    /// The permitted disruption never happened, and the asker's request can no longer be alive.
    NeverHappened,
}

/// Decides whether `cause` settles.
///
/// `age` is the time since the settler first saw this cause's `seq`. `settle_time` is far longer
/// than any API request lives. An observation of another kind than the cause settles nothing.
///
/// ```
/// use std::time::Duration;
/// use quorumgate_core::quorum::{
///     Cause, CauseState, Incarnation, GrantKind, Settlement, settlement,
/// };
///
/// let cause = Cause {
///     what: GrantKind::Delete { uid: "uid-2".into(), rollout: false },
///     seq: 7,
///     by: "kubectl".into(),
///     at: "2026-11-21T12:00:00Z".into(),
/// };
/// let settle_time = Duration::from_secs(120);
/// let after = |seen, seconds| {
///     settlement(&cause, CauseState::Incarnation(seen), Duration::from_secs(seconds), settle_time)
/// };
/// assert_eq!(after(Incarnation::Gone, 0), Settlement::Done);
/// assert_eq!(after(Incarnation::Stands, 119), Settlement::Keep);
/// assert_eq!(after(Incarnation::Stands, 120), Settlement::NeverHappened);
/// ```
pub fn settlement(
    cause: &Cause,
    seen: CauseState,
    age: Duration,
    settle_time: Duration,
) -> Settlement {
    match (&cause.what, seen) {
        (GrantKind::Delete { .. }, CauseState::Incarnation(incarnation)) => match incarnation {
            Incarnation::Gone => Settlement::Done,
            Incarnation::Stands if age >= settle_time => Settlement::NeverHappened,
            Incarnation::Stands | Incarnation::Terminating => Settlement::Keep,
        },
        (
            GrantKind::Defragment {
                timeout_seconds, ..
            },
            CauseState::Defragmentation(defragmentation),
        ) => {
            let longest = Duration::from_secs(*timeout_seconds).saturating_add(settle_time);
            match defragmentation {
                DefragmentationProgress::Returned => Settlement::Done,
                DefragmentationProgress::NotBegun => Settlement::NeverHappened,
                DefragmentationProgress::NotMine if age >= longest => Settlement::NeverHappened,
                DefragmentationProgress::NotMine | DefragmentationProgress::Running => {
                    Settlement::Keep
                }
            }
        }
        (GrantKind::Replace, CauseState::Replacement(replacement)) => match replacement {
            ReplacementProgress::Serves => Settlement::Done,
            ReplacementProgress::Undone => Settlement::NeverHappened,
            ReplacementProgress::Stands if age >= settle_time => Settlement::NeverHappened,
            ReplacementProgress::Stands | ReplacementProgress::Underway => Settlement::Keep,
        },
        (GrantKind::Delete { .. } | GrantKind::Defragment { .. } | GrantKind::Replace, _) => {
            Settlement::Keep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_mins(2);

    fn cause(what: GrantKind) -> Cause {
        Cause {
            what,
            seq: 1,
            by: "kubectl".into(),
            at: "2026-11-21T00:00:00Z".into(),
        }
    }

    fn after(what: GrantKind, seen: CauseState, seconds: u64) -> Settlement {
        settlement(&cause(what), seen, Duration::from_secs(seconds), SETTLE)
    }

    fn delete() -> GrantKind {
        GrantKind::Delete {
            uid: "u1".into(),
            rollout: false,
        }
    }

    #[test]
    fn another_incarnation_of_the_same_name_says_that_the_one_permitted_is_gone() {
        let look = |uid: &str, terminating| PodRead::Here {
            uid: uid.into(),
            terminating,
        };
        let of = |look: &PodRead| Incarnation::read(&"u1".into(), look);
        assert_eq!(of(&PodRead::Gone), Incarnation::Gone);
        assert_eq!(of(&look("u2", false)), Incarnation::Gone);
        assert_eq!(of(&look("u2", true)), Incarnation::Gone);
        assert_eq!(of(&look("u1", false)), Incarnation::Stands);
        assert_eq!(of(&look("u1", true)), Incarnation::Terminating);
    }

    #[test]
    fn a_delete_settles_at_once_when_its_incarnation_is_gone() {
        assert_eq!(
            after(delete(), CauseState::Incarnation(Incarnation::Gone), 0),
            Settlement::Done
        );
    }

    #[test]
    fn a_delete_that_never_happened_settles_after_the_settle_time() {
        let stands = CauseState::Incarnation(Incarnation::Stands);
        assert_eq!(after(delete(), stands, 119), Settlement::Keep);
        assert_eq!(after(delete(), stands, 120), Settlement::NeverHappened);
    }

    #[test]
    fn a_terminating_pod_keeps_its_grant_however_long_it_takes() {
        let terminating = CauseState::Incarnation(Incarnation::Terminating);
        assert_eq!(after(delete(), terminating, 86_400), Settlement::Keep);
    }

    #[test]
    fn a_defragmentation_settles_by_its_holder_or_long_after() {
        let defragment = || GrantKind::Defragment {
            holder: "gate-0".into(),
            timeout_seconds: 60,
        };
        let seen = CauseState::Defragmentation;
        assert_eq!(
            after(defragment(), seen(DefragmentationProgress::Returned), 0),
            Settlement::Done
        );
        assert_eq!(
            after(defragment(), seen(DefragmentationProgress::Running), 86_400),
            Settlement::Keep
        );
        assert_eq!(
            after(defragment(), seen(DefragmentationProgress::NotMine), 179),
            Settlement::Keep
        );
        assert_eq!(
            after(defragment(), seen(DefragmentationProgress::NotMine), 180),
            Settlement::NeverHappened
        );
    }

    #[test]
    fn a_defragmentation_that_its_holder_never_began_settles_at_once() {
        let defragment = GrantKind::Defragment {
            holder: "gate-0".into(),
            timeout_seconds: 60,
        };
        let seen = CauseState::Defragmentation(DefragmentationProgress::NotBegun);
        assert_eq!(after(defragment, seen, 0), Settlement::NeverHappened);
    }

    #[test]
    fn a_replacement_of_which_nothing_was_seen_settles_after_the_settle_time() {
        let stands = CauseState::Replacement(ReplacementProgress::Stands);
        assert_eq!(after(GrantKind::Replace, stands, 119), Settlement::Keep);
        assert_eq!(
            after(GrantKind::Replace, stands, 120),
            Settlement::NeverHappened
        );
    }

    #[test]
    fn a_replacement_settles_when_the_new_voter_serves_or_it_was_undone() {
        let seen = CauseState::Replacement;
        assert_eq!(
            after(GrantKind::Replace, seen(ReplacementProgress::Serves), 0),
            Settlement::Done
        );
        assert_eq!(
            after(GrantKind::Replace, seen(ReplacementProgress::Undone), 0),
            Settlement::NeverHappened
        );
        assert_eq!(
            after(
                GrantKind::Replace,
                seen(ReplacementProgress::Underway),
                86_400
            ),
            Settlement::Keep
        );
    }

    #[test]
    fn a_look_at_something_else_settles_nothing() {
        let gone = CauseState::Incarnation(Incarnation::Gone);
        assert_eq!(after(GrantKind::Replace, gone, 86_400), Settlement::Keep);
        let serves = CauseState::Replacement(ReplacementProgress::Serves);
        assert_eq!(after(delete(), serves, 86_400), Settlement::Keep);
    }
}
