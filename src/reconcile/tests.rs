//! Each loop with a panic in one of its requests to the API server. The end of a loop is noticed,
//! and work for one cluster starts again.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::api::Enforcement;
use crate::etcd::{Admin, Connections};
use crate::fake_api::FakeApi;
use crate::features::Features;
use crate::judge::JudgeDeps;
use crate::supervise::{Ended, TaskEnd};
use crate::telemetry::events::Notice;

const SOON: Duration = Duration::from_secs(20);

struct Nobody;

impl Notices for Nobody {
    fn notify(&self, _: Notice) {}
}

/// A recorder of notices.
struct Told(std::sync::mpsc::Sender<Notice>);

impl Notices for Told {
    fn notify(&self, notice: Notice) {
        let _ = self.0.send(notice);
    }
}

#[test]
fn what_dashboards_count_begins_at_zero() {
    let metrics = Metrics::new();
    expect(&metrics);
    let page = metrics.exposition().unwrap();
    for line in [
        r#"quorumgate_rollout_steps_total{action="MoveLeader",because="Serving"} 0"#,
        r#"quorumgate_rollout_waited_seconds_total{reason="InFlight"} 0.0"#,
        r#"quorumgate_probe_failures_total{reason="Refused"} 0"#,
        r#"quorumgate_replacement_steps_total{step="Settle"} 0"#,
    ] {
        assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
    }
}

fn context(api: &FakeApi) -> Context {
    let clock = Clock::system();
    let settle_time = Duration::from_secs(120);
    let observer = Arc::new(api.observer(&clock, settle_time));
    let metrics = Arc::new(Metrics::new());
    let judge = Judge::new(JudgeDeps {
        observer: Arc::clone(&observer),
        admin: Admin::new(Connections::new(clock.clone())),
        clock: clock.clone(),
        metrics: Arc::clone(&metrics),
        enforcement: Enforcement::Enforce,
        spawn: Box::new(|mut work| drop(tokio::spawn(work()))),
    });
    Context {
        client: api.client(),
        observer,
        judge,
        own_username: "gate".into(),
        clock,
        metrics,
        events: Arc::new(Nobody),
        leads: watch::Sender::new(false),
        configurations: Arc::default(),
        settings: Settings {
            namespaces: Vec::new(),
            webhook_configuration: "quorumgate".into(),
            lease_namespace: "quorumgate".into(),
            lease_name: "quorumgate".into(),
            identity: "a".into(),
            settle_time,
            features: Features {
                on_delete: true,
                ..Features::default()
            },
            enforcement: Enforcement::Enforce,
            most_clusters: 100,
            most_rollouts: None,
        },
    }
}

/// An enrolled StatefulSet in a namespace without the gate's label.
fn enrolled() -> FakeApi {
    let api = FakeApi::default();
    api.put(
        "/api/v1/namespaces/db",
        json!({"metadata": {"name": "db", "labels": {}}}),
    );
    api.put(
        "/apis/apps/v1/namespaces/db/statefulsets/etcd",
        json!({
            "metadata": {
                "namespace": "db", "name": "etcd", "labels": {"quorumgate.io/enroll": "true"},
            },
            "spec": {"serviceName": "etcd", "selector": {}, "template": {}},
        }),
    );
    api
}

/// Runs the loops until one of them ends, on an API server where requests that begin like this
/// panic.
async fn lost_to(api: &FakeApi, request: &str) -> Ended {
    api.break_whoever_asks(request);
    let (supervisor, mut losses) = Supervisor::new();
    let cancel = CancellationToken::new();
    let (ready, _) = watch::channel(false);
    let loops = run(context(api), ready, supervisor.clone(), cancel.clone());
    supervisor.spawn("dispatch", cancel.clone(), loops);
    let lost = timeout(SOON, losses.next()).await;
    cancel.cancel();
    let lost = lost.unwrap_or_else(|_| panic!("nobody misses who asked for {request}"));
    timeout(SOON, supervisor.tasks_ended())
        .await
        .expect("a loop does not end");
    lost
}

#[tokio::test]
async fn a_watch_that_breaks_is_missed_whatever_it_watches() {
    for (kind, request) in [
        (
            "QuorumDisruptionBudget",
            "GET /apis/quorumgate.io/v1alpha1/quorumdisruptionbudgets?&limit=500",
        ),
        ("StatefulSet", "GET /apis/apps/v1/statefulsets?"),
        ("Pod", "GET /api/v1/pods?"),
        (
            "PodDisruptionBudget",
            "GET /apis/policy/v1/poddisruptionbudgets?",
        ),
        ("Namespace", "GET /api/v1/namespaces?"),
        ("Node", "GET /api/v1/nodes?"),
        (
            "ValidatingWebhookConfiguration",
            "GET /apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?",
        ),
        (
            "MutatingWebhookConfiguration",
            "GET /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?",
        ),
    ] {
        let lost = lost_to(&FakeApi::default(), request).await;
        assert_eq!(lost.task, format!("watch of {kind}"));
        assert!(matches!(lost.how, TaskEnd::Panicked(_)), "{lost}");
    }
}

