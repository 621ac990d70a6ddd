use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::*;
use crate::fake_api::FakeApi;
use crate::reachability::beside;
use crate::reachability::slice::OwnState;
use crate::serve::{ServeLimits, Shutdown, Transport, serve};

mod handover;

/// Long enough for a loaded machine.
const SOON: Duration = Duration::from_secs(30);
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/quorumgate/endpointslices";

fn api(selector: &Value) -> FakeApi {
    let api = FakeApi::default();
    let service = json!({"metadata": {"name": "quorumgate"}, "spec": {"selector": selector}});
    api.put("/api/v1/namespaces/quorumgate/services/quorumgate", service);
    api
}

/// TLS with a certificate; `insists` makes the server ask for a client certificate.
fn transport_that(insists: bool) -> Transport {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["gate.test".to_owned()]).unwrap();
    let provider = crate::crypto::provider();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = if insists {
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let callers = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        config.with_client_cert_verifier(callers.build().unwrap())
    } else {
        config.with_no_client_auth()
    };
    let config = config.with_single_cert(vec![cert.der().clone()], key);
    Transport::Tls(Arc::new(config.unwrap()))
}

fn transport() -> Transport {
    transport_that(false)
}

fn myself(pod: &str, port: u16) -> Myself {
    Myself {
        webhooks: port,
        ..slice::tests::myself(pod, "127.0.0.1")
    }
}

/// A replica: a listener with the page, and a worker.
struct Replica {
    leaving: CancellationToken,
    /// Ends the replica without a goodbye, which looks like a power failure to others.
    gone: CancellationToken,
    metrics: Arc<Metrics>,
    /// Whether the replica is ready.
    ready: Arc<AtomicBool>,
    pod: String,
    port: u16,
}

impl Replica {
    async fn start(api: &FakeApi, pod: &str) -> Self {
        Self::start_with(api, pod, true, transport()).await
    }

    async fn start_with(api: &FakeApi, pod: &str, ready: bool, transport: Transport) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (leaving, gone) = (CancellationToken::new(), CancellationToken::new());
        let metrics = Arc::new(Metrics::new());
        let is_ready = Arc::new(AtomicBool::new(ready));
        let asked = Arc::clone(&is_ready);
        let said = move || {
            let ready = asked.load(Ordering::Relaxed).then_some(());
            ready.ok_or_else(|| "not now".to_owned())
        };
        let ready = Arc::new(Checks::new().with("test", said));
        let worker = EndpointWorker::new(
            myself(pod, port),
            api.client(),
            Arc::clone(&ready),
            leaving.clone(),
            Clock::system(),
            Arc::clone(&metrics),
        )
        .unwrap();
        let router = beside(Router::new(), ready, worker.view());
        let limits = ServeLimits::default();
        let server = serve(listener, transport, router, Shutdown::default(), limits);
        tokio::spawn(gone.clone().run_until_cancelled_owned(server));
        tokio::spawn(worker.run(gone.clone()));
        Self {
            leaving,
            gone,
            metrics,
            ready: is_ready,
            pod: pod.to_owned(),
            port,
        }
    }
}

fn conditions(api: &FakeApi, pod: &str) -> Option<(bool, bool)> {
    let slice = api.get(&format!("{SLICES}/{pod}"))?;
    let conditions = &slice["endpoints"][0]["conditions"];
    let holds = |condition: &str| conditions[condition].as_bool().unwrap();
    Some((holds("ready"), holds("terminating")))
}

