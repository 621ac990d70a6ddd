//! The initialisation of members' data by the etcd-backup-restore beside them, as its metrics count
//! it: for the `EtcdMember`s, and for a condition of the budget while restorations fail.
//!
//! The metrics are only read ([`HttpPage`]). Whatever else it serves acts, or consumes what it
//! tells.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use tokio::time::Instant;
use tracing::warn;

use super::condition::{ConditionText, find, put};
use super::look::Look;
use super::run::Run;
use crate::api::condition;
use crate::etcd::{HttpPage, Lines, metric};
use crate::members::{InitialisationCounts, MemberInput};
use crate::observe::{SidecarStarts, starts};
use crate::quorum::{ClusterRef, PodName};

/// The time for a page of metrics.
const METRICS: Duration = Duration::from_millis(1500);

/// The time until a page that could not be read is asked for again.
const AGAIN: Duration = Duration::from_secs(30);

/// The failures after which the metrics of a member that has joined are given up until etcd's
/// container starts again: a network policy may keep the gate from that port for ever.
const MOST_FAILURES: u32 = 5;

/// The initialisations of a cluster's members, from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Initialisations {
    of: HashMap<PodName, Initialised>,
}

/// The metrics of one start of etcd's container.
#[derive(Debug)]
struct Initialised {
    starts: SidecarStarts,
    /// The counts when etcd's container started. `None` if nobody looked then.
    before: Option<InitialisationCounts>,
    /// The counts when the metrics were last read.
    last: Option<InitialisationCounts>,
    /// Whether they were read after the initialisation had ended.
    is_complete: bool,
    /// When they may be asked for again after a failure.
    again: Option<Instant>,
    /// The failures since the member has joined.
    failures: u32,
}

/// The state of the restoration of a member's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestorationHealth {
    /// Attempts have failed since etcd's container started, and none has succeeded.
    Fails,
    /// The member initialises, and nothing is known of the attempts since etcd's container started.
    Unknown,
    /// The member has joined, or no attempt has failed.
    Fine,
}

impl Initialised {
    /// The entry for these starts, given the entry for earlier ones.
    fn new(starts: SidecarStarts, earlier: Option<Self>) -> Self {
        let same_counts = |earlier: &Self| {
            (&earlier.starts.pod, earlier.starts.sidecar) == (&starts.pod, starts.sidecar)
        };
        let before = if starts.is_first {
            Some(InitialisationCounts::default())
        } else {
            earlier.filter(same_counts).and_then(|earlier| earlier.last)
        };
        Self {
            starts,
            before,
            last: None,
            is_complete: false,
            again: None,
            failures: 0,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        !self.is_complete && self.again.is_none_or(|again| now >= again)
    }

    /// The counts since etcd's container started.
    fn counts(&self) -> Option<InitialisationCounts> {
        self.last?.since(self.before.as_ref()?)
    }

    fn restoration_health(&self) -> RestorationHealth {
        match self.counts() {
            _ if self.is_complete => RestorationHealth::Fine,
            None => RestorationHealth::Unknown,
            Some(counts) if counts.fails() => RestorationHealth::Fails,
            Some(_) => RestorationHealth::Fine,
        }
    }
}

impl Initialisations {
    /// Reads the metrics of every member that initialises, and once more when it has joined: then
    /// nothing is counted any more until etcd's container starts again.
    pub(super) async fn read_metrics(&mut self, run: &Run, look: &Look) {
        let now = run.clock.instant();
        self.of.retain(|pod, _| look.view.pod(pod).is_some());
        for pod in &look.snapshot.pods {
            let named = look.view.etcd_container();
            let object = look.view.pod(&pod.name);
            let Some(starts) = object.and_then(|object| starts(object, named)) else {
                continue;
            };
            let earlier = self.of.remove(&pod.name);
            let entry = match earlier {
                Some(entry) if entry.starts == starts => entry,
                earlier => Initialised::new(starts, earlier),
            };
            self.of.insert(pod.name.clone(), entry);
        }
        let due = self.of.iter();
        let due = due.filter(|(_, entry)| entry.is_due(now));
        let reads = due.map(|(pod, _)| async move { (pod.clone(), counts(run, look, pod).await) });
        for (pod, read) in join_all(reads).await {
            let Some(entry) = self.of.get_mut(&pod) else {
                continue;
            };
            let member = look.snapshot.member(&pod);
            let has_joined = member.is_some_and(|member| member.sizes.is_some());
            match read {
                Ok(Some(counts)) => {
                    entry.last = Some(counts);
                    entry.is_complete = has_joined;
                    entry.again = None;
                }
                Ok(None) => entry.is_complete = true,
                // While it initialises, every look asks: its end is what the look waits for.
                Err(_) if !has_joined => {}
                Err(why) => {
                    entry.again = Some(now + AGAIN);
                    entry.failures += 1;
                    entry.is_complete = entry.failures >= MOST_FAILURES;
                    if entry.is_complete {
                        warn!(cluster = %look.page.cluster, member = %pod, why, "cannot read from backup-restore how the data was initialised: a restoration would not be shown");
                    }
                }
            }
        }
    }

