//! A time limit for the answers of the API server.
//!
//! Without a limit, a call whose answer got lost (a control plane node lost power, for example)
//! never ends, and neither does the judgement or step that waits for it while it holds the turn of
//! its cluster. Watches have no such limit, since they are answered for as long as they last; a
//! silent watch ends by the read timeout of its connection.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use tower::{BoxError, Layer, Service};

/// The layer that limits every call except watches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound(pub(super) Duration);

/// A service whose calls, except watches, have a time limit.
#[derive(Debug, Clone)]
pub(super) struct Bounded<S> {
    inner: S,
    bound: Duration,
}

impl<S> Layer<S> for Bound {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded {
            inner,
            bound: self.0,
        }
    }
}

impl<S, B> Service<Request<Body>> for Bounded<S>
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
        let unbounded = is_watch(request.uri().query().unwrap_or_default());
        let bound = self.bound;
        let answer = self.inner.call(request);
        Box::pin(async move {
            if unbounded {
                return answer.await;
            }
            match tokio::time::timeout(bound, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(format!(
                    "the Kubernetes API did not answer within {} s",
                    bound.as_secs()
                )
                .into()),
            }
        })
    }
}

/// Whether a request with this query is answered by events without an end.
pub(super) fn is_watch(query: &str) -> bool {
    query
        .split('&')
        .any(|parameter| matches!(parameter, "watch=true" | "watch=1"))
}

#[cfg(test)]
mod tests {

    use tower::{ServiceExt as _, service_fn};

    use super::*;

    async fn ask(path: &str) -> Result<(), BoxError> {
        let silent = service_fn(|_: Request<Body>| async {
            std::future::pending::<()>().await;
            Ok::<_, BoxError>(Response::new(Body::empty()))
        });
        let request = Request::get(path).body(Body::empty()).unwrap();
        let bounded = Bound(Duration::from_secs(30)).layer(silent);
        bounded.oneshot(request).await.map(drop)
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_never_answered_ends() {
        let error = ask("/api/v1/pods?limit=1").await.unwrap_err();
        assert!(
            error.to_string().contains("did not answer within 30 s"),
            "{error}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_may_last() {
        let long = Duration::from_secs(3600);
        let watch = ask("/api/v1/pods?watch=true&resourceVersion=7");
        assert!(tokio::time::timeout(long, watch).await.is_err());
    }
}
