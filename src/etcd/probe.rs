//! A round of probes: every member at once, under one deadline, with each failure kept.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::future::{join, join_all};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;
use tracing::field::Empty;

use super::ask::Member;
use super::connect::{Age, Connections};
use super::connection::serves_tls;
use super::endpoint::Endpoint;
use super::failure::{CallFailure, Failure};
use super::obstacle::Obstacle;
use super::time_limit::{LatencySample, TimeLimit};
use crate::clock::Clock;
use crate::quorum::ClusterId;
use crate::quorum::evidence::{ListedMember, Probe, Round, Status, Unanswered};
use crate::telemetry::traces::step;

/// Probes etcd members. Cheap to clone; clones share connections.
#[derive(Debug, Clone)]
pub struct Prober {
    connections: Connections,
    pub(super) clock: Clock,
}

/// A member that was reached, and its status.
struct Reached {
    member: Member,
    status: Result<Status, Unanswered>,
}

/// The answers of a member after its status.
struct ReadAndList {
    read: Result<(), Unanswered>,
    members: Result<Vec<ListedMember>, Unanswered>,
}

/// The points in time that bound the rest of a probe.
#[derive(Clone, Copy)]
struct TimeLimits {
    halfway: Instant,
    deadline: Instant,
}

impl Prober {
    /// A prober that uses these connections.
    pub fn new(connections: Connections, clock: Clock) -> Self {
        Self { connections, clock }
    }

    /// The same prober for somebody who may not come again soon, see [`Self::leave`].
    #[must_use]
    pub fn in_passing(&self) -> Self {
        Self {
            connections: self.connections.in_passing(),
            clock: self.clock.clone(),
        }
    }

    /// Drops the connections to these endpoints that were used in passing only, unless they will be
    /// used again before they would be dropped anyway.
    pub fn leave(&self, endpoints: &[Endpoint], next_use: Duration) {
        self.connections.leave(endpoints, next_use);
    }

    /// Probes every endpoint at once; a member that has not answered by `deadline` counts as
    /// unanswered. Returns one probe per endpoint, in the same order. A slow member does not delay
    /// the probes of others.
    pub async fn round(&self, endpoints: &[Endpoint], deadline: Instant) -> Round {
        let probes = endpoints
            .iter()
            .map(|endpoint| self.probe(endpoint, deadline));
        let probes = join_all(probes).await;
        Round { probes }
    }

    /// Like [`Prober::round`], within the cluster's own time limit but never beyond `latest`. The
    /// latency of this round adjusts the time limit of the next.
    pub async fn round_within(
        &self,
        endpoints: &[Endpoint],
        limit: &TimeLimit,
        latest: Instant,
    ) -> Round {
        let start = self.clock.instant();
        let deadline = latest.min(start + limit.timeout());
        let probes = endpoints.iter().map(|endpoint| async {
            let address = &*endpoint.address;
            let span = step!("member", server.address = address, answer = Empty);
            let probe = Box::pin(self.probe(endpoint, deadline));
            let probe = probe.instrument(span.clone()).await;
            span.record("answer", probe.failure().map_or("ok", Into::into));
            let took = self.clock.instant().saturating_duration_since(start);
            (sample(&probe, took), probe)
        });
        let (samples, probes): (Vec<_>, Vec<_>) = join_all(probes).await.into_iter().unzip();
        limit.learn(&samples);
        Round { probes }
    }

    /// Asks for the status of a member over a connection of its own, which is closed afterwards.
    /// Any answer of etcd counts, whatever it thinks of the asker. Nobody logs in. The answer has
    /// the cluster id, if etcd says it.
    pub async fn try_out(
        &self,
        endpoint: &Endpoint,
        deadline: Instant,
    ) -> Result<Option<ClusterId>, Failure> {
        let trying = timeout_at(deadline, Box::pin(self.reach_once(endpoint)));
        trying.await.unwrap_or(Err(Unanswered::Deadline.into()))
    }

    async fn reach_once(&self, endpoint: &Endpoint) -> Result<Option<ClusterId>, Failure> {
        let connection = self
            .connections
            .open(endpoint, &AtomicBool::new(false))
            .await?;
        let connection = Arc::new(connection);
        let member = Member::over(Arc::clone(&connection)).await?;
        let failure = match member.status_once().await {
            Ok(status) => return Ok(Some(status.cluster_id)),
            Err(failure) => failure,
        };
        match failure {
            CallFailure::Permission(_)
            | CallFailure::NotAdmitted(_)
            | CallFailure::NoLeader
            | CallFailure::LeaderChanged
            | CallFailure::Learner => Ok(None),
            CallFailure::Transport(_) | CallFailure::Answered(_) => {
                let may_serve_tls = connection.is_unheard();
                if may_serve_tls && serves_tls(&endpoint.address).await {
                    return Err(Obstacle::ServesTls.into());
                }
                Err(connection.cause(failure))
            }
        }
    }

