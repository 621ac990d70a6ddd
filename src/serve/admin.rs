//! `/livez`, `/readyz` and `/metrics`, on an address of their own: kubelets need no client
//! certificate there, and nothing else is served there.
//!
//! Liveness never depends on an etcd cluster: restarting the gate does not heal etcd.

use std::fmt::{self, Write};
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::telemetry::metrics::Metrics;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A condition: `Err` says in words why it does not hold.
type Condition = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Named conditions that must all hold.
#[derive(Default)]
pub struct Checks(Vec<(&'static str, Condition)>);

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

impl Checks {
    /// An empty list of conditions, which always holds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition, whose `Err` says in words what is wrong. `look` runs on every request of
    /// the page and must not block.
    #[must_use]
    pub fn with(
        mut self,
        name: &'static str,
        look: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.0.push((name, Box::new(look)));
        self
    }

    /// Returns the error of the first condition that does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.0.iter().try_for_each(|(_, look)| look())
    }

    /// The status and text of a health page: a line for each condition, in the form that the API
    /// server's own `/readyz?verbose` uses.
    fn page(&self, path: &str) -> (StatusCode, String) {
        let mut page = String::new();
        let mut all_hold = true;
        for (name, look) in &self.0 {
            let line = match look() {
                Ok(()) => format!("[+]{name} ok"),
                Err(why) => {
                    all_hold = false;
                    format!("[-]{name} failed: {why}")
                }
            };
            // Writing to a String does not fail.
            let _ = writeln!(page, "{line}");
        }
        let (status, outcome) = if all_hold {
            (StatusCode::OK, "passed")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "failed")
        };
        let _ = writeln!(page, "{path} check {outcome}");
        (status, page)
    }
}

/// The router of the three pages. `live` and `ready` are evaluated on every request.
pub fn router(
    live: impl Into<Arc<Checks>>,
    ready: impl Into<Arc<Checks>>,
    metrics: Arc<Metrics>,
) -> Router {
    let (live, ready) = (live.into(), ready.into());
    Router::new()
        .route("/livez", get(move || async move { live.page("livez") }))
        .route("/readyz", get(move || async move { ready.page("readyz") }))
        .route("/metrics", get(move || async move { exposition(&metrics) }))
}

fn exposition(metrics: &Metrics) -> Response {
    match metrics.exposition() {
        Ok(page) => ([(header::CONTENT_TYPE, OPENMETRICS)], page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
