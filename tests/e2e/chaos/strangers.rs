//! Strangers who connect to a replica's webhooks in numbers, from addresses of their own, and say nothing or next to nothing.

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

/// Addresses that strangers come from. Neither pods nor nodes nor API servers have one of these.
const ADDRESSES: usize = 16;
/// How long a stranger who was turned away stays away.
const AGAIN: Duration = Duration::from_secs(2);
/// How often one sends a byte who does.
const TRICKLE: Duration = Duration::from_millis(200);
/// What a webhook call may take.
const CALL: Duration = Duration::from_secs(5);
/// The pause between two calls.
const BETWEEN: Duration = Duration::from_millis(500);
/// So many calls in a row without an answer are no machine that is busy.
const IN_VAIN: usize = 3;
/// How long until all have come in, at most: fewer strangers than that prove nothing.
const ALL_IN: Duration = Duration::from_secs(60);
/// The body that is said to come.
const LARGE: usize = 1 << 20;
/// The head of a TLS record that says that a `ClientHello` follows.
const RECORD: [u8; 6] = [22, 3, 1, 0, 200, 1];

/// What a stranger does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stranger {
    /// Connects.
    Silent,
    /// Begins to shake hands, and does not go on.
    HalfShaken,
    /// Shakes hands.
    Shaken,
    /// Sends a request, byte by byte.
    Trickles,
}

impl Stranger {
    pub(super) const ALL: [Self; 4] =
        [Self::Silent, Self::HalfShaken, Self::Shaken, Self::Trickles];
}

/// Keeps so many of them at a replica for a while. Fails where it does not answer others beside them.
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

/// The port that a replica answers API servers on.
struct Door {
    replica: SocketAddr,
    tls: TlsConnector,
    /// How many strangers have got as far as they wanted to.
    let_in: AtomicUsize,
}

impl Door {
    /// Until it is turned away.
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
        // The head comes at once in half of them.
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

    /// Calls it again and again for this long, and until all strangers have come in.
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

    /// As another replica asks whether this one can be called.
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

fn trusting(authority: &str) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
