//! Tests of `/livez`, `/readyz` and `/metrics`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use quorumgate::serve::admin::{Checks, router};
use quorumgate::telemetry::metrics::Metrics;
use tower::ServiceExt;

use super::listener::text;

async fn get(router: &Router, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    (response.status(), text(response).await)
}

#[tokio::test]
async fn readiness_lists_every_check_and_fails_with_the_failing_ones() {
    let synced = Arc::new(AtomicBool::new(false));
    let ready = Checks::new()
        .with("watches", {
            let synced = Arc::clone(&synced);
            move || {
                let synced = synced.load(Ordering::Relaxed);
                synced
                    .then_some(())
                    .ok_or_else(|| "not synced yet".to_owned())
            }
        })
        .with("certificate", || Ok(()));
    let pages = router(Checks::new(), ready, Arc::new(Metrics::new()));
    let (status, page) = get(&pages, "/readyz").await;
    assert_eq!(status, 503);
    assert_eq!(
        page,
        "[-]watches failed: not synced yet\n[+]certificate ok\nreadyz check failed\n"
    );
    let (status, page) = get(&pages, "/livez").await;
    assert_eq!(
        (status, page.as_str()),
        (StatusCode::OK, "livez check passed\n")
    );
    synced.store(true, Ordering::Relaxed);
    let (status, page) = get(&pages, "/readyz?verbose").await;
    assert_eq!(status, 200);
    assert_eq!(
        page,
        "[+]watches ok\n[+]certificate ok\nreadyz check passed\n"
    );
}

#[tokio::test]
async fn metrics_are_openmetrics_text() {
    let pages = router(Checks::new(), Checks::new(), Arc::new(Metrics::new()));
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    let response = pages.oneshot(request).await.unwrap();
    let kind = response.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(
        kind.starts_with("application/openmetrics-text; version=1.0.0"),
        "{kind}"
    );
    let page = text(response).await;
    assert!(
        page.contains("# TYPE quorumgate_ledger_conflicts counter"),
        "{page}"
    );
    assert!(page.ends_with("# EOF\n"));
}
