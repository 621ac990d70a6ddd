//! The Service gets or loses its selector, and leftovers are taken out.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

use super::*;

const SERVICE_OBJECT: &str = "/api/v1/namespaces/quorumgate/services/quorumgate";
const ENDPOINTS: &str = "/api/v1/namespaces/quorumgate/endpoints/quorumgate";
const CONTROLLER: &str = "endpointslice-controller.k8s.io";
const MIRROR: &str = "endpointslicemirroring-controller.k8s.io";

/// Puts a slice of one of Kubernetes' own controllers, with these endpoints, all ready.
fn put_slice(api: &FakeApi, name: &str, manager: &str, port: u16, addresses: &[&str]) {
    let endpoints = addresses.iter().map(
        |address| json!({"addresses": [address], "conditions": {"ready": true, "serving": true}}),
    );
    let slice = json!({
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/service-name": "quorumgate",
                "endpointslice.kubernetes.io/managed-by": manager,
            },
        },
        "addressType": "IPv4",
        "endpoints": endpoints.collect::<Vec<_>>(),
        "ports": [{"name": "webhooks", "port": port, "protocol": "TCP"}],
    });
    api.put(&format!("{SLICES}/{name}"), slice);
}

fn set_selector(api: &FakeApi, selector: &Value) {
    let service = json!({"metadata": {"name": "quorumgate"}, "spec": {"selector": selector}});
    api.put(SERVICE_OBJECT, service);
}

/// The addresses in a slice.
fn addresses(api: &FakeApi, name: &str) -> Vec<String> {
    let slice = api.get(&format!("{SLICES}/{name}")).unwrap();
    let endpoints = slice["endpoints"].as_array().cloned().unwrap_or_default();
    let address = |endpoint: &Value| endpoint["addresses"][0].as_str().unwrap().to_owned();
    endpoints.iter().map(address).collect()
}

/// Waits until the Service was read this many times.
async fn service_is_read(api: &FakeApi, times: usize) {
    let asked = format!("GET {SERVICE_OBJECT}");
    let mut read = 0;
    let polled = async {
        while read < times {
            let requests = api.take_requests();
            read += requests.iter().filter(|request| **request == asked).count();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, polled)
        .await
        .expect("the Service is not read any more");
}

/// A port of this machine on which nothing listens. Nobody else can get it while the socket is
/// open.
fn nobody() -> (TcpSocket, u16) {
    let refusing = TcpSocket::new_v4().unwrap();
    refusing.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = refusing.local_addr().unwrap().port();
    (refusing, port)
}

/// A replica of an older release, which maintains no endpoints and has no page on the port of the
/// webhooks.
async fn of_a_release_before() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, limits) = (Shutdown::default(), ServeLimits::default());
    tokio::spawn(serve(
        listener,
        transport(),
        Router::new(),
        shutdown,
        limits,
    ));
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_selector_goes_the_replicas_take_over_and_nothing_is_kept_twice() {
    let api = api(&json!({"app": "quorumgate"}));
    let a = Replica::start(&api, "gate-a").await;
    put_slice(&api, "of-kubernetes", CONTROLLER, a.port, &["127.0.0.1"]);
    service_is_read(&api, 1).await;
    assert_eq!(conditions(&api, "gate-a"), None);
    set_selector(&api, &Value::Null);
    until("the replica keeps its endpoint", || is_in(&api, "gate-a")).await;
    until("it is in one slice only", || {
        addresses(&api, "of-kubernetes").is_empty()
    })
    .await;
    assert!(is_in(&api, "gate-a"));
    let page = a.metrics.exposition().unwrap();
    assert!(page.contains("quorumgate_endpoints_kept_by_replicas 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_selector_comes_the_replicas_withdraw_what_kubernetes_lists_by_then() {
    let api = api(&Value::Null);
    let a = Replica::start(&api, "gate-a").await;
    let _b = Replica::start(&api, "gate-b").await;
    until("both are in", || {
        is_in(&api, "gate-a") && is_in(&api, "gate-b")
    })
    .await;
    set_selector(&api, &json!({"app": "quorumgate"}));
    let stops = r"quorumgate_endpoints_kept_by_replicas 0";
    until("it was noticed", || {
        a.metrics.exposition().unwrap().contains(stops)
    })
    .await;
    service_is_read(&api, 6).await;
    // No other slice lists them yet: without these the Service would be empty.
    assert!(is_in(&api, "gate-a") && is_in(&api, "gate-b"));
    put_slice(&api, "of-kubernetes", CONTROLLER, a.port, &["127.0.0.1"]);
    until("it is withdrawn", || addresses(&api, "gate-a").is_empty()).await;
    assert!(is_in(&api, "gate-b"));
    assert_eq!(addresses(&api, "of-kubernetes").len(), 1);
    // The selector goes again.
    set_selector(&api, &Value::Null);
    until("it is in again", || {
        addresses(&api, "gate-a").len() == 1 && is_in(&api, "gate-a")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kubernetes_left_behind_is_taken_out_where_nobody_answers_and_only_there() {
    let api = api(&Value::Null);
    let living = of_a_release_before().await;
    put_slice(&api, "living", CONTROLLER, living.port(), &["127.0.0.1"]);
    let (_socket, dead) = nobody();
    put_slice(&api, "dead", CONTROLLER, dead, &["127.0.0.1"]);
    let _a = Replica::start(&api, "gate-a").await;
    let _b = Replica::start(&api, "gate-b").await;
    until("the dead one is out", || addresses(&api, "dead").is_empty()).await;
    assert!(is_in(&api, "gate-a") && is_in(&api, "gate-b"));
    assert_eq!(addresses(&api, "living"), ["127.0.0.1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_of_what_was_left_behind_goes_with_its_endpoints_object() {
    let api = api(&Value::Null);
    let living = of_a_release_before().await;
    let ((_socket, dead), at) = (nobody(), ["127.0.0.1"]);
    api.put(ENDPOINTS, json!({"metadata": {"name": "quorumgate"}}));
    // The living replica has no other endpoint, and would be taken out with the dead one.
    put_slice(&api, "mirror-1", MIRROR, dead, &at);
    put_slice(&api, "mirror-2", MIRROR, living.port(), &at);
    let _a = Replica::start(&api, "gate-a").await;
    until("the replica is in", || is_in(&api, "gate-a")).await;
    service_is_read(&api, 6).await;
    assert!(api.get(ENDPOINTS).is_some());
    put_slice(&api, "living", CONTROLLER, living.port(), &at);
    until("they are deleted", || api.get(ENDPOINTS).is_none()).await;
    // The mirroring controller would undo a write to its slice, so the replicas make none.
    assert_eq!(addresses(&api, "mirror-1"), at);
    assert_eq!(addresses(&api, "living"), at);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_selector_replicas_need_not_be_allowed_to_see_the_slices() {
    let api = api(&json!({"app": "quorumgate"}));
    api.forbid("endpointslices");
    let a = Replica::start(&api, "gate-a").await;
    service_is_read(&api, 3).await;
    let page = a.metrics.exposition().unwrap();
    assert!(page.contains("quorumgate_endpoint_failures_total 0"));
}
