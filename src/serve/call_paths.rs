//! The paths at which API servers call: `/validate/pods/WORD`, with a word that only they, the
//! gate, and readers of its webhook configurations know. A pod that reaches the port does not know
//! it, and gets no answer that concerns a cluster.
//!
//! The word belongs to the serving certificate, and changes with it. The words before it are
//! admitted until API servers have had time to notice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Context, SHA256};
use axum::Router;
use axum::body::Body;
use axum::http::uri::PathAndQuery;
use axum::http::{Request, Uri};
use rustls::pki_types::PrivateKeyDer;
use tokio::time::Instant;
use tower::ServiceExt as _;

use crate::api::call_path::split;

/// How long a word is admitted after it was last offered: API servers may be behind, and the Secret
/// that listed it may be lost.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The word of the serving certificate with this key. It tells nothing of the key.
pub fn word_of(key: &PrivateKeyDer<'_>) -> String {
    let mut context = Context::new(&SHA256);
    context.update(b"quorumgate webhook path");
    context.update(key.secret_der());
    let digest = context.finish();
    let bytes = digest.as_ref().first_chunk().copied().unwrap_or_default();
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// The words that this replica admits.
#[derive(Debug, Default)]
pub struct CallPaths {
    /// Each word, and when it was last offered. `None`: every word is admitted, since nobody
    /// makes them.
    words: Option<Mutex<BTreeMap<String, Instant>>>,
}

impl CallPaths {
    /// No word is admitted before it is offered.
    pub fn offered() -> Self {
        Self {
            words: Some(Mutex::default()),
        }
    }

    /// Admits these words, and those offered lately.
    pub fn offer(&self, words: impl IntoIterator<Item = String>, now: Instant) {
        let Some(known) = &self.words else {
            return;
        };
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(words.into_iter().map(|word| (word, now)));
        let newest = known.values().max().copied();
        known.retain(|_, offered| {
            newest.is_none_or(|newest| newest.duration_since(*offered) < REMEMBERED)
        });
    }

    /// Whether a call of a path with this word is answered.
    pub fn admits(&self, word: &str) -> bool {
        let Some(known) = &self.words else {
            return true;
        };
        let known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let is = |known: &String| verify_slices_are_equal(known.as_bytes(), word.as_bytes());
        known.keys().any(|known| is(known).is_ok())
    }

    /// The webhooks behind these paths. A call by another one has a path that no webhook has.
    pub fn guard(self: Arc<Self>, webhooks: Router) -> Router {
        Router::new().fallback(move |request: Request<Body>| {
            let request = self.admit(request);
            webhooks.clone().oneshot(request)
        })
    }

    fn admit(&self, mut request: Request<Body>) -> Request<Body> {
        let (path, word) = split(request.uri().path());
        let path = if self.admits(word) { path } else { "/" };
        let path = match request.uri().query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = PathAndQuery::try_from(path).ok();
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        request
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::post;

    use super::*;
    use crate::api::call_path::PLAIN;
    use crate::clock::monotonic_now;

    #[test]
    fn a_word_is_admitted_for_a_minute_after_it_was_last_offered() {
        let (paths, start) = (CallPaths::offered(), monotonic_now());
        assert!(!paths.admits("ab") && !paths.admits(PLAIN));
        paths.offer(["ab".to_owned(), PLAIN.to_owned()], start);
        assert!(paths.admits("ab") && paths.admits(PLAIN));
        paths.offer(["cd".to_owned()], start + Duration::from_secs(59));
        assert!(paths.admits("ab") && paths.admits("cd"));
        // A Secret without any word takes none away.
        paths.offer([], start + Duration::from_secs(300));
        assert!(paths.admits("cd"));
        paths.offer(["cd".to_owned()], start + Duration::from_secs(301));
        assert!(!paths.admits("ab") && !paths.admits(PLAIN) && paths.admits("cd"));
        assert!(CallPaths::default().admits("whatever"));
    }

    #[tokio::test]
    async fn whoever_does_not_know_the_word_calls_a_path_of_no_webhook() {
        let answer = |request: Request<Body>| async move { request.uri().to_string() };
        let webhooks = Router::new().route("/validate/pods", post(answer));
        let paths = Arc::new(CallPaths::offered());
        paths.offer(["ab".to_owned()], monotonic_now());
        let guarded = Arc::clone(&paths).guard(webhooks);
        let call = async |path: &str| {
            let request = Request::post(path).body(Body::empty()).unwrap();
            let answer = guarded.clone().oneshot(request).await.unwrap();
            let status = answer.status().as_u16();
            let body = axum::body::to_bytes(answer.into_body(), 1024)
                .await
                .unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        };
        let called = call("/validate/pods/ab?timeout=5s").await;
        assert_eq!(called, (200, "/validate/pods?timeout=5s".to_owned()));
        for path in [
            "/validate/pods",
            "/validate/pods/xy",
            "/validate/pods/ab/c",
            "/",
        ] {
            assert_eq!(call(path).await.0, 404, "{path}");
        }
        paths.offer([PLAIN.to_owned()], monotonic_now());
        assert_eq!(call("/validate/pods").await.0, 200);
    }
}
