//! The order in which a judge reads, asks and writes.

mod claims;
mod defragmentation;
mod stateful_sets;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::{Answer, Asker, DryRun, Ground, Judge, JudgeDeps, Question, Refused, SeenVersions};
use crate::api::Enforcement;
use crate::clock::Clock;
use crate::etcd::{Admin, Connections};
use crate::fake_api::FakeApi;
use crate::fake_api::etcd::{BUDGET, NAMESPACE, SET, budget_json, pod_json, set_json};
use crate::ledger::Ledger;
use crate::quorum::{Actor, Basis, ClusterRef, Grace, InPlace, Kind, Reason, Trust, Waiver};
use crate::telemetry::metrics::Metrics;

/// The entry in the sequence of requests for a question to a member.
const ASKED: &str = "ASKED";

/// Three members that take connections and say nothing, and a judge.
struct Court {
    api: FakeApi,
    judge: Judge,
}

impl Court {
    /// Members that end each connection.
    async fn new() -> Self {
        Self::of_members(false).await
    }

    /// Members that end each connection, or keep it and say nothing.
    async fn of_members(are_silent: bool) -> Self {
        let api = FakeApi::default();
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = api.clone();
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((connection, _)) = listener.accept().await {
                asked.note(ASKED);
                kept.extend(are_silent.then_some(connection));
            }
        });
        api.put(
            NAMESPACE,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "db"}}),
        );
        api.put(BUDGET, budget_json(&json!({})));
        api.put(SET, set_json(&json!({})));
        let court = Self {
            judge: judge(&api),
            api,
        };
        for ordinal in 0..3 {
            court.put_pod(ordinal, port, &json!({}));
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{ordinal}")},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            });
            court
                .api
                .put(&format!("/api/v1/nodes/node-{ordinal}"), node);
        }
        court
    }

    fn put_pod(&self, ordinal: u32, port: u16, metadata: &Value) {
        let change = json!({
            "metadata": metadata,
            "spec": {"containers": [{
                "name": "etcd", "image": "etcd", "ports": [{"name": "client", "containerPort": port}],
            }]},
            "status": {"podIP": format!("127.0.0.{}", ordinal + 1)},
        });
        let path = format!("{NAMESPACE}/pods/etcd-{ordinal}");
        self.api.put(&path, pod_json(ordinal, &change));
    }

    /// May `etcd-1` be evicted? With what was done to find out, in order.
    async fn evict(&self) -> (Answer, Vec<String>) {
        self.api.take_requests();
        let answer = self.judge.judge_pod(question(None)).await;
        (answer, self.api.take_requests())
    }
}

fn question(seen: Option<SeenVersions>) -> Question {
    Question {
        namespace: "db".into(),
        pod: "etcd-1".into(),
        shown: None,
        kind: Kind::Evict,
        asker: Asker {
            name: "anna".into(),
            actor: Actor::Stranger,
        },
        grace: Grace::Graceful,
        precondition: None,
        dry_run: DryRun::No,
        deadline: Instant::now() + Duration::from_secs(4),
        only_if_etcd_is: Vec::new(),
        seen,
    }
}

/// A budget may name a container that shows no sign of etcd.
#[tokio::test]
async fn a_restart_of_a_container_without_signs_of_etcd_is_judged_where_the_budget_names_it() {
    for (named, passes) in [(None, true), (Some("other"), true), (Some("member"), false)] {
        let court = Court::new().await;
        let mut budget = court.api.get(BUDGET).unwrap();
        budget["spec"]["members"] = json!({"container": named});
        court.api.put(BUDGET, budget);
        let asked = Question {
            kind: Kind::Restart(InPlace::Image),
            only_if_etcd_is: vec!["member".into()],
            ..question(None)
        };
        let answer = court.judge.judge_pod(asked).await;
        match answer.decision {
            Ok(allowed) => assert!(
                passes && matches!(allowed.ground(), Ground::Waived(Waiver::RestartsNothing)),
                "{named:?}: {allowed:?}"
            ),
            Err(_) => assert!(!passes, "{named:?}: {answer:?}"),
        }
    }
}