fn is_in(api: &FakeApi, pod: &str) -> bool {
    conditions(api, pod) == Some((true, false))
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let polled = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, polled)
        .await
        .unwrap_or_else(|_| panic!("it does not come to this: {what}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_gone_is_struck_by_the_others_and_comes_back_by_itself() {
    let api = api(&Value::Null);
    let a = Replica::start(&api, "gate-a").await;
    let b = Replica::start(&api, "gate-b").await;
    let c = Replica::start(&api, "gate-c").await;
    let all = ["gate-a", "gate-b", "gate-c"];
    until("all are in", || all.iter().all(|pod| is_in(&api, pod))).await;
    let sees = r#"quorumgate_peer_answers{peer="gate-b"} 1"#;
    until("each knows the others", || {
        [&a, &c]
            .iter()
            .all(|replica| replica.metrics.exposition().unwrap().contains(sees))
    })
    .await;
    b.gone.cancel();
    until("b is out", || !is_in(&api, "gate-b")).await;
    assert!(is_in(&api, "gate-a") && is_in(&api, "gate-c"));
    let strikes = || {
        let struck = |replica: &&&Replica| {
            let page = replica.metrics.exposition().unwrap();
            page.contains(r#"quorumgate_peer_strikes_total{peer="gate-b"} 1"#)
        };
        [&a, &c].iter().filter(struck).count()
    };
    // The strike is counted after its write, which the others see first.
    until("one of the others took it out", || strikes() == 1).await;
    // The replica comes back at another port.
    let _b = Replica::start(&api, "gate-b").await;
    until("b is in again", || is_in(&api, "gate-b")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_replica_stays_in_and_one_that_leaves_takes_itself_out_first() {
    let api = api(&Value::Null);
    let a = Replica::start(&api, "gate-a").await;
    let b = Replica::start(&api, "gate-b").await;
    until("both are in", || {
        is_in(&api, "gate-a") && is_in(&api, "gate-b")
    })
    .await;
    a.gone.cancel();
    until("a is out", || !is_in(&api, "gate-a")).await;
    assert!(is_in(&api, "gate-b"));
    b.leaving.cancel();
    until("b leaves", || {
        conditions(&api, "gate-b") == Some((false, true))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_a_selector_is_left_to_kubernetes() {
    let api = api(&json!({"app": "quorumgate"}));
    let a = Replica::start(&api, "gate-a").await;
    let asked = "GET /api/v1/namespaces/quorumgate/services/quorumgate";
    until("the Service was read", || {
        api.take_requests().iter().any(|request| request == asked)
    })
    .await;
    until("it was read again", || {
        api.take_requests().iter().any(|request| request == asked)
    })
    .await;
    assert_eq!(conditions(&api, "gate-a"), None);
    let page = a.metrics.exposition().unwrap();
    assert!(page.contains("quorumgate_endpoints_kept_by_replicas 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_slices_cannot_be_kept_that_is_counted_and_tried_again() {
    let api = api(&Value::Null);
    api.undefine("endpointslices");
    let a = Replica::start(&api, "gate-a").await;
    let failures = |page: &str| {
        let mut lines = page.lines();
        let count = lines.find_map(|line| line.strip_prefix("quorumgate_endpoint_failures_total "));
        count.unwrap().parse::<u64>().unwrap()
    };
    until("it has failed twice", || {
        failures(&a.metrics.exposition().unwrap()) >= 2
    })
    .await;
    assert_eq!(conditions(&api, "gate-a"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_answer_only_callers_with_certificates_are_all_in_and_the_dead_are_not() {
    let api = api(&Value::Null);
    let names = ["gate-a", "gate-b", "gate-c"];
    // The replicas have just started: each has its slice before it is ready.
    let [a, b, c] = names.map(|name| Replica::start_with(&api, name, false, transport_that(true)));
    let (a, b, c) = tokio::join!(a, b, c);
    until("each has its slice", || {
        names.iter().all(|pod| conditions(&api, pod).is_some())
    })
    .await;
    // One replica is in the Service before the others ask to return.
    for replica in [&a, &b, &c] {
        replica.ready.store(true, Ordering::Relaxed);
        until("it is in", || is_in(&api, &replica.pod)).await;
    }
    until("all are in", || names.iter().all(|pod| is_in(&api, pod))).await;
    b.gone.cancel();
    until("b is out", || !is_in(&api, "gate-b")).await;
    assert!(is_in(&api, "gate-a") && is_in(&api, "gate-c"));
}

#[tokio::test]
async fn who_was_written_to_since_its_look_strikes_nobody() {
    let api = api(&Value::Null);
    let worker = EndpointWorker::new(
        myself("gate-a", 1),
        api.client(),
        Arc::default(),
        CancellationToken::new(),
        Clock::system(),
        Arc::new(Metrics::new()),
    )
    .unwrap();
    let put = |pod: &str, standing| {
        let slice = serde_json::to_value(myself(pod, 1).slice(standing)).unwrap();
        api.put(&format!("{SLICES}/{pod}"), slice);
        let stored = api.get(&format!("{SLICES}/{pod}")).unwrap();
        serde_json::from_value::<EndpointSlice>(stored).unwrap()
    };
    let own = put("gate-a", OwnState::In);
    let peer = put("gate-b", OwnState::In);
    // The peer strikes first.
    put("gate-a", OwnState::Out);
    let error = worker.mark_unready(&own, &[&peer], Instant::now()).await;
    assert_eq!(error.unwrap_err().code(), Some(409));
    assert!(is_in(&api, "gate-b"));
    // An outdated read strikes nobody either.
    let own = put("gate-a", OwnState::In);
    let begun = Instant::now().checked_sub(FRESH * 2).unwrap();
    worker.mark_unready(&own, &[&peer], begun).await.unwrap();
    assert!(is_in(&api, "gate-b"));
    let own: EndpointSlice =
        serde_json::from_value(api.get(&format!("{SLICES}/gate-a")).unwrap()).unwrap();
    worker
        .mark_unready(&own, &[&peer], Instant::now())
        .await
        .unwrap();
    assert!(!is_in(&api, "gate-b"));
}
