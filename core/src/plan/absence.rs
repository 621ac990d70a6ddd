//! Members that are unavailable, and how many may be.

use std::fmt;

use super::state::State;
use crate::quorum::PodName;

/// A member that does not serve or has no pod. `Display` is a clause: "etcd-main-0 has no pod".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    /// The name of the member's pod.
    pub pod: PodName,
    /// The state of the member.
    pub state: State,
}

/// The number of unavailable members beside the number that may be unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