    pub(super) async fn probe(&self, endpoint: &Endpoint, deadline: Instant) -> Probe {
        let target = endpoint.target.clone();
        // Boxed, since handshakes and calls make large futures.
        let accepted = AtomicBool::default();
        let reaching = within(deadline, Box::pin(self.reach(endpoint, &accepted)));
        let Reached { member, status } = match reaching.await {
            Ok(reached) => reached,
            Err(why) => {
                let why = match why {
                    Unanswered::Deadline if accepted.into_inner() => Unanswered::Mute,
                    why => why,
                };
                // A status costs etcd nothing. If not even that came, the path may be dead, so the
                // next round opens a new connection.
                self.connections.forget(&target);
                return Probe::unanswered(target, why);
            }
        };
        let limits = TimeLimits {
            halfway: self.halfway_to(deadline),
            deadline,
        };
        let answers = prove(&member, &status, limits).await;
        Probe {
            target,
            status,
            read: answers.read,
            members: answers.members,
        }
    }

    fn halfway_to(&self, deadline: Instant) -> Instant {
        let now = self.clock.instant();
        now + deadline.saturating_duration_since(now) / 2
    }

    /// Connects and asks for the status. A kept connection may have broken unnoticed, for example
    /// when the member restarted. It is replaced once, so that its failure is not taken for the
    /// member's.
    async fn reach(
        &self,
        endpoint: &Endpoint,
        accepted: &AtomicBool,
    ) -> Result<Reached, Unanswered> {
        let held = self.connections.get_noting(endpoint, accepted).await?;
        let mut member = Member::over(held.connection).await?;
        match (member.status().await, held.age) {
            (Err(CallFailure::Transport(_)), Age::Kept) => {
                self.connections.forget(&endpoint.target);
                let held = self.connections.get_noting(endpoint, accepted).await?;
                let mut member = Member::over(held.connection).await?;
                let status = member.status().await;
                reached(member, status)
            }
            (status, _) => reached(member, status),
        }
    }
}

/// A refusal by etcd counts as an answer: the member is there.
fn reached(member: Member, status: Result<Status, CallFailure>) -> Result<Reached, Unanswered> {
    let status = match status {
        Ok(status) => Ok(status),
        Err(failure @ CallFailure::Transport(_)) => return Err(member.explain(failure)),
        Err(failure) => Err(failure.into()),
    };
    Ok(Reached { member, status })
}

/// Asks the questions that make sense after this status.
async fn prove(
    member: &Member,
    status: &Result<Status, Unanswered>,
    limits: TimeLimits,
) -> ReadAndList {
    match status {
        Ok(status) if status.learner => ReadAndList {
            read: Err(Unanswered::Learner),
            members: Err(Unanswered::Learner),
        },
        // The read would hang until the deadline, since the member has no leader. Its member list
        // is useful all the same.
        Ok(status) if status.leader.is_none() => ReadAndList {
            read: Err(Unanswered::NoLeader),
            members: within(limits.deadline, member.list()).await,
        },
        Ok(_) | Err(_) => read_then_list(member.read(), || member.list(), limits).await,
    }
}

/// Reads first, because a list that is asked for after the read passed is no older than the round.
/// If the read still hangs at half time, the list is asked for beside it, so that a member that
/// just lost its quorum still tells what it knows. If the read passes after that, the list is asked
/// for again.
async fn read_then_list<L>(
    read: impl Future<Output = Result<(), Unanswered>>,
    list: impl Fn() -> L,
    limits: TimeLimits,
) -> ReadAndList
where
    L: Future<Output = Result<Vec<ListedMember>, Unanswered>>,
{
    let TimeLimits { halfway, deadline } = limits;
    let read = within(deadline, read);
    tokio::pin!(read);
    if let Ok(read) = timeout_at(halfway, &mut read).await {
        let members = within(deadline, list()).await;
        return ReadAndList { read, members };
    }
    let (read, early) = join(read, within(deadline, list())).await;
    let members = match read {
        Ok(()) => within(deadline, list()).await,
        Err(_) => early,
    };
    ReadAndList { read, members }
}

async fn within<T>(
    deadline: Instant,
    asked: impl Future<Output = Result<T, Unanswered>>,
) -> Result<T, Unanswered> {
    timeout_at(deadline, asked)
        .await
        .unwrap_or(Err(Unanswered::Deadline))
}

fn sample(probe: &Probe, took: Duration) -> LatencySample {
    let silent = |why: &Unanswered| matches!(why, Unanswered::Deadline | Unanswered::Mute);
    match (&probe.status, &probe.read) {
        (Ok(status), _) if status.learner => LatencySample::Learner,
        (_, Ok(())) => LatencySample::Passed(took),
        (Err(why), _) | (Ok(_), Err(why)) if silent(why) => LatencySample::TimedOut(took),
        (_, Err(_)) => LatencySample::Failed,
    }
}

#[cfg(test)]
mod tests;
