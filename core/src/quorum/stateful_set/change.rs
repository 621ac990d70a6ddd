//! The pods that a request about a StatefulSet takes away.

use super::super::verdict::Waiver;
use super::ordinals::Ordinals;

/// A change that takes members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The StatefulSet is deleted, and its pods with it.
    Delete,
    /// The ordinals that the StatefulSet keeps pods for change, and some leave.
    Resize {
        /// The ordinals before the change.
        from: Ordinals,
        /// The ordinals after the change.
        to: Ordinals,
    },
}

/// A DELETE of a StatefulSet: the options of the request, and the state of the object.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delete<'a> {
    /// `orphanDependents` of the options.
    pub orphan_dependents: Option<bool>,
    /// `propagationPolicy` of the options.
    pub propagation_policy: Option<&'a str>,
    /// Whether the object has the finalizer `orphan`.
    pub has_orphan_finalizer: bool,
    /// Whether the object is terminating already.
    pub is_terminating: bool,
}

impl Change {
    /// The effect of a DELETE, or the reason why it takes nothing.
    pub fn by_delete(delete: &Delete<'_>) -> Result<Self, Waiver> {
        if delete.orphans() {
            return Err(Waiver::Orphans);
        }
        // The delete was admitted when it began. One that stops to orphan its pods was not.
        if delete.is_terminating && !delete.has_orphan_finalizer {
            return Err(Waiver::Terminating);
        }
        Ok(Self::Delete)
    }

    /// The effect of a write of a terminating StatefulSet that loses the finalizer `orphan`:
    /// the pods that were to stay go with it.
    pub fn by_finalizers(before: &Delete<'_>, orphans_after: bool) -> Option<Self> {
        let ends = before.is_terminating && before.has_orphan_finalizer && !orphans_after;
        ends.then_some(Self::Delete)
    }

    /// The effect of a write that changes the ordinals, or the reason why it takes nothing.
    pub fn by_write(from: Ordinals, to: Ordinals) -> Result<Self, Waiver> {
        if from.leaving(to, 0).is_empty() {
            return Err(Waiver::NothingLeaves);
        }
        Ok(Self::Resize { from, to })
    }
}

impl Delete<'_> {
    /// Whether the pods stay. The order is that of the API server's registry: the explicit option,
    /// the policy, the finalizers of the object.
    fn orphans(&self) -> bool {
        match (self.orphan_dependents, self.propagation_policy) {
            (Some(orphan), _) => orphan,
            (None, Some(policy)) => policy == "Orphan",
            (None, None) => self.has_orphan_finalizer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordinals(count: u32) -> Ordinals {
        Ordinals { start: None, count }
    }

    #[test]
    fn what_becomes_of_the_pods_is_told_as_the_api_server_does() {
        for (orphan_dependents, propagation_policy, has_orphan_finalizer, orphaned) in [
            (None, None, false, false),
            (None, None, true, true),
            (None, Some("Orphan"), false, true),
            (None, Some("Background"), true, false),
            (Some(true), None, false, true),
            (Some(false), None, true, false),
        ] {
            let delete = Delete {
                orphan_dependents,
                propagation_policy,
                has_orphan_finalizer,
                is_terminating: false,
            };
            assert_eq!(delete.orphans(), orphaned, "{delete:?}");
            let expected = if orphaned {
                Err(Waiver::Orphans)
            } else {
                Ok(Change::Delete)
            };
            assert_eq!(Change::by_delete(&delete), expected);
        }
    }

    #[test]
    fn a_delete_that_was_admitted_goes_on_and_one_that_stops_to_orphan_is_new() {
        let again = Delete {
            is_terminating: true,
            ..Delete::default()
        };
        assert_eq!(Change::by_delete(&again), Err(Waiver::Terminating));
        let no_longer_orphans = Delete {
            propagation_policy: Some("Background"),
            has_orphan_finalizer: true,
            ..again
        };
        assert_eq!(Change::by_delete(&no_longer_orphans), Ok(Change::Delete));
    }

    #[test]
    fn a_write_takes_pods_where_it_ends_the_orphaning_of_them() {
        let delete = |is_terminating, has_orphan_finalizer| Delete {
            has_orphan_finalizer,
            is_terminating,
            ..Delete::default()
        };
        let orphaning = delete(true, true);
        assert_eq!(
            Change::by_finalizers(&orphaning, false),
            Some(Change::Delete)
        );
        for (before, after) in [
            (orphaning, true),
            (delete(false, true), false),
            (delete(true, false), false),
        ] {
            assert_eq!(Change::by_finalizers(&before, after), None, "{before:?}");
        }
    }

    #[test]
    fn a_write_takes_pods_where_an_ordinal_leaves() {
        let (from, to) = (ordinals(5), ordinals(3));
        assert_eq!(Change::by_write(from, to), Ok(Change::Resize { from, to }));
        assert_eq!(Change::by_write(to, from), Err(Waiver::NothingLeaves));
        assert_eq!(Change::by_write(to, to), Err(Waiver::NothingLeaves));
    }
}
