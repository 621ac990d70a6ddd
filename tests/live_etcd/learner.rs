//! Learners: they are listed before they start, answer only `Status` while they learn, and are
//! voters after their promotion.

use anyhow::{Context as _, Result, ensure};
use etcd_client::MemberAddOptions;
use quorumgate::quorum::evidence::{ListedMember, Unanswered};
use quorumgate_testbed::eventually;

use crate::cluster::{Builder, Cluster, SOON, probe, prober};
use crate::version::Version;

crate::on_every_version!(a_learner_is_known_from_its_addition_to_its_promotion);

/// The entry for the member with this peer URL in the first member's list.
async fn listed(cluster: &Cluster, peer_url: &str) -> Result<ListedMember> {
    let first = cluster
        .endpoints()?
        .into_iter()
        .next()
        .context("there is a first one")?;
    let members = probe(&prober(), &first).await?.members?;
    let found = members
        .into_iter()
        .find(|member| member.peer_urls.contains(&peer_url.to_owned()));
    found.context("it is listed")
}

async fn a_learner_is_known_from_its_addition_to_its_promotion(version: Version) -> Result<()> {
    let mut cluster = Builder::new(version).start().await?;
    let mut etcd = cluster.client(0).await?;
    let scheme = cluster.scheme();
    let peer_url = cluster.add()?.peer_url(scheme);
    let options = MemberAddOptions::new().with_is_learner();
    etcd.member_add([peer_url.as_str()], Some(options)).await?;

    let unstarted = listed(&cluster, &peer_url).await?;
    assert!(unstarted.learner);
    assert_eq!(
        (unstarted.name.as_str(), unstarted.client_urls.len()),
        ("", 0)
    );

    cluster.start(3, "existing")?;
    let endpoint = cluster.endpoints()?.pop().context("the learner's")?;
    let prober = prober();
    let learning = eventually(SOON, "the learner answers", async || {
        let probe = probe(&prober, &endpoint).await?;
        ensure!(probe.status.is_ok(), "{probe:?}");
        anyhow::Ok(probe)
    })
    .await?;
    let status = learning.status?;
    assert!(status.learner);
    assert_eq!(status.member_id, unstarted.id);
    assert_eq!(learning.read, Err(Unanswered::Learner));
    assert_eq!(learning.members, Err(Unanswered::Learner));

    eventually(SOON, "etcd promotes it", || {
        let mut etcd = etcd.clone();
        async move { etcd.member_promote(unstarted.id.0).await }
    })
    .await?;
    eventually(SOON, "it serves", async || {
        let probe = probe(&prober, &endpoint).await?;
        ensure!(probe.read.is_ok(), "{probe:?}");
        assert!(!probe.status?.learner);
        assert_eq!(probe.members?.len(), 4);
        Ok(())
    })
    .await?;
    assert!(!listed(&cluster, &peer_url).await?.learner);
    Ok(())
}