fn judge(api: &FakeApi) -> Judge {
    let (clock, _hands) = Clock::frozen("2026-01-01T12:00:00Z".parse::<Timestamp>().unwrap());
    judge_at(api, clock)
}

fn judge_at(api: &FakeApi, clock: Clock) -> Judge {
    let observer = api.observer(&clock, Duration::from_secs(120));
    Judge::new(JudgeDeps {
        observer: Arc::new(observer),
        admin: Admin::new(Connections::new(clock.clone())),
        clock,
        metrics: Arc::new(Metrics::new()),
        enforcement: Enforcement::Enforce,
        spawn: Box::new(|mut work| drop(tokio::spawn(work()))),
    })
}

/// The ground of a yes.
fn ground(answer: &Answer) -> Option<&Ground> {
    Some(answer.decision.as_ref().ok()?.ground())
}

fn first(done: &[String], what: &str) -> usize {
    let at = done.iter().position(|request| request.starts_with(what));
    at.unwrap_or_else(|| panic!("no {what} in {done:#?}"))
}

#[tokio::test]
async fn pods_and_members_are_asked_after_the_ledger_was_read() {
    let court = Court::new().await;
    // The second time the judge knows the addresses of the members, and may ask them before it has
    // read their pods again.
    for time in ["first", "second"] {
        let (answer, done) = court.evict().await;
        assert!(
            matches!(answer.decision, Err(Refused::Wait(_))),
            "{answer:?}"
        );
        let ledger = first(&done, &format!("GET {BUDGET}"));
        let asked = first(&done, ASKED);
        let last_ledger = done
            .iter()
            .rposition(|request| request.starts_with(&format!("GET {BUDGET}")));
        assert_eq!(last_ledger, Some(ledger), "{time}: {done:#?}");
        assert!(ledger < asked, "{time}: {done:#?}");
        for read in [format!("GET {NAMESPACE}/pods?"), format!("GET {SET}")] {
            assert!(ledger < first(&done, &read), "{time}: {read} in {done:#?}");
        }
        // The members end each connection, so their nodes have to say whether they run.
        let node = first(&done, "GET /api/v1/nodes/node-1");
        assert!(asked < node, "{time}: {done:#?}");
    }
}

#[tokio::test]
async fn after_a_lost_race_everything_is_read_anew_before_the_next_write() {
    let court = Court::new().await;
    let until = json!({"annotations": {"quorumgate.io/override-until": "2026-01-01T13:00:00Z"}});
    court.put_pod(1, 1, &until);
    court.api.conflict_once();

    let (answer, done) = court.evict().await;

    let recorded = matches!(ground(&answer), Some(Ground::Recorded(Basis::Override, _)));
    assert!(recorded, "{answer:?}");
    let write = format!("PUT {BUDGET}/status");
    let lost = first(&done, &write);
    let since = &done[lost + 1..];
    let written = first(since, &write);
    let ledger = first(since, &format!("GET {BUDGET}"));
    let pods = first(since, &format!("GET {NAMESPACE}/pods"));
    assert!(ledger < pods && pods < written, "{done:#?}");
}

