//! Answers that fit into memory, whatever the objects are.
//!
//! Anybody may create objects of more than a mebibyte, and a page of five hundred of them would be
//! more than a replica has. So this layer chooses how many objects a page has, by the length of the
//! pages before. A page that turns out longer than [`LONGEST`] is given up while it arrives, and
//! asked for again with fewer objects. Few long answers arrive at one time, and single objects are
//! charged to whoever reads them ([`room`]).

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use futures::future::BoxFuture;
use http::header::ACCEPT;
use http::request::Parts;
use http::{Method, Request, Response, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt as _, Either, Full};
use kube::client::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{BoxError, Layer, Service};

use super::bounded::is_watch;
use crate::lists::PAGE;
use crate::room;

/// The objects of the first page of a kind.
const FIRST: u32 = 64;

/// The length that pages should have, in bytes.
const WISHED: usize = 1024 * 1024;

/// The longest page of several objects, in bytes.
const LONGEST: usize = 4 * 1024 * 1024;

/// The longest object, in bytes. etcd holds 1.5 MiB of it, and each byte may be written
/// as six in JSON.
const LONGEST_OF_ONE: usize = 16 * 1024 * 1024;

/// The bytes of an answer that need no turn.
const FREE: usize = 128 * 1024;

/// The long answers that arrive at one time.
const AT_ONCE: usize = 3;

/// The layer that makes answers fit. An answer has to arrive within the duration.
#[derive(Debug, Clone)]
pub(super) struct Fit {
    within: Duration,
    pages: Arc<Pages>,
}

impl Fit {
    pub(super) fn new(within: Duration) -> Self {
        let pages = Pages {
            sizes: Mutex::default(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        };
        Self {
            within,
            pages: Arc::new(pages),
        }
    }
}

impl Fit {
    /// An answer that is no page. A single object is charged to whoever reads it.
    async fn whole<B>(self, answer: Response<B>) -> Result<Response<Either<B, Answer>>, BoxError>
    where
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        if !answer.status().is_success() {
            return Ok(answer.map(Either::Left));
        }
        let (head, body) = answer.into_parts();
        let object = self.take_in(body, LONGEST_OF_ONE).await?;
        let object = object.ok_or_else(too_long)?;
        room::charge(object.length()).await?;
        Ok(Response::from_parts(head, Either::Right(object)))
    }

    /// Takes in a body. `None` if it is longer than `longest`.
    async fn take_in<B>(&self, body: B, longest: usize) -> Result<Option<Answer>, BoxError>
    where
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        let taking_in = take_in(body, longest, &self.pages.turns);
        let taken_in = tokio::time::timeout(self.within, taking_in).await;
        taken_in.map_err(|_| {
            let within = self.within.as_secs();
            format!("the Kubernetes API's answer did not arrive within {within} s")
        })?
    }
}

fn too_long() -> BoxError {
    format!("an object takes more than {LONGEST_OF_ONE} bytes").into()
}

/// The knowledge of pages.
#[derive(Debug)]
struct Pages {
    /// The number of objects in the next page of each kind. Whole objects and their metadata are
    /// two kinds.
    sizes: Mutex<HashMap<String, u32>>,
    turns: Arc<Semaphore>,
}

