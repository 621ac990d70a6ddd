//! The comparison of the members' data while a CORRUPT alarm stands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::causes::causes;
use crate::etcd::{AdminError, Endpoint};
use crate::quorum::{ClusterRef, Comparison, DataHash, MemberId, confirmed_list};
use crate::reconcile::look::Look;
use crate::reconcile::operation::OperationContext;
use crate::reconcile::run::Run;
use crate::supervise::TaskEnd;

/// The time limit for one member, which reads all its keys for the answer.
const HASH: Duration = Duration::from_secs(30);

/// The times for which a comparison counts. etcd takes no writes while the alarm stands, so a
/// result stays right; what could not be compared is tried again sooner.
const COUNTS: Duration = Duration::from_mins(1);
const AGAIN: Duration = Duration::from_secs(5);

/// The question of a comparison: the members that are accused, and the voters.
type Subject = (BTreeSet<MemberId>, BTreeSet<MemberId>);

/// The comparisons of what the members have.
#[derive(Debug, Default)]
pub(super) struct Comparisons {
    /// The latest result, and until when it counts.
    latest: Option<(Subject, Comparison, Instant)>,
    /// The comparison that is under way. Members may take long to read all their keys, so the loop
    /// does not wait for it.
    running: Option<(Subject, oneshot::Receiver<Comparison>)>,
}

impl Comparisons {
    /// Whether a comparison is under way.
    pub(super) fn are_running(&self) -> bool {
        self.running.is_some()
    }

    /// The result of the comparison of what the voters have, if a CORRUPT alarm stands. It is
    /// unknown until a task has asked them.
    pub(super) fn compare(&mut self, context: &OperationContext<'_>) -> Comparison {
        let OperationContext { run, look, .. } = *context;
        let accused = look.snapshot.accused.clone();
        let list = confirmed_list(&look.snapshot, &look.round);
        let Some(list) = list.filter(|_| !accused.is_empty()) else {
            return Comparison::Unknown;
        };
        let voters = list.iter().filter(|listed| !listed.learner);
        let subject: Subject = (accused, voters.map(|listed| listed.id).collect());
        let now = run.clock.instant();
        self.take_result(now);
        let latest = self.latest.as_ref();
        let known = latest.filter(|(of, _, until)| *of == subject && now < *until);
        if let Some((_, found, _)) = known {
            return *found;
        }
        let is_running = self.running.as_ref().is_some_and(|(of, _)| *of == subject);
        if !is_running {
            self.running = endpoints(look, &subject.1).map(|endpoints| {
                let (tell, told) = oneshot::channel();
                let (work, cluster) = (Arc::clone(run), look.page.cluster.clone());
                let voters = subject.1.clone();
                let work = async move {
                    let found = ask_for_hashes(&work, &cluster, &endpoints, &voters).await;
                    // The loop may have ended, or ask about other members by now.
                    let _ = tell.send(found);
                };
                let broke = |how: &TaskEnd| error!(%how, "comparison of members ended unexpectedly (please report)");
                run.supervisor.once(run.ending.clone(), work, broke);
                (subject, told)
            });
        }
        Comparison::Unknown
    }

    /// Takes the result of the comparison under way, if it has ended.
    fn take_result(&mut self, now: Instant) {
        let Some((_, told)) = &mut self.running else {
            return;
        };
        let found = match told.try_recv() {
            Ok(found) => found,
            Err(TryRecvError::Closed) => Comparison::Unknown,
            Err(TryRecvError::Empty) => return,
        };
        let counts = match found {
            Comparison::Unknown => AGAIN,
            Comparison::Same | Comparison::Differs(_) | Comparison::Disagreement => COUNTS,
        };
        let running = self.running.take();
        self.latest = running.map(|(subject, _)| (subject, found, now + counts));
    }
}

/// The endpoints of these voters. `None` where not all of them are known, or where the members are
/// of several versions: releases differ in what they count.
fn endpoints(look: &Look, voters: &BTreeSet<MemberId>) -> Option<Vec<(MemberId, Endpoint)>> {
    let answered = look.round.probes.iter();
    let versions: BTreeSet<&str> = answered
        .filter_map(|probe| Some(probe.status.as_ref().ok()?.version.as_str()))
        .collect();
    let endpoint = |id: &MemberId| {
        let mut members = look.snapshot.members.iter();
        let member = members.find(|member| member.id == Some(*id))?;
        Some((*id, look.view.endpoint_of(member.pod_name()?)?.clone()))
    };
    let endpoints: Option<Vec<_>> = voters.iter().map(endpoint).collect();
    endpoints.filter(|_| versions.len() == 1)
}

/// Asks every voter for the hash of its keys up to the latest revision that all of them have.
async fn ask_for_hashes(
    run: &Run,
    cluster: &ClusterRef,
    endpoints: &[(MemberId, Endpoint)],
    voters: &BTreeSet<MemberId>,
) -> Comparison {
    let found = match hashes(run, endpoints).await {
        Ok(hashes) => Comparison::new(voters, &hashes),
        Err(error) => {
            let because = causes(&error);
            warn!(%cluster, because, "cannot compare the data of the members");
            Comparison::Unknown
        }
    };
    info!(%cluster, ?found, "data of the members compared: a CORRUPT alarm is raised");
    found
}

async fn hashes(
    run: &Run,
    endpoints: &[(MemberId, Endpoint)],
) -> Result<BTreeMap<MemberId, DataHash>, AdminError> {
    let admin = run.judge.admin();
    let deadline = run.clock.instant() + HASH;
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
