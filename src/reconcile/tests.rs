//! Each loop, broken once: a panic in what it asks the API server for ends the loop, and is missed.

use std::collections::BTreeSet;

use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::api::Enforcement;
use crate::etcd::{Admin, Connections};
use crate::fake_api::FakeApi;
use crate::judge::Bench;
use crate::observe::Ages;
use crate::supervise::{Ended, How};
use crate::telemetry::events::Notice;

const SOON: Duration = Duration::from_secs(20);

struct Nobody;

impl Notices for Nobody {
    fn notify(&self, _: Notice) {}
}

fn context(api: &FakeApi) -> Context {
    let clock = Clock::system();
    let settle_time = Duration::from_secs(120);
    let ledger = Ledger::new(api.client(), clock.clone());
    let observer = Observer::new(api.client(), ledger, clock.clone(), settle_time);
    let observer = Arc::new(observer);
    let connections = Connections::new(clock.clone());
    let prober = Prober::new(connections.clone(), clock.clone());
    let metrics = Arc::new(Metrics::new());
    let judge = Judge::new(Bench {
        observer: Arc::clone(&observer),
        prober: prober.clone(),
        admin: Admin::new(connections),
        ages: Arc::new(|_| Ages::default()),
        clock: clock.clone(),
        metrics: Arc::clone(&metrics),
        probe_timeout: Duration::from_millis(100),
        enforcement: Enforcement::Enforce,
        spawn: Box::new(|work| drop(tokio::spawn(work))),
    });
    Context {
        client: api.client(),
        observer,
        prober,
        judge,
        own_username: "gate".into(),
        stopwatches: Arc::default(),
        clock,
        metrics,
        events: Arc::new(Nobody),
        settings: Settings {
            namespaces: Vec::new(),
            webhook_configuration: "quorumgate".into(),
            lease_namespace: "quorumgate".into(),
            lease_name: "quorumgate".into(),
            identity: "a".into(),
            settle_time,
            features: Features { on_delete: true },
            enforcement: Enforcement::Enforce,
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

/// Runs the loops until one of them is missed, on an API server whose answer to such requests is a panic.
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
        assert!(matches!(lost.how, How::Panicked(_)), "{lost}");
    }
}

#[tokio::test]
async fn every_other_loop_that_breaks_is_missed() {
    for (task, request) in [
        (
            "leader election",
            "GET /apis/coordination.k8s.io/v1/namespaces/quorumgate/leases/quorumgate",
        ),
        ("dispatch", "PATCH /api/v1/namespaces/db"),
        (
            "keeper of a ledger",
            "GET /apis/quorumgate.io/v1alpha1/namespaces/db/quorumdisruptionbudgets/etcd",
        ),
    ] {
        let api = enrolled();
        if task == "keeper of a ledger" {
            // Somebody else leads, so nobody but the keeper reads it.
            api.put(
                "/apis/coordination.k8s.io/v1/namespaces/quorumgate/leases/quorumgate",
                json!({"metadata": {"name": "quorumgate"}, "spec": {"holderIdentity": "b"}}),
            );
            api.put(
                "/apis/quorumgate.io/v1alpha1/namespaces/db/quorumdisruptionbudgets/etcd",
                json!({
                    "metadata": {"namespace": "db", "name": "etcd"},
                    "spec": {"statefulSetName": "etcd"},
                }),
            );
        }
        let lost = lost_to(&api, request).await;
        assert_eq!(lost.task, task);
        assert!(matches!(lost.how, How::Panicked(_)), "{lost}");
    }
}

/// As after a downgrade, or under a definition of another version.
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
    // Each is read by its own keeper, which is told there what is wrong with it.
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
