//! The webhooks: HTTP in, decision out.
//!
//! A review is read without trust ([`review`]). The file of its webhook says what is asked,
//! `handle` asks the judge, and `respond` answers. The judge is passed in; nothing is decided here
//! but that a request takes nothing. Every failure on the way is a refusal: no error, panic or
//! malformed request is answered by an allow.

mod actor;
mod asked;
mod checked;
mod claims;
mod deadline;
mod evictions;
mod handle;
mod hook;
mod malformed;
mod managers;
pub mod mutate;
mod outcome;
mod places;
mod pods;
mod reads;
mod rejection;
mod report;
mod respond;
mod restarts;
pub mod review;
mod room;
mod stateful_sets;
mod trace;
mod volumes;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use strum::IntoEnumIterator;
use tower_http::catch_panic::CatchPanicLayer;

pub use handle::{Admission, Limits};
pub use hook::Hook;
pub use malformed::Problem;

use handle::Webhooks;
use malformed::Malformed;

/// All webhooks, at the paths of [`Hook::path`].
pub fn router(admission: Admission) -> Router {
    report::expect(&admission.metrics);
    let webhooks = Arc::new(Webhooks::new(admission));
    let unknown = Arc::clone(&webhooks);
    let unknown =
        post(move |request: Request<Body>| async move { unknown.handle_unknown(request).await });
    let unknown = Router::new()
        .route("/validate/{webhook}", unknown.clone())
        .route("/mutate/{webhook}", unknown);
    let router = Hook::iter().fold(unknown, |router, hook| {
        let webhooks = Arc::clone(&webhooks);
        let handler =
            move |request: Request<Body>| async move { webhooks.handle(hook, request).await };
        router.route(hook.path(), post(handler))
    });
    router
        .fallback(|| async { stray(Problem::NoSuchPath) })
        .method_not_allowed_fallback(|| async { stray(Problem::Method) })
        .layer(CatchPanicLayer::custom(broken))
}

/// The answer to a request that no webhook takes. Port scans send many, so only the debug log has
/// them.
fn stray(problem: Problem) -> Malformed {
    tracing::debug!(reason = problem.slug(), "rejected");
    problem.into()
}

/// The answer to a request whose handler panicked. Other requests go on.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the layer hands the panic over"
)]
fn broken(panic: Box<dyn std::any::Any + Send>) -> Response {
    let what = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without words");
    tracing::error!(panic = what, "handler panicked");
    Malformed::from(Problem::Broken).into_response()
}
