//! The limit on unavailable members: `maxUnavailable` as in KEP-961, with headroom as a further
//! limit.
//!
//! As in KEP-961 a percentage is rounded down, at least one member may be unavailable, and never
//! more than there are pods above the partition. In addition, [`decide()`](crate::quorum::decide())
//! refuses every step that would leave no majority.

/// A number or a percentage of members.
///
/// ```
/// use quorumgate_core::plan::MaxUnavailable;
///
/// let (replicas, partition) = (5, 0);
/// assert_eq!(MaxUnavailable::Percent(50).limit(replicas, partition), 2);
/// assert_eq!(MaxUnavailable::Percent(10).limit(replicas, partition), 1);
/// assert_eq!(MaxUnavailable::Members(3).limit(replicas, 4), 1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxUnavailable {
    /// A number of members.
    Members(u32),
    /// A percentage of `spec.replicas`.
    Percent(u32),
}

impl MaxUnavailable {
    /// The limit for a StatefulSet of `replicas`, of which the lowest `partition` ordinals keep
    /// their revision.
    pub fn limit(self, replicas: u32, partition: u32) -> u32 {
        let asked = match self {
            Self::Members(members) => members,
            Self::Percent(percent) => {
                let share = u64::from(replicas) * u64::from(percent) / 100;
                u32::try_from(share).unwrap_or(u32::MAX)
            }
        };
        asked.min(replicas.saturating_sub(partition)).max(1)
    }
}

/// The number of unavailable members beside the number that may be unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[display("{out} out, at most {limit} may be")]
pub struct Unavailability {
    /// The number of members that do not serve, have no pod, or have a grant.
    pub out: u32,
    /// The limit that `maxUnavailable` sets.
    pub limit: u32,
}

impl Unavailability {
    /// Whether one more member may go.
    pub(super) fn has_room(self) -> bool {
        self.out < self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::MaxUnavailable::{Members, Percent};
    use super::Unavailability;

    #[test]
    fn one_more_may_go_below_the_limit_only() {
        let room = [0, 1, 2].map(|out| Unavailability { out, limit: 1 }.has_room());
        assert_eq!(room, [true, false, false]);
    }

    #[test]
    fn a_percentage_is_rounded_down() {
        assert_eq!(Percent(50).limit(5, 0), 2);
        assert_eq!(Percent(34).limit(3, 0), 1);
        assert_eq!(Percent(99).limit(7, 0), 6);
        assert_eq!(Percent(100).limit(5, 0), 5);
    }

    #[test]
    fn at_least_one_may_go() {
        assert_eq!(Percent(1).limit(3, 0), 1);
        assert_eq!(Members(0).limit(3, 0), 1);
        assert_eq!(Members(2).limit(3, 3), 1);
        assert_eq!(Members(1).limit(0, 0), 1);
    }

    #[test]
    fn no_more_than_there_are_replicas() {
        assert_eq!(Members(9).limit(5, 0), 5);
        assert_eq!(Percent(u32::MAX).limit(5, 0), 5);
    }

    #[test]
    fn no_more_than_the_partition_stages() {
        assert_eq!(Members(4).limit(5, 3), 2, "fewer staged than may be out");
        assert_eq!(Members(2).limit(5, 3), 2, "as many staged as may be out");
        assert_eq!(Members(2).limit(5, 1), 2, "more staged than may be out");
        assert_eq!(Members(9).limit(5, 3), 2, "more than there are replicas");
    }
}
