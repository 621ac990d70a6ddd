//! The webhooks: HTTP in, verdict out.
//!
//! What arrives is read without trust ([`review`]), turned into a question, put to a judge, and answered ([`ruling`],
//! `respond`). The judge is passed in; nothing here decides about a pod. Whatever goes wrong on the way is a refusal: no error,
//! panic or malformed request is ever answered by an allow.

mod actor;
mod checked;
mod deadline;
mod evictions;
mod grace;
mod handle;
mod hook;
mod identity;
mod malformed;
pub mod mutate;
mod objection;
mod places;
mod pods;
mod report;
mod respond;
mod restarts;
pub mod review;
mod room;
mod ruling;
pub mod stateful_set;

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

use handle::Door;
use malformed::Malformed;

/// All webhooks, at the paths of [`Hook::path`].
pub fn router(admission: Admission) -> Router {
    let door = Arc::new(Door::new(admission));
    let router = Hook::iter().fold(Router::new(), |router, hook| {
        let door = Arc::clone(&door);
        let handler = move |request: Request<Body>| async move { door.handle(hook, request).await };
        router.route(hook.path(), post(handler))
    });
    router
        .fallback(|| async { stray(Problem::NoSuchPath) })
        .method_not_allowed_fallback(|| async { stray(Problem::Method) })
        .layer(CatchPanicLayer::custom(broken))
}

/// A request that no webhook takes. Whoever scans ports sends many, so they are not told unless asked for.
fn stray(problem: Problem) -> Malformed {
    tracing::debug!(reason = problem.slug(), "rejected");
    problem.into()
}

/// A panic takes down its own request and nothing else.
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
    tracing::error!(panic = what, "a request broke its handler");
    Malformed::from(Problem::Broken).into_response()
}
