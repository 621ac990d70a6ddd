//! Compares this machine's clock with the dates of the API server's answers.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response, header};
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use kube::client::Body;
use tower::{BoxError, Layer, Service};
use tracing::{info, warn};

use crate::clock::{Clock, Compared};
use crate::telemetry::metrics::Metrics;

/// A difference that is worth a line in the log. Nothing depends on smaller ones.
const WORTH_A_LINE: SignedDuration = SignedDuration::from_secs(5);

/// The layer that compares.
#[derive(Clone)]
pub(super) struct Date {
    clock: Clock,
    metrics: Arc<Metrics>,
}

/// A service whose answers have their dates compared.
#[derive(Clone)]
pub(super) struct Dated<S> {
    inner: S,
    date: Date,
}

impl Date {
    pub(super) fn new(clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self { clock, metrics }
    }

    fn compare(&self, asked: tokio::time::Instant, headers: &HeaderMap) {
        let Some(dated) = dated(headers) else {
            return;
        };
        let Compared { ahead, corrected } = self.clock.compare(asked, dated);
        self.metrics.clock_ahead(ahead);
        let Some(by) = corrected else {
            return;
        };
        if by.abs() >= WORTH_A_LINE {
            let ahead_seconds = by.as_secs();
            warn!(
                ahead_seconds,
                "clock of this machine differs from that of the API server, whose time counts"
            );
        } else if by.is_zero() {
            info!("clock of this machine agrees with that of the API server");
        }
    }
}

fn dated(headers: &HeaderMap) -> Option<Timestamp> {
    let date = headers.get(header::DATE)?.to_str().ok()?;
    DateTimeParser::new().parse_timestamp(date).ok()
}

impl<S> Layer<S> for Date {
    type Service = Dated<S>;

    fn layer(&self, inner: S) -> Dated<S> {
        let date = self.clone();
        Dated { inner, date }
    }
}

impl<S, B> Service<Request<Body>> for Dated<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let date = self.date.clone();
        let asked = date.clock.instant();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            date.compare(asked, answer.headers());
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[tokio::test]
    async fn the_date_of_an_answer_corrects_the_clock_and_is_shown() {
        for (wall, ahead) in [
            ("2026-11-21T12:05:00Z", "299.0"),
            ("2026-11-21T11:55:00Z", "-300.0"),
            ("2026-11-21T12:00:00Z", "0.0"),
        ] {
            let (clock, _) = Clock::frozen(wall.parse().unwrap());
            let metrics = Arc::new(Metrics::new());
            let server = service_fn(|_: Request<Body>| async {
                let answer = Response::builder().header("date", "Sat, 21 Nov 2026 12:00:00 GMT");
                Ok::<_, BoxError>(answer.body(Body::empty())?)
            });
            let date = Date::new(clock.clone(), Arc::clone(&metrics));
            let request = Request::new(Body::empty());
            date.layer(server).oneshot(request).await.unwrap();

            let page = metrics.exposition().unwrap();
            let line = format!("quorumgate_clock_skew_seconds {ahead}\n");
            assert!(page.contains(&line), "{line} is not in\n{page}");
            let noon: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
            let off = clock.now().duration_since(noon).abs();
            assert!(off <= SignedDuration::from_secs(1), "{off}");
        }
    }

    #[test]
    fn what_is_no_date_says_nothing() {
        let mut headers = HeaderMap::new();
        assert_eq!(dated(&headers), None);
        headers.insert(header::DATE, "yesterday".parse().unwrap());
        assert_eq!(dated(&headers), None);
    }
}