/// A failure to read something that an override or a teardown does not need holds neither back.
#[tokio::test]
async fn overrides_and_teardowns_wait_for_no_other_reading() {
    let until = json!({"annotations": {"quorumgate.io/override-until": "2026-01-01T13:00:00Z"}});
    let grants = |court: &Court| court.api.get(BUDGET).unwrap()["status"]["grants"].clone();
    let court = Court::new().await;
    court.api.undefine("poddisruptionbudgets");
    let (answer, _) = court.evict().await;
    let Err(Refused::Wait(Reason::Unavailable { what })) = &answer.decision else {
        panic!("{answer:?}");
    };
    assert!(what.contains("PodDisruptionBudgets"), "{what}");

    court.put_pod(1, 1, &until);
    court.api.conflict_once();
    let (answer, _) = court.evict().await;
    let Some(Ground::Recorded(basis, _)) = ground(&answer) else {
        panic!("{answer:?}");
    };
    assert_eq!(*basis, Basis::Override);
    assert_eq!(grants(&court)[0]["member"], "etcd-1");

    // On the budget, whose own spec is what cannot be used.
    let court = Court::new().await;
    let mut budget = budget_json(&json!({"metadata": until}));
    budget["spec"]["members"] = json!({"probeTimeout": "soon"});
    court.api.put(BUDGET, budget);
    let (answer, _) = court.evict().await;
    let by_override = matches!(ground(&answer), Some(Ground::Recorded(Basis::Override, _)));
    assert!(by_override, "{answer:?}");
    assert_eq!(grants(&court)[0]["member"], "etcd-1");

    let court = Court::new().await;
    court.api.undefine("poddisruptionbudgets");
    let goes = json!({"metadata": {"name": "db", "deletionTimestamp": "2026-01-01T11:59:59Z"}});
    court.api.put(NAMESPACE, goes);
    let (answer, _) = court.evict().await;
    let torn_down = matches!(ground(&answer), Some(Ground::Waived(Waiver::Teardown(_))));
    assert!(torn_down, "{answer:?}");
}

/// Between the look of a rollout and its question, another driver may have taken a step, or the
/// owner may have changed the goal.
#[tokio::test]
async fn a_step_that_was_chosen_by_what_is_no_longer_so_is_outdated() {
    let court = Court::new().await;
    court
        .api
        .put(BUDGET, budget_json(&json!({"metadata": {"generation": 4}})));
    court
        .api
        .put(SET, set_json(&json!({"metadata": {"generation": 7}})));
    let until = json!({"annotations": {"quorumgate.io/override-until": "2026-01-01T13:00:00Z"}});
    court.put_pod(1, 1, &until);
    let seen = SeenVersions {
        last_seq: 0,
        budget: Some(4),
        stateful_set: Some(7),
    };
    let others = [
        SeenVersions {
            last_seq: 1,
            ..seen
        },
        SeenVersions {
            budget: Some(3),
            ..seen
        },
        SeenVersions {
            stateful_set: Some(6),
            ..seen
        },
    ];
    for other in others {
        let answer = court.judge.judge_pod(question(Some(other))).await;
        assert_eq!(answer.decision.unwrap_err(), Refused::Outdated, "{other:?}");
    }
    let answer = court.judge.judge_pod(question(Some(seen))).await;
    assert!(
        matches!(ground(&answer), Some(Ground::Recorded(..))),
        "{answer:?}"
    );
    // Its own permission counts as somebody else's from then on.
    let answer = court.judge.judge_pod(question(Some(seen))).await;
    assert_eq!(answer.decision.unwrap_err(), Refused::Outdated);
}

/// The API server's cache may show a pod as it was; whoever is asked afterwards sees another one.
#[tokio::test]
async fn n4_an_old_object_that_is_out_of_date_is_not_believed() {
    let court = Court::new().await;
    let shown = |metadata: Value| {
        let mut pod = pod_json(1, &json!({"metadata": metadata}));
        Question {
            kind: Kind::Delete,
            shown: Some(serde_json::from_value(pod["metadata"].take()).unwrap()),
            ..question(None)
        }
    };
    let overridden =
        json!({"annotations": {"quorumgate.io/override-until": "2026-01-01T13:00:00Z"}});
    let goes = json!({"deletionTimestamp": "2026-01-01T11:59:59Z"});
    for metadata in [overridden, goes.clone()] {
        let answer = court.judge.judge_pod(shown(metadata.clone())).await;
        let waits = matches!(answer.decision, Err(Refused::Wait(_)));
        assert!(waits, "{metadata} is not so any more: {answer:?}");
    }

    court.put_pod(1, 1, &goes);
    let answer = court.judge.judge_pod(shown(json!({}))).await;
    let terminates = matches!(ground(&answer), Some(Ground::Waived(Waiver::Terminating)));
    assert!(terminates, "{answer:?}");

    court.put_pod(1, 1, &json!({"uid": "another"}));
    let answer = court.judge.judge_pod(shown(json!({}))).await;
    let another = matches!(
        ground(&answer),
        Some(Ground::Waived(Waiver::WrongIncarnation))
    );
    assert!(another, "{answer:?}");
    assert_eq!(court.api.get(BUDGET).unwrap()["status"], Value::Null);
}

