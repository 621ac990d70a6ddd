//! Clients that are not API servers and open many connections to the webhook port of one replica,
//! from their own addresses. They send nothing or next to nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

use super::gates;
use super::stage::Stage;

/// The number of client addresses. No pod, node or API server has one of them.
const ADDRESSES: usize = 16;
/// The pause after a client was turned away.
const AGAIN: Duration = Duration::from_secs(2);
/// The pause between two bytes of a slow client.
const TRICKLE: Duration = Duration::from_millis(200);
/// The time limit for a call of the webhook.
const CALL: Duration = Duration::from_secs(5);
/// The pause between two calls.
const BETWEEN: Duration = Duration::from_millis(500);
/// The number of calls in a row without an answer that a busy machine does not explain.
const IN_VAIN: usize = 3;
/// The time limit until all clients are connected. Fewer clients would prove nothing.
const ALL_IN: Duration = Duration::from_secs(60);
/// The announced length of the body in bytes.
const LARGE: usize = 1 << 20;
/// The head of a TLS record, which announces a `ClientHello`.
const RECORD: [u8; 6] = [22, 3, 1, 0, 200, 1];

/// The behaviour of a client.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stranger {
    /// Opens a TCP connection.
    Silent,
    /// Begins a TLS handshake and stops.
    HalfShaken,
    /// Completes a TLS handshake.
    Shaken,
    /// Sends a request, byte by byte.
    Trickles,
}

impl Stranger {
    pub(super) const ALL: [Self; 4] =
        [Self::Silent, Self::HalfShaken, Self::Shaken, Self::Trickles];
}

/// Keeps this number of clients at a replica for a while. Fails if the replica does not answer
/// other calls meanwhile.
pub(super) async fn besiege(
    stage: &Stage,
    replica: usize,
    stranger: Stranger,
    count: usize,
    length: Duration,
) -> Result<()> {
    let _siege = stage.siege.lock().await;
    let _turn = gates::turn(stage, replica).await?;
    let door = Arc::new(Door {
        replica: stage.world.gate.replica(replica).address(),
        tls: trusting(stage.world.gate.ca_certificate())?,
        let_in: AtomicUsize::new(0),
    });
    let mut strangers = JoinSet::new();
    for number in 0..count {
        let door = Arc::clone(&door);
        strangers.spawn(async move {
            loop {
                let _ = door.bother(stranger, number).await;
                sleep(AGAIN).await;
            }
        });
    }
    let answers = door.answers(length, count).await;
    strangers.shutdown().await;
    answers
}

/// The webhook port of a replica.
struct Door {
    replica: SocketAddr,
    tls: TlsConnector,
    /// The number of clients that have done all they wanted.
    let_in: AtomicUsize,
}

impl Door {
    /// Keeps one connection until the replica closes it.
    async fn bother(&self, stranger: Stranger, number: usize) -> Result<()> {
        let mut plain = self.connect(address(number)?).await?;
        let mut stream = match stranger {
            Stranger::Silent | Stranger::HalfShaken => {
                if matches!(stranger, Stranger::HalfShaken) {
                    plain.write_all(&RECORD).await?;
                }
                self.let_in.fetch_add(1, Ordering::Relaxed);
                plain.read_to_end(&mut Vec::new()).await?;
                return Ok(());
            }
            Stranger::Shaken | Stranger::Trickles => self.shake_hands(plain).await?,
        };
        self.let_in.fetch_add(1, Ordering::Relaxed);
        if matches!(stranger, Stranger::Shaken) {
            stream.read_to_end(&mut Vec::new()).await?;
            return Ok(());
        }
        let head =
            format!("POST /validate/pods HTTP/1.1\r\nhost: a\r\ncontent-length: {LARGE}\r\n\r\n");
        // Every other client sends the head at once.
        let trickles = if number.is_multiple_of(2) {
            stream.write_all(head.as_bytes()).await?;
            ""
        } else {
            &head
        };
        for byte in trickles.bytes().chain(std::iter::repeat(b' ')) {
            stream.write_all(&[byte]).await?;
            stream.flush().await?;
            sleep(TRICKLE).await;
        }
        Ok(())
    }

    /// Calls the replica again and again for this long, and until all clients are connected.
    async fn answers(&self, length: Duration, strangers: usize) -> Result<()> {
        let begun = Instant::now();
        let mut in_vain = 0;
        loop {
            let answer = timeout(CALL, self.call()).await;
            in_vain = if matches!(answer, Ok(Ok(()))) {
                0
            } else {
                in_vain + 1
            };
            if in_vain == IN_VAIN {
                let answer = answer.context("it took too long").flatten();
                return answer.context("no answer beside strangers");
            }
            let let_in = self.let_in.load(Ordering::Relaxed);
            if begun.elapsed() > length && in_vain == 0 && let_in >= strangers {
                return Ok(());
            }
            let all = format!("only {let_in} of {strangers} strangers came in");
            ensure!(begun.elapsed() < length + ALL_IN, all);
            sleep(BETWEEN).await;
        }
    }

    /// Makes the call by which another replica checks this one.
    async fn call(&self) -> Result<()> {
        let plain = self.connect(Ipv4Addr::LOCALHOST.into()).await?;
        let mut stream = self.shake_hands(plain).await?;
        let request = "GET /readyz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer);
        ensure!(answer.starts_with("HTTP/1.1 "), "it answers {answer:?}");
        Ok(())
    }

    async fn connect(&self, from: IpAddr) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(from, 0))?;
        Ok(socket.connect(self.replica).await?)
    }

    async fn shake_hands(&self, plain: TcpStream) -> Result<TlsStream<TcpStream>> {
        let name = ServerName::from(self.replica.ip());
        Ok(self.tls.connect(name, plain).await?)
    }
}

fn address(number: usize) -> Result<IpAddr> {
    let last = u8::try_from(1 + number % ADDRESSES)?;
    Ok(Ipv4Addr::new(127, 9, 0, last).into())
}

pub(crate) fn trusting(authority: &str) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
