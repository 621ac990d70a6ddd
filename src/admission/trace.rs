//! The span of an admission request, which contains the spans of all its steps.

use http::HeaderMap;
use tracing::field::Empty;
use tracing::{Span, trace_span};

use super::hook::Hook;
use super::outcome::HandledReview;
use super::rejection::Rejection;
use super::report::verdict;
use crate::telemetry::traces::{self, TRACED};

/// The span of a request. It continues the trace of the API server.
pub(super) fn begin(hook: Hook, headers: &HeaderMap) -> Span {
    let span = trace_span!(
        target: TRACED,
        "admission",
        otel.kind = "server",
        hook = hook.slug(),
        review = Empty,
        namespace = Empty,
        name = Empty,
        cluster = Empty,
        verdict = Empty,
        reason = Empty,
        detail = Empty,
    );
    traces::continue_trace(&span, headers);
    span
}

/// Notes the answer, as the log line has it.
pub(super) fn end(span: &Span, answered: &HandledReview, rejection: Option<&Rejection>) {
    if span.is_disabled() {
        return;
    }
    let about = &answered.about;
    span.record("review", about.review.as_str());
    span.record("namespace", about.subject.namespace.as_str());
    span.record("name", about.subject.name.as_str());
    let answer = answered.outcome.answer();
    if let Some(cluster) = answer.and_then(|answer| answer.cluster.as_ref()) {
        span.record("cluster", tracing::field::display(cluster));
    }
    span.record("verdict", verdict(answered, rejection));
    span.record("reason", answered.outcome.reason());
    if let Some(rejection) = rejection {
        span.record("detail", rejection.message.as_str());
    }
}

/// Notes why a request was turned away unread.
pub(super) fn break_off(span: &Span, problem: &'static str) {
    span.record("reason", problem);
}
