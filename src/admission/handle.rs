//! The way of a request from its first byte to its answer: read, ask, report, respond.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{Instrument as _, Span};

use super::asked::{Context, ParsedReview, ReviewAction, ReviewContext};
use super::deadline::Deadline;
use super::hook::Hook;
use super::malformed::{Malformed, Problem};
use super::mutate;
use super::mutate::evictions::Incarnations;
use super::mutate::pods::Enrolment;
use super::outcome::{HandledReview, Outcome};
use super::places::Places;
use super::reads::{NoRead, Reads};
use super::report::report;
use super::respond::respond;
use super::review::uid_of;
use super::room::{Arrived, Readable, Room, discard};
use super::{claims, evictions, pods, restarts, stateful_sets, trace, volumes};
use crate::clock::monotonic_now;
use crate::features::Features;
use crate::judge::{Answer, Judging};
use crate::room;
use crate::serve::{Handshake, Peer};
use crate::telemetry::events::Notices;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::unauthenticated::UNAUTHENTICATED;

/// The time limit for a body that is not read.
const UNREAD: Duration = Duration::from_secs(4);

/// The word for a webhook that this release does not have.
const UNKNOWN: &str = "unknown";

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
    /// request, and each byte may be written as six in JSON. A longer one does not come from an API
    /// server, and an object with a longer one could never be deleted.
    pub body_bytes: usize,
    /// The most judgements at one time, half of them for one address, and a third for one namespace
    /// of it. Further requests get a 429 inside their review.
    pub judgements: usize,
    /// The most reads of mutating webhooks at one time, half of them for one address. A further
    /// request is answered without a read.
    pub changes: usize,
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
            body_bytes: 20 * 1024 * 1024,
            judgements: 256,
            changes: 64,
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
    /// The memory of the objects that they make the gate read.
    objects: room::Room,
    /// A place per judgement.
    places: Places,
    /// A place per request to change something.
    changing: Places,
}

