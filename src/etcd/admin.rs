//! The calls that change something in etcd. No other module makes any.

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client, MemberAddOptions};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use super::connect::Connections;
use super::endpoint::Endpoint;
use super::failure::CallFailure;
use crate::quorum::MemberId;
use crate::quorum::evidence::{Alarm, AlarmKind, Unanswered};

const NOT_LEADER: &str = "etcdserver: not leader";
const BAD_TRANSFEREE: &str = "etcdserver: bad leader transferee";

/// The client for calls that change something. Cheap to clone; clones share connections with each
/// other and with the prober.
#[derive(Debug, Clone)]
pub struct Admin {
    connections: Connections,
}

/// Why a change was not made, or may not have been made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// Authentication is on, and the gate's user lacks the role `root`.
    #[error("etcd refused for lack of permission: {0}")]
    PermissionDenied(String),
    /// The member that was asked does not lead.
    #[error("the member does not lead")]
    NotLeader,
    /// The member that should lead is not a voter of this cluster.
    #[error("member {0} cannot lead")]
    BadTransferee(MemberId),
    /// etcd refused with this message.
    #[error("etcd refused: {0}")]
    Refused(String),
    /// The call got no answer. With [`Unanswered::Deadline`] etcd may still make the change.
    #[error("no answer from etcd")]
    Unanswered(#[source] Unanswered),
}

impl Admin {
    /// A client that uses these connections.
    pub fn new(connections: Connections) -> Self {
        Self { connections }
    }

    /// Moves leadership from the member at `leader`, which has to lead, to the voter `to`. On
    /// success the old leader has seen the new one (etcd's `MoveLeader` waits for that).
    pub async fn move_leader(
        &self,
        leader: &Endpoint,
        to: MemberId,
        deadline: Instant,
    ) -> Result<(), AdminError> {
        let call = move |client: Client| {
            let mut client = client.maintenance_client();
            async move { client.move_leader(to.0).await.map(drop) }.boxed()
        };
        let moved = self.in_time(leader, deadline, call).await;
        moved.map_err(|error| match error {
            AdminError::Refused(text) if text == NOT_LEADER => AdminError::NotLeader,
            AdminError::Refused(text) if text == BAD_TRANSFEREE => AdminError::BadTransferee(to),
            other => other,
        })
    }

    /// Defragments the database of the member at `endpoint`. Returns when the member has answered,
    /// however long that takes. The member goes on when this call is given up, and a repeated call
    /// makes it defragment once more.
    pub async fn defragment(&self, endpoint: &Endpoint) -> Result<(), AdminError> {
        let call = |client: Client| {
            async move { client.maintenance_client().defragment().await.map(drop) }.boxed()
        };
        self.call(endpoint, call).await
    }

    /// Disarms `alarm` through the member at `endpoint`. A CORRUPT alarm must be that of a member
    /// which was removed, or one that was raised because of such a member.
    pub async fn disarm(
        &self,
        endpoint: &Endpoint,
        alarm: Alarm,
        deadline: Instant,
    ) -> Result<(), AdminError> {
        let kind = match alarm.kind {
            AlarmKind::NoSpace => AlarmType::Nospace,
            AlarmKind::Corrupt => AlarmType::Corrupt,
        };
        let call = move |client: Client| {
            let mut options = AlarmOptions::new();
            options.with_member(alarm.member.0);
            let action = AlarmAction::Deactivate;
            let mut client = client.maintenance_client();
            async move { client.alarm(action, kind, Some(options)).await.map(drop) }.boxed()
        };
        self.in_time(endpoint, deadline, call).await
    }

    /// Removes `member` from etcd, through the member at `endpoint`. etcd may still remove it after
    /// the deadline.
    pub async fn remove_member(
        &self,
        endpoint: &Endpoint,
        member: MemberId,
        deadline: Instant,
    ) -> Result<(), AdminError> {
        let call = move |client: Client| {
            let mut client = client.cluster_client();
            async move { client.member_remove(member.0).await.map(drop) }.boxed()
        };
        self.in_time(endpoint, deadline, call).await
    }

    /// Adds a member with these peer URLs as a learner, through the member at `endpoint`.
    pub async fn add_learner(
        &self,
        endpoint: &Endpoint,
        peer_urls: &[String],
        deadline: Instant,
    ) -> Result<(), AdminError> {
        let call = |client: Client| {
            let mut client = client.cluster_client();
            let (urls, options) = (
                peer_urls.to_vec(),
                MemberAddOptions::new().with_is_learner(),
            );
            async move { client.member_add(urls, Some(options)).await.map(drop) }.boxed()
        };
        self.in_time(endpoint, deadline, call).await
    }

    /// Promotes the learner `member` to a voter, through the member at `endpoint`.
    pub async fn promote(
        &self,
        endpoint: &Endpoint,
        member: MemberId,
        deadline: Instant,
    ) -> Result<(), AdminError> {
        let call = move |client: Client| {
            let mut client = client.cluster_client();
            async move { client.member_promote(member.0).await.map(drop) }.boxed()
        };
        self.in_time(endpoint, deadline, call).await
    }

    pub(super) async fn in_time<T>(
        &self,
        endpoint: &Endpoint,
        deadline: Instant,
        call: impl Fn(Client) -> BoxFuture<'static, Result<T, etcd_client::Error>>,
    ) -> Result<T, AdminError> {
        timeout_at(deadline, Box::pin(self.call(endpoint, call)))
            .await
            .unwrap_or(Err(AdminError::Unanswered(Unanswered::Deadline)))
    }

    /// Makes a call, and makes it again as the gate's user where the member refused it without one.
    async fn call<T>(
        &self,
        endpoint: &Endpoint,
        call: impl Fn(Client) -> BoxFuture<'static, Result<T, etcd_client::Error>>,
    ) -> Result<T, AdminError> {
        let held = self
            .connections
            .get(endpoint)
            .await
            .map_err(AdminError::Unanswered)?;
        let client = held
            .connection
            .client()
            .await
            .map_err(AdminError::Unanswered)?;
        let answer = call(client).await;
        let mut answer = answer.map_err(|error| CallFailure::from_error(&error));
        if let Err(CallFailure::Permission(_)) = &answer
            && let Some(authenticated) = held.connection.authenticated(false).await
        {
            answer = match authenticated {
                Ok(client) => {
                    let answer = call(client).await;
                    answer.map_err(|error| CallFailure::from_error(&error))
                }
                Err(failure) => Err(failure),
            };
        }
        answer.map_err(|failure| match failure {
            CallFailure::Permission(text) | CallFailure::NotAdmitted(text) => {
                AdminError::PermissionDenied(text)
            }
            CallFailure::Answered(text) => AdminError::Refused(text),
            failure @ (CallFailure::Transport(_)
            | CallFailure::NoLeader
            | CallFailure::LeaderChanged
            | CallFailure::Learner) => AdminError::Unanswered(held.connection.explain(failure)),
        })
    }
}
