//! The data of a member: its revision, and the hash of its keys. Where authentication is on, etcd
//! answers the second only to the user `root`.

use etcd_client::Client;
use futures::FutureExt as _;
use tokio::time::Instant;

use super::admin::{Admin, AdminError};
use super::endpoint::Endpoint;
use crate::quorum::DataHash;

impl Admin {
    /// The latest revision that the member at `endpoint` has applied.
    pub async fn revision(
        &self,
        endpoint: &Endpoint,
        deadline: Instant,
    ) -> Result<i64, AdminError> {
        let call = |mut client: Client| {
            async move {
                let status = client.status().await?;
                Ok(status.header().map(etcd_client::ResponseHeader::revision))
            }
            .boxed()
        };
        let revision = self.in_time(endpoint, deadline, call).await?;
        revision.ok_or_else(|| AdminError::Refused("an answer without a header".to_owned()))
    }

    /// The hash of the keys of the member at `endpoint` up to `revision`. The member reads all.
    pub async fn data_hash(
        &self,
        endpoint: &Endpoint,
        revision: i64,
        deadline: Instant,
    ) -> Result<DataHash, AdminError> {
        let call = move |mut client: Client| {
            async move {
                let answer = client.hash_kv(revision).await?;
                Ok(DataHash {
                    hash: answer.hash(),
                    compacted: answer.compact_version(),
                })
            }
            .boxed()
        };
        self.in_time(endpoint, deadline, call).await
    }
}
