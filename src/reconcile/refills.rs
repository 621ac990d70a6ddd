//! Members that began without their data and serve under their old ids: the others gave them
//! everything again, so nothing else tells that the data was gone.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource as _;
use tokio::time::Instant;

use super::look::Look;
use super::run::Run;
use super::volumes::places;
use crate::api::{AppliedStatus, DataPlace};
use crate::observe::data_in_pods;
use crate::quorum::evidence::Target;
use crate::quorum::{ClusterRef, DataInPods, Member, MemberId, PodName, PodUid};
use crate::telemetry::events::{Notice, Severity};

/// The members as the last looks of this replica have seen them, and those that it found refilled.
#[derive(Debug, Default)]
pub(super) struct Refills {
    /// By pod. Without an earlier look by this replica, the budget's status says what a member had.
    seen: BTreeMap<PodName, Seen>,
    /// The found ones that are not on record yet, and when they were found.
    found: BTreeMap<PodName, (MemberId, Timestamp)>,
}

/// A member at the last look at which it served.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    id: MemberId,
    process: Process,
    /// The last entry that it had applied, and when that was seen.
    reached: (u64, Instant),
    /// The last entry that it had applied at least [`FLUSHED`] earlier, if it was seen then.
    had: Option<u64>,
}

/// The pod of a process, and the restarts of its container.
type Process = (PodUid, i32);

/// A longer time than etcd takes to write what it has applied to its database
/// (`--backend-batch-interval`, a tenth of a second; after a kill it applies the rest again), and
/// [`ROUNDING`] more.
const FLUSHED: Duration = Duration::from_secs(3);
/// By how much the age of a process may be told too large: the time of boot and the date of an
/// answer have whole seconds.
const ROUNDING: Duration = Duration::from_secs(2);
/// The fewest further entries that are worth a write.
const NEWS: i64 = 100;
/// The time limit for a member's metrics.
const METRICS: Duration = Duration::from_secs(1);
/// The time since a member was last seen for which its metrics are tried again.
const TRIED: Duration = Duration::from_secs(60);

impl Refills {
    /// Looks for members that began without their data since the last look. Returns the time until
    /// the next look if one is needed to know what a member has.
    pub(super) async fn look_for(&mut self, run: &Run, look: &Look) -> Option<Duration> {
        let now = run.clock.instant();
        let members = look.snapshot.members.iter();
        let seen = members.filter_map(|member| serving(look, member, now));
        let seen: Vec<(PodName, Seen)> = seen.collect();
        let after = seen.into_iter().map(|(pod, seen)| async {
            let known = self.seen.get(&pod).cloned();
            let known = known.or_else(|| on_record(run, look, &pod, seen.id));
            let (after, lacked_data) = match known.filter(|known| known.id == seen.id) {
                Some(known) if known.process == seen.process => (known.later(seen), false),
                Some(known) => begun(run, look, &pod, &known, seen).await,
                None => (seen, false),
            };
            (pod, after, lacked_data)
        });
        let after = join_all(after).await;
        let mut is_soon_due = false;
        for (pod, seen, lacked_data) in after {
            if lacked_data {
                self.note(run, look, &pod, seen.id, "without its data");
            }
            let (id, process) = (seen.id, seen.process.clone());
            let known = self.seen.insert(pod.clone(), seen);
            // At the start of a replica all members are new, and nobody waits for them.
            is_soon_due |= known.is_some_and(|known| known.process != process);
            self.found
                .retain(|of, (found, _)| *of != pod || *found == id);
        }
        is_soon_due.then_some(2 * FLUSHED)
    }

    /// Tells that a member serves under its old id, and began like this: "on another volume". It is
    /// due for the record until it is there. Where data may go with pods, that is nothing unusual.
    pub(super) fn note(&mut self, run: &Run, look: &Look, pod: &PodName, id: MemberId, how: &str) {
        publish(run, look, pod, id, how);
        let policy = data_in_pods(look.page.budget(), look.view.stateful_set());
        let is_in_pod = places(look).get(pod) == Some(&DataPlace::Pod);
        if policy != DataInPods::Allow || !is_in_pod {
            self.found.insert(pod.clone(), (id, run.clock.now()));
        }
    }

    /// The ends of the log as the members had applied it when last seen, for the next leader.
    /// By pod, with the id of the member that was in it.
    pub(super) fn applied(
        &self,
        run: &Run,
        look: &Look,
    ) -> BTreeMap<PodName, (MemberId, AppliedStatus)> {
        let (instant, now) = (run.clock.instant(), run.clock.now());
        let applied = self.seen.iter().filter_map(|(pod, seen)| {
            let since = instant.saturating_duration_since(seen.reached.1);
            let applied = AppliedStatus {
                raft_index: i64::try_from(seen.had?).ok()?,
                pod_uid: seen.process.0.to_string(),
                restarts: seen.process.1,
                time: Time(now - SignedDuration::try_from(since).ok()?),
            };
            let before = applied_of(look, pod, seen.id);
            let is_known = before.is_some_and(|known| {
                let is_same =
                    known.pod_uid == applied.pod_uid && known.restarts == applied.restarts;
                is_same && applied.raft_index - known.raft_index < NEWS
            });
            let applied = before.filter(|_| is_known).cloned().unwrap_or(applied);
            Some((pod.clone(), (seen.id, applied)))
        });
        applied.collect()
    }

