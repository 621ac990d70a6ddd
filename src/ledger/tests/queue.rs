use futures::FutureExt as _;

use super::cluster;
use crate::ledger::LedgerLocks;
use crate::quorum::ClusterRef;

#[tokio::test]
async fn judgements_of_one_cluster_go_one_at_a_time() {
    let locks = LedgerLocks::default();
    let cluster = cluster();
    let first = locks.enter(&cluster).await;
    let second = locks.enter(&cluster);
    tokio::pin!(second);
    assert!(second.as_mut().now_or_never().is_none());
    assert_eq!(locks.pending(&cluster), 2);
    drop(first);
    let second = second.await;
    assert_eq!(locks.pending(&cluster), 1);
    drop(second);
    assert_eq!(locks.pending(&cluster), 0);
}

#[tokio::test]
async fn other_clusters_do_not_wait() {
    let locks = LedgerLocks::default();
    let _held = locks.enter(&cluster()).await;
    let other = ClusterRef::new("db", "other");
    assert!(locks.enter(&other).now_or_never().is_some());
}

#[tokio::test]
async fn who_gives_up_waiting_leaves_the_queue() {
    let locks = LedgerLocks::default();
    let cluster = cluster();
    let held = locks.enter(&cluster).await;
    assert!(locks.enter(&cluster).now_or_never().is_none());
    assert_eq!(locks.pending(&cluster), 1);
    drop(held);
    assert!(locks.enter(&cluster).now_or_never().is_some());
}
