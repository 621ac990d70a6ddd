//! Counts the requests to the API server by their outcome, and traces those that an admission
//! request needs.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use tower::{BoxError, Layer, Service};
use tracing::Instrument as _;
use tracing::field::Empty;

use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::step;

/// The layer that counts every call.
#[derive(Debug, Clone)]
pub(super) struct Count(pub(super) Arc<Metrics>);

/// A service whose calls are counted.
#[derive(Debug, Clone)]
pub(super) struct Counted<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S> Layer<S> for Count {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        let metrics = Arc::clone(&self.0);
        Counted { inner, metrics }
    }
}

impl<S, B> Service<Request<Body>> for Counted<S>
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
        let method = method(request.method());
        let metrics = Arc::clone(&self.metrics);
        let span = step!(
            "request to the API server",
            otel.kind = "client",
            http.request.method = request.method().as_str(),
            url.path = request.uri().path(),
            url.query = request.uri().query(),
            outcome = Empty,
        );
        let answer = self.inner.call(request);
        let noted = span.clone();
        let counted = async move {
            let answer = answer.await;
            let status = answer.as_ref().map(Response::status);
            let outcome = status.map_or("unanswered", outcome);
            metrics.api_answered(method, outcome);
            noted.record("outcome", outcome);
            answer
        };
        Box::pin(counted.instrument(span))
    }
}

/// The methods that the gate uses, so that the label is bounded.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

fn outcome(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "denied",
        StatusCode::NOT_FOUND => "not-found",
        StatusCode::CONFLICT => "conflict",
        StatusCode::TOO_MANY_REQUESTS => "throttled",
        status if status.is_client_error() => "rejected",
        status if status.is_server_error() => "failed",
        _ => "ok",
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[tokio::test]
    async fn each_call_is_counted_by_its_method_and_outcome() {
        let metrics = Arc::new(Metrics::new());
        let cases = [
            (Method::GET, Some(StatusCode::OK), "get", "ok"),
            (Method::PUT, Some(StatusCode::CONFLICT), "put", "conflict"),
            (Method::GET, Some(StatusCode::NOT_FOUND), "get", "not-found"),
            (Method::POST, Some(StatusCode::FORBIDDEN), "post", "denied"),
            (
                Method::DELETE,
                Some(StatusCode::TOO_MANY_REQUESTS),
                "delete",
                "throttled",
            ),
            (
                Method::PATCH,
                Some(StatusCode::UNPROCESSABLE_ENTITY),
                "patch",
                "rejected",
            ),
            (Method::GET, Some(StatusCode::BAD_GATEWAY), "get", "failed"),
            (Method::GET, None, "get", "unanswered"),
        ];
        for (method, status, said, outcome) in cases {
            let server = service_fn(move |_: Request<Body>| async move {
                let status = status.ok_or("the connection broke")?;
                let mut answer = Response::new(Body::empty());
                *answer.status_mut() = status;
                Ok::<_, BoxError>(answer)
            });
            let request = Request::builder().method(method).uri("/api/v1/pods");
            let request = request.body(Body::empty()).unwrap();
            let _ = Count(Arc::clone(&metrics))
                .layer(server)
                .oneshot(request)
                .await;
            let page = metrics.exposition().unwrap();
            let line = format!(
                "quorumgate_api_requests_total{{method=\"{said}\",outcome=\"{outcome}\"}} 1\n"
            );
            assert!(page.contains(&line), "{line} is not in\n{page}");
        }
    }
}
