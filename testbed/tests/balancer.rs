//! The balancer's guarantees, with plain TCP servers as replicas.
#![expect(
    clippy::unwrap_used,
    reason = "the servers and clients of these tests are tests, too"
)]

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use quorumgate_testbed::balancer::Balancer;
use quorumgate_testbed::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// The address of a server that answers every line with its name.
async fn replica(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let mut line = [0; 1];
                while stream.read_exact(&mut line).await.is_ok() {
                    stream.write_all(name.as_bytes()).await.unwrap();
                }
            });
        }
    });
    address
}

/// A socket that refuses connections. Bound and not listening, it keeps its port to itself.
fn refusing() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

async fn connect(balancer: &Balancer) -> TcpStream {
    TcpStream::connect(balancer.address()).await.unwrap()
}

/// The name of the replica behind this connection. An error if the connection was closed.
async fn ask(stream: &mut TcpStream) -> std::io::Result<String> {
    stream.write_all(b"?").await?;
    let mut answer = [0; 1];
    stream.read_exact(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

async fn ask_anew(balancer: &Balancer) -> String {
    ask(&mut connect(balancer).await).await.unwrap()
}

#[tokio::test]
async fn connections_are_spread_evenly_and_keep_their_replica() {
    let (a, b) = (replica("a").await, replica("b").await);
    let balancer = Balancer::start([a, b]).unwrap();
    let mut answers = Vec::new();
    for _ in 0..4 {
        let mut stream = connect(&balancer).await;
        let first = ask(&mut stream).await.unwrap();
        assert_eq!(ask(&mut stream).await.unwrap(), first);
        answers.push(first);
    }
    assert_eq!(answers, ["a", "b", "a", "b"]);
    assert_eq!(balancer.connections(), [2, 2]);
}

#[tokio::test]
async fn a_replica_that_refuses_is_skipped() {
    let (_socket, nobody) = refusing();
    let balancer = Balancer::start([nobody, replica("b").await]).unwrap();
    for _ in 0..3 {
        assert_eq!(ask_anew(&balancer).await, "b");
    }
    assert_eq!(balancer.connections(), [0, 3]);
}

#[tokio::test]
async fn without_any_replica_connections_are_closed() {
    let (_socket, nobody) = refusing();
    let balancer = Balancer::start([nobody]).unwrap();
    assert!(ask(&mut connect(&balancer).await).await.is_err());
}

#[tokio::test]
async fn pinning_moves_open_connections_too_and_can_be_undone() {
    let (a, b) = (replica("a").await, replica("b").await);
    let balancer = Balancer::start([a, b]).unwrap();
    let mut before = connect(&balancer).await;
    assert_eq!(ask(&mut before).await.unwrap(), "a");
    balancer.pin(1);
    eventually(
        Duration::from_secs(5),
        "the connection to a is closed",
        async || {
            ask(&mut TcpStream::connect(balancer.address()).await.unwrap())
                .await
                .unwrap()
                == "b"
        },
    )
    .await
    .unwrap();
    assert!(ask(&mut before).await.is_err());
    for _ in 0..3 {
        assert_eq!(ask_anew(&balancer).await, "b");
    }
    balancer.unpin();
    let answers = [ask_anew(&balancer).await, ask_anew(&balancer).await];
    assert!(answers.contains(&"a".to_owned()) && answers.contains(&"b".to_owned()));
}

/// Node agents wait for the disk in the runtime of their test, and block it meanwhile.
#[test]
fn connections_are_carried_while_nothing_else_of_the_test_runs() {
    let replica = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let balancer = Balancer::start([replica.local_addr().unwrap()]).unwrap();

    let echo = std::thread::spawn(move || {
        let (mut called, _) = replica.accept().unwrap();
        let mut line = [0; 1];
        called.read_exact(&mut line).unwrap();
        called.write_all(&line).unwrap();
    });
    let mut caller = std::net::TcpStream::connect(balancer.address()).unwrap();
    caller
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    caller.write_all(b"?").unwrap();
    let mut answer = [0; 1];
    caller.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"?");
    echo.join().unwrap();
}

#[tokio::test]
async fn a_balancer_that_is_dropped_stops_listening() {
    let a = replica("a").await;
    let balancer = Balancer::start([a]).unwrap();
    let mut open = connect(&balancer).await;
    ask(&mut open).await.unwrap();
    let address = balancer.address();
    drop(balancer);
    assert!(ask(&mut open).await.is_err());
    eventually(Duration::from_secs(5), "nobody listens", async || {
        TcpStream::connect(address).await.is_err()
    })
    .await
    .unwrap();
}
