//! Shutdown: the replica first becomes unready, then closes idle connections, and finishes the
//! calls that were begun.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use quorumgate::serve::ServeLimits;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::listener::{Listener, Pki, SOON};

struct Slow {
    begun: Arc<Notify>,
    go_on: Arc<Notify>,
    router: Router,
}

/// A page whose answer the test holds back.
fn slow() -> Slow {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
        move || async move {
            begun.notify_one();
            go_on.notified().await;
            "done"
        }
    };
    let router = Router::new()
        .route("/slow", get(handler))
        .route("/", get(|| async { "ok" }));
    Slow {
        begun,
        go_on,
        router,
    }
}

/// So no API server has an idle connection to a replica that hangs or is lost, or one that ends
/// just when a call is sent.
#[tokio::test]
async fn an_answer_closes_its_connection_unless_many_call() {
    let pki = Pki::new();
    let limits = ServeLimits {
        keep_alive_above: 2,
        ..ServeLimits::default()
    };
    let listener = Listener::start(&pki, slow().router, limits).await;
    for _ in 0..2 {
        let mut quiet = listener.connect().await.unwrap();
        let answer = quiet.get("/").await.unwrap();
        assert_eq!(answer.headers()["connection"], "close");
        timeout(SOON, quiet.ended).await.expect("it stays").unwrap();
    }
    let mut busy = listener.connect().await.unwrap();
    for _ in 0..3 {
        let answer = busy.get("/").await.unwrap();
        assert!(!answer.headers().contains_key("connection"));
    }
}

#[tokio::test]
async fn while_it_leaves_requests_are_answered_and_their_connections_closed() {
    let pki = Pki::new();
    let busy = ServeLimits {
        keep_alive_above: 0,
        ..ServeLimits::default()
    };
    let listener = Listener::start(&pki, slow().router, busy).await;
    let mut client = listener.connect().await.unwrap();
    assert!(
        !client
            .get("/")
            .await
            .unwrap()
            .headers()
            .contains_key("connection")
    );
    listener.shutdown.leaving.cancel();
    let last = client.get("/").await.unwrap();
    assert_eq!(
        (last.body().as_str(), &last.headers()["connection"]),
        ("ok", &"close".parse().unwrap())
    );
    timeout(SOON, client.ended)
        .await
        .expect("the connection stays open")
        .unwrap();
    let mut newcomer = listener.connect().await.unwrap();
    assert_eq!(newcomer.get("/").await.unwrap().body(), "ok");
}

#[tokio::test]
async fn when_it_closes_answers_in_flight_finish_and_idle_connections_end() {
    let pki = Pki::new();
    let Slow {
        begun,
        go_on,
        router,
    } = slow();
    let listener = Listener::start(&pki, router, ServeLimits::default()).await;
    let mut idle = listener.connect().await.unwrap();
    idle.get("/").await.unwrap();
    let mut busy = listener.connect().await.unwrap();
    let answer = tokio::spawn(async move { busy.get("/slow").await });
    timeout(SOON, begun.notified()).await.unwrap();
    listener.shutdown.leaving.cancel();
    listener.shutdown.closing.cancel();
    timeout(SOON, idle.ended)
        .await
        .expect("an idle connection stays open")
        .unwrap();
    assert!(
        !listener.ended.is_finished(),
        "it does not wait for what is in flight"
    );
    go_on.notify_one();
    let answer = timeout(SOON, answer).await.unwrap().unwrap().unwrap();
    assert_eq!(answer.body(), "done");
    timeout(SOON, listener.ended)
        .await
        .expect("it does not end")
        .unwrap();
    assert!(TcpStream::connect(listener.address).await.is_err());
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_cut() {
    let pki = Pki::new();
    let Slow { begun, router, .. } = slow();
    let limits = ServeLimits {
        drain: Duration::from_millis(100),
        ..ServeLimits::default()
    };
    let listener = Listener::start(&pki, router, limits).await;
    let mut busy = listener.connect().await.unwrap();
    let answer = tokio::spawn(async move { busy.get("/slow").await });
    timeout(SOON, begun.notified()).await.unwrap();
    listener.shutdown.closing.cancel();
    timeout(SOON, listener.ended)
        .await
        .expect("it waits for ever")
        .unwrap();
    assert!(timeout(SOON, answer).await.unwrap().unwrap().is_err());
}
