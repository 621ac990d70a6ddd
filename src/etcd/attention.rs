//! Detects that a member that did not serve answers differently now.
//!
//! A change only means that a whole round of probes is worth its cost. Nothing is concluded from
//! it.

use std::future::pending;
use std::time::Duration;

use futures::future::select_all;

use super::endpoint::Endpoint;
use super::probe::Prober;
use crate::quorum::evidence::{Probe, Unanswered};

/// A member that did not serve, with its last answer.
#[derive(Debug, Clone)]
pub struct WatchedMember {
    endpoint: Endpoint,
    answer: AnswerSummary,
}

/// The parts of an answer that decide whether a member serves. Indexes and sizes are left out,
/// since they change all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AnswerSummary {
    status: Result<Summary, &'static str>,
    read: Result<(), &'static str>,
}

/// The parts of a status that decide whether a member serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Summary {
    learner: bool,
    led: bool,
}

impl AnswerSummary {
    fn from_probe(probe: &Probe) -> Self {
        let summary = |learner, led| Summary { learner, led };
        // Only a new connection shows that a silent member accepts any, so that is no news.
        let why = |why: &Unanswered| match why {
            Unanswered::Mute => (&Unanswered::Deadline).into(),
            why => why.into(),
        };
        let status = probe.status.as_ref();
        let read = probe.read.as_ref();
        Self {
            status: status
                .map(|status| summary(status.learner, status.leader.is_some()))
                .map_err(why),
            read: read.copied().map_err(why),
        }
    }

    fn serves(self) -> bool {
        let votes = self.status.is_ok_and(|summary| !summary.learner);
        votes && self.read.is_ok()
    }
}

impl WatchedMember {
    /// The member with this answer; `None` if it serves, since nothing waits for it then.
    pub fn from_probe(endpoint: &Endpoint, probe: &Probe) -> Option<Self> {
        let answer = AnswerSummary::from_probe(probe);
        let endpoint = endpoint.clone();
        (!answer.serves()).then_some(Self { endpoint, answer })
    }
}

/// Whether both lists hold the same members with the same answers.
pub fn same(some: &[WatchedMember], others: &[WatchedMember]) -> bool {
    let key = |watched: &WatchedMember| (watched.endpoint.target.clone(), watched.answer);
    some.iter().map(key).eq(others.iter().map(key))
}

impl Prober {
    /// Probes each member with `pause` in between, and returns when one answers differently than
    /// before. Never returns where `members` is empty. `patience` is the time limit of one probe.
    ///
    /// Each member is probed independently: a member that hangs does not delay the news that
    /// another is back.
    pub async fn until_otherwise(
        &self,
        members: &[WatchedMember],
        pause: Duration,
        patience: Duration,
    ) {
        if members.is_empty() {
            return pending().await;
        }
        let otherwise = members.iter().map(|member| {
            let until_otherwise = async move {
                loop {
                    tokio::time::sleep(pause).await;
                    let deadline = self.clock.instant() + patience;
                    let probe = Box::pin(self.probe(&member.endpoint, deadline)).await;
                    if AnswerSummary::from_probe(&probe) != member.answer {
                        return;
                    }
                }
            };
            Box::pin(until_otherwise)
        });
        select_all(otherwise).await;
    }
}