impl Pages {
    fn sizes(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn size(&self, kind: &str) -> u32 {
        self.sizes().get(kind).copied().unwrap_or(FIRST)
    }

    fn learn(&self, kind: &str, size: u32) {
        self.sizes().insert(kind.to_owned(), size.clamp(1, PAGE));
    }

    /// Learns from a page of up to `size` objects, which took `length` bytes.
    fn learn_from(&self, kind: &str, size: u32, length: usize, has_more: bool) {
        if length > WISHED {
            let fitting = u64::from(size) * WISHED as u64 / length as u64;
            self.learn(kind, u32::try_from(fitting).unwrap_or(PAGE));
        } else if has_more && length < WISHED / 2 && size >= self.size(kind) {
            self.learn(kind, size.saturating_mul(2));
        }
    }
}

/// A service whose lists come in pages that fit. The inner service is asked again for a page that
/// was too long.
#[derive(Debug)]
pub(super) struct Fitted<S> {
    inner: Arc<Mutex<S>>,
    fit: Fit,
}

fn lock<S>(service: &Mutex<S>) -> MutexGuard<'_, S> {
    service.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S> Layer<S> for Fit {
    type Service = Fitted<S>;

    fn layer(&self, inner: S) -> Fitted<S> {
        Fitted {
            inner: Arc::new(Mutex::new(inner)),
            fit: self.clone(),
        }
    }
}

impl<S, B> Service<Request<Body>> for Fitted<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Send + 'static,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError> + Send,
{
    type Response = Response<Either<B, Answer>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        lock(&self.inner).poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if is_watch(request.uri().query().unwrap_or_default()) {
            let answer = lock(&self.inner).call(request);
            return Box::pin(async move { Ok(answer.await?.map(Either::Left)) });
        }
        let (inner, fit) = (Arc::clone(&self.inner), self.fit.clone());
        let Some(asked) = limit(request.method(), request.uri()) else {
            let answer = lock(&inner).call(request);
            return Box::pin(async move { fit.whole(answer.await?).await });
        };
        Box::pin(async move {
            let (parts, _) = request.into_parts();
            let kind = kind(&parts);
            let mut size = asked.min(fit.pages.size(&kind));
            loop {
                let request = page(&parts, size)?;
                poll_fn(|context| lock(&inner).poll_ready(context)).await?;
                let answer = lock(&inner).call(request);
                let answer = answer.await?;
                if !answer.status().is_success() {
                    return Ok(answer.map(Either::Left));
                }
                let (head, body) = answer.into_parts();
                let longest = if size == 1 { LONGEST_OF_ONE } else { LONGEST };
                if let Some(page) = fit.take_in(body, longest).await? {
                    fit.pages
                        .learn_from(&kind, size, page.length(), page.has_more());
                    return Ok(Response::from_parts(head, Either::Right(page)));
                }
                if size == 1 {
                    return Err(too_long());
                }
                size = (size / 4).max(1);
                fit.pages.learn(&kind, size);
            }
        })
    }
}

/// The number of objects that a list asks for at once. `None` for what is no such list.
fn limit(method: &Method, uri: &Uri) -> Option<u32> {
    let query = uri.query().filter(|_| *method == Method::GET)?;
    let limit = query.split('&').find_map(|one| one.strip_prefix("limit="));
    limit?.parse().ok()
}

fn kind(parts: &Parts) -> String {
    let resource = parts.uri.path().trim_end_matches('/').rsplit('/').next();
    let form = parts.headers.get(ACCEPT).map(|form| form.to_str());
    let form = form.and_then(Result::ok).unwrap_or_default();
    format!("{} {form}", resource.unwrap_or_default())
}

/// The request for a page of this size.
fn page(parts: &Parts, size: u32) -> Result<Request<Body>, BoxError> {
    let query = parts.uri.query().unwrap_or_default().split('&');
    let query: Vec<String> = query
        .map(|one| match one.strip_prefix("limit=") {
            Some(_) => format!("limit={size}"),
            None => one.to_owned(),
        })
        .collect();
    let mut uri = parts.uri.clone().into_parts();
    let target = format!("{}?{}", parts.uri.path(), query.join("&"));
    uri.path_and_query = Some(target.parse()?);
    let mut parts = parts.clone();
    parts.uri = Uri::from_parts(uri)?;
    Ok(Request::from_parts(parts, Body::empty()))
}

/// Takes in a body. `None` if it is longer than `longest`.
async fn take_in<B>(
    mut body: B,
    longest: usize,
    turns: &Arc<Semaphore>,
) -> Result<Option<Answer>, BoxError>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let declared = body.size_hint().exact();
    let declared = declared.map_or(0, |exact| usize::try_from(exact).unwrap_or(usize::MAX));
    if declared > longest {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let mut turn = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Into::into)?.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > longest {
            return Ok(None);
        }
        if bytes.len() + data.len() > FREE && turn.is_none() {
            turn = Some(Arc::clone(turns).acquire_owned().await?);
            bytes.reserve_exact(declared.saturating_sub(bytes.len()));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Some(Answer {
        bytes: Full::new(bytes.into()),
        _turn: turn,
    }))
}

/// A body that arrived, and its turn.
#[derive(Debug)]
pub(super) struct Answer {
    bytes: Full<Bytes>,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Answer {
    fn length(&self) -> usize {
        let length = self.bytes.size_hint().exact();
        length.map_or(0, |exact| usize::try_from(exact).unwrap_or(usize::MAX))
    }

    /// Whether objects are left for further pages. An API server says so before the objects.
    fn has_more(&self) -> bool {
        const HEAD: usize = 4096;
        let all = self.bytes.clone().into_inner().unwrap_or_default();
        let head = all.get(..HEAD.min(all.len())).unwrap_or_default();
        let token = br#""continue":""#;
        head.windows(token.len()).any(|found| found == token)
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.bytes)
            .poll_frame(context)
            .map_err(|never| match never {})
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.bytes.size_hint()
    }
}

#[cfg(test)]
mod tests;
