//! The totals of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use quorumgate_testbed::control_plane::audit::AuditEvent;

use super::timeline::Timeline;
use super::verdict::hook;

/// Counts of rounds, and of the clusters in them.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) operations: usize,
    pub(super) took: Duration,
    /// For each kind of operation the number of successes and the number of attempts. An operation
    /// that was refused or had no target is no success.
    pub(super) kinds: BTreeMap<String, (usize, usize)>,
    /// The number of permissions for each reason. Permissions for pods that terminated already are
    /// left out.
    pub(super) permissions: BTreeMap<String, usize>,
    /// The number of refusals for each status code.
    pub(super) refusals: BTreeMap<u16, usize>,
    pub(super) samples: usize,
    /// The largest number of members that were out at one time because of permissions.
    pub(super) taken: usize,
    /// The number of acknowledged writes.
    pub(super) acknowledged: usize,
    pub(super) longest_gap: Duration,
}

impl Tally {
    /// The operations of a round, and the refusals among its requests.
    pub(super) fn count(timeline: &Timeline, events: &[AuditEvent]) -> Self {
        let mut refusals = BTreeMap::new();
        for event in events.iter().filter(|event| hook(event).is_some()) {
            let code = event.response_status.code;
            if code >= 400 {
                *refusals.entry(code).or_default() += 1;
            }
        }
        Self {
            operations: timeline.len(),
            kinds: timeline.kinds(),
            refusals,
            ..Self::default()
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.took += other.took;
        for (kind, (done, tried)) in other.kinds {
            let counted = self.kinds.entry(kind).or_default();
            *counted = (counted.0 + done, counted.1 + tried);
        }
        for (reason, count) in other.permissions {
            *self.permissions.entry(reason).or_default() += count;
        }
        for (code, count) in other.refusals {
            *self.refusals.entry(code).or_default() += count;
        }
        self.samples += other.samples;
        self.taken = self.taken.max(other.taken);
        self.acknowledged += other.acknowledged;
        self.longest_gap = self.longest_gap.max(other.longest_gap);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations in {:.0} s: {} permissions {:?}, refusals {:?}; {} samples, at most {} members taken at one time; \
             {} writes acknowledged, none lost, longest gap {:.1} s",
            self.operations,
            self.took.as_secs_f64(),
            self.permissions.values().sum::<usize>(),
            self.permissions,
            self.refusals,
            self.samples,
            self.taken,
            self.acknowledged,
            self.longest_gap.as_secs_f64(),
        )?;
        let kinds = self.kinds.iter();
        let kinds = kinds.map(|(kind, (done, tried))| format!("{kind} {done} of {tried}"));
        write!(f, "; {}", kinds.collect::<Vec<_>>().join(", "))
    }
}
