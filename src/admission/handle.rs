//! One request from its first byte to its answer: read, decide, report, respond.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::features::Features;
use crate::judge::{Asker, DryRun, Judging, Question};
use crate::serve::{Handshake, Peer};
use crate::telemetry::events::Notices;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::strangers::STRANGERS;

use super::deadline::Deadline;
use super::hook::Hook;
use super::malformed::{Malformed, Problem};
use super::mutate::evictions::Incarnations;
use super::mutate::pods::Enrolment;
use super::places::Places;
use super::report::{Report, Subject};
use super::respond::respond;
use super::room::Room;
use super::ruling::Ruling;
use super::stateful_set::{SetJudging, SetQuestion};
use super::{evictions, mutate, pods, restarts, stateful_set};

/// Everything the webhooks need. One for the process.
pub struct Admission {
    /// Answers for pods.
    pub judge: Arc<dyn Judging>,
    /// Answers for StatefulSets.
    pub set_judge: Arc<dyn SetJudging>,
    /// Knows which incarnation of a pod there is.
    pub incarnations: Arc<dyn Incarnations>,
    /// Knows which StatefulSets are enrolled.
    pub enrolment: Arc<dyn Enrolment>,
    /// Takes the Events about refusals.
    pub notices: Arc<dyn Notices>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// The username under which the API server knows this process.
    pub own_username: String,
    /// Which features are on.
    pub features: Features,
    /// What the webhooks bear.
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

/// What the webhooks bear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest body, bytes. A review holds up to two objects of 1.5 MiB, etcd's limit for a request.
    pub body_bytes: usize,
    /// Judgements at one time, half of them for one address; more answer 429 inside their review.
    pub judgements: usize,
    /// Requests at one time, those that are still being read included; more answer HTTP 429 unread.
    pub requests: usize,
    /// What all bodies beyond their first 32 KiB may take together, bytes; more answer HTTP 429.
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

/// A request that got a verdict.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) review: String,
    pub(super) subject: Subject,
    pub(super) asker: Asker,
    pub(super) dry_run: DryRun,
    pub(super) ruling: Ruling,
}

/// The webhooks at work.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) admission: Admission,
    /// One permit per request that may be in the house at one time.
    requests: Semaphore,
    /// What their bodies may take.
    room: Room,
    /// One for each judgement that may go on at one time.
    places: Places,
}

/// The webhooks, as one caller has them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) admission: &'a Admission,
    places: &'a Places,
    peer: Option<Peer>,
}

impl Door {
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
        let start = Instant::now();
        let metrics = &self.admission.metrics;
        let _answering = metrics.answering();
        match self.answer(hook, start, request).await {
            Ok(answered) => self.finish(hook, start.elapsed(), &answered),
            Err(malformed) => {
                metrics.rejected(hook.slug(), malformed.problem.slug());
                STRANGERS.tell(|| {
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
        let asked = handshake.map_or(start, |handshake| handshake.asked(start));
        let peer = request.extensions().get::<Peer>().copied();
        let deadline = Deadline::of(asked, request.uri().query())?;
        let arriving = self.room.take_in(request.into_body());
        let arrived = tokio::time::timeout_at(deadline.judge, arriving).await;
        // Its room is taken until the request is answered.
        let mut arrived = arrived.map_err(|_| Problem::TooSlow)??;
        let turn = self.room.turn(&mut arrived);
        let body = tokio::time::timeout_at(deadline.judge, turn).await;
        let body = body.map_err(|_| Problem::Overloaded)??;
        let admission = &self.admission;
        let call = Call {
            admission,
            places: &self.places,
            peer,
        };
        // Boxed, so that the webhooks that were not called take no room in what moves through axum's layers.
        let answering = match hook {
            Hook::Pods => pods::answer(call, body, deadline).boxed(),
            Hook::Evictions => evictions::answer(call, body, deadline).boxed(),
            Hook::StatefulSets => stateful_set::answer(call, body, deadline).boxed(),
            Hook::Restarts => restarts::answer(call, body, deadline).boxed(),
            Hook::MutateEvictions => mutate::evictions::answer(admission, body, deadline).boxed(),
            Hook::MutateStatefulSets => {
                mutate::stateful_sets::answer(admission, body, deadline).boxed()
            }
            Hook::MutatePods => mutate::pods::answer(admission, body, deadline).boxed(),
        };
        answering.await
    }

    fn finish(&self, hook: Hook, took: Duration, answered: &Answered) -> Response {
        let Answered {
            review,
            subject,
            asker,
            dry_run,
            ruling,
        } = answered;
        let report = Report {
            hook,
            review,
            subject,
            asker,
            dry_run: *dry_run,
            ruling,
            took,
        };
        report.file(&self.admission.metrics, &*self.admission.notices);
        respond(review, subject, ruling)
    }
}

const OVERLOADED: &str = "as many requests are being judged as can be";

impl Call<'_> {
    /// The judge's ruling on a pod. A judge that overruns its deadline is left behind: a grant it may still record settles by itself.
    pub(super) async fn judged(&self, question: Question, deadline: Deadline) -> Ruling {
        let namespace = question.namespace.clone();
        let pod = question.pod.clone();
        let Some(_place) = self.places.take(self.peer) else {
            return Ruling::unavailable(&format!("pod {namespace}/{pod}"), OVERLOADED);
        };
        match tokio::time::timeout_at(deadline.answer, self.admission.judge.judge(question)).await {
            Ok(answer) => Ruling::on_pod(&namespace, pod.as_str(), answer),
            Err(_) => Ruling::unavailable(
                &format!("pod {namespace}/{pod}"),
                "no judgement was reached in time",
            ),
        }
    }

    /// The same for a StatefulSet.
    pub(super) async fn judged_set(&self, question: SetQuestion, deadline: Deadline) -> Ruling {
        let set = question.set.clone();
        let Some(_place) = self.places.take(self.peer) else {
            return Ruling::unavailable(&format!("statefulset {set}"), OVERLOADED);
        };
        match tokio::time::timeout_at(deadline.answer, self.admission.set_judge.judge(question))
            .await
        {
            Ok(answer) => Ruling::on_set(&set, answer),
            Err(_) => Ruling::unavailable(
                &format!("statefulset {set}"),
                "no judgement was reached in time",
            ),
        }
    }
}
