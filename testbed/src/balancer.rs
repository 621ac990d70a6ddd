//! A stand-in for a Service: spreads TCP connections over the replicas behind it.
//!
//! A real one is the kernel's, and carries bytes whatever else goes on. So this one has a thread of its own: node agents wait for disks in the
//! runtime of their test, and a webhook call has five seconds.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// How long one replica may take to accept a connection before the next is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Listens on loopback and hands each connection to the next replica that accepts it.
///
/// Whole connections are spread, not requests: who keeps one open stays with its replica.
#[derive(Debug)]
pub struct Balancer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Shared {
    replicas: Vec<Replica>,
    turn: Mutex<Turn>,
}

#[derive(Debug)]
struct Replica {
    address: SocketAddr,
    connections: AtomicU64,
}

#[derive(Debug)]
struct Turn {
    next: usize,
    pinned: Option<usize>,
    /// Cancelled to close the connections that are open.
    open: CancellationToken,
}

impl Balancer {
    /// Starts to listen on a free port of 127.0.0.1.
    pub fn start(replicas: impl IntoIterator<Item = SocketAddr>) -> Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let replica = |address| Replica {
            address,
            connections: AtomicU64::new(0),
        };
        let stop = CancellationToken::new();
        let turn = Turn {
            next: 0,
            pinned: None,
            open: stop.child_token(),
        };
        let shared = Arc::new(Shared {
            replicas: replicas.into_iter().map(replica).collect(),
            turn: Mutex::new(turn),
        });
        let (balanced, until) = (Arc::clone(&shared), stop.clone());
        thread::Builder::new()
            .name("balancer".to_owned())
            .spawn(move || {
                if let Err(error) = balance(listener, balanced, &until) {
                    tracing::error!("the balancer does not run: {error}");
                }
            })
            .context("no thread for a balancer")?;
        Ok(Self {
            address,
            shared,
            stop,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends everything to one replica from now on, also when it refuses. Open connections are closed, so that the
    /// next request goes there; a request on one of them is lost.
    pub fn pin(&self, replica: usize) {
        self.with_turn(|turn| turn.pinned = Some(replica));
        self.disconnect();
    }

    /// Spreads connections again. Open connections are closed.
    pub fn unpin(&self) {
        self.with_turn(|turn| turn.pinned = None);
        self.disconnect();
    }

    /// Closes all open connections.
    pub fn disconnect(&self) {
        let fresh = self.stop.child_token();
        let open = self.with_turn(|turn| std::mem::replace(&mut turn.open, fresh));
        open.cancel();
    }

    /// How many connections each replica has been given so far.
    pub fn connections(&self) -> Vec<u64> {
        let count = |replica: &Replica| replica.connections.load(Ordering::Relaxed);
        self.shared.replicas.iter().map(count).collect()
    }

    fn with_turn<T>(&self, change: impl FnOnce(&mut Turn) -> T) -> T {
        self.shared.with_turn(change)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Shared {
    fn with_turn<T>(&self, change: impl FnOnce(&mut Turn) -> T) -> T {
        change(&mut self.turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The replicas to try for one connection, in order.
    fn candidates(&self) -> (Vec<&Replica>, CancellationToken) {
        self.with_turn(|turn| {
            let open = turn.open.clone();
            if let Some(pinned) = turn.pinned {
                return (self.replicas.get(pinned).into_iter().collect(), open);
            }
            let first = turn.next;
            turn.next = turn.next.wrapping_add(1);
            let count = self.replicas.len();
            let replicas = self
                .replicas
                .iter()
                .cycle()
                .skip(first % count.max(1))
                .take(count);
            (replicas.collect(), open)
        })
    }
}

/// Balances in a runtime of this thread's own until it is to stop.
fn balance(
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
    stop: &CancellationToken,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        stop.run_until_cancelled(accept(listener, shared)).await;
        Ok(())
    })
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move { serve(client, &shared).await });
            }
            Err(error) => {
                // Out of file descriptors, most likely: let some be closed.
                tracing::warn!("the balancer cannot accept a connection: {error}");
                tokio::time::sleep(CONNECT_TIMEOUT).await;
            }
        }
    }
}

/// Carries one connection until either side or the balancer closes it. Without a replica it is closed at once.
async fn serve(mut client: TcpStream, shared: &Shared) {
    let (candidates, open) = shared.candidates();
    for replica in candidates {
        let connect = TcpStream::connect(replica.address);
        let Ok(Ok(mut server)) = tokio::time::timeout(CONNECT_TIMEOUT, connect).await else {
            continue;
        };
        replica.connections.fetch_add(1, Ordering::Relaxed);
        let carry = tokio::io::copy_bidirectional(&mut client, &mut server);
        // A reset on either side ends the connection like an orderly end does.
        let _ = open.run_until_cancelled(carry).await;
        return;
    }
}
