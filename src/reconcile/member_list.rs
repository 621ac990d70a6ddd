//! Changes of etcd's member list, asked of the voters that serve.

use std::time::Duration;

use tokio::time::Instant;

use super::leadership;
use super::look::{Look, ReconcileError};
use super::operation::{Applied, OperationContext, Permission};
use crate::causes::causes;
use crate::etcd::{AdminError, Endpoint};
use crate::quorum::evidence::Unanswered;
use crate::quorum::{MemberId, PodName};

/// The time limit of one call.
pub(super) const CALL: Duration = Duration::from_secs(5);

/// The time for which etcd is not asked again after it refused.
const AFTER_REFUSAL: Duration = Duration::from_mins(10);

/// The calls that etcd refused a short time ago, because the gate's user may not.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    leadership_stays_until: Option<Instant>,
    /// The time until which the member list is not changed, and etcd's words.
    members_stay: Option<(Instant, String)>,
}

impl Refusals {
    /// Whether leadership is not moved now.
    pub(super) fn leadership_stays(&self, now: Instant) -> bool {
        self.leadership_stays_until.is_some_and(|until| now < until)
    }

    /// The words with which etcd refused to change the member list, if that is not tried now.
    pub(super) fn members_stay(&self, now: Instant) -> Option<&str> {
        let stay = self.members_stay.as_ref();
        let (_, because) = stay.filter(|(until, _)| now < *until)?;
        Some(because)
    }

    /// Removes the member from etcd.
    pub(super) async fn remove(
        &mut self,
        context: &OperationContext<'_>,
        pod: &PodName,
        id: MemberId,
        permission: Option<Permission>,
    ) -> Applied {
        let now = context.run.clock.instant();
        if permission.is_none_or(|permission| now >= permission.until) {
            return Applied::Failed("there was no time left".to_owned());
        }
        let admin = context.run.judge.admin();
        let removed = any_of(others(context.look, pod), |voter| {
            admin.remove_member(voter, id, now + CALL)
        });
        self.noted(removed.await, now)
    }

    /// Moves leadership away from the member.
    pub(super) async fn move_leader(
        &mut self,
        context: &OperationContext<'_>,
        pod: &PodName,
        to: MemberId,
    ) -> Result<Applied, ReconcileError> {
        let Some(moved) = leadership::move_leader(context, pod, to).await? else {
            return Ok(Applied::Deferred);
        };
        if let Err(AdminError::PermissionDenied(_)) = moved {
            self.leadership_stays_until = Some(context.run.clock.instant() + AFTER_REFUSAL);
        }
        Ok(asked(moved))
    }

    /// The end of a change of the member list, with note of a refusal.
    pub(super) fn noted(&mut self, answer: Result<(), AdminError>, now: Instant) -> Applied {
        if let Err(error @ AdminError::PermissionDenied(_)) = &answer {
            self.members_stay = Some((now + AFTER_REFUSAL, causes(error)));
        }
        asked(answer)
    }
}

/// The endpoints of the voters that serve, without the member in this pod. The one that leads comes
/// first.
pub(super) fn others<'a>(look: &'a Look, pod: &PodName) -> Vec<&'a Endpoint> {
    let serving = look.snapshot.members.iter();
    let mut serving: Vec<_> = serving
        .filter(|member| member.serves_quorum() && member.pod_name() != Some(pod))
        .collect();
    serving.sort_by_key(|member| !member.leader);
    let endpoints = serving.into_iter();
    endpoints
        .filter_map(|member| look.view.endpoint_of(member.pod_name()?))
        .collect()
}

/// Asks one voter after the other for a change of the members, until one does not refuse.
///
/// etcd refuses with "unhealthy cluster" by what the asked voter alone knows of its connections. A
/// voter may take another one for unconnected as long as it runs, although both serve: a message
/// failed after the streams between them were up again, and nothing else marks a peer as active.
pub(super) async fn any_of<E, F>(voters: Vec<E>, ask: impl Fn(E) -> F) -> Result<(), AdminError>
where
    F: Future<Output = Result<(), AdminError>>,
{
    let mut answer = Err(AdminError::Unanswered(Unanswered::NotAsked));
    for voter in voters {
        answer = ask(voter).await;
        if !matches!(answer, Err(AdminError::Refused(_))) {
            break;
        }
    }
    answer
}

/// The end of a call of etcd.
pub(super) fn asked(answer: Result<(), AdminError>) -> Applied {
    match answer {
        Ok(()) => Applied::Done,
        Err(AdminError::Unanswered(Unanswered::NotAsked)) => {
            Applied::Failed("no other voter serves".to_owned())
        }
        Err(error) => Applied::Failed(causes(&error)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Asks three voters who answer like this. Returns the answer, and the number of those asked.
    async fn asked(
        answers: [fn() -> Result<(), AdminError>; 3],
    ) -> (Result<(), AdminError>, usize) {
        let count = Mutex::new(0);
        let answer = any_of(answers.to_vec(), async |answer| {
            *count.lock().unwrap() += 1;
            answer()
        });
        (answer.await, count.into_inner().unwrap())
    }

    fn refuses() -> Result<(), AdminError> {
        Err(AdminError::Refused("unhealthy cluster".to_owned()))
    }

    fn is_silent() -> Result<(), AdminError> {
        Err(AdminError::Unanswered(Unanswered::Deadline))
    }

    #[tokio::test]
    async fn a_voter_that_takes_another_for_unconnected_is_not_the_only_one_that_is_asked() {
        assert_eq!(asked([refuses, || Ok(()), refuses]).await, (Ok(()), 2));
        assert_eq!(asked([refuses; 3]).await, (refuses(), 3));
    }

    #[tokio::test]
    async fn a_change_that_may_have_been_made_is_not_asked_for_again() {
        let silent = [is_silent, refuses, || Ok(())];
        assert_eq!(asked(silent).await, (is_silent(), 1));
        assert_eq!(asked([|| Ok(()), refuses, refuses]).await, (Ok(()), 1));
    }
}
