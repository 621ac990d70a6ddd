//! The stage of a connection, by which a slow peer is told from an idle one.
//!
//! hyper's own timeout for request heads also runs while a connection is idle, and hyper has none
//! for the time before the first request or for bodies.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::clock::monotonic_now;

/// The stage of a connection, shared by its stream, its handler and its timer.
#[derive(Debug, Clone)]
pub(super) struct SharedStage(Arc<Mutex<Stage>>);

/// The activity of a connection, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The TLS handshake is not done yet.
    Arriving(Instant),
    /// No request is under way.
    Idle(Instant),
    /// The peer is sending the head of a request.
    Head(Instant),
    /// The peer is sending the body of a request.
    Body(Instant),
    /// A request is being answered.
    Answering,
}

impl SharedStage {
    pub(super) fn arriving() -> Self {
        Self(Arc::new(Mutex::new(Stage::Arriving(monotonic_now()))))
    }

    pub(super) fn get(&self) -> Stage {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the head of a request is complete. The request counts as being answered until the
    /// returned value is dropped.
    pub(super) fn answering(&self) -> Answering {
        self.enter(Stage::Answering);
        Answering(self.clone())
    }

    /// Notes that no request is under way.
    pub(super) fn idle(&self) {
        self.enter(Stage::Idle(monotonic_now()));
    }

    /// Notes that the body of a request is arriving.
    pub(super) fn body(&self) {
        self.enter(Stage::Body(monotonic_now()));
    }

    /// Notes that the body has arrived, or that the handler does not wait for the rest of it.
    pub(super) fn arrived(&self) {
        if matches!(self.get(), Stage::Body(_)) {
            self.enter(Stage::Answering);
        }
    }

    fn enter(&self, stage: Stage) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }

    fn bytes_arrived(&self) {
        if matches!(self.get(), Stage::Idle(_)) {
            self.enter(Stage::Head(monotonic_now()));
        }
    }
}

/// A guard for a request that is being answered; dropping it makes the connection idle.
pub(super) struct Answering(SharedStage);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.idle();
    }
}

/// A stream that notes when the first bytes of a request arrive.
pub(super) struct TrackedStream<S> {
    pub(super) stream: S,
    pub(super) stage: SharedStage,
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.stage.bytes_arrived();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