#[tokio::test]
async fn p7_p8_p13_endless_conflicts_end_in_a_wait_in_time() {
    let court = Court::new().await;
    // Dead for good, so that it would be permitted to go.
    court.api.remove("/api/v1/nodes/node-1");
    court.api.conflict_always();
    let patience = Duration::from_secs(1);
    let begun = Instant::now();
    let asked = Question {
        deadline: begun + patience,
        ..question(None)
    };
    court.api.take_requests();

    // Both sleep in one runtime: a machine that stalls delays both, and not their order.
    let answer = tokio::select! {
        biased;
        answer = court.judge.judge_pod(asked) => answer,
        () = tokio::time::sleep_until(begun + patience) => panic!("it came too late"),
    };

    let waits = matches!(
        answer.decision,
        Err(Refused::Wait(Reason::Unavailable { .. }))
    );
    assert!(waits, "{answer:?}");
    let done = court.api.take_requests();
    let write = format!("PUT {BUDGET}/status");
    let tries = done
        .iter()
        .filter(|request| request.starts_with(&write))
        .count();
    assert!(tries > 1, "it gave up: {answer:?} {done:#?}");
    assert_eq!(court.api.get(BUDGET).unwrap()["status"], Value::Null);

    let free = Court::new().await;
    free.api.remove("/api/v1/nodes/node-1");
    let answer = free.evict().await.0;
    let recorded = matches!(ground(&answer), Some(Ground::Recorded(..)));
    assert!(recorded, "without the conflicts it would go: {answer:?}");
}

/// The same question is refused, and then only warned about. The ledger does not know what passed,
/// so it is suspended.
#[tokio::test]
async fn where_refusals_are_only_reported_they_pass_and_the_ledger_is_suspended() {
    let court = Court::new().await;
    let (refused, _) = court.evict().await;
    let Err(because @ Refused::Wait(_)) = &refused.decision else {
        panic!("{refused:?}")
    };
    let mut budget = court.api.get(BUDGET).unwrap();
    budget["spec"]["enforcement"] = json!("Warn");
    court.api.put(BUDGET, budget);
    let (warned, _) = court.evict().await;
    let Some(Ground::Warned(instead)) = ground(&warned) else {
        panic!("{warned:?}")
    };
    assert_eq!(
        std::mem::discriminant(because),
        std::mem::discriminant(instead)
    );
    let suspended = || court.api.get(BUDGET).unwrap()["status"]["ledger"]["suspended"] == true;
    tokio::time::timeout(Duration::from_secs(20), async {
        while !suspended() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the ledger is suspended");

    // The gate's own steps are refused as ever.
    let own = Question {
        asker: Asker {
            name: "quorumgate".into(),
            actor: Actor::Gate,
        },
        ..question(None)
    };
    let answer = court.judge.judge_pod(own).await;
    assert!(answer.decision.is_err(), "{answer:?}");

    // And everybody is, as soon as refusals count again: nobody knows what passed.
    let mut budget = court.api.get(BUDGET).unwrap();
    budget["spec"]["enforcement"] = json!("Enforce");
    court.api.put(BUDGET, budget);
    let (answer, _) = court.evict().await;
    assert!(answer.decision.is_err(), "{answer:?}");
}

/// The same for reads that never end, for example of an owner whose conversion webhook hangs.
#[tokio::test(start_paused = true)]
async fn overrides_and_teardowns_wait_for_no_reading_that_hangs() {
    let until = json!({"annotations": {"quorumgate.io/override-until": "2026-01-01T13:00:00Z"}});
    let owned = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "name": "etcd", "uid": "etcd-1", "controller": true,
    }]}});
    let secrets = json!({"members": {"tls": {"caSecret": {"name": "ca"}}}});
    let leases = json!({"members": {"evidence": "Readiness"}});
    let silent = [
        ("GET /apis/druid.gardener.cloud", json!({})),
        (
            "GET /apis/policy/v1/namespaces/db/poddisruptionbudgets",
            json!({}),
        ),
        ("GET /apis/coordination.k8s.io", leases),
        ("GET /api/v1/namespaces/db/secrets", secrets),
    ];
    for (silent, spec) in silent {
        for goes in [false, true] {
            let court = Court::new().await;
            court.api.put(SET, set_json(&owned));
            let mut budget = budget_json(&json!({"status": {"clusterID": "cdf818194e3a8c32"}}));
            json_patch::merge(&mut budget["spec"], &spec);
            court.api.put(BUDGET, budget);
            if goes {
                let goes = json!({"metadata": {"name": "db", "deletionTimestamp": "2026-01-01T11:59:59Z"}});
                court.api.put(NAMESPACE, goes);
            } else {
                court.put_pod(1, 1, &until);
            }
            court.api.silence(silent);
            // The second time it is known from the beginning what there is to read.
            for time in ["first", "second"] {
                let (answer, done) = court.evict().await;
                let passes = match ground(&answer) {
                    Some(Ground::Waived(Waiver::Teardown(_))) => goes,
                    Some(Ground::Recorded(basis, _)) => *basis == Basis::Override && !goes,
                    _ => false,
                };
                assert!(passes, "{silent}, the {time} time: {answer:?}");
                let asked = done.iter().any(|request| request.starts_with(silent));
                assert!(asked, "nobody asks {silent}: {done:#?}");
            }
        }
    }
}