    /// The found ones that are due for the record.
    pub(super) fn due(&mut self, look: &Look) -> Vec<(PodName, MemberId, Timestamp)> {
        let status = look.page.status();
        let on_record = status.map(|status| status.refills.as_slice());
        let on_record = on_record.unwrap_or_default();
        self.found.retain(|pod, (id, _)| {
            let (pod, id) = (pod.as_str(), id.to_string());
            !on_record
                .iter()
                .any(|known| known.member == pod && known.member_id == id)
        });
        let found = self.found.iter();
        found
            .map(|(pod, (id, at))| (pod.clone(), *id, *at))
            .collect()
    }
}

/// The end of the log that the budget's status says that the member had applied.
fn applied_of<'a>(look: &'a Look, pod: &PodName, id: MemberId) -> Option<&'a AppliedStatus> {
    let id = id.to_string();
    let mut members = look.page.status()?.members.iter();
    let member = members
        .find(|m| m.pod.as_deref() == Some(pod.as_str()) && m.member_id.as_ref() == Some(&id))?;
    member.applied.as_ref()
}

/// The member as the replica has seen it that led before, by the budget's status.
fn on_record(run: &Run, look: &Look, pod: &PodName, id: MemberId) -> Option<Seen> {
    let applied = applied_of(look, pod, id)?;
    let index = u64::try_from(applied.raft_index).ok()?;
    let since = run.clock.now().duration_since(applied.time.0);
    let since = since.max(SignedDuration::ZERO).unsigned_abs();
    Some(Seen {
        id,
        process: (PodUid::new(&applied.pod_uid), applied.restarts),
        reached: (index, run.clock.instant().checked_sub(since)?),
        had: Some(index),
    })
}

/// The member after another process of it was seen, and whether that began without its data.
async fn begun(run: &Run, look: &Look, pod: &PodName, known: &Seen, seen: Seen) -> (Seen, bool) {
    let process = &seen.process.0;
    let work = run.observer.work(&look.view, process, METRICS).await;
    let since = run
        .clock
        .instant()
        .saturating_duration_since(known.reached.1);
    match (work, known.had) {
        (None, Some(_)) if since < TRIED => (known.clone(), false),
        // Nodes may tell late of a process that had begun before the member was last seen.
        (Some((work, age)), Some(had)) if age < since + ROUNDING => {
            let is_replaced = look.page.grants.permit_replacement(pod);
            (seen, work.lacked_data(had) && !is_replaced)
        }
        _ => (seen, false),
    }
}

impl Seen {
    /// The member at a later look.
    fn later(self, now: Self) -> Self {
        let (reached, at) = self.reached;
        if now.reached.1.saturating_duration_since(at) < FLUSHED {
            return self;
        }
        Self {
            had: Some(reached),
            ..now
        }
    }
}

/// A member that serves now, in the pod of this name.
fn serving(look: &Look, member: &Member, now: Instant) -> Option<(PodName, Seen)> {
    let pod = member.pod.as_ref().filter(|_| member.serves_quorum())?;
    let target = Target::Pod(pod.uid.clone());
    let mut probes = look.round.probes.iter();
    let probe = probes.find(|probe| probe.target == target)?;
    let applied = probe.status.as_ref().ok()?.applied_index;
    let restarts = look.view.etcd_restarts(&pod.name)?;
    let seen = Seen {
        id: member.id?,
        process: (pod.uid.clone(), restarts),
        reached: (applied, now),
        had: None,
    };
    Some((pod.name.clone(), seen))
}

fn publish(run: &Run, look: &Look, pod: &PodName, id: MemberId, how: &str) {
    let ClusterRef { namespace, name } = &look.page.cluster;
    run.events.notify(Notice {
        regarding: look.page.budget().object_ref(&()),
        severity: Severity::Warning,
        reason: "RefilledUnderOldID".to_owned(),
        action: "Observe",
        note: format!(
            "{pod} began {how} and serves under its old id {id}. The others gave it their data; a \
             write that it had acknowledged just before may be counted twice. To have it join anew: \
             kubectl -n {namespace} annotate qdb {name} quorumgate.io/replace={id} --overwrite"
        ),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member that is killed applies again what it had not written yet. Looks in quick succession
    /// do not forget where it was before that.
    #[test]
    fn what_a_member_had_is_what_it_reached_a_while_before_it_was_last_seen() {
        let start = Instant::now();
        let at = |index, after: Duration| Seen {
            id: MemberId(1),
            process: (PodUid::new("a"), 0),
            reached: (index, start + after),
            had: None,
        };
        let ms = Duration::from_millis;
        let mut seen = at(100, ms(0));
        let looks = [
            (200, 1200, None),
            (300, 3200, Some(100)),
            (400, 5000, Some(100)),
            (500, 6300, Some(300)),
        ];
        for (index, after, had) in looks {
            seen = seen.later(at(index, ms(after)));
            assert_eq!(seen.had, had, "after {after} ms");
        }
    }
}
