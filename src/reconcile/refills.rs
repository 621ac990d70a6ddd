//! Members that began without their data and serve under their old ids: the others gave them
//! everything again, and only an Event says that the data was gone.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use kube::Resource as _;
use tokio::time::Instant;

use super::look::Look;
use super::run::Run;
use crate::ledger::Page;
use crate::quorum::evidence::Target;
use crate::quorum::{ClusterRef, Member, MemberId, PodName, PodUid};
use crate::telemetry::events::{Notice, Severity};

/// The members as the last looks of this replica have seen them, by pod. Without an earlier look,
/// nobody knows what a member had.
#[derive(Debug, Default)]
pub(super) struct Refills(BTreeMap<PodName, Seen>);

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
/// The time limit for a member's metrics.
const METRICS: Duration = Duration::from_secs(1);
/// The time since a member was last seen for which its metrics are tried again.
const TRIED: Duration = Duration::from_secs(60);

impl Refills {
    /// Tells each member that began without its data since the last look. Returns the time until
    /// the next look if one is needed to know what a member has.
    pub(super) async fn report(&mut self, run: &Run, look: &Look) -> Option<Duration> {
        let now = run.clock.instant();
        let members = look.snapshot.members.iter();
        let seen = members.filter_map(|member| serving(look, member, now));
        let seen: Vec<(PodName, Seen)> = seen.collect();
        let after = seen.into_iter().map(|(pod, seen)| async {
            let known = self.0.get(&pod).filter(|known| known.id == seen.id);
            let after = match known {
                Some(known) if known.process == seen.process => known.clone().later(seen),
                Some(known) => begun(run, look, &pod, known, seen).await,
                None => seen,
            };
            (pod, after)
        });
        let after = join_all(after).await;
        // At the start of a replica all members are new, and nobody waits for them.
        let has_begun = |(pod, seen): &(PodName, Seen)| {
            let known = self.0.get(pod);
            known.is_some_and(|known| known.process != seen.process)
        };
        let is_soon_due = after.iter().any(has_begun);
        self.0.extend(after);
        is_soon_due.then_some(2 * FLUSHED)
    }
}

/// The member after another process of it was seen, which is told of if it began without its data.
async fn begun(run: &Run, look: &Look, pod: &PodName, known: &Seen, seen: Seen) -> Seen {
    let process = &seen.process.0;
    let work = run.observer.work(&look.view, process, METRICS).await;
    let since = run
        .clock
        .instant()
        .saturating_duration_since(known.reached.1);
    match (work, known.had) {
        (None, Some(_)) if since < TRIED => known.clone(),
        // Nodes may tell late of a process that had begun before the member was last seen.
        (Some((work, age)), Some(had)) if age < since + ROUNDING => {
            let is_replaced = look.page.grants.permit_replacement(pod);
            if work.lacked_data(had) && !is_replaced {
                publish(run, &look.page, pod, seen.id, "without its data");
            }
            seen
        }
        _ => seen,
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

/// Tells that a member serves under its old id, and began like this: "on another volume".
pub(super) fn publish(run: &Run, page: &Page, pod: &PodName, id: MemberId, how: &str) {
    let ClusterRef { namespace, name } = &page.cluster;
    run.events.notify(Notice {
        regarding: page.budget().object_ref(&()),
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
