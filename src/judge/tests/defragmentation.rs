//! Defragmentations: what the judge permits, and what members say that are in the middle of one.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::Court;
use crate::fake_api::FakeApi;
use crate::fake_api::etcd::{BUDGET, NAMESPACE};
use crate::judge::{Asker, Maintenance, MaintenanceQuestion, Refused, SeenVersions};
use crate::observe::{ClusterLook, PodLook};
use crate::quorum::evidence::Unanswered;
use crate::quorum::{Actor, ClusterRef, Condition, Grace, Kind, TargetPod, Why};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(4)
}

fn cluster() -> ClusterRef {
    ClusterRef::new("db", "etcd")
}

#[tokio::test]
async fn a_defragmentation_is_not_permitted_while_a_voter_does_not_serve() {
    let court = Court::new().await;
    let page = court.judge.deps.ledger().read(&cluster()).await;
    let page = page.unwrap().unwrap();
    let look = court.judge.deps.observer.look(&page, soon()).await.unwrap();
    let question = MaintenanceQuestion {
        cluster: cluster(),
        what: Maintenance::Defragment {
            pod: TargetPod {
                name: "etcd-1".into(),
                uid: "u1".into(),
            },
            holder: "gate-0/1".into(),
            timeout: Duration::from_secs(60),
            begins: None,
        },
        asker: Asker {
            name: "gate".into(),
            actor: Actor::Gate,
        },
        deadline: soon(),
        seen: SeenVersions::new(&page, &look.view),
    };
    let answer = court.judge.judge_maintenance(question).await;
    assert_eq!(answer.decision.unwrap_err(), Refused::Outdated);
    let budget = court.api.get(BUDGET).unwrap();
    assert!(budget["status"]["grants"].is_null(), "{budget}");
}

/// Serves this page of metrics. Returns the port.
async fn metrics(page: &'static str) -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let length = page.len();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            let _ = stream.write_all(format!("{head}{page}").as_bytes()).await;
        }
    });
    port
}

/// Names the port of the metrics in a pod.
fn serve_metrics_at(api: &FakeApi, pod: &str, port: u16) {
    let path = format!("{NAMESPACE}/pods/{pod}");
    let mut pod = api.get(&path).unwrap();
    let ports = pod["spec"]["containers"][0]["ports"].as_array_mut();
    let named = json!({"name": "metrics", "containerPort": port});
    ports.unwrap().push(named);
    api.put(&path, pod);
}

#[tokio::test]
async fn a_silent_member_whose_metrics_say_that_it_defragments_is_known_not_to_serve() {
    let court = Court::of_members(true).await;
    let busy = metrics("etcd_disk_defrag_inflight 1\n").await;
    let idle = metrics("etcd_disk_defrag_inflight 0\n").await;
    serve_metrics_at(&court.api, "etcd-0", busy);
    serve_metrics_at(&court.api, "etcd-1", idle);
    let page = court.judge.deps.ledger().read(&cluster()).await;
    let page = page.unwrap().unwrap();
    // Only a new connection shows that a silent member accepts any.
    let is_silent = |condition: &Condition| {
        let mute = Condition::Unknown(Why::Silent(Unanswered::Mute));
        let deadline = Condition::Unknown(Why::Silent(Unanswered::Deadline));
        *condition == mute || *condition == deadline
    };
    let defragmenting = Condition::Failing(Why::Silent(Unanswered::Defragmenting));
    let is_expected = |look: &ClusterLook| {
        let mut members = look.snapshot.members.iter().map(|m| &m.condition);
        members.next() == Some(&defragmenting) && members.all(is_silent)
    };
    let observer = &court.judge.deps.observer;
    let look = observer.look(&page, soon()).await.unwrap();
    assert!(is_expected(&look), "{:?}", look.snapshot.members);
    let asked = (&"etcd-1".into(), Kind::Evict, Grace::Graceful);
    let looked = observer.look_for(&page, asked, soon(), |_, _| None::<()>);
    let PodLook::Full(look, _) = Box::pin(looked).await.unwrap() else {
        panic!("no rule answers without the members");
    };
    assert!(
        is_expected(&look),
        "for a verdict: {:?}",
        look.snapshot.members
    );
}