    /// Adds to `facts` what was counted since etcd's container started.
    pub(super) fn add(&self, facts: &mut MemberInput, pod: &PodName) {
        let counts = self.of.get(pod).and_then(Initialised::counts);
        if let Some(counts) = counts {
            facts.initialised(&counts);
        }
    }

    /// Shows in a condition whose data cannot be restored. The condition is absent until some could
    /// not be.
    pub(super) fn show(
        &self,
        conditions: &mut Vec<Condition>,
        cluster: &ClusterRef,
        generation: Option<i64>,
        now: &Time,
    ) {
        let shown = find(conditions, condition::DATA_RESTORABLE);
        let was_failing = shown.map(|shown| shown.status == "False");
        let of: Vec<_> = self
            .of
            .iter()
            .map(|(pod, of)| (pod, of.restoration_health()))
            .collect();
        let Some((is, reason, message)) = said(&of, was_failing, cluster) else {
            return;
        };
        let shown = Condition {
            type_: condition::DATA_RESTORABLE.into(),
            status: is.into(),
            reason: reason.into(),
            message,
            last_transition_time: now.clone(),
            observed_generation: generation,
        };
        put(conditions, shown);
    }
}

/// The report. `None` leaves what is shown: `was_failing` says what that is, if anything is.
fn said(
    members: &[(&PodName, RestorationHealth)],
    was_failing: Option<bool>,
    cluster: &ClusterRef,
) -> Option<ConditionText> {
    let is = |wanted| members.iter().filter(move |(_, is)| *is == wanted);
    let mut failing: Vec<&str> = is(RestorationHealth::Fails)
        .map(|(pod, _)| pod.as_str())
        .collect();
    failing.sort_unstable();
    if let Some(first) = failing.first() {
        let namespace = &cluster.namespace;
        let text = format!(
            "etcd-backup-restore cannot restore the data of {}, and tries again by itself: kubectl -n {namespace} logs {first} -c backup-restore",
            failing.join(", ")
        );
        return Some(("False", "RestorationFailed", text));
    }
    // A leader that looks for the first time does not know whether the attempts still fail.
    let is_over = was_failing? && is(RestorationHealth::Unknown).next().is_none();
    let text = "no member waits for a restoration that fails".to_owned();
    is_over.then_some(("True", "NoneFails", text))
}

/// The counts of the container beside this member. `None` if there is no such container.
async fn counts(
    run: &Run,
    look: &Look,
    pod: &PodName,
) -> Result<Option<InitialisationCounts>, String> {
    let observer = &run.observer;
    let endpoint = observer
        .sidecar(&look.page.cluster, &look.view, pod)
        .await?;
    let Some(endpoint) = endpoint else {
        return Ok(None);
    };
    let mut counts = InitialisationCounts::default();
    let mut lines = Lines::new(|line: &str| count(&mut counts, line));
    let read = observer
        .prober()
        .get(&endpoint, HttpPage::Metrics, METRICS, |part| {
            lines.take(part);
        })
        .await;
    read.map_err(|why| why.to_string())?;
    lines.end();
    Ok(Some(counts))
}

/// Takes a line of the metrics over. The labels stand in the order of their names, as in every page
/// that a client library of Prometheus writes.
fn count(counts: &mut InitialisationCounts, line: &str) {
    const RESTORED: &str =
        r#"etcdbr_restoration_duration_seconds_sum{restore="single_node",succeeded="true"}"#;
    const NOT_RESTORED: &str =
        r#"etcdbr_restoration_duration_seconds_sum{restore="single_node",succeeded="false"}"#;
    let fields = [
        (
            r#"etcdbr_validation_duration_seconds_count{succeeded="true"}"#,
            &mut counts.validated,
        ),
        (
            r#"etcdbr_validation_duration_seconds_count{succeeded="false"}"#,
            &mut counts.not_validated,
        ),
        (
            r#"etcdbr_restoration_duration_seconds_count{restore="single_node",succeeded="true"}"#,
            &mut counts.restored,
        ),
        (
            r#"etcdbr_restoration_duration_seconds_count{restore="single_node",succeeded="false"}"#,
            &mut counts.not_restored,
        ),
        (
            r#"etcdbr_restoration_duration_seconds_count{restore="single_member",succeeded="true"}"#,
            &mut counts.given_up,
        ),
        (
            r#"etcdbr_restoration_duration_seconds_count{restore="single_member",succeeded="false"}"#,
            &mut counts.not_given_up,
        ),
    ];
    for (name, field) in fields {
        if let Some(value) = metric(line, name) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count; what is no count becomes 0 or the largest one"
            )]
            let value = value as u64;
            *field = value;
        }
    }
    for name in [RESTORED, NOT_RESTORED] {
        let seconds = metric(line, name);
        let took = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        counts.restoration_time = counts
            .restoration_time
            .saturating_add(took.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page as etcd-backup-restore v0.43 writes it, shortened.
    const PAGE: &str = r#"# HELP etcdbr_restoration_duration_seconds Total latency distribution required to restore the etcd member.
# TYPE etcdbr_restoration_duration_seconds histogram
etcdbr_restoration_duration_seconds_bucket{restore="single_node",succeeded="true",le="0.005"} 0
etcdbr_restoration_duration_seconds_sum{restore="single_member",succeeded="true"} 3.5
etcdbr_restoration_duration_seconds_count{restore="single_member",succeeded="false"} 0
etcdbr_restoration_duration_seconds_count{restore="single_member",succeeded="true"} 4
etcdbr_restoration_duration_seconds_sum{restore="single_node",succeeded="false"} 2.25
etcdbr_restoration_duration_seconds_count{restore="single_node",succeeded="false"} 2
etcdbr_restoration_duration_seconds_sum{restore="single_node",succeeded="true"} 1.5
etcdbr_restoration_duration_seconds_count{restore="single_node",succeeded="true"} 1
etcdbr_validation_duration_seconds_sum{succeeded="true"} 0.5
etcdbr_validation_duration_seconds_count{succeeded="true"} 7
etcdbr_validation_duration_seconds_count{succeeded="false"} 3
"#;

    #[test]
    fn validations_and_restorations_are_told_apart_by_their_labels() {
        let mut counts = InitialisationCounts::default();
        for line in PAGE.lines() {
            count(&mut counts, line);
        }
        let expected = InitialisationCounts {
            validated: 7,
            not_validated: 3,
            restored: 1,
            not_restored: 2,
            given_up: 4,
            not_given_up: 0,
            restoration_time: Duration::from_millis(3750),
        };
        assert_eq!(counts, expected);
    }

    fn starts(etcd: i32, is_first: bool) -> SidecarStarts {
        SidecarStarts {
            pod: "u".into(),
            etcd,
            sidecar: 0,
            is_first,
        }
    }

    fn validated(times: u64) -> InitialisationCounts {
        InitialisationCounts {
            validated: times,
            ..InitialisationCounts::default()
        }
    }

    #[test]
    fn what_was_counted_before_etcds_container_started_again_does_not_count() {
        let mut first = Initialised::new(starts(0, true), None);
        first.last = Some(validated(1));
        assert_eq!(first.counts(), Some(validated(1)));
        let mut second = Initialised::new(starts(1, false), Some(first));
        assert_eq!(second.counts(), None, "nothing was read yet");
        second.last = Some(validated(3));
        assert_eq!(second.counts(), Some(validated(2)));
    }

    #[test]
    fn counts_without_a_known_beginning_tell_nothing() {
        let mut unseen = Initialised::new(starts(4, false), None);
        unseen.last = Some(validated(9));
        assert_eq!(unseen.counts(), None);
        let mut other = starts(5, false);
        other.sidecar = 1;
        let mut restarted = Initialised::new(other, Some(unseen));
        restarted.last = Some(validated(9));
        assert_eq!(restarted.counts(), None);
    }

    fn failed(restored: u64) -> InitialisationCounts {
        InitialisationCounts {
            validated: 1,
            not_restored: 2,
            restored,
            ..InitialisationCounts::default()
        }
    }

    #[test]
    fn a_restoration_fails_until_one_succeeds_or_the_member_has_joined() {
        let mut member = Initialised::new(starts(0, true), None);
        assert_eq!(member.restoration_health(), RestorationHealth::Unknown);
        member.last = Some(validated(1));
        assert_eq!(member.restoration_health(), RestorationHealth::Fine);
        member.last = Some(failed(0));
        assert_eq!(member.restoration_health(), RestorationHealth::Fails);
        member.last = Some(failed(1));
        assert_eq!(member.restoration_health(), RestorationHealth::Fine);
        member.last = Some(InitialisationCounts {
            not_given_up: 1,
            ..InitialisationCounts::default()
        });
        assert_eq!(member.restoration_health(), RestorationHealth::Fails);
        member.is_complete = true;
        assert_eq!(member.restoration_health(), RestorationHealth::Fine);
        // Of a start that nobody saw, the earlier attempts are not known.
        let mut unseen = Initialised::new(starts(4, false), None);
        unseen.last = Some(failed(0));
        assert_eq!(unseen.restoration_health(), RestorationHealth::Unknown);
    }

    #[test]
    fn failing_restorations_are_a_condition_until_they_end() {
        let kind = condition::DATA_RESTORABLE;
        let cluster = ClusterRef::new("db", "etcd");
        let mut members = Initialisations::default();
        let mut conditions = Vec::new();
        let mut shown = |members: &Initialisations| {
            members.show(
                &mut conditions,
                &cluster,
                None,
                &Time(jiff::Timestamp::UNIX_EPOCH),
            );
            let shown = find(&conditions, kind)?;
            Some((shown.status.clone(), shown.message.clone()))
        };
        let member = |counts| {
            let mut member = Initialised::new(starts(0, true), None);
            member.last = counts;
            member
        };
        members
            .of
            .insert("etcd-0".into(), member(Some(validated(1))));
        assert_eq!(shown(&members), None);
        members.of.insert("etcd-0".into(), member(Some(failed(0))));
        let (is, text) = shown(&members).unwrap();
        assert_eq!(is, "False");
        let command = "kubectl -n db logs etcd-0 -c backup-restore";
        assert!(text.contains(command), "{text}");
        // Another replica leads, and has not read the metrics yet.
        members.of.insert("etcd-0".into(), member(None));
        assert_eq!(shown(&members), Some((is, text)));
        members.of.insert("etcd-0".into(), member(Some(failed(1))));
        assert_eq!(shown(&members).unwrap().0, "True");
    }
}
