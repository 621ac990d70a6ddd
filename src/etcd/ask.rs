//! The three questions a probe asks of one member. None of them changes anything, and none makes etcd propose anything.

use std::sync::Arc;

use etcd_client::{Client, GetOptions, StatusResponse};

use super::alarm::alarms;
use super::connection::Connection;
use super::failure::CallFailure;
use crate::quorum::evidence::{ListedMember, Status, Unanswered};
use crate::quorum::{ClusterId, MemberId};

/// The key that is read; the one that `etcdctl endpoint health` reads. It need not exist.
const KEY: &str = "health";

/// So many members no cluster has: each takes part in every write, and etcd's own advice ends at seven. Whoever lists more is no etcd, and all that is
/// made of a list would have to be made of them.
const MOST_LISTED: usize = 128;

/// One member, over one connection.
pub(super) struct Member {
    connection: Arc<Connection>,
    client: Client,
}

impl Member {
    pub(super) async fn over(connection: Arc<Connection>) -> Result<Self, Unanswered> {
        let client = connection.client().await?;
        Ok(Self { connection, client })
    }

    /// `Maintenance.Status`. With authentication on it needs a user; any client certificate names one. Where it takes a password, that is shown
    /// when the member asks for it, and everything after that is asked as this user.
    pub(super) async fn status(&mut self) -> Result<Status, CallFailure> {
        let mut answer = self.status_once().await;
        for stale in [false, true] {
            let Err(CallFailure::Permission(_)) = &answer else {
                break;
            };
            match self.connection.admitted(stale).await {
                None => break,
                Some(admitted) => self.client = admitted?,
            }
            answer = self.status_once().await;
        }
        answer
    }

    async fn status_once(&self) -> Result<Status, CallFailure> {
        let answer = self.client.maintenance_client().status().await;
        let answer = answer.map_err(|error| CallFailure::of(&error))?;
        status(&answer).ok_or_else(|| CallFailure::Answered("a status without header".to_owned()))
    }

    /// A linearizable read.
    ///
    /// etcd first confirms with a majority how far it has to have applied, and only then looks whether the user may read: its
    /// "permission denied" proves the same as an answer.
    pub(super) async fn read(&self) -> Result<(), Unanswered> {
        match self.read_once().await {
            // It is what etcd answers to whoever waits while a new leader comes: now that it is there, it answers.
            Err(CallFailure::LeaderChanged) => self.read_once().await,
            answer => answer,
        }
        .map_err(|failure| self.connection.explain(failure))
    }

    async fn read_once(&self) -> Result<(), CallFailure> {
        let options = GetOptions::new().with_limit(1).with_count_only();
        let answer = self.client.kv_client().get(KEY, Some(options)).await;
        match answer.map_err(|error| CallFailure::of(&error)) {
            Ok(_) | Err(CallFailure::Permission(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// The member list as this member has it (the client library asks for it with `linearizable` unset).
    pub(super) async fn list(&self) -> Result<Vec<ListedMember>, Unanswered> {
        let answer = self.client.cluster_client().member_list().await;
        let answer = answer.map_err(|error| self.connection.explain(CallFailure::of(&error)))?;
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
        learner: answer.is_learner(),
        alarms: alarms(answer.errors()),
        db_size: size(answer.db_size()),
        db_size_in_use: size(answer.raft_used_db_size()),
        db_size_quota: Some(size(answer.db_size_quota())).filter(|quota| *quota != 0),
        version: answer.version().to_owned(),
    })
}

/// etcd counts bytes in signed numbers, and a negative quota means none.
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
