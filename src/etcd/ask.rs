//! The three questions of a probe to one member: `Status`, a linearizable read and `MemberList`.
//! None changes anything, and none is a raft proposal.

use std::sync::Arc;

use etcd_client::{Client, GetOptions, StatusResponse};

use super::alarm::alarms;
use super::connection::Connection;
use super::failure::CallFailure;
use crate::quorum::evidence::{ListedMember, Status, Unanswered};
use crate::quorum::{ClusterId, MemberId};

/// The key to read, the same that `etcdctl endpoint health` reads. It need not exist.
const KEY: &str = "health";

/// The longest member list that is accepted. No etcd cluster is that large: every member takes part
/// in every write, and etcd advises at most seven. A longer list comes from something other than
/// etcd, and would cost work for each entry.
const MOST_LISTED: usize = 128;

/// A member that is asked over one connection.
pub(super) struct Member {
    connection: Arc<Connection>,
    client: Client,
}

impl Member {
    pub(super) async fn over(connection: Arc<Connection>) -> Result<Self, Unanswered> {
        let client = connection.client().await?;
        Ok(Self { connection, client })
    }

    /// Asks `Maintenance.Status`. With authentication on, etcd wants a user here; a client
    /// certificate names one by its common name. A password is used only once the member has
    /// refused the call without it; later calls are made as that user too.
    pub(super) async fn status(&mut self) -> Result<Status, CallFailure> {
        let mut answer = self.status_once().await;
        for stale in [false, true] {
            let Err(CallFailure::Permission(_)) = &answer else {
                break;
            };
            match self.connection.authenticated(stale).await {
                None => break,
                Some(authenticated) => self.client = authenticated?,
            }
            answer = self.status_once().await;
        }
        answer
    }

    /// Asks for the status once, and logs nobody in.
    pub(super) async fn status_once(&self) -> Result<Status, CallFailure> {
        let answer = self.client.maintenance_client().status().await;
        let answer = answer.map_err(|error| CallFailure::from_error(&error))?;
        status(&answer).ok_or_else(|| CallFailure::Answered("a status without header".to_owned()))
    }

    /// Makes a linearizable read.
    ///
    /// etcd confirms the read index with a majority before it checks the user's permission, so
    /// "permission denied" proves contact with a majority as well as an answer does.
    pub(super) async fn read(&self) -> Result<(), Unanswered> {
        match self.read_once().await {
            // etcd answers this to reads that waited while the leader changed. The new leader is
            // there now, so a second read gets an answer.
            Err(CallFailure::LeaderChanged) => self.read_once().await,
            answer => answer,
        }
        .map_err(|failure| self.connection.explain(failure))
    }

    async fn read_once(&self) -> Result<(), CallFailure> {
        let options = GetOptions::new().with_limit(1).with_count_only();
        let answer = self.client.kv_client().get(KEY, Some(options)).await;
        match answer.map_err(|error| CallFailure::from_error(&error)) {
            Ok(_) | Err(CallFailure::Permission(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Asks for the member list as this member has it: the client library leaves `linearizable`
    /// unset.
    pub(super) async fn list(&self) -> Result<Vec<ListedMember>, Unanswered> {
        let answer = self.client.cluster_client().member_list().await;
        let answer =
            answer.map_err(|error| self.connection.explain(CallFailure::from_error(&error)))?;
        let members = answer.members();
        if members.len() > MOST_LISTED {
            let text = format!("it lists {} members, as no etcd does", members.len());
            return Err(Unanswered::Other(text));
        }
        Ok(members.iter().map(listed).collect())
    }

    pub(super) fn explain(&self, failure: CallFailure) -> Unanswered {
        self.connection.explain(failure)
    }
}

fn status(answer: &StatusResponse) -> Option<Status> {
    let header = answer.header()?;
    Some(Status {
        cluster_id: ClusterId(header.cluster_id()),
        member_id: MemberId(header.member_id()),
        leader: Some(answer.leader()).filter(|id| *id != 0).map(MemberId),
        term: answer.raft_term(),
        raft_index: answer.raft_index(),
        applied_index: answer.raft_applied_index(),
        revision: size(header.revision()),
        learner: answer.is_learner(),
        alarms: alarms(answer.errors()),
        db_size: size(answer.db_size()),
        db_size_in_use: size(answer.raft_used_db_size()),
        db_size_quota: Some(size(answer.db_size_quota())).filter(|quota| *quota != 0),
        version: answer.version().to_owned(),
    })
}

/// Sizes are signed in etcd's API, and a negative quota means none.
fn size(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or_default()
}

fn listed(member: &etcd_client::Member) -> ListedMember {
    ListedMember {
        id: MemberId(member.id()),
        name: member.name().to_owned(),
        learner: member.is_learner(),
        peer_urls: member.peer_urls().to_vec(),
        client_urls: member.client_urls().to_vec(),
    }
}
