//! Listeners: HTTPS for the API server, plain HTTP for kubelets and Prometheus.
//!
//! Shutting down has two steps. First the process *leaves*: it reports that it is not ready, and
//! each answer closes its connection, so that callers connect to another replica next time.
//! Requests that still arrive are answered. Then the process *closes*: it accepts no new
//! connections, idle connections end, and requests in flight may finish within a limit.

pub mod admin;
mod body;
pub mod call_paths;
mod callers;
pub mod certificate;
mod connection;
mod peer;
mod places;
mod server_config;
mod shutdown;
mod stage;
mod traffic;
pub mod unusable;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use callers::Callers;
pub use connection::{IDLE, Timeouts};
pub use peer::{Handshake, Peer};
pub use shutdown::Shutdown;

use places::Places;
use traffic::{Calls, Traffic};

use crate::clock::monotonic_now;

/// The protocol under HTTP.
#[derive(Clone)]
pub enum Transport {
    /// Plain TCP.
    Plain,
    /// TLS 1.2 or 1.3.
    Tls(Arc<ServerConfig>),
}

/// The limits of a listener.
#[derive(Debug, Clone, Copy)]
pub struct ServeLimits {
    /// Most connections at one time. When all are taken, addresses with more connections give
    /// places to addresses with fewer (see [`places`]).
    pub connections: usize,
    /// Time for requests in flight after [`Shutdown::closing`]; connections that are still open
    /// then are cut.
    pub drain: Duration,
    /// Time limits for what a peer has to send.
    pub timeouts: Timeouts,
    /// Calls a second from one address above which its connections are kept open between calls. At
    /// or below, each answer closes its connection (see [`traffic`]).
    pub keep_alive_above: u32,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            drain: Duration::from_secs(10),
            timeouts: Timeouts::default(),
            keep_alive_above: 50,
        }
    }
}

impl ServeLimits {
    /// The same limits with 64 connections: enough for kubelets and Prometheus, which make one call
    /// at a time each to the health and metrics pages.
    #[must_use]
    pub fn for_pages(self) -> Self {
        Self {
            connections: 64,
            ..self
        }
    }
}

/// Accepts and serves connections until [`Shutdown::closing`], then drains. Returns once every
/// connection has ended or was cut.
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
        let arrived = monotonic_now();
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
            shutdown.child(),
            (limits.timeouts, place.stage.clone()),
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
            "connections cut that did not end in time"
        );
        cut.cancel();
        connections.wait().await;
    }
}

/// Accepts the next connection at once, also when all places are taken: [`Places`] then decides
/// which connection gives way. In the kernel's queue all addresses would wait alike.
async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok((stream, peer)) => {
            // An answer is one small write: waiting for more to send only delays it.
            let _ = stream.set_nodelay(true);
            Ok((stream, peer))
        }
        Err(error) => {
            // Most of these errors (no file descriptors left) do not go away by trying again at
            // once.
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(Duration::from_millis(100)).await;
            Err(error)
        }
    }
}
