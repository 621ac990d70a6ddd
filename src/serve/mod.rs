//! Listeners: HTTPS for the API server, plain HTTP for kubelets and Prometheus.
//!
//! Shutting down goes in two steps. First the process *leaves*: it is not ready any more, and each answer closes its connection, so
//! that callers go elsewhere while requests that still arrive are answered. Then it *closes*: no new connections, idle ones
//! end, and requests in flight are finished within a limit.

pub mod admin;
mod arriving;
mod callers;
pub mod certificate;
mod connection;
mod handshake;
mod pace;
mod peer;
mod places;
mod traffic;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use callers::Callers;
pub use connection::{IDLE, Patience};
pub use handshake::Handshake;
pub use peer::Peer;

use places::Places;
use traffic::{Calls, Traffic};

/// How the bytes travel.
#[derive(Clone)]
pub enum Transport {
    /// As they are.
    Plain,
    /// By TLS 1.2 or 1.3.
    Tls(Arc<ServerConfig>),
}

/// The two steps of shutting down.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// Not ready any more; each answer closes its connection.
    pub leaving: CancellationToken,
    /// No new connections; idle ones end.
    pub closing: CancellationToken,
}

impl Shutdown {
    /// The same steps for one connection, which looks at them whenever bytes arrive: a token of its own is no cache line and no lock that
    /// connections on other processors hold.
    fn of_a_connection(&self) -> Self {
        Self {
            leaving: self.leaving.child_token(),
            closing: self.closing.child_token(),
        }
    }
}

/// What a listener bears.
#[derive(Debug, Clone, Copy)]
pub struct ServeLimits {
    /// Connections at one time. When there are more, addresses with more connections lose some to those with fewer.
    pub connections: usize,
    /// How long requests in flight may take after [`Shutdown::closing`].
    pub drain: Duration,
    /// How long a peer may take for what it has to do.
    pub patience: Patience,
    /// Each answer closes its connection, unless more calls than this come from its address in a second.
    pub keep_alive_above: u32,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            drain: Duration::from_secs(10),
            patience: Patience::default(),
            keep_alive_above: 50,
        }
    }
}

impl ServeLimits {
    /// Of health and metrics, which kubelets and Prometheus ask, one call at a time each.
    #[must_use]
    pub fn for_pages(self) -> Self {
        Self {
            connections: 64,
            ..self
        }
    }
}

/// Answers connections until [`Shutdown::closing`], then drains. Returns once every connection has ended or was cut.
pub async fn serve(
    listener: TcpListener,
    transport: Transport,
    router: Router,
    shutdown: Shutdown,
    limits: ServeLimits,
) {
    let places = Places::new(limits.connections);
    let traffic = Arc::new(Traffic::new(limits.keep_alive_above));
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let acceptor = match transport {
        Transport::Plain => None,
        Transport::Tls(config) => Some(TlsAcceptor::from(config)),
    };
    loop {
        let accepted = tokio::select! {
            () = shutdown.closing.cancelled() => break,
            accepted = accept(&listener) => accepted,
        };
        let Ok((stream, peer)) = accepted else {
            continue;
        };
        let arrived = Instant::now();
        let Some(place) = places.enter(peer.ip(), cut.child_token()) else {
            continue;
        };
        let serving = connection::serve(
            stream,
            arrived,
            acceptor
                .clone()
                .map(|acceptor| (acceptor, Arc::clone(&place.handshakes))),
            router.clone(),
            shutdown.of_a_connection(),
            (limits.patience, place.pace.clone()),
            Calls {
                traffic: Arc::clone(&traffic),
                peer: Peer::at(peer.ip()),
            },
        );
        #[allow(
            clippy::disallowed_methods,
            reason = "one connection that fails is one call that fails; the tracker waits for all"
        )]
        connections.spawn(async move {
            let _cut_or_ended = place.leave.run_until_cancelled(serving).await;
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(limits.drain, connections.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            connections = connections.len(),
            "cut connections that did not end in time"
        );
        cut.cancel();
        connections.wait().await;
    }
}

/// The next connection, at once: where there is no place for it, who gives way is decided here and not by the kernel's queue.
async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok((stream, peer)) => {
            // An answer is one small write: waiting for more to send only delays it.
            let _ = stream.set_nodelay(true);
            Ok((stream, peer))
        }
        Err(error) => {
            // Most of them (no file descriptors left) do not go away by asking again at once.
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(Duration::from_millis(100)).await;
            Err(error)
        }
    }
}
