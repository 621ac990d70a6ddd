//! The majority of voters, and the expected voters: the size that the cluster is known to have had.
//! The majority is computed from at least so many voters, so that losing members does not lower
//! it.

/// The smallest number of voters that is more than half of `voters`.
pub fn majority(voters: u32) -> u32 {
    voters / 2 + 1
}

/// The number of members as `u32`.
pub(super) fn count(members: usize) -> u32 {
    u32::try_from(members).unwrap_or(u32::MAX)
}

/// The most voters seen since `spec.replicas` last went down, never more than `spec.replicas`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpectedVoters {
    /// The most voters seen.
    pub voters: u32,
    /// The `spec.replicas` at that time.
    pub replicas: u32,
}

impl ExpectedVoters {
    /// The expected voters after `voters` were seen while `spec.replicas` was `replicas`.
    ///
    /// After a scale-in the count starts again from the voters seen now, because members leave on
    /// purpose.
    #[must_use]
    pub fn observe(self, voters: u32, replicas: u32) -> Self {
        let kept = if replicas < self.replicas {
            0
        } else {
            self.voters
        };
        Self {
            voters: kept.max(voters).min(replicas),
            replicas,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(voters: u32, replicas: u32) -> ExpectedVoters {
        ExpectedVoters { voters, replicas }
    }

    #[test]
    fn voters_that_get_lost_count_on() {
        assert_eq!(expected(5, 5).observe(3, 5), expected(5, 5));
        assert_eq!(
            expected(3, 3).observe(2, 5),
            expected(3, 5),
            "also in a scale-out"
        );
    }

    #[test]
    fn voters_that_join_count_up_to_the_replicas() {
        assert_eq!(expected(3, 5).observe(4, 5), expected(4, 5));
        assert_eq!(expected(3, 3).observe(4, 3), expected(3, 3));
    }

    #[test]
    fn when_replicas_go_down_the_count_starts_anew() {
        assert_eq!(expected(5, 5).observe(2, 3), expected(2, 3));
        assert_eq!(expected(5, 5).observe(4, 3), expected(3, 3));
    }
}
