//! A connection: the TLS handshake, requests, and a close that never interrupts an answer unless
//! the drain limit runs out.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::body::TrackedBody;
use super::peer::Handshake;
use super::shutdown::Shutdown;
use super::stage::{SharedStage, Stage, TrackedStream};
use super::traffic::Calls;
use crate::clock::monotonic_now;
use crate::telemetry::unauthenticated::UNAUTHENTICATED;

/// The largest TLS record in bytes, with its header and encryption overhead.
const LARGEST_RECORD: usize = 16 * 1024 + 256 + 5;

/// The size in bytes of hyper's read buffer: the limit for the head of a request, and for the part
/// of a body that waits to be read. Heads of an API server have a few hundred bytes.
const BUFFER: usize = 16 * 1024;

/// How long a connection that is kept open between calls may be idle.
pub const IDLE: Duration = Duration::from_secs(2);

/// Time limits for what a peer has to send.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For the TLS handshake, counted from the accept.
    pub handshake: Duration,
    /// For the head of a request, counted from its first byte.
    pub head: Duration,
    /// Before the first request, and between two requests.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            idle: IDLE,
        }
    }
}

impl Timeouts {
    fn is_exceeded(self, stage: Stage) -> bool {
        match stage {
            Stage::Idle(since) => since.elapsed() > self.idle,
            Stage::Head(since) => since.elapsed() > self.head,
            // The handshake and the handler have deadlines of their own, and the handler waits for
            // the body.
            Stage::Arriving(_) | Stage::Body(_) | Stage::Answering => false,
        }
    }

    /// The interval of checks, a quarter of the shorter limit.
    fn check_interval(self) -> Duration {
        self.head.min(self.idle) / 4
    }
}

pub(super) async fn serve(
    stream: TcpStream,
    arrived: Instant,
    acceptor: Option<(TlsAcceptor, Arc<Semaphore>)>,
    router: Router,
    shutdown: Shutdown,
    (timeouts, stage): (Timeouts, SharedStage),
    calls: Calls,
) {
    let Some((acceptor, handshakes)) = acceptor else {
        return serve_http(stream, None, router, shutdown, (timeouts, stage), &calls).await;
    };
    let peer = stream.peer_addr().ok().map(tracing::field::display);
    let handshaking = async {
        // A peer that sends nothing takes neither a handshake permit nor a buffer.
        stream.readable().await?;
        let _turn = handshakes.acquire().await.map_err(io::Error::other)?;
        // rustls reads 4 KiB at a time, which would be three or four system calls for a review.
        let stream = BufReader::with_capacity(LARGEST_RECORD, stream);
        acceptor.accept(stream).await
    };
    match tokio::time::timeout(timeouts.handshake, handshaking).await {
        Ok(Ok(stream)) => {
            let done = monotonic_now();
            let handshake = Handshake { arrived, done };
            let timing = (timeouts, stage);
            serve_http(stream, Some(handshake), router, shutdown, timing, &calls).await;
        }
        // Health checks of load balancers connect and go.
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            tracing::debug!(%error, peer, "TLS handshake ended early");
        }
        Ok(Err(error)) => {
            UNAUTHENTICATED.log(|| tracing::info!(%error, peer, "TLS handshake failed"));
        }
        Err(_) => tracing::debug!(after = ?arrived.elapsed(), "TLS handshake took too long"),
    }
}

/// Serves HTTP/1.1 only. The API server speaks nothing else to a webhook behind a Service (the
/// webhook client of `k8s.io/apiserver` sets `NextProtos` so), and its calls spread over the
/// replicas for that reason.
async fn serve_http<S>(
    stream: S,
    handshake: Option<Handshake>,
    router: Router,
    shutdown: Shutdown,
    (timeouts, stage): (Timeouts, SharedStage),
    calls: &Calls,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stage.idle();
    let first = AtomicBool::new(true);
    let service = service_fn(|mut request: Request<Incoming>| {
        if let Some(handshake) = handshake
            && first.swap(false, Ordering::Relaxed)
        {
            request.extensions_mut().insert(handshake);
        }
        request.extensions_mut().insert(calls.peer);
        let answering = stage.answering();
        let request = request.map(|body| TrackedBody::new(body, stage.clone()));
        let answer = router.clone().oneshot(request);
        let leaving = &shutdown.leaving;
        async move {
            let _answering = answering;
            let mut response = match answer.await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            if !calls.keep_open() || leaving.is_cancelled() {
                close_after(&mut response);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let tracked = TrackedStream {
        stream,
        stage: stage.clone(),
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(tracked), service);
    let mut connection = pin!(connection);
    let mut closing = false;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection failed");
                }
                return;
            }
            () = shutdown.closing.cancelled(), if !closing => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
            // The sleep comes last in the biased select, so that bytes that have arrived are read
            // before a limit is checked.
            () = sleep(timeouts.check_interval()) => {
                if timeouts.is_exceeded(stage.get()) {
                    return;
                }
            }
        }
    }
}

fn close_after<B>(response: &mut Response<B>) {
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
}
