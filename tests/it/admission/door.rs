//! The webhooks under test, with fakes behind them that record every question.

use std::collections::BTreeSet;
use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use futures::future::BoxFuture;
use quorumgate::admission::mutate::evictions::Incarnations;
use quorumgate::admission::mutate::pods::Enrolment;
use quorumgate::admission::{Admission, Limits, router};
use quorumgate::features::Features;
use quorumgate::judge::{
    Allowed, Answer, ClaimQuestion, Decision, Ground, Judging, Question, Refused, SetQuestion,
};
use quorumgate::quorum::{ClusterRef, PodName, PodUid, Reason, Waiver};
use quorumgate::telemetry::events::{Notice, Notices};
use quorumgate::telemetry::metrics::Metrics;
use serde_json::Value;
use tower::ServiceExt;

pub(crate) const OWN_USERNAME: &str = "system:serviceaccount:quorumgate:quorumgate";

type Judgement = Box<dyn Fn(&Question) -> Answer + Send + Sync>;
type SetJudgement = Box<dyn Fn(&SetQuestion) -> Answer + Send + Sync>;
type ClaimJudgement = Box<dyn Fn(&ClaimQuestion) -> Answer + Send + Sync>;

/// The behaviour of the fakes.
pub(crate) struct World {
    pub(crate) judgement: Judgement,
    pub(crate) set_judgement: SetJudgement,
    pub(crate) claim_judgement: ClaimJudgement,
    /// The time that the judge takes for an answer.
    pub(crate) judge_takes: Duration,
    /// The pod that [`Incarnations`] finds.
    pub(crate) incarnation: Result<Option<PodUid>, String>,
    /// The time that a lookup of a pod or of enrolment takes.
    pub(crate) lookup_takes: Duration,
    /// Whether namespaces are under the gate, by the watches.
    pub(crate) gated: Option<bool>,
    /// Whether every pod is nobody's, by the watches.
    pub(crate) foreign: bool,
    pub(crate) enrolled: BTreeSet<String>,
    /// Whether the lookup of enrolment fails.
    pub(crate) enrolment_fails: bool,
    pub(crate) features: Features,
    pub(crate) limits: Limits,
}

impl Default for World {
    fn default() -> Self {
        Self {
            judgement: Box::new(|_| yes(Waiver::Foreign)),
            set_judgement: Box::new(|question| panic_any(format!("not expected: {question:?}"))),
            claim_judgement: Box::new(|question| panic_any(format!("not expected: {question:?}"))),
            judge_takes: Duration::ZERO,
            incarnation: Ok(None),
            lookup_takes: Duration::ZERO,
            gated: None,
            foreign: false,
            enrolled: BTreeSet::new(),
            enrolment_fails: false,
            features: Features::default(),
            limits: Limits::default(),
        }
    }
}

#[derive(Default)]
struct Written {
    questions: Mutex<Vec<Question>>,
    set_questions: Mutex<Vec<SetQuestion>>,
    claim_questions: Mutex<Vec<ClaimQuestion>>,
    notices: Mutex<Vec<Notice>>,
    lookups: Mutex<Vec<String>>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl Written {
    async fn looked_up(&self, takes: Duration) {
        let now = self.at_once.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_at_once.fetch_max(now, Ordering::Relaxed);
        tokio::time::sleep(takes).await;
        self.at_once.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Behind {
    world: World,
    written: Arc<Written>,
}

/// The webhooks, and the record of the questions to the fakes.
pub(crate) struct Door {
    router: Router,
    written: Arc<Written>,
    metrics: Arc<Metrics>,
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Reply {
    /// The response in the admission review.
    pub(crate) fn response(&self) -> &Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.body);
        assert_eq!(self.body["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(self.body["kind"], "AdmissionReview");
        &self.body["response"]
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.response()["allowed"].as_bool().unwrap()
    }
}

impl Door {
    pub(crate) fn new(world: World) -> Self {
        let written = Arc::new(Written::default());
        let metrics = Arc::new(Metrics::new());
        let (features, limits) = (world.features, world.limits);
        let behind = Arc::new(Behind {
            world,
            written: Arc::clone(&written),
        });
        let router = router(Admission {
            judge: behind.clone(),
            incarnations: behind.clone(),
            enrolment: behind.clone(),
            notices: behind,
            metrics: Arc::clone(&metrics),
            own_username: OWN_USERNAME.to_owned(),
            features,
            limits,
        });
        Self {
            router,
            written,
            metrics,
        }
    }

    /// The webhooks in front of a judge that permits everything.
    pub(crate) fn open() -> Self {
        Self::new(World::default())
    }

    /// The webhooks in front of a judge that always answers like this.
    pub(crate) fn answering(
        judgement: impl Fn(&Question) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::new(World {
            judgement: Box::new(judgement),
            ..World::default()
        })
    }

    /// The router of the webhooks, to be served over the network.
    pub(crate) fn into_router(self) -> Router {
        self.router
    }

    pub(crate) async fn post(&self, path: &str, review: &Value) -> Reply {
        self.send(Request::post(path), Body::from(review.to_string()))
            .await
    }

    pub(crate) async fn send(&self, request: axum::http::request::Builder, body: Body) -> Reply {
        let request = request.body(body).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        Reply {
            status,
            headers,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        }
    }

    pub(crate) fn questions(&self) -> Vec<Question> {
        self.written.questions.lock().unwrap().clone()
    }

    /// The only question to the judge.
    pub(crate) fn question(&self) -> Question {
        let questions = self.questions();
        assert_eq!(questions.len(), 1, "{questions:?}");
        questions.into_iter().next().unwrap()
    }

    pub(crate) fn set_questions(&self) -> Vec<SetQuestion> {
        self.written.set_questions.lock().unwrap().clone()
    }

    pub(crate) fn claim_questions(&self) -> Vec<ClaimQuestion> {
        self.written.claim_questions.lock().unwrap().clone()
    }

    pub(crate) fn notices(&self) -> Vec<Notice> {
        self.written.notices.lock().unwrap().clone()
    }

    pub(crate) fn lookups(&self) -> Vec<String> {
        self.written.lookups.lock().unwrap().clone()
    }

    /// The most lookups at one time.
    pub(crate) fn most_lookups_at_once(&self) -> usize {
        self.written.most_at_once.load(Ordering::Relaxed)
    }

    pub(crate) fn exposition(&self) -> String {
        self.metrics.exposition().unwrap()
    }
}

impl Judging for Behind {
    fn judge(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            tokio::time::sleep(self.world.judge_takes).await;
            let answer = (self.world.judgement)(&question);
            self.written.questions.lock().unwrap().push(question);
            answer
        })
    }

    fn judge_set(&self, question: SetQuestion) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let answer = (self.world.set_judgement)(&question);
            self.written.set_questions.lock().unwrap().push(question);
            answer
        })
    }

    fn judge_claim(&self, question: ClaimQuestion) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let answer = (self.world.claim_judgement)(&question);
            self.written.claim_questions.lock().unwrap().push(question);
            answer
        })
    }
}

