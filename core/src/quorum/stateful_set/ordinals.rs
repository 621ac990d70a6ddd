//! The ordinals of a StatefulSet, and the ordinals that a change takes away. Both are kept as
//! ranges, so that two billion ordinals need no more memory than two.

use std::ops::Range;

use super::super::id::{Ordinal, PodName};

/// The ordinals that a StatefulSet keeps pods for: `start..start + count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ordinals {
    /// `spec.ordinals.start`. `None` if the request does not show it (a scale); the start of the
    /// stored object applies then.
    pub start: Option<u32>,
    /// `spec.replicas`.
    pub count: u32,
}

/// The ordinals that lose their pod: some below those that are kept, and some above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    below: Range<u32>,
    above: Range<u32>,
}

impl Ordinals {
    /// The ordinals that `self` has and `to` has not. `stored_start` is the start if a side shows
    /// none.
    pub fn leaving(self, to: Self, stored_start: u32) -> Leaving {
        let (old, kept) = (self.range(stored_start), to.range(stored_start));
        if kept.is_empty() {
            return Leaving {
                above: old.end..old.end,
                below: old,
            };
        }
        Leaving {
            below: old.start..old.end.min(kept.start),
            above: old.start.max(kept.end)..old.end,
        }
    }

    fn range(self, stored_start: u32) -> Range<u32> {
        let start = self.start.unwrap_or(stored_start);
        start..start.saturating_add(self.count)
    }
}

/// Whether an admitted scale-in, which took these ordinals, lets a pod go from a StatefulSet that
/// now keeps pods for `kept`.
pub fn scale_in_lets_go(taken: &[Range<u32>], Ordinal(ordinal): Ordinal, kept: Ordinals) -> bool {
    taken.iter().any(|range| range.contains(&ordinal)) && !kept.range(0).contains(&ordinal)
}

impl Leaving {
    /// The ordinals that leave as ranges, none of them empty, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u32>> {
        let ranges = [self.below.clone(), self.above.clone()];
        ranges.into_iter().filter(|range| !range.is_empty())
    }

    /// Whether no ordinal leaves.
    pub fn is_empty(&self) -> bool {
        self.below.is_empty() && self.above.is_empty()
    }

    /// Whether this ordinal leaves.
    pub fn contains(&self, Ordinal(ordinal): Ordinal) -> bool {
        self.below.contains(&ordinal) || self.above.contains(&ordinal)
    }

    /// The names of the pods of the first `most` leaving ordinals of the StatefulSet `set`.
    pub fn first_pods(&self, set: &str, most: usize) -> Vec<PodName> {
        let ordinals = self.below.clone().chain(self.above.clone()).take(most);
        ordinals.map(|ordinal| pod(set, Ordinal(ordinal))).collect()
    }
}

/// The name of the pod that the StatefulSet `set` makes for an ordinal.
pub(super) fn pod(set: &str, Ordinal(ordinal): Ordinal) -> PodName {
    PodName::new(format!("{set}-{ordinal}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordinals(start: u32, count: u32) -> Ordinals {
        Ordinals {
            start: Some(start),
            count,
        }
    }

    fn names(leaving: &Leaving) -> Vec<String> {
        let pods = leaving.first_pods("etcd", 9);
        pods.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_ordinals_that_leave_are_those_that_only_the_old_range_has() {
        let leave = |from: Ordinals, to| names(&from.leaving(to, 0));
        let nobody: [&str; 0] = [];
        assert_eq!(leave(ordinals(0, 5), ordinals(0, 3)), ["etcd-3", "etcd-4"]);
        assert_eq!(leave(ordinals(0, 3), ordinals(0, 5)), nobody);
        assert_eq!(leave(ordinals(0, 3), ordinals(1, 3)), ["etcd-0"]);
        assert_eq!(leave(ordinals(0, 2), ordinals(7, 2)), ["etcd-0", "etcd-1"]);
        assert_eq!(leave(ordinals(7, 2), ordinals(0, 2)), ["etcd-7", "etcd-8"]);
        assert_eq!(leave(ordinals(1, 4), ordinals(2, 2)), ["etcd-1", "etcd-4"]);
        assert_eq!(leave(ordinals(4, 2), ordinals(0, 0)), ["etcd-4", "etcd-5"]);
        let scale = |count| Ordinals { start: None, count };
        assert_eq!(names(&scale(5).leaving(scale(4), 10)), ["etcd-14"]);
    }

    #[test]
    fn a_scale_in_lets_the_ordinals_go_that_it_took_and_that_are_not_back() {
        let taken = [0..1, 3..5];
        let kept = ordinals(1, 2);
        for gone in [0, 3, 4] {
            assert!(scale_in_lets_go(&taken, Ordinal(gone), kept), "{gone}");
        }
        assert!(!scale_in_lets_go(&taken, Ordinal(2), kept), "it stayed");
        assert!(!scale_in_lets_go(&taken, Ordinal(5), kept), "it came later");
        assert!(
            !scale_in_lets_go(&taken, Ordinal(3), ordinals(1, 3)),
            "it is back"
        );
    }

    #[test]
    fn the_ordinals_that_leave_at_either_end_are_ranges() {
        let ranges = |from: Ordinals, to| from.leaving(to, 0).ranges().collect::<Vec<_>>();
        assert_eq!(ranges(ordinals(1, 4), ordinals(2, 2)), [1..2, 4..5]);
        assert_eq!(ranges(ordinals(0, 6), ordinals(1, 3)), [0..1, 4..6]);
        assert_eq!(ranges(ordinals(0, 3), ordinals(0, 3)), []);
    }

    #[test]
    fn whether_one_leaves_is_told_as_it_is_listed() {
        for (from, to) in [
            (ordinals(1, 4), ordinals(2, 2)),
            (ordinals(0, 3), ordinals(0, 0)),
            (ordinals(0, 3), ordinals(5, 2)),
            (ordinals(2, 1), ordinals(2, 1)),
        ] {
            let leaving = from.leaving(to, 0);
            let told: Vec<String> = (0..9)
                .map(Ordinal)
                .filter(|ordinal| leaving.contains(*ordinal))
                .map(|ordinal| pod("etcd", ordinal).to_string())
                .collect();
            assert_eq!(told, names(&leaving));
            assert_eq!(leaving.is_empty(), told.is_empty());
        }
    }

    #[test]
    fn ranges_that_end_where_numbers_do_are_still_ranges() {
        let leaving = ordinals(u32::MAX, u32::MAX).leaving(ordinals(0, 0), 0);
        assert!(leaving.is_empty());
        let leaving = ordinals(0, u32::MAX).leaving(ordinals(0, 1), 0);
        assert!(leaving.contains(Ordinal(i32::MAX.unsigned_abs())));
        assert_eq!(leaving.first_pods("etcd", 2).len(), 2);
    }
}
