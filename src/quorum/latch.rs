//! The latch: how large the cluster is known to be, so that the majority never shrinks with the members it has lost.

/// The most voters seen since `spec.replicas` last went down, never above `spec.replicas`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latch {
    /// The most voters seen.
    pub voters: u32,
    /// The `spec.replicas` under which they were seen.
    pub replicas: u32,
}

impl Latch {
    /// The latch after `voters` were seen under `replicas`.
    ///
    /// When `spec.replicas` went down the count starts anew from the voters seen now: members leave on purpose.
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
