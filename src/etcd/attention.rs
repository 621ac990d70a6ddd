//! Attention: whether members that did not serve answer otherwise than they did, without asking anybody else anything.
//!
//! It only says that another round is worth its cost. Nothing is concluded from it.

use std::future::pending;
use std::time::Duration;

use futures::future::select_all;

use super::{Endpoint, Prober};
use crate::quorum::evidence::{Probe, Unanswered};

/// A member that did not serve, and how it answered.
#[derive(Debug, Clone)]
pub struct Watched {
    endpoint: Endpoint,
    answer: Answer,
}

/// What of an answer makes a difference to who serves. Its numbers change all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    status: Result<Stand, &'static str>,
    read: Result<(), &'static str>,
}

/// What a member says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stand {
    learner: bool,
    led: bool,
}

impl Answer {
    fn of(probe: &Probe) -> Self {
        let stand = |learner, led| Stand { learner, led };
        let why = |why: &Unanswered| why.into();
        let status = probe.status.as_ref();
        let read = probe.read.as_ref();
        Self {
            status: status
                .map(|status| stand(status.learner, status.leader.is_some()))
                .map_err(why),
            read: read.copied().map_err(why),
        }
    }

    fn serves(self) -> bool {
        let votes = self.status.is_ok_and(|stand| !stand.learner);
        votes && self.read.is_ok()
    }
}

impl Watched {
    /// The member that gave this answer; `None` where it serves: nobody waits for it.
    pub fn of(endpoint: &Endpoint, probe: &Probe) -> Option<Self> {
        let answer = Answer::of(probe);
        let endpoint = endpoint.clone();
        (!answer.serves()).then_some(Self { endpoint, answer })
    }
}

/// Whether these are the same members with the same answers.
pub fn same(some: &[Watched], others: &[Watched]) -> bool {
    let key = |watched: &Watched| (watched.endpoint.target.clone(), watched.answer);
    some.iter().map(key).eq(others.iter().map(key))
}

impl Prober {
    /// Asks each of these members again and again, with this pause in between, and returns when one answers otherwise than it did: never,
    /// where there are none. `patience`: how long an answer may take.
    ///
    /// Each is asked by itself: one that hangs keeps nobody from seeing that another one is back.
    pub async fn until_otherwise(&self, members: &[Watched], pause: Duration, patience: Duration) {
        if members.is_empty() {
            return pending().await;
        }
        let otherwise = members.iter().map(|member| {
            let until_otherwise = async move {
                loop {
                    tokio::time::sleep(pause).await;
                    let deadline = self.clock.instant() + patience;
                    let probe = Box::pin(self.probe(&member.endpoint, deadline)).await;
                    if Answer::of(&probe) != member.answer {
                        return;
                    }
                }
            };
            Box::pin(until_otherwise)
        });
        select_all(otherwise).await;
    }
}