fn is_untrusted(ledger: &Ledger, page: &crate::ledger::Page) -> bool {
    let now = ledger.trust(page, Duration::from_secs(120));
    matches!(now, Trust::Untrusted { .. })
}

/// A replica knows at once that it let a request pass without a grant, however long the write of
/// that takes.
#[tokio::test(start_paused = true)]
async fn what_passed_without_a_grant_ends_the_trust_before_anybody_has_written_so() {
    let until = json!({"annotations": {"quorumgate.io/override-until": "2026-01-01T13:00:00Z"}});
    let trusted = json!({"status": {"ledger": {"trusted": true, "budgetUID": "budget-1"}}});
    let cluster = ClusterRef::new("db", "etcd");
    for warns in [false, true] {
        let court = Court::new().await;
        let ledger = court.judge.deps.observer.ledger();
        let mut budget = budget_json(&trusted);
        if warns {
            budget["spec"]["enforcement"] = json!("Warn");
        } else {
            court.put_pod(1, 1, &until);
        }
        court.api.put(BUDGET, budget.clone());
        let page = ledger.read(&cluster).await.unwrap().unwrap();
        assert!(!is_untrusted(ledger, &page));

        court.api.silence(&format!("PUT {BUDGET}/status"));
        let (answer, _) = court.evict().await;
        let ungranted = match ground(&answer) {
            Some(Ground::Ungranted) => !warns,
            Some(Ground::Warned(_)) => warns,
            _ => false,
        };
        assert!(ungranted, "{answer:?}");
        budget["spec"]["enforcement"] = json!("Enforce");
        court.api.put(BUDGET, budget);
        let page = ledger.read(&cluster).await.unwrap().unwrap();
        assert!(page.status().unwrap().ledger.trusted, "somebody wrote");
        assert!(is_untrusted(ledger, &page), "enforcement: Warn? {warns}");
    }
}

/// Until it is written, other replicas trust the ledger.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_somebody_else_writes_meanwhile_is_untrusted_without_a_pause() {
    let court = Court::new().await;
    court.api.conflict_once();
    let begun = Instant::now();
    let ledger = court.judge.deps.observer.ledger().clone();
    super::afterwards::distrust(ledger, ClusterRef::new("db", "etcd")).await;
    assert_eq!(
        court.api.get(BUDGET).unwrap()["status"]["ledger"]["epoch"],
        1
    );
    assert!(
        begun.elapsed() < Duration::from_millis(100),
        "{:?}",
        begun.elapsed()
    );
}
