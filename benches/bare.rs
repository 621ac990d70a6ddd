//! The baseline for the gate: axum and rustls with the same settings, which answer the same bytes.
//!
//! An answer repeats the uid of its review, so the baseline has to find the uid in the request.
//! [`Reads::Nothing`] does not even do that, so it is the least that any answer over HTTPS costs.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use axum::serve::Listener;
use rustls::ServerConfig;
use serde::Deserialize;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The part of a request that the baseline reads.
#[derive(Clone, Copy)]
pub(crate) enum Reads {
    /// The review's uid.
    Uid,
    /// Nothing: every answer repeats the uid of the first review.
    Nothing,
}

/// An answer to any review: its bytes before and after the uid.
#[derive(Clone)]
struct Answer {
    before: Bytes,
    uid: Bytes,
    after: Bytes,
}

#[derive(Deserialize)]
struct Review<'a> {
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(Deserialize)]
struct Request<'a> {
    uid: &'a str,
}

impl Answer {
    /// An answer like `answer`, which is the one to the review `uid`.
    fn like(answer: &[u8], uid: &str) -> Result<Self> {
        let answer = Bytes::copy_from_slice(answer);
        let at = answer
            .windows(uid.len())
            .position(|part| part == uid.as_bytes())
            .context("an answer without its review's uid")?;
        let end = at + uid.len();
        Ok(Self {
            before: answer.slice(..at),
            uid: answer.slice(at..end),
            after: answer.slice(end..),
        })
    }

    fn to(&self, uid: &[u8]) -> Vec<u8> {
        [&self.before, uid, &self.after].concat()
    }

    fn answer(&self, reads: Reads, request: &[u8]) -> Result<Vec<u8>, StatusCode> {
        match reads {
            Reads::Nothing => Ok(self.to(&self.uid)),
            Reads::Uid => {
                let review: Review<'_> =
                    serde_json::from_slice(request).map_err(|_| StatusCode::BAD_REQUEST)?;
                Ok(self.to(review.request.uid.as_bytes()))
            }
        }
    }
}

/// Answers every POST to `path` like `answer`, which is the gate's to the review `uid`, for as long
/// as the runtime lives.
pub(crate) async fn listen(
    tls: Arc<ServerConfig>,
    path: &str,
    reads: Reads,
    answer: &[u8],
    uid: &str,
) -> Result<SocketAddr> {
    let listener = Handshaking {
        listener: TcpListener::bind("127.0.0.1:0").await?,
        acceptor: TlsAcceptor::from(tls),
    };
    let address = listener.listener.local_addr()?;
    let answer = Answer::like(answer, uid)?;
    let handler = move |request: Bytes| async move {
        let answer = answer.answer(reads, &request)?;
        Ok::<_, StatusCode>(([(CONTENT_TYPE, "application/json")], answer))
    };
    let router = Router::new().route(path, post(handler));
    tokio::spawn(async { axum::serve(listener, router).await });
    Ok(address)
}

/// A listener that makes one handshake after another. Connections are kept, so handshakes do not
/// matter for the results.
struct Handshaking {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Handshaking {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            if stream.set_nodelay(true).is_ok()
                && let Ok(stream) = self.acceptor.accept(stream).await
            {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
