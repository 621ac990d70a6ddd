//! What the gate is compared with: axum behind rustls with the same settings, which reads a request and answers fixed bytes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use axum::serve::Listener;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Answers every POST to `path` with `answer`, for as long as the runtime lives.
pub(crate) async fn listen(
    tls: Arc<ServerConfig>,
    path: &str,
    answer: Vec<u8>,
) -> Result<SocketAddr> {
    let listener = Handshaking {
        listener: TcpListener::bind("127.0.0.1:0").await?,
        acceptor: TlsAcceptor::from(tls),
    };
    let address = listener.listener.local_addr()?;
    let answer = Bytes::from(answer);
    let handler =
        move |_request: Bytes| async move { ([(CONTENT_TYPE, "application/json")], answer) };
    let router = Router::new().route(path, post(handler));
    tokio::spawn(async { axum::serve(listener, router).await });
    Ok(address)
}

/// One handshake after another: connections are kept, so that they do not matter here.
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
