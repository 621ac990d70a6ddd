//! Many connections of unknown clients to a replica, and an API server and a kubelet that still
//! call it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::caller::{Caller, SERVER_NAME, post};
use crate::confined::Confined;

const REVIEW: &str = include_str!("foreign_pod.json");
const LARGE: usize = 4 * 1024 * 1024;
/// The pause after a client was turned away. The clients share the machine with the replica: after
/// a much shorter pause the benchmark would measure their own handshakes.
const COMES_BACK: Duration = Duration::from_secs(8);
const DEADLINE: Duration = Duration::from_secs(5);
/// The kubelet's `timeoutSeconds` for the readiness probe in the shipped Deployment.
const PROBE: Duration = Duration::from_secs(2);
const BETWEEN_CALLS: Duration = Duration::from_millis(20);

/// The behaviour of a client on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// Sends nothing.
    Silent,
    /// Sends a body byte by byte.
    Trickles,
    /// Sends all of 4 MiB but the last byte.
    SendsMuch,
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "silent",
            Self::Trickles => "trickling",
            Self::SendsMuch => "4 MiB each",
        })
    }
}

/// A number of concurrent clients.
pub(crate) struct Siege {
    pub(crate) stranger: Stranger,
    /// The number of their addresses.
    pub(crate) addresses: u8,
    pub(crate) strangers: u16,
    /// The duration after all clients have connected.
    pub(crate) lasts: Duration,
}

/// The observations.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The durations of answered calls in milliseconds.
    took: Vec<f64>,
    /// The number of calls without an answer in time.
    pub(crate) failed: u32,
    /// The number of readiness probes without a 200 in time.
    pub(crate) unready: u32,
    /// The number of closed connections.
    pub(crate) turned_away: usize,
}

impl Seen {
    pub(crate) fn calls(&self) -> usize {
        self.took.len() + self.failed as usize
    }

    pub(crate) fn p99(&self) -> f64 {
        let mut took = self.took.clone();
        took.sort_unstable_by(f64::total_cmp);
        took.get(took.len() * 99 / 100).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn slowest(&self) -> f64 {
        self.took.iter().copied().fold(f64::NAN, f64::max)
    }
}

impl Siege {
    /// Runs until all clients have connected, and for a while after that. Calls are made from the
    /// first moment on.
    pub(crate) async fn lay(&self, replica: &Confined) -> Result<Seen> {
        let connector = connector(&replica.authority)?;
        let (came, turned_away) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut strangers = JoinSet::new();
        for number in 0..self.strangers {
            let (stranger, connector, to) = (self.stranger, connector.clone(), replica.webhooks);
            // The API server and the kubelet come from 127.0.0.1.
            let from = 2 + u8::try_from(number % u16::from(self.addresses))?;
            let (came, turned_away) = (Arc::clone(&came), Arc::clone(&turned_away));
            strangers.spawn(async move {
                // The clients start at different times.
                sleep(COMES_BACK.mul_f64(f64::from(number % 1000) / 1000.0)).await;
                came.fetch_add(1, Ordering::Relaxed);
                loop {
                    let _ = stranger.bother(&connector, to, from).await;
                    turned_away.fetch_add(1, Ordering::Relaxed);
                    sleep(COMES_BACK).await;
                }
            });
        }
        let unready = Arc::new(AtomicU32::new(0));
        let (kubelet, pages) = (Arc::clone(&unready), replica.pages);
        let mut looks = JoinSet::new();
        looks.spawn(async move {
            let mut looks = tokio::time::interval(Duration::from_millis(500));
            loop {
                looks.tick().await;
                if look(pages).await.is_err() {
                    kubelet.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let mut seen = Seen::default();
        let mut all_since = None;
        while all_since.is_none_or(|since: Instant| since.elapsed() < self.lasts) {
            if came.load(Ordering::Relaxed) == usize::from(self.strangers) {
                all_since.get_or_insert_with(Instant::now);
            }
            match call(replica).await {
                Ok(took) => seen.took.push(took.as_secs_f64() * 1000.0),
                Err(_) => seen.failed += 1,
            }
            sleep(BETWEEN_CALLS).await;
        }
        seen.turned_away = turned_away.load(Ordering::Relaxed);
        seen.unready = unready.load(Ordering::Relaxed);
        strangers.shutdown().await;
        Ok(seen)
    }
}

impl Stranger {
    async fn bother(self, tls: &TlsConnector, to: SocketAddr, from: u8) -> Result<()> {
        let mut plain = connect(to, from).await?;
        if self == Self::Silent {
            plain.read_to_end(&mut Vec::new()).await?;
            return Ok(());
        }
        let mut stream = shake_hands(tls, plain).await?;
        let head =
            format!("POST /validate/pods HTTP/1.1\r\nhost: a\r\ncontent-length: {LARGE}\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        if self == Self::Trickles {
            loop {
                stream.write_all(b" ").await?;
                stream.flush().await?;
                sleep(Duration::from_millis(200)).await;
            }
        }
        let piece = vec![b' '; 64 * 1024];
        for _ in 1..LARGE / piece.len() {
            stream.write_all(&piece).await?;
        }
        stream.flush().await?;
        stream.read_to_end(&mut Vec::new()).await?;
        Ok(())
    }
}

async fn connect(to: SocketAddr, from: u8) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(IpAddr::from([127, 0, 0, from]), 0))?;
    Ok(socket.connect(to).await?)
}

async fn shake_hands(tls: &TlsConnector, stream: TcpStream) -> Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(SERVER_NAME)?;
    Ok(tls.connect(name, stream).await?)
}

/// Makes one call of an API server, with a handshake. Returns its duration.
async fn call(replica: &Confined) -> Result<Duration> {
    let start = Instant::now();
    let calling = async {
        let mut caller = Caller::connect(replica.webhooks, &replica.authority).await?;
        let answer = caller
            .call(&post("/validate/pods", REVIEW.as_bytes()))
            .await?;
        let answer = String::from_utf8_lossy(answer);
        ensure!(
            answer.contains(r#""allowed":true"#),
            "not allowed: {answer}"
        );
        Ok(())
    };
    timeout(DEADLINE, calling)
        .await
        .context("no answer in time")??;
    Ok(start.elapsed())
}

/// Makes one readiness probe. Fails if the kubelet would.
async fn look(at: SocketAddr) -> Result<()> {
    let looking = async {
        let mut stream = TcpStream::connect(at).await?;
        let request = b"GET /readyz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        ensure!(answer.starts_with(b"HTTP/1.1 200 "), "not ready");
        Ok(())
    };
    timeout(PROBE, looking).await.context("no answer in time")?
}

fn connector(authority: &str) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
