//! A stand-in for a Service, which spreads TCP connections over the replicas behind it.
//!
//! By default the balancer tries one replica after another, which no Service does. With
//! [`Directions`] that name the endpoints of the Service, it sends each connection to one of those,
//! whether that answers or not, as kube-proxy does.
//!
//! A real Service is the kernel's, and forwards bytes independently of all processes. So the
//! balancer has a thread of its own: node agents wait for disks in the runtime of their test, and a
//! webhook call has only five seconds.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// The time limit for a replica to accept a connection. After it the next replica is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// The time limit where there is no other replica to try. It is longer than any caller waits for an
/// answer.
const NO_OTHER: Duration = Duration::from_secs(30);

/// A listener on loopback that hands each connection to the next replica that accepts it.
///
/// The balancer spreads connections, not requests: a caller that keeps a connection stays with its
/// replica.
#[derive(Debug)]
pub struct Balancer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Shared {
    replicas: Vec<Replica>,
    turn: Mutex<Rotation>,
}

#[derive(Debug)]
struct Replica {
    address: SocketAddr,
    connections: AtomicU64,
}

#[derive(Debug)]
struct Rotation {
    next: usize,
    pinned: Option<usize>,
    /// The replicas in the Service, if [`Directions`] have named them.
    standing: Option<BTreeSet<usize>>,
    /// Cancelled to close the connections that are open.
    open: CancellationToken,
}

impl Balancer {
    /// Starts a balancer on a free port of 127.0.0.1.
    pub fn start(replicas: impl IntoIterator<Item = SocketAddr>) -> Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let replica = |address| Replica {
            address,
            connections: AtomicU64::new(0),
        };
        let stop = CancellationToken::new();
        let turn = Rotation {
            next: 0,
            pinned: None,
            standing: None,
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

    /// The address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends all connections to one replica from now on, also when it refuses. Open connections are
    /// closed, so that the next request goes there. A request on an open connection is lost.
    pub fn pin(&self, replica: usize) {
        self.with_turn(|turn| turn.pinned = Some(replica));
        self.disconnect();
    }

    /// Spreads connections again. Open connections are closed.
    pub fn unpin(&self) {
        self.with_turn(|turn| turn.pinned = None);
        self.disconnect();
    }

    /// The directions for this balancer.
    pub(crate) fn directions(&self) -> Directions {
        Directions(Arc::clone(&self.shared))
    }

    /// Closes all open connections.
    pub fn disconnect(&self) {
        let fresh = self.stop.child_token();
        let open = self.with_turn(|turn| std::mem::replace(&mut turn.open, fresh));
        open.cancel();
    }

    /// The number of connections that each replica was given so far.
    pub fn connections(&self) -> Vec<u64> {
        let count = |replica: &Replica| replica.connections.load(Ordering::Relaxed);
        self.shared.replicas.iter().map(count).collect()
    }

    fn with_turn<T>(&self, change: impl FnOnce(&mut Rotation) -> T) -> T {
        self.shared.with_turn(change)
    }
}

/// A handle by which the replicas in the Service are named.
#[derive(Debug)]
pub(crate) struct Directions(Arc<Shared>);

impl Directions {
    /// Sends each new connection to one of these replicas from now on. Open connections stay, as
    /// with kube-proxy.
    pub(crate) fn send_to(&self, replicas: BTreeSet<usize>) {
        self.0.with_turn(|turn| turn.standing = Some(replicas));
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Shared {
    fn with_turn<T>(&self, change: impl FnOnce(&mut Rotation) -> T) -> T {
        change(&mut self.turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The replicas to try for one connection, in order, and the time limit for each.
    fn candidates(&self) -> (Vec<&Replica>, Duration, CancellationToken) {
        self.with_turn(|turn| {
            let open = turn.open.clone();
            if let Some(pinned) = turn.pinned {
                let replica = self.replicas.get(pinned);
                return (replica.into_iter().collect(), CONNECT_TIMEOUT, open);
            }
            let first = turn.next;
            turn.next = turn.next.wrapping_add(1);
            if let Some(standing) = &turn.standing {
                let one = standing.iter().nth(first % standing.len().max(1));
                let replica = one.and_then(|one| self.replicas.get(*one));
                return (replica.into_iter().collect(), NO_OTHER, open);
            }
            let count = self.replicas.len();
            let replicas = self
                .replicas
                .iter()
                .cycle()
                .skip(first % count.max(1))
                .take(count);
            (replicas.collect(), CONNECT_TIMEOUT, open)
        })
    }
}

/// Balances in a runtime of this thread until it is told to stop.
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
                // The process is probably out of file descriptors. The pause lets some connections
                // close.
                tracing::warn!("the balancer cannot accept a connection: {error}");
                tokio::time::sleep(CONNECT_TIMEOUT).await;
            }
        }
    }
}

/// Forwards one connection until either side or the balancer closes it. Without a replica the
/// connection is closed at once.
async fn serve(mut client: TcpStream, shared: &Shared) {
    let (candidates, patience, open) = shared.candidates();
    for replica in candidates {
        let connect = TcpStream::connect(replica.address);
        let Ok(Ok(mut server)) = tokio::time::timeout(patience, connect).await else {
            continue;
        };
        replica.connections.fetch_add(1, Ordering::Relaxed);
        let carry = tokio::io::copy_bidirectional(&mut client, &mut server);
        // A reset on either side ends the connection just as an orderly end does.
        let _ = open.run_until_cancelled(carry).await;
        return;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpSocket;

    use super::*;

    /// A replica that sends its name and closes the connection.
    async fn says(name: u8) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut caller, _)) = listener.accept().await {
                let _ = caller.write_all(&[name]).await;
            }
        });
        address
    }

    async fn call(balancer: &Balancer) -> Vec<u8> {
        let mut stream = TcpStream::connect(balancer.address()).await.unwrap();
        let mut said = Vec::new();
        // A connection without a replica is closed, so the read ends.
        let _ = stream.read_to_end(&mut said).await;
        said
    }

    #[tokio::test]
    async fn connections_go_only_to_replicas_in_the_service() {
        // Bound and not listening, it refuses connections, and nobody else can get its port.
        let refusing = TcpSocket::new_v4().unwrap();
        refusing.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let dead = refusing.local_addr().unwrap();
        let balancer = Balancer::start([says(0).await, dead, says(2).await]).unwrap();
        for _ in 0..6 {
            assert_eq!(call(&balancer).await.len(), 1, "left to itself it goes on");
        }
        let directions = balancer.directions();
        directions.send_to([2].into());
        for _ in 0..3 {
            assert_eq!(call(&balancer).await, [2]);
        }
        directions.send_to([0, 1].into());
        let mut heard = [call(&balancer).await, call(&balancer).await];
        heard.sort();
        assert_eq!(heard, [vec![], vec![0]], "no other replica is tried");
        directions.send_to(BTreeSet::new());
        assert!(call(&balancer).await.is_empty());
    }
}
