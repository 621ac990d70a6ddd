//! A byte stream that remembers the error that broke it.
//!
//! The HTTP/2 layer turns any error of the stream into one of its own, in which a refused client
//! certificate looks like any lost connection. The difference is evidence, so it is kept here,
//! where the error is still typed.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::failure::{self, Failure};

/// Why a stream broke, and the first byte that came by it. Empty while it works, and before that.
#[derive(Debug, Clone, Default)]
pub(super) struct Fault(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    failure: OnceLock<Failure>,
    first: OnceLock<u8>,
}

impl Fault {
    pub(super) fn get(&self) -> Option<Failure> {
        self.0.failure.get().cloned()
    }

    /// The first byte that the peer sent.
    pub(super) fn first_byte(&self) -> Option<u8> {
        self.0.first.get().copied()
    }

    fn record(&self, error: &io::Error) {
        // The first error is the cause; later ones follow from it.
        let _ = self.0.failure.set(failure::from_io(error));
    }
}

/// A stream whose errors are recorded.
pub(super) struct FaultStream<S> {
    inner: S,
    fault: Fault,
}

impl<S> FaultStream<S> {
    pub(super) fn new(inner: S, fault: Fault) -> Self {
        Self { inner, fault }
    }

    fn note<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &polled {
            self.fault.record(error);
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FaultStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if let Some(first) = buffer.filled().get(before) {
            let _ = self.fault.0.first.set(*first);
        }
        self.note(polled)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FaultStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.note(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        self.note(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
