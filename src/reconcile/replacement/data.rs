//! The comparison of the members' data while a CORRUPT alarm stands.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Driver;
use crate::causes::causes;
use crate::etcd::{AdminError, Endpoint};
use crate::quorum::{Comparison, DataHash, MemberId, confirmed_list};
use crate::reconcile::look::Look;

/// The time limit for one member, which reads all its keys for the answer.
const HASH: Duration = Duration::from_secs(30);

/// The times for which a comparison counts. etcd takes no writes while the alarm stands, so a
/// result stays right; what could not be compared is tried again sooner.
const COUNTS: Duration = Duration::from_mins(1);
const AGAIN: Duration = Duration::from_secs(5);

/// A comparison, and what it was made of.
pub(super) struct Compared {
    accused: BTreeSet<MemberId>,
    voters: BTreeSet<MemberId>,
    until: Instant,
    found: Comparison,
}

impl Driver {
    /// Compares what the voters have, if a CORRUPT alarm stands.
    pub(super) async fn compare(&mut self, look: &Look) -> Comparison {
        let accused = look.snapshot.accused.clone();
        let list = confirmed_list(&look.snapshot, &look.round);
        let Some(list) = list.filter(|_| !accused.is_empty()) else {
            return Comparison::Unknown;
        };
        let voters = list.iter().filter(|listed| !listed.learner);
        let voters: BTreeSet<MemberId> = voters.map(|listed| listed.id).collect();
        let now = self.run.clock.instant();
        let known = self.compared.as_ref();
        let known = known.filter(|k| k.accused == accused && k.voters == voters && now < k.until);
        if let Some(known) = known {
            return known.found;
        }
        let found = self.ask_for_hashes(look, &voters).await;
        info!(cluster = %self.cluster, ?found, "a CORRUPT alarm stands: the data of the members was compared");
        let counts = match found {
            Comparison::Unknown => AGAIN,
            Comparison::Same | Comparison::Differs(_) | Comparison::Disagreement => COUNTS,
        };
        self.compared = Some(Compared {
            accused,
            voters,
            until: self.run.clock.instant() + counts,
            found,
        });
        found
    }

    /// Asks every voter for the hash of its keys up to the latest revision that all of them have.
    /// Releases differ in what they count, so only members of one version can be compared.
    async fn ask_for_hashes(&self, look: &Look, voters: &BTreeSet<MemberId>) -> Comparison {
        let answered = look.round.probes.iter();
        let versions: BTreeSet<&str> = answered
            .filter_map(|probe| Some(probe.status.as_ref().ok()?.version.as_str()))
            .collect();
        let endpoint = |id: &MemberId| {
            let mut members = look.snapshot.members.iter();
            let member = members.find(|member| member.id == Some(*id))?;
            Some((*id, look.world.endpoint_of(member.pod_name()?)?))
        };
        let endpoints: Option<Vec<_>> = voters.iter().map(endpoint).collect();
        let Some(endpoints) = endpoints.filter(|_| versions.len() == 1) else {
            return Comparison::Unknown;
        };
        match self.hashes(&endpoints).await {
            Ok(hashes) => Comparison::of(voters, &hashes),
            Err(error) => {
                let because = causes(&error);
                warn!(cluster = %self.cluster, because, "the data of the members could not be compared");
                Comparison::Unknown
            }
        }
    }

    async fn hashes(
        &self,
        endpoints: &[(MemberId, &Endpoint)],
    ) -> Result<BTreeMap<MemberId, DataHash>, AdminError> {
        let admin = self.run.judge.admin();
        let deadline = self.run.clock.instant() + HASH;
        let revisions = endpoints.iter().map(|(_, at)| admin.revision(at, deadline));
        let mut revision = i64::MAX;
        for one in join_all(revisions).await {
            revision = revision.min(one?);
        }
        let hashes = endpoints.iter().map(|(id, at)| async move {
            let hash = admin.data_hash(at, revision, deadline).await?;
            Ok((*id, hash))
        });
        join_all(hashes).await.into_iter().collect()
    }
}