impl Incarnations for Behind {
    fn uid_of<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        _is_gated: bool,
    ) -> BoxFuture<'a, Result<Option<PodUid>, String>> {
        let name = format!("{namespace}/{pod}");
        self.written.lookups.lock().unwrap().push(name);
        Box::pin(async {
            self.written.looked_up(self.world.lookup_takes).await;
            self.world.incarnation.clone()
        })
    }
}

impl Enrolment for Behind {
    fn is_gated(&self, _namespace: &str) -> Option<bool> {
        self.world.gated
    }

    fn is_foreign(&self, _namespace: &str, _pod: &PodName) -> bool {
        self.world.foreign
    }

    fn is_enrolled<'a>(
        &'a self,
        namespace: &'a str,
        stateful_set: &'a str,
    ) -> BoxFuture<'a, Result<bool, String>> {
        let enrolled = self
            .world
            .enrolled
            .contains(&format!("{namespace}/{stateful_set}"));
        Box::pin(async move {
            self.written.looked_up(self.world.lookup_takes).await;
            if self.world.enrolment_fails {
                return Err("the API server is away".to_owned());
            }
            Ok(enrolled)
        })
    }
}

impl Notices for Behind {
    fn notify(&self, notice: Notice) {
        self.written.notices.lock().unwrap().push(notice);
    }
}

/// A review as an API server sends it, from a file.
pub(crate) fn fixture(name: &str) -> Value {
    let path = format!(
        "{}/tests/it/fixtures/{name}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap()
}

/// The review with one field set, given by a JSON pointer. Objects above the field are made if they
/// are missing.
pub(crate) fn with(mut review: Value, pointer: &str, value: Value) -> Value {
    let mut place = &mut review;
    for key in pointer.split('/').skip(1) {
        place = &mut place[key];
    }
    *place = value;
    review
}

/// The review without one field.
pub(crate) fn without(mut review: Value, pointer: &str) -> Value {
    let (above, key) = pointer.rsplit_once('/').unwrap();
    let above = review.pointer_mut(above).unwrap().as_object_mut().unwrap();
    above.remove(key).unwrap();
    review
}

pub(crate) fn yes(waiver: Waiver) -> Answer {
    allow(Ground::Waived(waiver))
}

pub(crate) fn allow(ground: Ground) -> Answer {
    answer(Ok(Allowed::stand_in(ground)))
}

pub(crate) fn wait(reason: Reason) -> Answer {
    answer(Err(Refused::Wait(reason)))
}

pub(crate) fn deny(reason: Reason) -> Answer {
    answer(Err(Refused::Deny(reason)))
}

pub(crate) fn answer(decision: Decision) -> Answer {
    Answer {
        cluster: Some(ClusterRef::new("shoot", "etcd-main")),
        decision,
        headroom: Some(-1),
        warnings: Vec::new(),
    }
}
