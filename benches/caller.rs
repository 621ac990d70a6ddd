//! A caller like the API server, with one kept TLS connection and one review after another. Where
//! the server has closed the connection, it takes a new one, whose time counts. It does as little
//! work as possible, so that the measurement shows the server.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The name in the serving certificate.
pub(crate) const SERVER_NAME: &str = "localhost";

/// A connection to the webhooks.
pub(crate) struct Caller {
    address: SocketAddr,
    config: Arc<ClientConfig>,
    stream: TlsStream<TcpStream>,
    answer: Vec<u8>,
}

impl Caller {
    pub(crate) async fn connect(address: SocketAddr, authority: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
        let mut config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        Ok(Self {
            stream: connected(address, &config).await?,
            address,
            config,
            answer: Vec::with_capacity(4096),
        })
    }

    /// Sends a request, and returns the body of the answer. Fails unless the answer is a 200.
    pub(crate) async fn call(&mut self, request: &[u8]) -> Result<&[u8]> {
        let (head, whole) = if let Ok(extent) = self.exchange(request).await {
            extent
        } else {
            self.stream = connected(self.address, &self.config).await?;
            self.exchange(request).await?
        };
        self.answer.get(head..whole).context("no body")
    }

    /// Sends a request, and returns where the body of the answer begins and ends.
    async fn exchange(&mut self, request: &[u8]) -> Result<(usize, usize)> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.answer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.answer).await?;
            ensure!(read > 0, "the connection was closed");
            if let Some(extent) = extent(&mut self.answer)? {
                return Ok(extent);
            }
        }
    }
}

async fn connected(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let connector = TlsConnector::from(Arc::clone(config));
    let name = ServerName::try_from(SERVER_NAME)?;
    Ok(connector.connect(name, stream).await?)
}

/// The bytes of an HTTP request that posts a review as the API server does.
pub(crate) fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "POST {path}?timeout=5s HTTP/1.1\r\nHost: quorumgate.quorumgate.svc:443\r\n\
         User-Agent: kube-apiserver-admission\r\nContent-Length: {}\r\n\
         Accept: application/json, */*\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

/// Begin and end of the body, once all of it has arrived. A body in chunks is put together.
fn extent(answer: &mut Vec<u8>) -> Result<Option<(usize, usize)>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(answer.get(..end).unwrap_or_default())?;
    ensure!(head.starts_with("HTTP/1.1 200 "), "answered {head}");
    let begin = end + 4;
    let header = |wanted: &str| {
        let mut headers = head.lines().filter_map(|line| line.split_once(':'));
        headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted))
    };
    let Some((_, length)) = header("content-length") else {
        let (_, coding) = header("transfer-encoding").context("an answer without length")?;
        ensure!(coding.trim() == "chunked", "the coding {coding}");
        let Some(body) = in_chunks(answer.get(begin..).unwrap_or_default())? else {
            return Ok(None);
        };
        answer.truncate(begin);
        answer.extend_from_slice(&body);
        return Ok(Some((begin, answer.len())));
    };
    let whole = begin + length.trim().parse::<usize>()?;
    Ok((answer.len() >= whole).then_some((begin, whole)))
}

/// The content of all chunks. `None` if the last one has not arrived yet.
fn in_chunks(mut rest: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
            return Ok(None);
        };
        let size = std::str::from_utf8(rest.get(..end).unwrap_or_default())?;
        let size = usize::from_str_radix(size, 16)?;
        let chunk = rest.get(end + 2..end + 2 + size);
        let (Some(chunk), Some(after)) = (chunk, rest.get(end + 4 + size..)) else {
            return Ok(None);
        };
        if size == 0 {
            return Ok(Some(body));
        }
        body.extend_from_slice(chunk);
        rest = after;
    }
}
