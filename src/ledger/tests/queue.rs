use futures::FutureExt as _;

use super::cluster;
use crate::ledger::Turnstile;
use crate::quorum::ClusterRef;

#[tokio::test]
async fn judgements_of_one_cluster_go_one_at_a_time() {
    let turnstile = Turnstile::default();
    let cluster = cluster();
    let first = turnstile.enter(&cluster).await;
    let second = turnstile.enter(&cluster);
    tokio::pin!(second);
    assert!(second.as_mut().now_or_never().is_none());
    assert_eq!(turnstile.pending(&cluster), 2);
    drop(first);
    let second = second.await;
    assert_eq!(turnstile.pending(&cluster), 1);
    drop(second);
    assert_eq!(turnstile.pending(&cluster), 0);
}

#[tokio::test]
async fn other_clusters_do_not_wait() {
    let turnstile = Turnstile::default();
    let _held = turnstile.enter(&cluster()).await;
    let other = ClusterRef::new("db", "other");
    assert!(turnstile.enter(&other).now_or_never().is_some());
}

#[tokio::test]
async fn who_gives_up_waiting_leaves_the_queue() {
    let turnstile = Turnstile::default();
    let cluster = cluster();
    let held = turnstile.enter(&cluster).await;
    assert!(turnstile.enter(&cluster).now_or_never().is_none());
    assert_eq!(turnstile.pending(&cluster), 1);
    drop(held);
    assert!(turnstile.enter(&cluster).now_or_never().is_some());
}
