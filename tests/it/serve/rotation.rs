//! Certificates change under load, and no call fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use quorumgate::serve::ServeLimits;

use super::listener::{Listener, Pki, SOON};

/// The number of calls that succeeded, and whether to continue.
#[derive(Default)]
struct Load {
    calls: AtomicU64,
    enough: AtomicBool,
}

async fn more_calls(load: &Load) {
    let seen = load.calls.load(Ordering::Relaxed);
    let wait = async {
        while load.calls.load(Ordering::Relaxed) < seen + 50 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(SOON, wait)
        .await
        .expect("no calls get through");
}

#[tokio::test]
async fn n19_two_rotations_by_symlink_under_load_fail_no_call() {
    let mut pki = Pki::new();
    let router = Router::new().route("/", get(|| async { "ok" }));
    // Some callers keep their connections all the time.
    let limits = ServeLimits {
        keep_alive_above: 0,
        ..ServeLimits::default()
    };
    let listener = Arc::new(Listener::start(&pki, router, limits).await);
    let load = Arc::new(Load::default());
    let callers: Vec<_> = (0..4)
        .map(|n| {
            let (listener, load) = (Arc::clone(&listener), Arc::clone(&load));
            tokio::spawn(async move {
                let mut kept = listener.connect().await.unwrap();
                while !load.enough.load(Ordering::Relaxed) {
                    if n % 2 == 0 {
                        kept = listener.connect().await.unwrap();
                    }
                    assert_eq!(kept.get("/").await.unwrap().body(), "ok");
                    load.calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..2 {
        more_calls(&load).await;
        let fresh = pki.rotate();
        listener.shows_soon(&fresh).await;
    }
    more_calls(&load).await;
    load.enough.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    let page = listener.metrics.exposition().unwrap();
    assert!(
        page.contains("quorumgate_certificate_reloads_total 2"),
        "{page}"
    );
    assert!(
        page.contains("quorumgate_certificate_reload_failures_total 0"),
        "{page}"
    );
}

#[tokio::test]
async fn a_pair_that_does_not_fit_keeps_the_one_before_until_one_fits() {
    let mut pki = Pki::new();
    let before = pki.rotate();
    let router = Router::new().route("/", get(|| async { "ok" }));
    let listener = Listener::start(&pki, router, ServeLimits::default()).await;
    let certificate = std::fs::read_to_string(pki.files().certificate).unwrap();
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    pki.publish(&certificate, &other);
    let reported = async {
        let failed = "quorumgate_certificate_reload_failures_total 1";
        while !listener.metrics.exposition().unwrap().contains(failed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, reported)
        .await
        .expect("the bad pair is not reported");
    assert_eq!(listener.shown().await, before);
    assert_eq!(listener.certificate.validity(), Ok(()));
    let after = pki.rotate();
    listener.shows_soon(&after).await;
}