impl Webhooks {
    pub(super) fn new(admission: Admission) -> Self {
        let Limits {
            body_bytes,
            judgements,
            changes,
            requests,
            room_bytes,
        } = admission.limits;
        Self {
            admission,
            requests: Semaphore::new(requests),
            room: Room::new(room_bytes, body_bytes),
            objects: room::Room::default(),
            places: Places::new(judgements),
            changing: Places::new(changes),
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
        let answer = self.objects.account(self.answer(hook, start, request));
        match answer.await {
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
                UNAUTHENTICATED.log(|| {
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
    ) -> Result<HandledReview, Malformed> {
        let Ok(_place) = self.requests.try_acquire() else {
            return Err(refuse_unread(request).await.into());
        };
        let handshake = request.extensions().get::<Handshake>();
        let arrived_at = handshake.map_or(start, |handshake| handshake.asked(start));
        let peer = request.extensions().get::<Peer>().copied();
        let deadline = Deadline::parse(arrived_at, request.uri().query())?;
        let mut arrived = self.take_in(request, deadline).await?;
        let body = self.turn(&mut arrived, deadline).await?;
        let ParsedReview { about, what } = self.understand(hook, body, peer, deadline).await?;
        // Little is left of the body, and a judgement may take long.
        drop(arrived);
        let outcome = if self.is_asked_too_early(hook, &about, &what) {
            Outcome::Judged(Answer::unavailable(NoRead::NotGated.to_string()))
        } else {
            let caller = (peer, about.subject.namespace.as_str());
            self.outcome(what, caller, deadline).await
        };
        Ok(HandledReview { about, outcome })
    }

    async fn take_in(
        &self,
        request: Request<Body>,
        deadline: Deadline,
    ) -> Result<Arrived<'_>, Problem> {
        let arriving = self.room.take_in(request.into_body());
        let arrived = timeout_at(deadline.judge, arriving).await;
        arrived.map_err(|_| Problem::TooSlow)?
    }

    async fn turn(
        &self,
        arrived: &mut Arrived<'_>,
        deadline: Deadline,
    ) -> Result<Readable<'_>, Problem> {
        let turn = timeout_at(deadline.judge, self.room.turn(arrived)).await;
        turn.map_err(|_| Problem::Overloaded)?
    }

    /// Whether a question is about a namespace that is not under the gate, by the watches. API
    /// servers ask none, unless they have seen a new label first. It is refused and not permitted,
    /// since a watch may be behind. Volumes are in no namespace, and asked about in all.
    fn is_asked_too_early(&self, hook: Hook, about: &ReviewContext, what: &ReviewAction) -> bool {
        let is_question = match what {
            ReviewAction::Pod(_) | ReviewAction::Set(_) | ReviewAction::Claim(_) => {
                hook != Hook::Volumes
            }
            ReviewAction::Nothing(_) | ReviewAction::Patch(_) => false,
        };
        let namespace = &about.subject.namespace;
        is_question && self.admission.enrolment.is_gated(namespace) == Some(false)
    }

    /// Answers a call of a webhook that this release does not have. A later release may have it,
    /// while replicas of both run.
    pub(super) async fn handle_unknown(&self, request: Request<Body>) -> Response {
        let malformed = match self.uid_of_unknown(request).await {
            Ok(uid) => Malformed {
                uid: Some(uid),
                problem: Problem::UnknownWebhook,
            },
            Err(problem) => problem.into(),
        };
        let reason = malformed.problem.slug();
        self.admission.metrics.rejected(UNKNOWN, reason);
        UNAUTHENTICATED.log(|| {
            tracing::warn!(hook = UNKNOWN, reason, review = malformed.uid, "rejected");
        });
        malformed.into_response()
    }

    async fn uid_of_unknown(&self, request: Request<Body>) -> Result<String, Problem> {
        let Ok(_place) = self.requests.try_acquire() else {
            return Err(refuse_unread(request).await);
        };
        let deadline = Deadline::parse(monotonic_now(), request.uri().query())?;
        let mut arrived = self.take_in(request, deadline).await?;
        let body = self.turn(&mut arrived, deadline).await?;
        body.read(uid_of).ok_or(Problem::NoSuchPath)
    }

    /// The question of the review. A mutating webhook works out its patch here.
    async fn understand(
        &self,
        hook: Hook,
        body: Readable<'_>,
        peer: Option<Peer>,
        deadline: Deadline,
    ) -> Result<ParsedReview, Malformed> {
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
        // A request to change something reads before anything is judged, and whoever reaches the
        // port can ask for it. Its place is held until it is understood.
        let place = hook.changes().then(|| self.changing.take(peer)).flatten();
        let reads = Reads {
            place: place.as_ref(),
            is_gated: &|namespace| enrolment.is_gated(namespace),
            is_foreign: &|namespace, pod| enrolment.is_foreign(namespace, pod),
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
                mutate::evictions::asked(body, context, &**incarnations, reads).boxed()
            }
            Hook::MutateStatefulSets => {
                mutate::stateful_sets::asked(body, context, (&**enrolment, reads), *features)
                    .boxed()
            }
            Hook::MutatePods => mutate::pods::asked(body, context, &**enrolment, reads).boxed(),
        };
        mutating.await
    }

    async fn outcome(
        &self,
        what: ReviewAction,
        (peer, namespace): (Option<Peer>, &str),
        deadline: Deadline,
    ) -> Outcome {
        let judge = &self.admission.judge;
        let judging = match what {
            ReviewAction::Pod(question) => judge.judge(question),
            ReviewAction::Set(question) => judge.judge_set(question),
            ReviewAction::Claim(question) => judge.judge_claim(question),
            ReviewAction::Nothing(waiver) => return Outcome::Unasked(waiver),
            ReviewAction::Patch(Ok(patch)) => return Outcome::Changed(patch),
            ReviewAction::Patch(Err(why)) => return Outcome::Judged(Answer::unavailable(why)),
        };
        let place = self.places.take(peer);
        // No tenant takes the places of the others.
        let share = place.as_ref().and_then(|place| place.within(namespace));
        let Some(_share) = share else {
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

/// Refuses a request for which there is no place. Its body is read to its end, and dropped as it
/// comes.
async fn refuse_unread(request: Request<Body>) -> Problem {
    let _ = timeout(UNREAD, discard(request.into_body())).await;
    Problem::Overloaded
}
