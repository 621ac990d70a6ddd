use futures::FutureExt as _;

use super::*;

fn held_by(holder: &str, since: Instant) -> SeenRecord {
    SeenRecord {
        holder: Some(holder.into()),
        version: Some("1".into()),
        since,
    }
}

#[test]
fn a_missing_lease_is_created() {
    assert_eq!(evaluate(None, "a", Instant::now()), Move::Create);
}

#[test]
fn the_own_lease_is_renewed_at_any_age() {
    let now = Instant::now();
    let seen = held_by("a", now);
    assert_eq!(evaluate(Some(&seen), "a", now + DURATION * 9), Move::Renew);
}

#[test]
fn a_lease_given_back_is_taken_at_once() {
    let now = Instant::now();
    assert_eq!(evaluate(Some(&held_by("", now)), "a", now), Move::Take);
}

#[test]
fn another_replicas_lease_is_taken_only_after_its_duration_unchanged_on_this_clock() {
    let now = Instant::now();
    let seen = held_by("b", now);
    assert_eq!(
        evaluate(Some(&seen), "a", now + DURATION - PERIOD),
        Move::Wait
    );
    assert_eq!(evaluate(Some(&seen), "a", now + DURATION), Move::Take);
}

fn lease(version: &str, holder: &str) -> Lease {
    Lease {
        metadata: ObjectMeta {
            resource_version: Some(version.into()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.into()),
            ..LeaseSpec::default()
        }),
    }
}

fn candidate() -> (Candidate, Leading) {
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let client = Client::try_from(config).unwrap();
    let metrics = Arc::new(Metrics::new());
    let clock = Clock::system();
    let leading = watch::Sender::new(false);
    Candidate::new(
        client,
        "quorumgate",
        "quorumgate",
        "a",
        clock,
        metrics,
        leading,
    )
}

fn leading_since(start: Instant) -> (Candidate, Leading) {
    let (mut candidate, leading) = candidate();
    candidate.renewed = Some(start);
    candidate.note(start);
    (candidate, leading)
}

#[tokio::test]
async fn a_renewal_by_its_holder_starts_the_clock_anew() {
    let (mut candidate, _) = candidate();
    let start = Instant::now();
    candidate.look(Some(&lease("1", "b")), start);
    candidate.look(Some(&lease("1", "b")), start + PERIOD);
    assert_eq!(candidate.seen.as_ref().unwrap().since, start);
    candidate.look(Some(&lease("2", "b")), start + PERIOD * 2);
    assert_eq!(candidate.seen.as_ref().unwrap().since, start + PERIOD * 2);
}

#[tokio::test]
async fn a_leader_that_cannot_renew_stops_leading_before_others_take_over() {
    let start = Instant::now();
    let (candidate, leading) = leading_since(start);
    assert!(leading.now());
    candidate.note(start + RENEW_WITHIN);
    assert!(!leading.now());
    assert!(RENEW_WITHIN + PERIOD < DURATION);
}

#[tokio::test]
async fn a_former_leader_has_no_metrics_of_clusters() {
    use crate::quorum::ClusterRef;
    use crate::telemetry::metrics::ClusterNumbers;
    let start = Instant::now();
    let (mut candidate, _) = leading_since(start);
    let metrics = Arc::clone(&candidate.metrics);
    let numbers = ClusterNumbers {
        disruptions_allowed: 1,
        voters: 3,
        serving: 3,
    };
    let show = || {
        metrics
            .clusters
            .numbers(&ClusterRef::new("db", "etcd"), numbers);
    };
    let shown = || {
        let page = metrics.exposition().unwrap();
        let leads = page.lines().any(|line| line == "quorumgate_leader 1");
        (leads, page.contains(r#"cluster="etcd""#))
    };
    show();
    assert_eq!(shown(), (true, true));
    candidate.note(start + RENEW_WITHIN);
    assert_eq!(shown(), (false, false));
    // The result of a look that was under way is not shown any more.
    show();
    assert_eq!(shown(), (false, false));
    candidate.renewed = Some(start + RENEW_WITHIN * 2);
    candidate.note(start + RENEW_WITHIN * 2);
    show();
    assert_eq!(shown(), (true, true));
    candidate.renewed = None;
    candidate.release().await;
    assert_eq!(shown(), (false, false));
}

#[tokio::test]
async fn a_task_that_starts_under_a_leader_sees_no_change() {
    let start = Instant::now();
    let (candidate, leading) = leading_since(start);
    let mut begins = leading.begun_now();
    assert!(begins.now());
    assert_eq!(begins.changed().now_or_never(), None);
    candidate.note(start + RENEW_WITHIN);
    assert_eq!(begins.changed().now_or_never(), Some(()));
}

#[tokio::test]
async fn taking_a_lease_counts_a_transition_and_renewing_none() {
    let (candidate, _) = candidate();
    let created = candidate.record(None);
    assert_eq!(created.spec.as_ref().unwrap().lease_transitions, Some(0));
    let renewed = candidate.record(Some(created));
    assert_eq!(renewed.spec.as_ref().unwrap().lease_transitions, Some(0));
    let taken = candidate.record(Some(lease("1", "b")));
    assert_eq!(taken.spec.as_ref().unwrap().lease_transitions, Some(1));
}
