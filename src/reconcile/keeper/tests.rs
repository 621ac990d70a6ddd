use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use tokio::sync::mpsc;

use super::*;

fn cluster(name: &str) -> ClusterRef {
    ClusterRef::new("db", name)
}

fn keepers() -> (Keepers, CancellationToken) {
    let cancel = CancellationToken::new();
    let (supervisor, _) = Supervisor::new();
    (Keepers::new(supervisor, cancel.clone()), cancel)
}

#[tokio::test]
async fn a_cluster_has_one_keeper_however_often_it_is_named() {
    let (mut keepers, _) = keepers();
    let begun = AtomicUsize::new(0);
    for _ in 0..3 {
        keepers.keep(&[cluster("a"), cluster("b")], |_, _| {
            begun.fetch_add(1, Ordering::Relaxed);
            vec![("duty", std::future::pending::<()>())]
        });
    }
    assert_eq!(begun.into_inner(), 2);
}

#[tokio::test]
async fn all_duties_of_a_cluster_that_left_end() {
    let (mut keepers, _) = keepers();
    let (held, mut all_dropped) = mpsc::channel::<()>(1);
    keepers.keep(&[cluster("a")], |_, _| {
        let duty = |held: mpsc::Sender<()>| async move {
            let _held = held;
            std::future::pending::<()>().await;
        };
        vec![("one", duty(held.clone())), ("other", duty(held.clone()))]
    });
    drop(held);
    keepers.keep(&[], |_, _| Vec::<(&str, std::future::Ready<()>)>::new());
    assert!(keepers.of(&cluster("a")).is_none());
    let ended = tokio::time::timeout(Duration::from_secs(10), all_dropped.recv()).await;
    assert_eq!(ended, Ok(None));
}

#[tokio::test]
async fn one_cluster_is_left_and_the_others_are_not_begun_anew() {
    let (mut keepers, _) = keepers();
    let (held, mut all_dropped) = mpsc::channel::<()>(1);
    keepers.tend(&cluster("a"), |_, _| {
        let held = held.clone();
        let duty = async move {
            let _held = held;
            std::future::pending::<()>().await;
        };
        vec![("duty", duty)]
    });
    drop(held);
    let begun = AtomicUsize::new(0);
    for _ in 0..2 {
        keepers.tend(&cluster("b"), |_, _| {
            begun.fetch_add(1, Ordering::Relaxed);
            vec![("duty", std::future::pending::<()>())]
        });
        keepers.leave(&cluster("a"));
    }
    let ended = tokio::time::timeout(Duration::from_secs(10), all_dropped.recv()).await;
    assert_eq!(ended, Ok(None));
    assert!(keepers.of(&cluster("a")).is_none());
    assert!(keepers.of(&cluster("b")).is_some());
    assert_eq!(begun.into_inner(), 1);
}

#[tokio::test]
async fn a_duty_that_ends_by_itself_is_missed_by_its_name_and_one_that_is_left_is_not() {
    let (supervisor, mut losses) = Supervisor::new();
    let mut keepers = Keepers::new(supervisor.clone(), CancellationToken::new());
    keepers.keep(&[cluster("a")], |_, _| {
        vec![("stays", std::future::pending::<()>())]
    });
    keepers.leave(&cluster("a"));
    supervisor.tasks_ended().await;
    assert_eq!(losses.next().now_or_never(), None);
    keepers.keep(&[cluster("a")], |_, _| {
        vec![("returns", std::future::ready(()))]
    });
    let broken = async { panic!("no such member") };
    let broken = Mutex::new(Some(broken));
    keepers.keep(&[cluster("a"), cluster("b")], |_, _| {
        vec![("panics", broken.lock().unwrap().take().unwrap())]
    });
    let mut missed = Vec::new();
    for _ in 0..2 {
        let next = tokio::time::timeout(Duration::from_secs(10), losses.next());
        missed.push(next.await.expect("nobody misses it").task);
    }
    missed.sort_unstable();
    assert_eq!(missed, ["panics", "returns"]);
}

#[tokio::test]
async fn a_wake_that_comes_while_a_keeper_is_at_work_is_not_lost() {
    let wake = Wake::default();
    wake.ledger();
    wake.ledger();
    let waited = tokio::time::timeout(Duration::from_secs(10), wake.for_ledger()).await;
    assert_eq!(waited, Ok(()), "one look more");
    let mut again = std::pin::pin!(wake.for_ledger());
    assert!(futures::poll!(&mut again).is_pending(), "and not two");
}

#[test]
fn a_lapse_is_taken_once_and_an_older_one_that_was_put_back_gives_way() {
    let wake = Wake::default();
    wake.lapsed(OutOfForce::NotGated);
    assert_eq!(wake.take_lapse(), Some(OutOfForce::NotGated));
    assert_eq!(wake.take_lapse(), None);
    wake.lapsed(OutOfForce::NoHook("/validate/pods"));
    wake.remember_lapse(OutOfForce::NotGated);
    assert_eq!(
        wake.take_lapse(),
        Some(OutOfForce::NoHook("/validate/pods"))
    );
}

#[tokio::test]
async fn those_within_a_namespace_are_woken_and_no_others() {
    let (mut keepers, _) = keepers();
    let clusters = [
        cluster("a"),
        cluster("b"),
        ClusterRef::new("d", "z"),
        ClusterRef::new("db-2", "a"),
    ];
    keepers.keep(&clusters, |_, _| {
        vec![("duty", std::future::pending::<()>())]
    });
    assert_eq!(keepers.within("db").count(), 2);
    assert_eq!(keepers.within("nowhere").count(), 0);
    assert_eq!(keepers.all().count(), 4);
}
