use std::sync::Mutex;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use super::*;
use crate::certificates::SecretNames;
use crate::clock::ClockHand;
use crate::fake_api::FakeApi;
use crate::serve::certificate::Files;

const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gate";
const SECRETS: &str = "/api/v1/namespaces/ns/secrets/gate-";

#[derive(Default)]
struct Told(Mutex<Vec<Notice>>);

impl Notices for Told {
    fn notify(&self, notice: Notice) {
        self.0.lock().unwrap().push(notice);
    }
}

/// A replica, whether it leads, and its clock.
struct Replica {
    keeper: Keeper,
    certificate: Arc<Certificate>,
    notices: Arc<Told>,
    _leads: watch::Sender<bool>,
    hand: ClockHand,
}

fn replica(api: &FakeApi, leads: bool) -> Replica {
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
    let (clock, hand) = Clock::frozen(now);
    let leads = watch::Sender::new(leads);
    let names = SecretNames::for_gate("gate");
    let objects = Objects::new(api.client(), "ns", names, "gate".to_owned());
    let wishes = Wishes {
        names: vec!["gate.ns.svc".to_owned()],
        authority: Duration::from_secs(7200),
        serving: Duration::from_secs(3600),
    };
    let signals = Signals {
        leading: leads.subscribe(),
        configurations: Arc::default(),
    };
    let files = Files::in_secret("gate-serving", None);
    let certificate = Certificate::awaited(files, clock.clone(), Arc::default());
    let certificate = Arc::new(certificate);
    let served = Arc::clone(&certificate);
    let notices = Arc::new(Told::default());
    let told = Arc::clone(&notices) as Arc<dyn Notices>;
    let keeper = Keeper::new(
        objects,
        wishes,
        clock,
        Arc::default(),
        signals,
        served,
        told,
    );
    Replica {
        keeper,
        certificate,
        notices,
        _leads: leads,
        hand,
    }
}

fn stored(api: &FakeApi) -> [bool; 2] {
    ["authority", "serving"].map(|secret| api.get(&format!("{SECRETS}{secret}")).is_some())
}

fn certificate(api: &FakeApi, secret: &str) -> Value {
    api.get(&format!("{SECRETS}{secret}")).unwrap()["data"]["tls.crt"].take()
}

#[tokio::test]
async fn the_leader_makes_what_is_missing_at_once_and_then_rests() {
    let api = FakeApi::default();
    let mut leader = replica(&api, true);
    for expected in [[true, false], [true, true]] {
        assert_eq!(leader.keeper.round().await.unwrap(), MOMENT);
        assert_eq!(stored(&api), expected);
    }
    let made = api.get(&format!("{SECRETS}serving")).unwrap();
    assert_eq!(made["type"], "kubernetes.io/tls");
    let labels = json!({"app.kubernetes.io/managed-by": "quorumgate", "app.kubernetes.io/name": "quorumgate"});
    assert_eq!(made["metadata"]["labels"], labels);
    assert_eq!(leader.keeper.round().await.unwrap(), PERIOD);
}

#[tokio::test]
async fn another_replica_stands_in_only_when_something_stays_undone() {
    let api = FakeApi::default();
    let mut other = replica(&api, false);
    for _ in 0..3 {
        assert_eq!(other.keeper.round().await.unwrap(), PERIOD);
        other.hand.advance(PERIOD);
    }
    assert_eq!(stored(&api), [false, false]);
    // The rest comes at once.
    other.keeper.round().await.unwrap();
    other.keeper.round().await.unwrap();
    assert_eq!(stored(&api), [true, true]);
    // What is lost later is the leader's again, for as long.
    assert_eq!(other.keeper.round().await.unwrap(), PERIOD_OF_OTHERS);
    api.remove(&format!("{SECRETS}serving"));
    other.keeper.round().await.unwrap();
    assert_eq!(stored(&api), [true, false]);
}

#[tokio::test]
async fn of_two_that_act_at_once_the_second_is_told_and_changes_nothing() {
    let api = FakeApi::default();
    let mut leader = replica(&api, true);
    let late = replica(&api, true).keeper;
    let found = late.objects.read().await.unwrap();
    for secret in ["authority", "serving"] {
        leader.keeper.round().await.unwrap();
        let before = certificate(&api, secret);
        let state = if secret == "authority" {
            found.state()
        } else {
            late.objects.read().await.unwrap().state()
        };
        let why = "it was not there".to_owned();
        let step = match secret {
            "authority" => Step::MakeAuthority {
                former: Vec::new(),
                why,
            },
            _ => Step::MakeServing { why },
        };
        let told = late.take(&step, &found, &state).await.unwrap_err();
        let Trouble::Api(Error::Api(status)) = told else {
            panic!("{told:?}");
        };
        assert_eq!(status.code, 409);
        assert_eq!(certificate(&api, secret), before);
    }
}

