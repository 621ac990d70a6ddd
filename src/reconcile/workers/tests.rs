use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use tokio::sync::mpsc;

use super::*;

fn cluster(name: &str) -> ClusterRef {
    ClusterRef::new("db", name)
}

fn workers() -> (Workers, CancellationToken) {
    let cancel = CancellationToken::new();
    let (supervisor, _) = Supervisor::new();
    let broke: Broke = Arc::new(|_, _, _, _| ());
    (Workers::new(supervisor, broke, cancel.clone()), cancel)
}

#[tokio::test]
async fn a_cluster_has_one_keeper_however_often_it_is_named() {
    let (mut workers, _) = workers();
    let begun = AtomicUsize::new(0);
    for _ in 0..3 {
        workers.set_clusters(&[cluster("a"), cluster("b")], |_, _| {
            begun.fetch_add(1, Ordering::Relaxed);
            vec![("duty", std::future::pending::<()>)]
        });
    }
    assert_eq!(begun.into_inner(), 2);
}

#[tokio::test]
async fn all_duties_of_a_cluster_that_left_end() {
    let (mut workers, _) = workers();
    let (held, mut all_dropped) = mpsc::channel::<()>(1);
    workers.set_clusters(&[cluster("a")], |_, _| {
        let duty = |held: mpsc::Sender<()>| {
            move || {
                let held = held.clone();
                async move {
                    let _held = held;
                    std::future::pending::<()>().await;
                }
            }
        };
        vec![("one", duty(held.clone())), ("other", duty(held.clone()))]
    });
    drop(held);
    workers.set_clusters(&[], |_, _| {
        Vec::<(&str, fn() -> std::future::Ready<()>)>::new()
    });
    assert!(workers.get(&cluster("a")).is_none());
    let ended = tokio::time::timeout(Duration::from_secs(10), all_dropped.recv()).await;
    assert_eq!(ended, Ok(None));
}

#[tokio::test]
async fn one_cluster_is_left_and_the_others_are_not_begun_anew() {
    let (mut workers, _) = workers();
    let (held, mut all_dropped) = mpsc::channel::<()>(1);
    workers.tend(&cluster("a"), |_, _| {
        let held = held.clone();
        let duty = move || {
            let held = held.clone();
            async move {
                let _held = held;
                std::future::pending::<()>().await;
            }
        };
        vec![("duty", duty)]
    });
    drop(held);
    let begun = AtomicUsize::new(0);
    for _ in 0..2 {
        workers.tend(&cluster("b"), |_, _| {
            begun.fetch_add(1, Ordering::Relaxed);
            vec![("duty", std::future::pending::<()>)]
        });
        workers.leave(&cluster("a"));
    }
    let ended = tokio::time::timeout(Duration::from_secs(10), all_dropped.recv()).await;
    assert_eq!(ended, Ok(None));
    assert!(workers.get(&cluster("a")).is_none());
    assert!(workers.get(&cluster("b")).is_some());
    assert_eq!(begun.into_inner(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_duty_that_ends_starts_again_and_is_reported_with_its_cluster() {
    let (supervisor, mut losses) = Supervisor::new();
    let (sender, mut told) = mpsc::unbounded_channel();
    let broke: Broke = Arc::new(move |cluster, duty, how, rest| {
        let _ = sender.send((cluster.clone(), duty, how.clone(), rest.as_secs()));
    });
    let mut workers = Workers::new(supervisor.clone(), broke, CancellationToken::new());
    let gone = workers.set_clusters(&[cluster("a")], |_, _| {
        vec![("stays", std::future::pending::<()>)]
    });
    assert_eq!(gone, [], "nothing had a worker");
    workers.set_clusters(&[cluster("a"), cluster("b")], |_, _| {
        vec![("panics", || async { panic!("no such member") })]
    });
    let panicked = TaskEnd::Panicked("no such member".into());
    for rest in [1, 2, 4] {
        let expected = (cluster("b"), "panics", panicked.clone(), rest);
        assert_eq!(told.recv().await, Some(expected));
    }
    let gone = workers.set_clusters(&[], |_, _| vec![("none", std::future::pending::<()>)]);
    assert_eq!(gone, [cluster("a"), cluster("b")]);
    supervisor.tasks_ended().await;
    assert_eq!(losses.next().now_or_never(), None, "the process ends");
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
fn an_outage_that_was_not_written_down_comes_back_and_gives_way_to_a_newer_one() {
    let wake = Wake::default();
    let taken = || {
        let outage = wake.take_outage();
        let why = outage.why().cloned();
        outage.forget();
        why
    };
    wake.out_of_force(OutOfForce::NotGated);
    drop(wake.take_outage());
    // Whoever was to write it down may have broken off.
    let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _outage = wake.take_outage();
        panic!("in the middle of it");
    }));
    assert!(broken.is_err());
    assert_eq!(taken(), Some(OutOfForce::NotGated));
    assert_eq!(taken(), None);

    wake.out_of_force(OutOfForce::NotGated);
    let older = wake.take_outage();
    wake.out_of_force(OutOfForce::NoHook("/validate/pods"));
    drop(older);
    assert_eq!(taken(), Some(OutOfForce::NoHook("/validate/pods")));
}

#[tokio::test]
async fn keepers_of_a_namespace_are_woken_and_no_others() {
    let (mut workers, _) = workers();
    let clusters = [
        cluster("a"),
        cluster("b"),
        ClusterRef::new("d", "z"),
        ClusterRef::new("db-2", "a"),
    ];
    workers.set_clusters(&clusters, |_, _| vec![("duty", std::future::pending::<()>)]);
    assert_eq!(workers.within("db").count(), 2);
    assert_eq!(workers.within("nowhere").count(), 0);
    assert_eq!(workers.all().count(), 4);
}
