//! Tests of moving leadership.

use std::time::Duration;

use anyhow::{Context as _, Result};
use quorumgate::clock::Clock;
use quorumgate::etcd::{Admin, AdminError, Connections};
use quorumgate::quorum::MemberId;
use quorumgate::quorum::evidence::Unanswered;
use tokio::time::Instant;

use crate::cluster::{Builder, PATIENCE};
use crate::version::Version;

crate::on_every_version!(leadership_moves_where_it_is_sent);

async fn leadership_moves_where_it_is_sent(version: Version) -> Result<()> {
    let cluster = Builder::new(version).start().await?;
    let admin = Admin::new(Connections::new(Clock::system()));
    let (endpoints, ids) = (cluster.endpoints()?, cluster.ids().await?);
    let leader = cluster.leader().await?;
    let (follower, third) = ((leader + 1) % 3, (leader + 2) % 3);
    let at = |ordinal: usize| endpoints.get(ordinal).context("it has an endpoint");
    let id = |ordinal: usize| ids.get(ordinal).copied().context("it has an id");
    let later = || Instant::now() + PATIENCE;

    let moved = admin.move_leader(at(follower)?, id(third)?, later()).await;
    assert_eq!(moved, Err(AdminError::NotLeader));
    let stranger = MemberId(0xbad);
    let moved = admin.move_leader(at(leader)?, stranger, later()).await;
    assert_eq!(moved, Err(AdminError::BadTransferee(stranger)));
    assert_eq!(cluster.leader().await?, leader, "what failed moved nothing");

    admin
        .move_leader(at(leader)?, id(follower)?, later())
        .await?;
    assert_eq!(cluster.leader().await?, follower);

    cluster.member(third)?.freeze().await?;
    let soon = Instant::now() + Duration::from_millis(300);
    let moved = admin.move_leader(at(follower)?, id(third)?, soon).await;
    assert_eq!(moved, Err(AdminError::Unanswered(Unanswered::Deadline)));
    assert!(
        soon.elapsed() < Duration::from_millis(300),
        "{:?} late",
        soon.elapsed()
    );
    Ok(())
}
