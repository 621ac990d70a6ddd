//! The webhooks under slow judges, slow bodies, panics, and more requests than there are places.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Request;
use quorumgate::admission::Limits;
use quorumgate::quorum::Waiver;
use quorumgate::serve::{Handshake, Peer};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::door::{Door, Reply, World, fixture, yes};

#[tokio::test(start_paused = true)]
async fn the_judge_gets_90_percent_of_the_time_the_api_server_waits() {
    let door = Door::open();
    let start = Instant::now();
    door.post("/validate/pods?timeout=3s", &fixture("pod-delete"))
        .await;
    door.post("/validate/pods", &fixture("pod-delete")).await;
    let left: Vec<Duration> = door
        .questions()
        .iter()
        .map(|q| q.deadline - start)
        .collect();
    assert_eq!(left, [2700, 4500].map(Duration::from_millis));
}

/// The API server opens a connection for a call if no connection is idle. If one becomes idle
/// meanwhile, the call uses that, and the new connection waits for another call.
#[tokio::test(start_paused = true)]
async fn a_handshake_counts_where_the_connection_was_opened_for_the_request() {
    let door = Door::open();
    let arrived = Instant::now();
    let millis = Duration::from_millis;
    tokio::time::advance(millis(700)).await;
    let done = Instant::now();
    for (idle, left) in [(250, 4500 - 700 - 250), (1, 4500)] {
        tokio::time::advance(millis(idle)).await;
        let first = Request::post("/validate/pods?timeout=5s");
        let first = first.extension(Handshake { arrived, done });
        let review = Body::from(fixture("pod-delete").to_string());
        door.send(first, review).await;
        let deadline = door.questions().last().unwrap().deadline;
        assert_eq!(deadline - Instant::now(), millis(left), "after {idle} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn n10_a_judge_that_overruns_is_left_behind_with_a_429_in_time() {
    let door = Door::new(World {
        judge_takes: Duration::from_secs(60),
        ..World::default()
    });
    let start = Instant::now();
    let reply = door
        .post("/validate/pods?timeout=5s", &fixture("pod-delete"))
        .await;
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    let status = &reply.response()["status"];
    assert_eq!(status["code"], 429);
    assert_eq!(status["details"]["causes"][0]["reason"], "Unavailable");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_408() {
    let door = Door::open();
    let never = futures::stream::pending::<Result<Bytes, std::io::Error>>();
    let reply = door
        .send(Request::post("/validate/pods"), Body::from_stream(never))
        .await;
    assert_eq!(reply.status, 408);
}

#[tokio::test]
async fn a_panic_is_500_and_the_next_request_is_answered() {
    let door = Door::answering(|question| {
        assert!(question.pod.as_str() != "etcd-main-0", "broken on purpose");
        yes(Waiver::Foreign)
    });
    let reply = door.post("/validate/pods", &fixture("pod-delete")).await;
    assert_eq!(reply.status, 500);
    assert_eq!(reply.body["kind"], "Status");
    assert!(
        door.post("/validate/evictions", &fixture("eviction"))
            .await
            .is_allowed()
    );
    assert!(
        door.exposition()
            .contains("quorumgate_requests_in_flight 0")
    );
}

#[tokio::test(start_paused = true)]
async fn more_judgements_than_there_is_room_for_wait_inside_their_review() {
    let limits = Limits {
        judgements: 1,
        ..Limits::default()
    };
    let door = Door::new(World {
        judge_takes: Duration::from_secs(1),
        limits,
        ..World::default()
    });
    let (pod, eviction) = (fixture("pod-delete"), fixture("eviction"));
    let (first, second) = tokio::join!(
        door.post("/validate/pods", &pod),
        door.post("/validate/evictions", &eviction)
    );
    assert!(first.is_allowed());
    assert!(!second.is_allowed());
    assert_eq!(second.response()["status"]["code"], 429);
    assert!(
        door.post("/validate/evictions", &eviction)
            .await
            .is_allowed()
    );
}

/// Every client that can reach the port can post any number of reviews that wait for each other.
#[tokio::test(start_paused = true)]
async fn a_crowd_from_one_address_leaves_places_to_an_api_server() {
    let limits = Limits {
        requests: 4096,
        ..Limits::default()
    };
    let door = Arc::new(Door::new(World {
        judge_takes: Duration::from_secs(1),
        limits,
        ..World::default()
    }));
    let post = |from: &str| {
        let (door, from) = (Arc::clone(&door), Peer::at(from.parse().unwrap()));
        async move {
            let review = Body::from(fixture("pod-delete").to_string());
            let request = Request::post("/validate/pods").extension(from);
            door.send(request, review).await
        }
    };
    let strangers = futures::future::join_all((0..1000).map(|_| post("10.0.0.1")));
    let mapped = futures::future::join_all((0..1000).map(|_| post("::ffff:10.0.0.1")));
    let others = futures::future::join_all((0..1000).map(|_| post("10.0.0.2")));
    let api_server = futures::future::join_all((0..20).map(|_| post("10.0.0.3")));
    let (strangers, mapped, others, api_server) =
        tokio::join!(strangers, mapped, others, api_server);
    let answered = |replies: &[super::door::Reply]| {
        let allowed = replies.iter().filter(|reply| reply.is_allowed());
        allowed.count()
    };
    assert_eq!(answered(&api_server), 20);
    // All in one namespace, which does not get all places of its address.
    assert_eq!(answered(&others), 57);
    assert_eq!(answered(&strangers) + answered(&mapped), 85);
}

/// Webhooks that change requests read before anything is judged, for everybody who reaches the
/// port.
#[tokio::test(start_paused = true)]
async fn a_crowd_makes_mutating_webhooks_read_no_more_than_their_places() {
    for (path, review) in [
        ("/mutate/evictions", "eviction"),
        ("/mutate/pods", "pod-create"),
    ] {
        let door = Arc::new(Door::new(World {
            lookup_takes: Duration::from_secs(2),
            limits: Limits {
                requests: 4096,
                ..Limits::default()
            },
            ..World::default()
        }));
        let post = |from: &str| {
            let (door, from) = (Arc::clone(&door), Peer::at(from.parse().unwrap()));
            async move {
                let review = Body::from(fixture(review).to_string());
                let request = Request::post(path).extension(from);
                door.send(request, review).await
            }
        };
        let strangers = futures::future::join_all((0..700).map(|_| post("10.0.0.1")));
        let api_server = futures::future::join_all((0..8).map(|_| post("10.0.0.3")));
        let (strangers, api_server) = tokio::join!(strangers, api_server);
        // All in one namespace, which does not get all places of its address.
        assert_eq!(door.most_lookups_at_once(), 21 + 8, "{path}");
        assert!(
            api_server.iter().all(super::door::Reply::is_allowed),
            "{path}"
        );
        // An eviction that is not tied to an incarnation waits; a missing pod would do harm.
        let passed = strangers.iter().filter(|reply| reply.is_allowed()).count();
        let expected = if path == "/mutate/evictions" { 21 } else { 700 };
        assert_eq!(passed, expected, "{path}");
        let waits = strangers.iter().filter(|reply| !reply.is_allowed());
        for reply in waits {
            assert_eq!(reply.response()["status"]["code"], 429);
        }
    }
}

#[tokio::test]
async fn nothing_is_judged_in_a_namespace_that_watches_show_ungated() {
    let door = |gated| {
        Door::new(World {
            gated,
            set_judgement: Box::new(|_| yes(Waiver::Foreign)),
            claim_judgement: Box::new(|_| yes(Waiver::Foreign)),
            ..World::default()
        })
    };
    let of_namespaces = [
        ("/validate/pods", "pod-delete"),
        ("/validate/evictions", "eviction"),
        ("/validate/statefulsets", "statefulset-delete"),
        ("/validate/claims", "claim-delete"),
    ];
    for (path, name) in of_namespaces {
        for gated in [Some(false), Some(true), None] {
            let door = door(gated);
            let reply = door.post(path, &fixture(name)).await;
            let asked =
                door.questions().len() + door.set_questions().len() + door.claim_questions().len();
            let is_judged = gated != Some(false);
            assert_eq!(asked, usize::from(is_judged), "{path} {gated:?}");
            // A watch may be behind, so it is no yes.
            assert_eq!(reply.is_allowed(), is_judged, "{path} {gated:?}");
            if !is_judged {
                assert_eq!(reply.response()["status"]["code"], 429, "{path}");
            }
        }
    }
}

#[tokio::test]
async fn nothing_is_read_for_a_namespace_that_watches_show_ungated() {
    let door = |gated| {
        Door::new(World {
            gated,
            ..World::default()
        })
    };
    for (gated, lookups) in [(Some(false), 0), (Some(true), 1), (None, 1)] {
        for (path, review) in [
            ("/mutate/evictions", "eviction"),
            ("/mutate/pods", "pod-create"),
        ] {
            let door = door(gated);
            let reply = door.post(path, &fixture(review)).await;
            assert_eq!(door.most_lookups_at_once(), lookups, "{path} {gated:?}");
            let waits = lookups == 0 && path == "/mutate/evictions";
            assert_eq!(reply.is_allowed(), !waits, "{path} {gated:?}");
        }
    }
}

#[tokio::test]
async fn nothing_is_read_to_tie_the_eviction_of_a_pod_that_watches_show_to_be_nobodys() {
    for (foreign, lookups) in [(true, 0), (false, 1)] {
        let door = Door::new(World {
            gated: Some(true),
            foreign,
            ..World::default()
        });
        let reply = door.post("/mutate/evictions", &fixture("eviction")).await;
        assert!(reply.is_allowed());
        assert_eq!(door.lookups().len(), lookups);
    }
}

#[tokio::test]
async fn more_requests_than_there_is_room_for_are_told_to_come_back() {
    let limits = Limits {
        requests: 1,
        ..Limits::default()
    };
    let door = Arc::new(Door::new(World {
        limits,
        ..World::default()
    }));
    let (pieces, body) = tokio::sync::mpsc::channel::<Bytes>(1);
    let body = Body::from_stream(futures::stream::unfold(body, |mut body| async move {
        let piece = body.recv().await?;
        Some((Ok::<_, std::io::Error>(piece), body))
    }));
    let slow = tokio::spawn({
        let door = Arc::clone(&door);
        async move { door.send(Request::post("/validate/pods"), body).await }
    });
    // Once its first piece was taken, the slow request holds the only place.
    pieces.send(Bytes::from_static(b" ")).await.unwrap();
    pieces.reserve().await.unwrap();
    let shed = door.post("/validate/evictions", &fixture("eviction")).await;
    assert_eq!(shed.status, 429);
    assert_eq!(shed.headers["retry-after"], "1");
    pieces
        .send(Bytes::from(fixture("pod-delete").to_string()))
        .await
        .unwrap();
    drop(pieces);
    assert!(slow.await.unwrap().is_allowed());
    let page = door.exposition();
    assert!(page.contains(r#"reason="Overloaded"} 1"#), "{page}");
}

/// A body whose pieces are sent one by one, until the sender is dropped.
fn in_pieces() -> (Sender<Bytes>, Body) {
    let (pieces, body) = tokio::sync::mpsc::channel::<Bytes>(1);
    let body = futures::stream::unfold(body, |mut body| async move {
        let piece = body.recv().await?;
        Some((Ok::<_, std::io::Error>(piece), body))
    });
    (pieces, Body::from_stream(body))
}

/// A door, and a request whose body comes in pieces.
fn with_one_in_flight(limits: Limits) -> (Arc<Door>, Sender<Bytes>, JoinHandle<Reply>) {
    let door = Arc::new(Door::new(World {
        limits,
        ..World::default()
    }));
    let (pieces, body) = in_pieces();
    let answered = tokio::spawn({
        let door = Arc::clone(&door);
        async move { door.send(Request::post("/validate/pods"), body).await }
    });
    (door, pieces, answered)
}

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn large_bodies_have_a_room_of_their_own_and_small_ones_pass_beside_them() {
    let limits = Limits {
        body_bytes: 4 * MIB,
        room_bytes: 4 * MIB,
        ..Limits::default()
    };
    let (door, pieces, large) = with_one_in_flight(limits);
    let spaces = Bytes::from(vec![b' '; MIB]);
    for _ in 0..3 {
        pieces.send(spaces.clone()).await.unwrap();
    }
    pieces.reserve().await.unwrap();
    let review = fixture("pod-delete").to_string();
    let two = format!("{}{review}", " ".repeat(2 * MIB));
    let refused = door.send(Request::post("/validate/pods"), Body::from(two.clone()));
    let refused = refused.await;
    assert_eq!(
        (refused.status.as_u16(), &refused.headers["retry-after"]),
        (429, &"1".parse().unwrap())
    );
    for _ in 0..100 {
        assert!(
            door.post("/validate/pods", &fixture("pod-delete"))
                .await
                .is_allowed()
        );
    }
    pieces.send(Bytes::from(review)).await.unwrap();
    drop(pieces);
    assert!(large.await.unwrap().is_allowed());
    let again = door.send(Request::post("/validate/pods"), Body::from(two));
    assert!(again.await.is_allowed(), "the room is not given back");
}

/// API servers write `<` as six bytes. A pod that could not be asked about could never be deleted.
#[tokio::test]
async fn a_pod_as_large_as_etcd_holds_is_judged_however_its_bytes_are_written() {
    let mut review = fixture("pod-delete");
    review["request"]["oldObject"]["spec"]["containers"][0]["env"] =
        serde_json::json!([{"name": "A", "value": "<".repeat(3 * MIB / 2)}]);
    let review = review.to_string().replace('<', r"\u003c");
    assert!(review.len() > 9 * MIB);
    let door = Door::open();
    let reply = door.send(Request::post("/validate/pods"), Body::from(review));
    assert!(reply.await.is_allowed());
}

/// An API server whose connection is closed while it writes quotes the URL, with the secret word,
/// to whoever made the request.
#[tokio::test]
async fn what_is_refused_for_its_length_is_read_to_its_end() {
    let limits = Limits {
        body_bytes: MIB,
        room_bytes: MIB,
        ..Limits::default()
    };
    let (_door, pieces, refused) = with_one_in_flight(limits);
    let spaces = Bytes::from(vec![b' '; MIB]);
    for _ in 0..8 {
        assert!(pieces.send(spaces.clone()).await.is_ok(), "it was closed");
    }
    drop(pieces);
    assert_eq!(refused.await.unwrap().status, 413);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_was_read_leaves_its_room_while_its_request_is_judged() {
    let limits = Limits {
        body_bytes: 4 * MIB,
        room_bytes: 4 * MIB,
        ..Limits::default()
    };
    let door = Door::new(World {
        judge_takes: Duration::from_secs(1),
        limits,
        ..World::default()
    });
    let review = format!("{}{}", " ".repeat(3 * MIB), fixture("pod-delete"));
    let post = || door.send(Request::post("/validate/pods"), Body::from(review.clone()));
    let (first, second) = tokio::join!(post(), post());
    assert!(first.is_allowed() && second.is_allowed());
}

/// The requests of all tenants come from the addresses of a few API servers.
#[tokio::test(start_paused = true)]
async fn a_crowd_in_one_namespace_leaves_judgements_to_others_of_its_address() {
    let limits = Limits {
        requests: 4096,
        ..Limits::default()
    };
    let door = Arc::new(Door::new(World {
        judge_takes: Duration::from_secs(1),
        limits,
        ..World::default()
    }));
    let post = |namespace: &str| {
        let mut review = fixture("pod-delete");
        review["request"]["namespace"] = namespace.into();
        review["request"]["oldObject"]["metadata"]["namespace"] = namespace.into();
        let (door, from) = (Arc::clone(&door), Peer::at("10.0.0.1".parse().unwrap()));
        async move {
            let request = Request::post("/validate/pods").extension(from);
            let review = Body::from(review.to_string());
            door.send(request, review).await.is_allowed()
        }
    };
    let crowd = futures::future::join_all((0..500).map(|_| post("crowded")));
    let other = futures::future::join_all((0..20).map(|_| post("other")));
    let (crowd, other) = tokio::join!(crowd, other);
    let answered = |replies: &[bool]| replies.iter().filter(|allowed| **allowed).count();
    assert_eq!((answered(&crowd), answered(&other)), (85, 20));
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_for_half_a_minute_has_the_webhooks_own_five_seconds() {
    let door = Door::open();
    let (pieces, body) = in_pieces();
    let start = Instant::now();
    let reply = door
        .send(Request::post("/validate/pods?timeout=30s"), body)
        .await;
    assert_eq!(reply.status, 408);
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    drop(pieces);
}