#[tokio::test]
async fn every_other_loop_that_serves_all_clusters_is_missed_when_it_breaks() {
    for (task, request) in [
        (
            "leader election",
            "GET /apis/coordination.k8s.io/v1/namespaces/quorumgate/leases/quorumgate",
        ),
        ("dispatch", "PATCH /api/v1/namespaces/db"),
    ] {
        let lost = lost_to(&enrolled(), request).await;
        assert_eq!(lost.task, task);
        assert!(matches!(lost.how, TaskEnd::Panicked(_)), "{lost}");
    }
}

const BUDGETS: &str = "/apis/quorumgate.io/v1alpha1/namespaces/db/quorumdisruptionbudgets/";

fn put_budget(api: &FakeApi, name: &str) {
    api.put(
        &format!("{BUDGETS}{name}"),
        json!({"metadata": {"namespace": "db", "name": name}, "spec": {"statefulSetName": name}}),
    );
}

/// Waits for a condition, while the loops go on.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, wait)
        .await
        .unwrap_or_else(|_| panic!("{what}: not in time"));
}

/// An object of one tenant must not end the process: the next replica would end by it as well.
#[tokio::test]
async fn what_breaks_over_one_cluster_begins_again_and_leaves_the_process_and_the_others_alone() {
    let api = enrolled();
    put_budget(&api, "etcd");
    put_budget(&api, "other");
    api.break_whoever_asks(&format!("GET {BUDGETS}etcd"));
    let (supervisor, mut losses) = Supervisor::new();
    let cancel = CancellationToken::new();
    let (ready, _is_ready) = watch::channel(false);
    let (notices, told) = std::sync::mpsc::channel();
    let context = Context {
        events: Arc::new(Told(notices)),
        ..context(&api)
    };
    let metrics = Arc::clone(&context.metrics);
    let loops = run(context, ready, supervisor.clone(), cancel.clone());
    supervisor.spawn("dispatch", cancel.clone(), loops);
    for duty in ["loop of a cluster"] {
        until(duty, || {
            let page = metrics.exposition().unwrap();
            let broken = format!(r#"quorumgate_duties_broken_total{{duty="{duty}"}} "#);
            let mut lines = page.lines();
            let count = lines.find_map(|line| line.strip_prefix(&broken)?.parse::<u32>().ok());
            count.is_some_and(|count| count > 1)
        })
        .await;
    }
    let asked_for =
        |requests: &[String], name: &str| requests.contains(&format!("GET {BUDGETS}{name}"));
    assert!(
        asked_for(&api.take_requests(), "other"),
        "nobody looks after it"
    );
    api.break_whoever_asks("nothing");
    until("etcd is looked after again", || {
        asked_for(&api.take_requests(), "etcd")
    })
    .await;
    let lost = losses.next().now_or_never();
    cancel.cancel();
    timeout(SOON, supervisor.tasks_ended())
        .await
        .expect("a loop does not end");
    assert_eq!(lost, None, "it ends the process");
    let broken = told
        .try_iter()
        .filter(|notice: &Notice| notice.reason == "DutyBroke");
    let broken: BTreeSet<_> = broken.map(|notice| notice.regarding.name).collect();
    assert_eq!(broken, [Some("etcd".to_owned())].into());
}

/// A budget is unreadable after a downgrade, or under a definition of another version.
#[tokio::test]
async fn a_budget_that_cannot_be_read_keeps_nobody_from_being_ready() {
    let api = enrolled();
    let budget = |name: &str, spec: serde_json::Value| {
        api.put(
            &format!("/apis/quorumgate.io/v1alpha1/namespaces/db/quorumdisruptionbudgets/{name}"),
            json!({"metadata": {"namespace": "db", "name": name}, "spec": spec}),
        );
    };
    budget("etcd", json!({"statefulSetName": "etcd"}));
    budget(
        "later",
        json!({"statefulSetName": "later", "enforcement": "SomedayMaybe"}),
    );
    budget("nameless", json!({}));
    let (supervisor, _losses) = Supervisor::new();
    let cancel = CancellationToken::new();
    let (ready, mut is_ready) = watch::channel(false);
    let loops = run(context(&api), ready, supervisor.clone(), cancel.clone());
    supervisor.spawn("dispatch", cancel.clone(), loops);
    let synced = timeout(SOON, is_ready.wait_for(|ready| *ready)).await;
    let synced = synced.is_ok();
    // Each budget is read by its own worker, which gets the error.
    let read = "GET /apis/quorumgate.io/v1alpha1/namespaces/db/quorumdisruptionbudgets/";
    let mut looked_after = BTreeSet::new();
    let end = tokio::time::Instant::now() + SOON;
    while synced && looked_after.len() < 3 && tokio::time::Instant::now() < end {
        let requests = api.take_requests();
        let names = requests.iter().filter_map(|one| one.strip_prefix(read));
        looked_after.extend(names.map(str::to_owned));
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    timeout(SOON, supervisor.tasks_ended())
        .await
        .expect("a loop does not end");
    assert!(synced, "the gate does not get ready");
    assert_eq!(
        looked_after.len(),
        3,
        "only {looked_after:?} are looked after"
    );
}

/// There are thousands of workers, of which nearly all wait.
#[test]
fn a_worker_that_waits_takes_little_memory() {
    fn size<A, B, C, R>(_: impl Fn(A, B, C) -> R) -> usize {
        size_of::<R>()
    }
    let bytes = size(super::cluster::run);
    assert!(
        bytes <= 2048,
        "{bytes} bytes; box what is only needed at work"
    );
}
