//! A request body that notes when all of it has arrived. A peer that sends slowly is told by it
//! from a peer that waits for its answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

use super::stage::SharedStage;

/// A request body that keeps the stage of its connection up to date.
pub(super) struct TrackedBody<B> {
    body: B,
    stage: SharedStage,
}

impl<B: Body> TrackedBody<B> {
    /// Wraps `body`, and notes in `stage` that the body is arriving, unless it is empty.
    pub(super) fn new(body: B, stage: SharedStage) -> Self {
        if !body.is_end_stream() {
            stage.body();
        }
        Self { body, stage }
    }
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.stage.arrived();
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

/// The handler dropped the body: it does not wait for the rest, and neither does the connection.
impl<B> Drop for TrackedBody<B> {
    fn drop(&mut self) {
        self.stage.arrived();
    }
}
