//! Many connections of unknown clients, from one address and from several. Beside them an API
//! server is always answered.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::routing::get;
use axum::{Extension, Router};
use quorumgate::serve::{Peer, ServeLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::listener::{Client, Listener, Pki, SOON};
use crate::admission::door::{Door, fixture};

const PLACES: usize = 32;
const STRANGERS: u8 = 128;
const MANY: u8 = 16;
const API_SERVER: u8 = 200;
/// The timeout in the webhook configurations.
const TIMEOUT: Duration = Duration::from_secs(5);
const LARGE: usize = 4 * 1024 * 1024;

#[derive(Debug, Clone, Copy)]
enum Stranger {
    /// Connects and sends nothing.
    Silent,
    /// Sends a body byte by byte.
    Trickles,
    /// Sends all of a large body but the last byte.
    SendsMuch,
}

impl Stranger {
    /// Acts until the listener closes the connection.
    async fn bother(self, gate: &Listener, from: u8) -> std::io::Result<()> {
        let mut plain = connect(gate.address, from).await?;
        if matches!(self, Self::Silent) {
            plain.read_to_end(&mut Vec::new()).await?;
            return Ok(());
        }
        let mut stream = gate.handshake_over(plain).await?;
        let head =
            format!("POST /validate/pods HTTP/1.1\r\nhost: a\r\ncontent-length: {LARGE}\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        if matches!(self, Self::SendsMuch) {
            stream.write_all(&vec![b' '; LARGE - 1]).await?;
            stream.flush().await?;
            stream.read_to_end(&mut Vec::new()).await?;
            return Ok(());
        }
        let mut pace = tokio::time::interval(Duration::from_millis(50));
        loop {
            pace.tick().await;
            stream.write_all(b" ").await?;
            stream.flush().await?;
        }
    }
}

async fn connect(to: SocketAddr, from: u8) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(IpAddr::from([127, 0, 0, from]), 0))?;
    socket.connect(to).await
}

/// Makes one call of an API server on a new connection. Returns the time it took.
async fn call(gate: &Listener) -> Duration {
    let start = Instant::now();
    let review = fixture("pod-delete").to_string();
    let calling = async {
        let mut stream = gate
            .handshake_over(connect(gate.address, API_SERVER).await?)
            .await?;
        let head = format!(
            "POST /validate/pods?timeout=5s HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            review.len()
        );
        stream
            .write_all(format!("{head}{review}").as_bytes())
            .await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = timeout(TIMEOUT, calling).await;
    let answer = answer
        .expect("no answer in time")
        .expect("the connection broke");
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains(r#""allowed":true"#),
        "{answer}"
    );
    start.elapsed()
}

async fn besieged(stranger: Stranger, addresses: u8) {
    let pki = Pki::new();
    let limits = ServeLimits {
        connections: PLACES,
        ..ServeLimits::default()
    };
    let gate = Arc::new(Listener::start(&pki, Door::open().into_router(), limits).await);
    let turned_away = Arc::new(AtomicUsize::new(0));
    let mut strangers = JoinSet::new();
    for number in 0..STRANGERS {
        let (gate, turned_away) = (Arc::clone(&gate), Arc::clone(&turned_away));
        strangers.spawn(async move {
            loop {
                let _ = stranger.bother(&gate, 1 + number % addresses).await;
                turned_away.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }
    let start = Instant::now();
    let mut calls = 0;
    // There are always more such clients than places.
    while turned_away.load(Ordering::Relaxed) < 2 * usize::from(STRANGERS) || calls < 20 {
        call(&gate).await;
        calls += 1;
        assert!(
            start.elapsed() < 3 * SOON,
            "{stranger:?}: no client is turned away"
        );
    }
    strangers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_is_answered_beside_silent_connections() {
    besieged(Stranger::Silent, 1).await;
    besieged(Stranger::Silent, MANY).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_is_answered_beside_bodies_that_trickle() {
    besieged(Stranger::Trickles, 1).await;
    besieged(Stranger::Trickles, MANY).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_is_answered_beside_bodies_of_four_mebibytes() {
    besieged(Stranger::SendsMuch, 1).await;
    besieged(Stranger::SendsMuch, MANY).await;
}

/// An unfinished handshake takes one of the few turns of its address, and none of another address.
#[tokio::test]
async fn handshakes_that_one_address_leaves_undone_hold_up_no_other() {
    let pki = Pki::new();
    let gate = Listener::start(&pki, Door::open().into_router(), ServeLimits::default()).await;
    let mut undone = Vec::new();
    for _ in 0..100 {
        let mut stream = connect(gate.address, 1).await.unwrap();
        // The head of a TLS record, which announces a ClientHello.
        stream.write_all(&[22, 3, 1, 0, 200, 1]).await.unwrap();
        undone.push(stream);
    }
    for _ in 0..10 {
        call(&gate).await;
    }
    let own = connect(gate.address, 1).await.unwrap();
    let begun = Instant::now();
    let ended = timeout(SOON, gate.handshake_over(own)).await.unwrap();
    assert!(begun.elapsed() > Duration::from_millis(500), "{ended:?}");
}

/// A client that sends many calls has its own connections kept, and those of no other client.
#[tokio::test]
async fn a_stranger_who_calls_often_does_not_have_the_connections_of_others_kept() {
    let pki = Pki::new();
    let router = Router::new().route(
        "/",
        get(|Extension(peer): Extension<Peer>| async move { format!("{peer:?}") }),
    );
    let limits = ServeLimits {
        keep_alive_above: 2,
        ..ServeLimits::default()
    };
    let gate = Listener::start(&pki, router, limits).await;
    let calls = async |from: u8| {
        let plain = connect(gate.address, from).await.unwrap();
        let stream = gate.handshake_over(plain).await.unwrap();
        let mut client = Client::on(stream).await.unwrap();
        client.get("/").await.unwrap()
    };
    for _ in 0..2 {
        assert_eq!(calls(1).await.headers()["connection"], "close");
    }
    let begun = Instant::now();
    while calls(1).await.headers().contains_key("connection") {
        assert!(begun.elapsed() < SOON, "no connection is ever kept");
    }
    let answer = calls(API_SERVER).await;
    assert_eq!(answer.headers()["connection"], "close");
    assert_eq!(answer.body(), "Peer(127.0.0.200)");
}
