use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::certificates::SecretNames;
use crate::clock::ClockHand;
use crate::fake_api::FakeApi;

const SECRETS: &str = "/api/v1/namespaces/ns/secrets/gate-";

/// A replica, whether it leads, and its clock.
struct Replica {
    keeper: Keeper,
    _leads: watch::Sender<bool>,
    hand: ClockHand,
}

fn replica(api: &FakeApi, leads: bool) -> Replica {
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
    let (clock, hand) = Clock::frozen(now);
    let leads = watch::Sender::new(leads);
    let names = SecretNames::of("gate");
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
    let keeper = Keeper::new(objects, wishes, clock, Arc::default(), signals);
    Replica {
        keeper,
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
