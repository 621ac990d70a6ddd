//! A request's body that notes when all of it has arrived, so that a peer that sends slowly is told from one that waits for its answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

use super::pace::Pace;

/// A body on its way.
pub(super) struct Arriving<B> {
    body: B,
    pace: Pace,
}

impl<B: Body> Arriving<B> {
    /// Notes in `pace` that the body is on its way, where there is any.
    pub(super) fn new(body: B, pace: Pace) -> Self {
        if !body.is_end_stream() {
            pace.body();
        }
        Self { body, pace }
    }
}

impl<B: Body + Unpin> Body for Arriving<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.pace.arrived();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Nobody waits for the rest.
impl<B> Drop for Arriving<B> {
    fn drop(&mut self) {
        self.pace.arrived();
    }
}
