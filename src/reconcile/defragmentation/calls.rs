//! The calls that make members defragment. Each is made once, and outlives the look that began it.
//!
//! A server goes on when its client gives up, and each repeated call queues another run. So a call
//! has no deadline, is never cancelled while the process lives, and is never made again. When the
//! process ends, its calls end on this side only: their grants settle by age.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::causes::causes;
use crate::etcd::AdminError;
use crate::plan::defragmentation::Call;
use crate::quorum::ClusterRef;

/// The calls of this process, at most one per cluster. A driver that is begun again finds the call
/// of the one before it.
#[derive(Debug, Default)]
pub(in crate::reconcile) struct Calls(Mutex<BTreeMap<ClusterRef, OneCall>>);

#[derive(Debug)]
struct OneCall {
    /// The sequence number of the grant.
    seq: u64,
    /// `None` while it runs.
    end: Option<CallEnd>,
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallEnd {
    /// The time that the call took.
    pub(super) took: Duration,
    /// The error, if it failed.
    pub(super) error: Option<String>,
    /// Whether the server answered. A connection that broke proves nothing.
    pub(super) answered: bool,
}

impl CallEnd {
    pub(super) fn new(answer: Result<(), AdminError>, took: Duration) -> Self {
        Self {
            took,
            answered: !matches!(answer, Err(AdminError::Unanswered(_))),
            error: answer.err().map(|error| causes(&error)),
        }
    }
}

impl Calls {
    fn all(&self) -> MutexGuard<'_, BTreeMap<ClusterRef, OneCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call under the grant with this sequence number, as the planner sees it. A call under an
    /// earlier grant counts while it runs.
    pub(super) fn state(&self, cluster: &ClusterRef, grant: Option<u64>) -> Call {
        let all = self.all();
        match all.get(cluster) {
            Some(OneCall { end: None, .. }) => Call::Running,
            Some(OneCall {
                seq,
                end: Some(end),
            }) if Some(*seq) == grant => Call::Returned { done: end.answered },
            Some(_) | None => Call::NotMade,
        }
    }

    /// The end of the call under the grant with this sequence number.
    pub(super) fn end_of(&self, cluster: &ClusterRef, grant: u64) -> Option<CallEnd> {
        let all = self.all();
        let call = all.get(cluster).filter(|call| call.seq == grant)?;
        call.end.clone()
    }

    /// Notes a call that is about to be made. Returns false if it must not be: one runs already, or
    /// one was made under this grant.
    pub(super) fn begin(&self, cluster: &ClusterRef, seq: u64) -> bool {
        let mut all = self.all();
        let known = all.get(cluster);
        let is_free = known.is_none_or(|call| call.end.is_some() && call.seq != seq);
        if is_free {
            let call = OneCall { seq, end: None };
            all.insert(cluster.clone(), call);
        }
        is_free
    }

    pub(super) fn end(&self, cluster: &ClusterRef, seq: u64, end: CallEnd) {
        let mut all = self.all();
        let call = all.get_mut(cluster).filter(|call| call.seq == seq);
        if let Some(call) = call {
            call.end = Some(end);
        }
    }

    /// Forgets a call that has returned, after its grant was settled.
    pub(super) fn forget(&self, cluster: &ClusterRef) {
        let mut all = self.all();
        if all.get(cluster).is_some_and(|call| call.end.is_some()) {
            all.remove(cluster);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::evidence::Unanswered;

    fn end(answer: Result<(), AdminError>) -> CallEnd {
        CallEnd::new(answer, Duration::from_secs(3))
    }

    #[test]
    fn a_grant_has_one_call_and_a_cluster_has_one_at_a_time() {
        let (calls, cluster) = (Calls::default(), ClusterRef::new("db", "etcd"));
        assert_eq!(calls.state(&cluster, Some(7)), Call::NotMade);
        assert!(calls.begin(&cluster, 7));
        assert!(!calls.begin(&cluster, 7), "the same again");
        assert!(!calls.begin(&cluster, 8), "another one beside it");
        calls.end(&cluster, 7, end(Ok(())));
        assert_eq!(
            calls.state(&cluster, Some(7)),
            Call::Returned { done: true }
        );
        assert!(!calls.begin(&cluster, 7), "the same once it has returned");
        assert!(calls.begin(&cluster, 8));
    }

    #[test]
    fn a_call_counts_while_it_runs_whatever_became_of_its_grant() {
        let (calls, cluster) = (Calls::default(), ClusterRef::new("db", "etcd"));
        assert!(calls.begin(&cluster, 7));
        for grant in [None, Some(7), Some(8)] {
            assert_eq!(calls.state(&cluster, grant), Call::Running);
        }
        calls.forget(&cluster);
        assert_eq!(calls.state(&cluster, None), Call::Running, "not forgotten");
        calls.end(&cluster, 7, end(Ok(())));
        assert_eq!(calls.state(&cluster, Some(8)), Call::NotMade);
        assert_eq!(calls.end_of(&cluster, 8), None);
        calls.forget(&cluster);
        assert_eq!(calls.state(&cluster, Some(7)), Call::NotMade);
    }

    #[test]
    fn a_broken_connection_does_not_say_that_the_server_is_done() {
        let broken = end(Err(AdminError::Unanswered(Unanswered::Deadline)));
        assert!(!broken.answered && broken.error.is_some());
        let refused = end(Err(AdminError::Refused("no space left on device".into())));
        assert!(refused.answered && refused.error.is_some());
        assert!(end(Ok(())).answered);
    }
}
