//! The way of a request from its first byte to its answer: read, ask, report, respond.

use std::fmt;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument as _, Span};

use super::asked::{Asked, Context, What};
use super::deadline::Deadline;
use super::hook::Hook;
use super::malformed::{Malformed, Problem};
use super::mutate;
use super::mutate::evictions::Incarnations;
use super::mutate::pods::Enrolment;
use super::outcome::{Answered, Outcome};
use super::places::Places;
use super::report::report;
use super::respond::respond;
use super::room::{Readable, Room};
use super::{claims, evictions, pods, restarts, stateful_sets, trace, volumes};
use crate::clock::monotonic_now;
use crate::features::Features;
use crate::judge::{Answer, Judging};
use crate::serve::{Handshake, Peer};
use crate::telemetry::events::Notices;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::unauthenticated::UNAUTHENTICATED;

/// The parts that the webhooks work with. One for the process.
pub struct Admission {
    /// Answers questions about pods, StatefulSets and claims.
    pub judge: Arc<dyn Judging>,
    /// Knows which incarnation of a pod exists.
    pub incarnations: Arc<dyn Incarnations>,
    /// Knows which StatefulSets are enrolled.
    pub enrolment: Arc<dyn Enrolment>,
    /// Takes the Events about refusals.
    pub notices: Arc<dyn Notices>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The username under which the API server knows this process.
    pub own_username: String,
    /// The features that are on.
    pub features: Features,
    /// The limits of the webhooks.
    pub limits: Limits,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("own_username", &self.own_username)
            .field("features", &self.features)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// The limits of the webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest body in bytes. A review holds up to two objects of 1.5 MiB, etcd's limit for a
    /// request.
    pub body_bytes: usize,
    /// The most judgements at one time, half of them for one address. Further requests get a 429
    /// inside their review.
    pub judgements: usize,
    /// The most requests at one time, with those that are still being read. Further requests get an
    /// HTTP 429 unread.
    pub requests: usize,
    /// The most bytes that all bodies take together, without the first 32 KiB of each. Further
    /// bodies get an HTTP 429.
    pub room_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 4 * 1024 * 1024,
            judgements: 256,
            requests: 1024,
            room_bytes: 32 * 1024 * 1024,
        }
    }
}

/// The webhooks at work.
#[derive(Debug)]
pub(super) struct Webhooks {
    admission: Admission,
    /// A permit per request.
    requests: Semaphore,
    /// The memory of their bodies.
    room: Room,
    /// A place per judgement.
    places: Places,
}

impl Webhooks {
    pub(super) fn new(admission: Admission) -> Self {
        let Limits {
            body_bytes,
            judgements,
            requests,
            room_bytes,
        } = admission.limits;
        Self {
            admission,
            requests: Semaphore::new(requests),
            room: Room::new(room_bytes, body_bytes),
            places: Places::new(judgements),
        }
    }

    pub(super) async fn handle(&self, hook: Hook, request: Request<Body>) -> Response {
        let span = trace::begin(hook, request.headers());
        self.handle_in(&span, hook, request)
            .instrument(span.clone())
            .await
    }

    async fn handle_in(&self, span: &Span, hook: Hook, request: Request<Body>) -> Response {
        let start = monotonic_now();
        let Admission {
            metrics, notices, ..
        } = &self.admission;
        let _answering = metrics.answering();
        match self.answer(hook, start, request).await {
            Ok(answered) => {
                let rejection = answered.rejection();
                let rejection = rejection.as_ref();
                let took = start.elapsed();
                report(hook, &answered, rejection, took, metrics, &**notices);
                trace::end(span, &answered, rejection);
                respond(&answered, rejection)
            }
            Err(malformed) => {
                metrics.rejected(hook.slug(), malformed.problem.slug());
                trace::break_off(span, malformed.problem.slug());
                UNAUTHENTICATED.tell(|| {
                    tracing::warn!(
                        hook = hook.slug(),
                        reason = malformed.problem.slug(),
                        review = malformed.uid,
                        detail = %malformed.problem,
                        "rejected"
                    );
                });
                malformed.into_response()
            }
        }
    }

    async fn answer(
        &self,
        hook: Hook,
        start: Instant,
        request: Request<Body>,
    ) -> Result<Answered, Malformed> {
        let place = self.requests.try_acquire();
        let _place = place.map_err(|_| Problem::Overloaded)?;
        let handshake = request.extensions().get::<Handshake>();
        let arrived_at = handshake.map_or(start, |handshake| handshake.asked(start));
        let peer = request.extensions().get::<Peer>().copied();
        let deadline = Deadline::of(arrived_at, request.uri().query())?;
        let arriving = self.room.take_in(request.into_body());
        let arrived = timeout_at(deadline.judge, arriving).await;
        // The body's room is taken until the request is answered.
        let mut arrived = arrived.map_err(|_| Problem::TooSlow)??;
        let turn = timeout_at(deadline.judge, self.room.turn(&mut arrived)).await;
        let body = turn.map_err(|_| Problem::Overloaded)??;
        let Asked { about, what } = self.understand(hook, body, deadline).await?;
        let outcome = self.outcome(what, peer, deadline).await;
        Ok(Answered { about, outcome })
    }

    /// The question of the review. A mutating webhook works out its patch here.
    async fn understand(
        &self,
        hook: Hook,
        body: Readable<'_>,
        deadline: Deadline,
    ) -> Result<Asked, Malformed> {
        let Admission {
            incarnations,
            enrolment,
            features,
            own_username,
            ..
        } = &self.admission;
        let context = Context {
            own_username,
            deadline: deadline.judge,
        };
        // What has to wait for others is boxed, so that the rest costs no memory for that.
        let mutating = match hook {
            Hook::Pods => return body.read(|body| pods::asked(body, context)),
            Hook::Evictions => return body.read(|body| evictions::asked(body, context)),
            Hook::StatefulSets => return body.read(|body| stateful_sets::asked(body, context)),
            Hook::Claims => return body.read(|body| claims::asked(body, context)),
            Hook::Volumes => return body.read(|body| volumes::asked(body, context)),
            Hook::Restarts => return body.read(|body| restarts::asked(body, context)),
            Hook::MutateEvictions => {
                mutate::evictions::asked(body, context, &**incarnations).boxed()
            }
            Hook::MutateStatefulSets => {
                mutate::stateful_sets::asked(body, context, &**enrolment, *features).boxed()
            }
            Hook::MutatePods => mutate::pods::asked(body, context, &**enrolment).boxed(),
        };
        mutating.await
    }

    async fn outcome(&self, what: What, peer: Option<Peer>, deadline: Deadline) -> Outcome {
        let judge = &self.admission.judge;
        let judging = match what {
            What::Pod(question) => judge.judge(question),
            What::Set(question) => judge.judge_set(question),
            What::Claim(question) => judge.judge_claim(question),
            What::Nothing(waiver) => return Outcome::Unasked(waiver),
            What::Patch(Ok(patch)) => return Outcome::Changed(patch),
            What::Patch(Err(why)) => return Outcome::Judged(Answer::unavailable(why)),
        };
        let Some(_place) = self.places.take(peer) else {
            let why = "as many requests are being judged as can be";
            return Outcome::Judged(Answer::unavailable(why));
        };
        // A judge that overruns its deadline is left behind. A grant that it still records settles
        // by itself.
        let answer = timeout_at(deadline.answer, judging).await;
        Outcome::Judged(
            answer.unwrap_or_else(|_| Answer::unavailable("no judgement was reached in time")),
        )
    }
}
