//! The calls that change something in etcd. No other module makes any.

use etcd_client::Client;
use tokio::time::{Instant, timeout_at};

use super::Endpoint;
use super::connect::Connections;
use super::failure::CallFailure;
use crate::quorum::MemberId;
use crate::quorum::evidence::Unanswered;

const NOT_LEADER: &str = "etcdserver: not leader";
const BAD_TRANSFEREE: &str = "etcdserver: bad leader transferee";

/// The client for calls that change something. Cheap to clone; clones share connections with each
/// other and with the prober.
#[derive(Debug, Clone)]
pub struct Admin {
    connections: Connections,
}

/// Why a change was not made, or may not have been made.
#[derive(Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
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
        timeout_at(deadline, Box::pin(self.transfer(leader, to)))
            .await
            .unwrap_or(Err(AdminError::Unanswered(Unanswered::Deadline)))
    }

    async fn transfer(&self, leader: &Endpoint, to: MemberId) -> Result<(), AdminError> {
        let held = self
            .connections
            .get(leader)
            .await
            .map_err(AdminError::Unanswered)?;
        let client = held
            .connection
            .client()
            .await
            .map_err(AdminError::Unanswered)?;
        let mut answer = move_to(&client, to).await;
        if let Err(CallFailure::Permission(_)) = &answer
            && let Some(authenticated) = held.connection.authenticated(false).await
        {
            answer = match authenticated {
                Ok(client) => move_to(&client, to).await,
                Err(failure) => Err(failure),
            };
        }
        let Err(failure) = answer else { return Ok(()) };
        Err(match failure {
            CallFailure::Permission(text) | CallFailure::NotAdmitted(text) => {
                AdminError::PermissionDenied(text)
            }
            CallFailure::Answered(text) if text == NOT_LEADER => AdminError::NotLeader,
            CallFailure::Answered(text) if text == BAD_TRANSFEREE => AdminError::BadTransferee(to),
            CallFailure::Answered(text) => AdminError::Refused(text),
            failure @ (CallFailure::Transport(_)
            | CallFailure::NoLeader
            | CallFailure::LeaderChanged
            | CallFailure::Learner) => AdminError::Unanswered(held.connection.explain(failure)),
        })
    }
}

async fn move_to(client: &Client, to: MemberId) -> Result<(), CallFailure> {
    let answer = client.maintenance_client().move_leader(to.0).await;
    answer
        .map(drop)
        .map_err(|error| CallFailure::from_error(&error))
}
