//! Pages that are read by HTTP from a listener of a member or of the container beside it, each over
//! a connection of its own, bounded in time and in length.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::bytes::Bytes;

use super::endpoint::Endpoint;
use super::failure;
use super::probe::Prober;
use super::read_after_hangup::ReadAfterHangup;
use crate::causes::causes;
use crate::quorum::evidence::Unanswered;

/// The longest page that is read. A member has between 100 and 300 KiB of metrics.
const LONGEST: usize = 1 << 20;

/// The pages that the gate reads. There is no other way to send a request of HTTP to a pod, so that
/// nothing else can be asked of a container beside etcd, where any request for another path acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpPage {
    /// The metrics.
    Metrics,
    /// The latest full snapshot and the delta snapshots after it, which the leading
    /// etcd-backup-restore lists from its backup store.
    LatestSnapshots,
}

impl HttpPage {
    /// The path of the page.
    pub fn path(self) -> &'static str {
        match self {
            Self::Metrics => "/metrics",
            Self::LatestSnapshots => "/snapshot/latest",
        }
    }
}

impl Prober {
    /// Gets a page, and hands its parts on as they come. Returns the date of the answer, by the
    /// clock of whoever gave it, if it has one.
    pub async fn get(
        &self,
        endpoint: &Endpoint,
        page: HttpPage,
        limit: Duration,
        take: impl FnMut(&[u8]) + Send,
    ) -> Result<Option<Timestamp>, Unanswered> {
        let page = timeout(limit, Box::pin(self.page(endpoint, page.path(), take))).await;
        page.unwrap_or(Err(Unanswered::Deadline))
    }

    async fn page(
        &self,
        endpoint: &Endpoint,
        path: &'static str,
        take: impl FnMut(&[u8]) + Send,
    ) -> Result<Option<Timestamp>, Unanswered> {
        let stream = TcpStream::connect(&endpoint.address).await;
        let stream = stream.map_err(|error| failure::from_io(&error))?;
        let peer = stream
            .peer_addr()
            .map_err(|error| failure::from_io(&error))?;
        let stream = ReadAfterHangup(stream);
        let tls = endpoint.tls.as_deref();
        let names = &endpoint.server_names;
        let Some(config) = tls.and_then(|tls| tls.config(names, peer.ip())) else {
            return get(stream, &endpoint.address, path, take).await;
        };
        if let Some(tls) = tls {
            let valid = tls.check_validity(self.clock.now());
            valid.map_err(|obstacle| Unanswered::Tls(obstacle.to_string()))?;
        }
        // The connections for calls speak HTTP/2 only, which other listeners need not know.
        let mut config = (*config).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = names.first();
        let name = name.and_then(|name| ServerName::try_from(name.clone()).ok());
        let name = name.unwrap_or_else(|| ServerName::from(peer.ip()));
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream);
        let stream = stream
            .await
            .map_err(|error| failure::from_handshake(&error))?;
        get(stream, &endpoint.address, path, take).await
    }
}

async fn get<S>(
    stream: S,
    address: &str,
    path: &'static str,
    mut take: impl FnMut(&[u8]) + Send,
) -> Result<Option<Timestamp>, Unanswered>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let other = |error: &dyn std::error::Error| Unanswered::Other(causes(error));
    let (mut requests, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| other(&error))?;
    let request = Request::get(path)
        .header(header::HOST, address)
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| other(&error))?;
    let answer = async {
        let answer = requests.send_request(request).await;
        let answer = answer.map_err(|error| other(&error))?;
        if answer.status() != StatusCode::OK {
            let text = format!("{path} answers {}", answer.status());
            return Err(Unanswered::Other(text));
        }
        let dated = date(answer.headers());
        let mut body = answer.into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| other(&error))?;
            let part = frame.into_data().unwrap_or_default();
            length += part.len();
            if length > LONGEST {
                let text = format!("{path} is longer than {LONGEST} bytes");
                return Err(Unanswered::Other(text));
            }
            take(&part);
        }
        Ok(dated)
    };
    let (answer, _) = tokio::join!(answer, connection);
    answer
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let dated = headers.get(header::DATE)?.as_bytes();
    DateTimeParser::new().parse_timestamp(dated).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_answer_is_read() {
        let mut headers = HeaderMap::new();
        assert_eq!(date(&headers), None);
        let text = "Sat, 28 Nov 2026 02:00:10 GMT";
        headers.insert(header::DATE, text.parse().unwrap());
        assert_eq!(date(&headers), "2026-11-28T02:00:10Z".parse().ok());
    }
}
