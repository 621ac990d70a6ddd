//! Slow clients are disconnected; idle ones are not.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use quorumgate::serve::{Handshake, IDLE, ServeLimits, Timeouts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::listener::{Client, Listener, Pki, SOON};

const SHORT: Duration = Duration::from_millis(200);

fn limits(timeouts: Timeouts) -> ServeLimits {
    ServeLimits {
        timeouts,
        keep_alive_above: 0,
        ..ServeLimits::default()
    }
}

fn router() -> Router {
    Router::new().route("/", get(|| async { "ok" }))
}

#[tokio::test]
async fn a_head_that_trickles_in_ends_the_connection_and_an_idle_one_outlives_that() {
    let pki = Pki::new();
    let timeouts = Timeouts {
        head: SHORT,
        idle: SOON,
        ..Timeouts::default()
    };
    let listener = Listener::start(&pki, router(), limits(timeouts)).await;
    let mut idle = listener.connect().await.unwrap();
    idle.get("/").await.unwrap();
    let idle_since = Instant::now();
    let mut slow = listener.handshake().await.unwrap();
    slow.write_all(b"GET / HT").await.unwrap();
    let mut rest = Vec::new();
    let read = timeout(SOON, slow.read_to_end(&mut rest)).await;
    read.expect("a slow head is waited for").ok();
    assert!(rest.is_empty(), "{rest:?}");
    assert!(idle_since.elapsed() > SHORT);
    assert_eq!(idle.get("/").await.unwrap().body(), "ok");
}

#[tokio::test]
async fn an_idle_connection_ends_after_its_time() {
    let pki = Pki::new();
    let timeouts = Timeouts {
        idle: SHORT,
        ..Timeouts::default()
    };
    let listener = Listener::start(&pki, router(), limits(timeouts)).await;
    let mut idle = listener.connect().await.unwrap();
    idle.get("/").await.unwrap();
    timeout(SOON, idle.ended)
        .await
        .expect("it stays open")
        .unwrap();
}

#[tokio::test]
async fn a_handshake_that_does_not_come_ends_the_connection() {
    let pki = Pki::new();
    let timeouts = Timeouts {
        handshake: SHORT,
        ..Timeouts::default()
    };
    let listener = Listener::start(&pki, router(), limits(timeouts)).await;
    let mut silent = TcpStream::connect(listener.address).await.unwrap();
    let mut rest = Vec::new();
    let read = timeout(SOON, silent.read_to_end(&mut rest)).await;
    read.expect("a silent peer is waited for").ok();
    assert!(rest.is_empty());
}

#[tokio::test]
async fn the_first_request_of_a_connection_knows_of_the_handshake() {
    let pki = Pki::new();
    let told = |request: Request<Body>| async move {
        let handshake = request.extensions().get::<Handshake>();
        handshake.map_or("none".to_owned(), |handshake| {
            let took = handshake.done - handshake.arrived;
            took.as_micros().to_string()
        })
    };
    let router = Router::new().route("/", get(told));
    let listener = Listener::start(&pki, router, limits(Timeouts::default())).await;
    // The client sends nothing for a while.
    let silent = TcpStream::connect(listener.address).await.unwrap();
    tokio::time::sleep(SHORT).await;
    let stream = listener.handshake_over(silent).await.unwrap();
    let mut connection = Client::on(stream).await.unwrap();
    let first = connection.get("/").await.unwrap();
    let first: u64 = first.body().parse().unwrap();
    assert!(Duration::from_micros(first) > SHORT / 2, "{first} us");
    assert_eq!(connection.get("/").await.unwrap().body(), "none");
}

#[test]
fn a_peer_that_says_nothing_is_left_within_five_seconds_and_an_idle_one_within_fifteen() {
    let timeouts = Timeouts::default();
    assert!(timeouts.handshake <= Duration::from_secs(5));
    assert!(timeouts.head <= Duration::from_secs(5));
    assert_eq!(timeouts.idle, IDLE);
    assert!(IDLE <= Duration::from_secs(5));
}

#[tokio::test]
async fn a_connection_without_a_request_ends_as_an_idle_one_does() {
    let pki = Pki::new();
    let timeouts = Timeouts {
        idle: SHORT,
        ..Timeouts::default()
    };
    let listener = Listener::start(&pki, router(), limits(timeouts)).await;
    let mut silent = listener.handshake().await.unwrap();
    let mut rest = Vec::new();
    let read = timeout(SOON, silent.read_to_end(&mut rest)).await;
    read.expect("a silent peer is waited for").ok();
}

#[tokio::test]
async fn a_head_that_is_too_long_is_431() {
    let pki = Pki::new();
    let listener = Listener::start(&pki, router(), ServeLimits::default()).await;
    let mut peer = listener.handshake().await.unwrap();
    let head = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(64 * 1024));
    let _ = peer.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    timeout(SOON, peer.read_to_end(&mut answer))
        .await
        .unwrap()
        .ok();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}
