//! When a cause of a grant settles, so that its member is free again.
//!
//! Ages are those of the settler's own monotonic clock since it first saw the cause's sequence number, so that neither a clock that is
//! wrong nor a replica that has just started settles too early. A request of one's own that failed settles nothing: an API server may
//! still be carrying it out.

use std::time::Duration;

use super::grants::{Cause, Permitted};
use super::id::PodUid;

/// What the settler saw, after it had read the ledger in which it would settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// For [`Permitted::Delete`]: what an uncached read of the pod showed.
    Incarnation(Incarnation),
    /// For [`Permitted::Defragment`].
    Defragmentation(Defragmentation),
    /// For [`Permitted::Replace`].
    Replacement(Replacement),
}

/// What an uncached read showed of a pod, after the ledger was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// There is no pod of that name.
    Gone,
    /// There is one.
    Here {
        /// Which incarnation.
        uid: PodUid,
        /// Whether it is terminating.
        terminating: bool,
    },
}

/// What such a look says of the incarnation that was permitted to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incarnation {
    /// There is no pod of this UID any more.
    Gone,
    /// It is on its way out.
    Terminating,
    /// It stands as if nothing had been asked.
    Stands,
}

impl Incarnation {
    /// What a look at the pod's name says of one incarnation.
    pub fn of(permitted: &PodUid, look: &Look) -> Self {
        match look {
            Look::Here {
                uid,
                terminating: true,
            } if uid == permitted => Self::Terminating,
            Look::Here { uid, .. } if uid == permitted => Self::Stands,
            Look::Here { .. } | Look::Gone => Self::Gone,
        }
    }
}

/// How far a defragmentation is, as its settler knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defragmentation {
    /// The settler is its holder, the call has returned, and the member serves again.
    Returned,
    /// The settler is its holder, and the call still runs or the member does not serve yet.
    Running,
    /// Somebody else holds it, or held it.
    NotMine,
}

/// How far the replacement of a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement {
    /// The new voter serves.
    Serves,
    /// The step was undone: the old member stays.
    Undone,
    /// Neither.
    Underway,
}

/// Whether a cause settles, and as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Settlement {
    /// It stays.
    Keep,
    /// What was permitted has happened and is over.
    Done,
    /// It never happened: whoever asked has been gone for longer than any request lives.
    NeverHappened,
}

/// Whether `cause` settles. `age` is the time since the settler first saw this cause's `seq`; `settle_time` is far above any API
/// request's life. What was seen has to be of the cause's own kind, otherwise it stays.
pub fn settlement(cause: &Cause, seen: Seen, age: Duration, settle_time: Duration) -> Settlement {
    match (&cause.what, seen) {
        (Permitted::Delete { .. }, Seen::Incarnation(incarnation)) => match incarnation {
            Incarnation::Gone => Settlement::Done,
            Incarnation::Stands if age >= settle_time => Settlement::NeverHappened,
            Incarnation::Stands | Incarnation::Terminating => Settlement::Keep,
        },
        (
            Permitted::Defragment {
                timeout_seconds, ..
            },
            Seen::Defragmentation(defragmentation),
        ) => {
            let longest = Duration::from_secs(*timeout_seconds).saturating_add(settle_time);
            match defragmentation {
                Defragmentation::Returned => Settlement::Done,
                Defragmentation::NotMine if age >= longest => Settlement::NeverHappened,
                Defragmentation::NotMine | Defragmentation::Running => Settlement::Keep,
            }
        }
        (Permitted::Replace, Seen::Replacement(replacement)) => match replacement {
            Replacement::Serves => Settlement::Done,
            Replacement::Undone => Settlement::NeverHappened,
            Replacement::Underway => Settlement::Keep,
        },
        (Permitted::Delete { .. } | Permitted::Defragment { .. } | Permitted::Replace, _) => {
            Settlement::Keep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_mins(2);

    fn cause(what: Permitted) -> Cause {
        Cause {
            what,
            seq: 1,
            by: "kubectl".into(),
            at: "2026-11-21T00:00:00Z".into(),
        }
    }

    fn after(what: Permitted, seen: Seen, seconds: u64) -> Settlement {
        settlement(&cause(what), seen, Duration::from_secs(seconds), SETTLE)
    }

    fn delete() -> Permitted {
        Permitted::Delete {
            uid: "u1".into(),
            rollout: false,
        }
    }

    #[test]
    fn another_incarnation_of_the_same_name_says_that_the_one_permitted_is_gone() {
        let look = |uid: &str, terminating| Look::Here {
            uid: uid.into(),
            terminating,
        };
        let of = |look: &Look| Incarnation::of(&"u1".into(), look);
        assert_eq!(of(&Look::Gone), Incarnation::Gone);
        assert_eq!(of(&look("u2", false)), Incarnation::Gone);
        assert_eq!(of(&look("u2", true)), Incarnation::Gone);
        assert_eq!(of(&look("u1", false)), Incarnation::Stands);
        assert_eq!(of(&look("u1", true)), Incarnation::Terminating);
    }

    #[test]
    fn a_delete_settles_at_once_when_its_incarnation_is_gone() {
        assert_eq!(
            after(delete(), Seen::Incarnation(Incarnation::Gone), 0),
            Settlement::Done
        );
    }

    #[test]
    fn a_delete_that_never_happened_settles_after_the_settle_time() {
        let stands = Seen::Incarnation(Incarnation::Stands);
        assert_eq!(after(delete(), stands, 119), Settlement::Keep);
        assert_eq!(after(delete(), stands, 120), Settlement::NeverHappened);
    }

    #[test]
    fn a_terminating_pod_keeps_its_grant_however_long_it_takes() {
        let terminating = Seen::Incarnation(Incarnation::Terminating);
        assert_eq!(after(delete(), terminating, 86_400), Settlement::Keep);
    }

    #[test]
    fn a_defragmentation_settles_by_its_holder_or_long_after() {
        let defragment = || Permitted::Defragment {
            holder: "gate-0".into(),
            timeout_seconds: 60,
        };
        let seen = Seen::Defragmentation;
        assert_eq!(
            after(defragment(), seen(Defragmentation::Returned), 0),
            Settlement::Done
        );
        assert_eq!(
            after(defragment(), seen(Defragmentation::Running), 86_400),
            Settlement::Keep
        );
        assert_eq!(
            after(defragment(), seen(Defragmentation::NotMine), 179),
            Settlement::Keep
        );
        assert_eq!(
            after(defragment(), seen(Defragmentation::NotMine), 180),
            Settlement::NeverHappened
        );
    }

    #[test]
    fn a_replacement_settles_when_the_new_voter_serves_or_it_was_undone() {
        let seen = Seen::Replacement;
        assert_eq!(
            after(Permitted::Replace, seen(Replacement::Serves), 0),
            Settlement::Done
        );
        assert_eq!(
            after(Permitted::Replace, seen(Replacement::Undone), 0),
            Settlement::NeverHappened
        );
        assert_eq!(
            after(Permitted::Replace, seen(Replacement::Underway), 86_400),
            Settlement::Keep
        );
    }

    #[test]
    fn a_look_at_something_else_settles_nothing() {
        let gone = Seen::Incarnation(Incarnation::Gone);
        assert_eq!(after(Permitted::Replace, gone, 86_400), Settlement::Keep);
        let serves = Seen::Replacement(Replacement::Serves);
        assert_eq!(after(delete(), serves, 86_400), Settlement::Keep);
    }
}
