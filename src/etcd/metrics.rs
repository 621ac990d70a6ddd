//! The metrics of a member that no call answers with: whether it is defragmenting, and its quota.
//!
//! While a member defragments, `/metrics` answers, and nothing else that says how the member is.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
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

/// The longest page that is read. A member has between 100 and 300 KiB of metrics.
const LONGEST: usize = 4 << 20;

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
        let body = Limited::new(answer.into_body(), LONGEST).collect().await;
        let body = body.map_err(|error| Unanswered::Other(error.to_string()))?;
        Ok(parse(&String::from_utf8_lossy(&body.to_bytes())))
    };
    let (answer, _) = tokio::join!(answer, connection);
    answer
}

fn parse(page: &str) -> MemberMetrics {
    let value = |name: &str| {
        let mut lines = page.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let quota = value("etcd_server_quota_backend_bytes");
    MemberMetrics {
        defragmenting: value("etcd_disk_defrag_inflight").map(|value| value > 0.0),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of bytes"
        )]
        quota: quota.filter(|quota| *quota > 0.0).map(|quota| quota as u64),
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
        assert_eq!(parse(page), expected);
        assert_eq!(parse("up 1\n"), MemberMetrics::default());
    }

    #[test]
    fn the_host_of_an_address_has_no_brackets() {
        assert_eq!(host("[fd00::7]:2379"), "fd00::7");
        assert_eq!(host("10.0.0.7:2379"), "10.0.0.7");
    }
}
