//! The metrics of a member that no call answers with: whether it is defragmenting, and its quota.
//!
//! While a member defragments, `/metrics` answers, and nothing else that says how the member is.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::bytes::Bytes;

use super::read_after_hangup::ReadAfterHangup;
use super::tls::TlsIdentity;
use super::{Endpoint, Prober, failure};
use crate::causes::causes;
use crate::quorum::evidence::Unanswered;

/// The longest page that is read. A member has between 100 and 300 KiB of metrics. Nothing of the
/// page is kept but the line that has not ended, because whoever runs pods can have one answer as a
/// member.
const LONGEST: usize = 1 << 20;

/// The longest line that is read whole. The rest of a longer one is skipped.
const LONGEST_LINE: usize = 256;

const DEFRAGMENTING: &str = "etcd_disk_defrag_inflight";
const QUOTA: &str = "etcd_server_quota_backend_bytes";

/// The metrics of a member that matter here. A metric that the member does not have is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemberMetrics {
    /// `etcd_disk_defrag_inflight`.
    pub defragmenting: Option<bool>,
    /// `etcd_server_quota_backend_bytes`.
    pub quota: Option<u64>,
}

impl Prober {
    /// Reads the metrics of the member at `endpoint`, over a connection of its own.
    pub async fn metrics(
        &self,
        endpoint: &Endpoint,
        limit: Duration,
    ) -> Result<MemberMetrics, Unanswered> {
        let page = timeout(limit, Box::pin(self.page(endpoint))).await;
        page.unwrap_or(Err(Unanswered::Deadline))
    }

    async fn page(&self, endpoint: &Endpoint) -> Result<MemberMetrics, Unanswered> {
        let stream = TcpStream::connect(&endpoint.address).await;
        let stream = ReadAfterHangup(stream.map_err(|error| failure::from_io(&error))?);
        let tls = endpoint.tls.as_deref();
        let Some(config) = tls.and_then(TlsIdentity::config) else {
            return get(stream, &endpoint.address).await;
        };
        if let Some(tls) = tls {
            tls.check_validity(self.clock.now())?;
        }
        // The connections for calls speak HTTP/2 only, which a listener for metrics need not know.
        let mut config = (*config).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = endpoint.server_name.clone();
        let name = name.unwrap_or_else(|| host(&endpoint.address).to_owned());
        let name = ServerName::try_from(name)
            .map_err(|error| Unanswered::Tls(format!("no server name: {error}")))?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream);
        let stream = stream
            .await
            .map_err(|error| failure::from_handshake(&error))?;
        get(stream, &endpoint.address).await
    }
}

fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

async fn get<S>(stream: S, address: &str) -> Result<MemberMetrics, Unanswered>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let other = |error: &dyn std::error::Error| Unanswered::Other(causes(error));
    let (mut requests, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| other(&error))?;
    let request = Request::get("/metrics")
        .header(header::HOST, address)
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| other(&error))?;
    let answer = async {
        let answer = requests.send_request(request).await;
        let answer = answer.map_err(|error| other(&error))?;
        if answer.status() != StatusCode::OK {
            let text = format!("/metrics answers {}", answer.status());
            return Err(Unanswered::Other(text));
        }
        let mut body = answer.into_body();
        let (mut page, mut length) = (Page::default(), 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| other(&error))?;
            let part = frame.into_data().unwrap_or_default();
            length += part.len();
            if length > LONGEST {
                let text = format!("its metrics are longer than {LONGEST} bytes");
                return Err(Unanswered::Other(text));
            }
            page.take(&part);
        }
        Ok(page.end())
    };
    let (answer, _) = tokio::join!(answer, connection);
    answer
}

/// A page of metrics that is read part by part.
#[derive(Default)]
struct Page {
    line: Vec<u8>,
    found: MemberMetrics,
}

impl Page {
    fn take(&mut self, mut part: &[u8]) {
        while let Some(end) = part.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = part.split_at(end);
            self.append(line);
            self.end_line();
            part = rest.get(1..).unwrap_or_default();
        }
        self.append(part);
    }

    fn append(&mut self, part: &[u8]) {
        let room = LONGEST_LINE - self.line.len();
        let (part, _) = part.split_at(part.len().min(room));
        self.line.extend_from_slice(part);
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        let value = |name: &str| {
            let rest = line.strip_prefix(name)?.strip_prefix(' ')?;
            rest.split_whitespace().next()?.parse::<f64>().ok()
        };
        if let Some(value) = value(DEFRAGMENTING) {
            self.found.defragmenting = Some(value > 0.0);
        }
        if let Some(quota) = value(QUOTA).filter(|quota| *quota > 0.0) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a number of bytes"
            )]
            let bytes = quota as u64;
            self.found.quota = Some(bytes);
        }
        self.line.clear();
    }

    fn end(mut self) -> MemberMetrics {
        self.end_line();
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_are_read_and_not_their_descriptions() {
        let page = "# HELP etcd_disk_defrag_inflight Whether or not defrag is active.\n\
            # TYPE etcd_disk_defrag_inflight gauge\n\
            etcd_disk_defrag_inflight 1\n\
            etcd_server_quota_backend_bytes_other 3\n\
            etcd_server_quota_backend_bytes 2.147483648e+09\n";
        let expected = MemberMetrics {
            defragmenting: Some(true),
            quota: Some(2 << 30),
        };
        assert_eq!(parse(page, page.len()), expected);
        for size in [1, 2, 7, 64] {
            assert_eq!(parse(page, size), expected, "in parts of {size} bytes");
        }
        assert_eq!(parse("up 1\n", 3), MemberMetrics::default());
    }

    /// The metrics of a page that arrives in parts of so many bytes.
    fn parse(page: &str, size: usize) -> MemberMetrics {
        let mut read = Page::default();
        for part in page.as_bytes().chunks(size) {
            read.take(part);
        }
        read.end()
    }

    #[test]
    fn of_a_page_only_the_line_that_has_not_ended_is_kept() {
        let mut read = Page::default();
        for _ in 0..1_000 {
            read.take(&[b'x'; 4_096]);
        }
        assert!(read.line.capacity() <= 2 * LONGEST_LINE);
        read.take(b"\netcd_disk_defrag_inflight 1");
        assert_eq!(read.end().defragmenting, Some(true));
    }

    #[test]
    fn the_host_of_an_address_has_no_brackets() {
        assert_eq!(host("[fd00::7]:2379"), "fd00::7");
        assert_eq!(host("10.0.0.7:2379"), "10.0.0.7");
    }
}
