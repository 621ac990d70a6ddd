//! Who is out, so that others stay.

use std::fmt;

use super::state::State;
use crate::quorum::PodName;

/// A member that does not serve, or has no pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    /// Its pod.
    pub pod: PodName,
    /// What has become of it.
    pub state: State,
}

/// How many members are out, of how many that may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailability {
    /// Members that do not serve, have no pod, or have a grant.
    pub out: u32,
    /// What `maxUnavailable` comes to.
    pub limit: u32,
}

impl Unavailability {
    /// Whether one more may go.
    pub(super) fn has_room(self) -> bool {
        self.out < self.limit
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pod, self.state)
    }
}

impl fmt::Display for Unavailability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} out, at most {} may be", self.out, self.limit)
    }
}
