//! The page `/readyz` on the port of the webhooks, by which replicas probe each other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::routing::get;
use tokio::time::Instant;

use crate::serve::admin::Checks;

/// The path of the page.
pub(super) const PATH: &str = "/readyz";
/// The header that lists the peers a replica reaches: pod names, separated by commas.
pub(super) const REACHES: &str = "quorumgate-reaches";
/// A replica that maintains endpoints and has not reached the API server for this long reports
/// itself as not ready: it can neither judge nor take itself out of the Service.
const API_UNREACHABLE_AFTER: Duration = Duration::from_millis(1250);

/// The latest results of the worker, which the page shows. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct PeerPage(Arc<Mutex<PageContent>>);

#[derive(Debug, Default)]
struct PageContent {
    reaches: String,
    /// When the API server last answered; `None` where no worker asks it.
    reached_api: Option<Instant>,
}

impl PeerPage {
    pub(super) fn reaches<'a>(&self, peers: impl Iterator<Item = &'a str>) {
        self.content().reaches = peers.collect::<Vec<_>>().join(",");
    }

    pub(super) fn reached_api(&self, at: Instant) {
        self.content().reached_api = Some(at);
    }

    /// Forgets the results: the replicas do not maintain the endpoints any more.
    pub(super) fn asks_nobody(&self) {
        *self.content() = PageContent::default();
    }

    fn content(&self) -> std::sync::MutexGuard<'_, PageContent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, ready: bool) -> (StatusCode, HeaderMap) {
        let seen = self.content();
        let blind = seen
            .reached_api
            .is_some_and(|at| at.elapsed() > API_UNREACHABLE_AFTER);
        let status = if ready && !blind {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        let mut headers = HeaderMap::new();
        if let Ok(reaches) = HeaderValue::from_str(&seen.reaches) {
            headers.insert(REACHES, reaches);
        }
        (status, headers)
    }
}

/// Adds the page to the webhooks' router.
pub fn beside(webhooks: Router, ready: Arc<Checks>, view: PeerPage) -> Router {
    webhooks.route(
        PATH,
        get(move || async move { view.answer(ready.check().is_ok()) }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_that_has_lost_the_api_server_says_so_and_one_that_never_asked_it_does_not() {
        let view = PeerPage::default();
        view.reaches(["gate-a", "gate-b"].into_iter());
        let (status, headers) = view.answer(true);
        assert_eq!(status, StatusCode::OK);
        assert_eq!(headers[REACHES], "gate-a,gate-b");
        view.reached_api(Instant::now());
        tokio::time::advance(API_UNREACHABLE_AFTER).await;
        assert_eq!(view.answer(true).0, StatusCode::OK);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(view.answer(true).0, StatusCode::SERVICE_UNAVAILABLE);
        view.reached_api(Instant::now());
        assert_eq!(view.answer(true).0, StatusCode::OK);
        assert_eq!(view.answer(false).0, StatusCode::SERVICE_UNAVAILABLE);
        view.asks_nobody();
        tokio::time::advance(API_UNREACHABLE_AFTER * 2).await;
        assert_eq!(view.answer(true).0, StatusCode::OK);
    }
}