/// Has the replica serve what the Secret holds.
async fn follow(api: &FakeApi, replica: &Replica) {
    let secret: Secret =
        serde_json::from_value(api.get(&format!("{SECRETS}serving")).unwrap()).unwrap();
    let data = secret.data.unwrap();
    let pair = ["tls.crt", "tls.key"].map(|key| data[key].0.clone());
    Arc::clone(&replica.certificate).offer(pair).await;
}

fn configuration(bundle: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gate", "resourceVersion": "1"},
        "webhooks": [{
            "name": "pods.quorumgate.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"caBundle": bundle, "service": {"name": "gate", "namespace": "ns"}},
        }],
    })
}

#[tokio::test]
async fn a_replica_whose_certificate_api_servers_refuse_is_not_ready() {
    crate::install_crypto_provider();
    let api = FakeApi::default();
    let mut leader = replica(&api, true);
    for _ in 0..2 {
        leader.keeper.round().await.unwrap();
    }
    follow(&api, &leader).await;
    assert_eq!(leader.certificate.validity(), Ok(()));
    // A replica that does not lead writes nothing.
    let mut other = replica(&api, false);
    follow(&api, &other).await;
    let own = certificate(&api, "authority");
    let trusted = configuration(own.as_str().unwrap());
    api.put(CONFIGURATION, trusted.clone());
    other.keeper.round().await.unwrap();
    assert_eq!(other.certificate.validity(), Ok(()));

    api.put(CONFIGURATION, configuration(""));
    other.keeper.round().await.unwrap();
    // The leader may be about to write it.
    assert_eq!(other.certificate.validity(), Ok(()));
    other.hand.advance(PERIOD);
    other.keeper.round().await.unwrap();
    let why = other.certificate.validity().unwrap_err();
    assert!(why.contains("do not trust"), "{why}");

    api.put(CONFIGURATION, trusted);
    other.keeper.round().await.unwrap();
    assert_eq!(other.certificate.validity(), Ok(()));
}

#[tokio::test]
async fn a_leader_whose_clock_is_an_hour_off_makes_certificates_that_count_now() {
    crate::install_crypto_provider();
    let hour = jiff::SignedDuration::from_hours(1);
    for skew in [hour, -hour] {
        let api = FakeApi::default();
        let mut leader = replica(&api, true);
        let now = leader.keeper.clock.now();
        leader.hand.set(now + skew);
        let clock = &leader.keeper.clock;
        clock.compare(clock.instant(), now);
        for _ in 0..2 {
            leader.keeper.round().await.unwrap();
        }
        // It is that of another replica, whose clock is right.
        let other = replica(&api, false);
        follow(&api, &other).await;
        assert_eq!(other.certificate.validity(), Ok(()));
        let left = other.certificate.not_after().unwrap().duration_since(now);
        assert!(
            (left - hour).abs() <= jiff::SignedDuration::from_secs(2),
            "{left}"
        );
    }
}

#[tokio::test]
async fn a_writer_that_empties_the_bundle_again_and_again_is_told_of() {
    crate::install_crypto_provider();
    let api = FakeApi::default();
    for (period, is_contested) in [(1, true), (60, false)] {
        let mut leader = replica(&api, true);
        for _ in 0..12 {
            let mut emptied = configuration("");
            emptied["metadata"]["managedFields"] = json!([
                {"manager": "argocd-controller", "time": "2026-11-21T12:00:00Z"},
                {"manager": "quorumgate", "time": "2026-11-21T12:00:01Z"},
            ]);
            api.put(CONFIGURATION, emptied);
            for _ in 0..4 {
                leader.keeper.round().await.unwrap();
            }
            leader.hand.advance(Duration::from_secs(period));
        }
        let told = leader.notices.0.lock().unwrap().clone();
        assert_eq!(told.is_empty(), !is_contested, "{told:?}");
        for notice in told {
            assert!(notice.note.contains("argocd-controller"), "{notice:?}");
            let kind = notice.regarding.kind.as_deref();
            assert_eq!(kind, Some("ValidatingWebhookConfiguration"));
        }
    }
}
