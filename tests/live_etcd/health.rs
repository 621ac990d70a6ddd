//! The answers of a healthy cluster.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use anyhow::Result;

use crate::cluster::{Builder, prober, round};
use crate::version::Version;

crate::on_every_version!(a_healthy_cluster_answers_everything);

/// A certificate with names only fits an address of either family.
#[tokio::test]
async fn a_member_at_an_ipv6_address_answers_everything() -> Result<()> {
    let builder = Builder::new(Version::V3_7).at(Ipv6Addr::LOCALHOST.into());
    let cluster = builder.start().await?;
    let round = round(&prober(), &cluster.endpoints()?).await;
    let [probe] = round.probes.as_slice() else {
        anyhow::bail!("{:?}", round.probes);
    };
    assert_eq!(probe.read, Ok(()));
    assert!(probe.status.is_ok(), "{:?}", probe.status);
    Ok(())
}

async fn a_healthy_cluster_answers_everything(version: Version) -> Result<()> {
    let cluster = Builder::new(version).start().await?;
    let endpoints = cluster.endpoints()?;

    let round = round(&prober(), &endpoints).await;

    let targets = endpoints.iter().map(|endpoint| &endpoint.target);
    assert!(
        round.probes.iter().map(|probe| &probe.target).eq(targets),
        "one probe per endpoint, in order"
    );
    let mut statuses = Vec::new();
    for probe in round.probes {
        assert_eq!(probe.read, Ok(()));
        let (status, members) = (probe.status?, probe.members?);
        assert_eq!(members.len(), 3);
        assert!(
            members
                .iter()
                .all(|member| !member.learner && !member.client_urls.is_empty())
        );
        let named: BTreeSet<_> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(named, BTreeSet::from(["etcd-0", "etcd-1", "etcd-2"]));
        assert!(members.iter().any(|member| member.id == status.member_id));
        statuses.push(status);
    }
    let one = |values: BTreeSet<String>| assert_eq!(values.len(), 1, "{values:?}");
    one(statuses
        .iter()
        .map(|status| status.cluster_id.to_string())
        .collect());
    one(statuses
        .iter()
        .map(|status| format!("{:?} {}", status.leader, status.term))
        .collect());
    let ids: BTreeSet<_> = statuses.iter().map(|status| status.member_id).collect();
    assert_eq!(ids.len(), 3);
    for status in &statuses {
        assert!(status.leader.is_some_and(|leader| ids.contains(&leader)));
        assert!(
            status.applied_index > 0 && status.raft_index >= status.applied_index,
            "{status:?}"
        );
        assert!(
            status.db_size >= status.db_size_in_use && status.db_size_in_use > 0,
            "{status:?}"
        );
        assert_eq!(
            status.db_size_quota.is_some(),
            version >= Version::V3_6,
            "{status:?}"
        );
        assert!(status.version.starts_with(version.prefix()), "{status:?}");
        assert!(!status.learner && status.alarms.is_empty(), "{status:?}");
    }
    Ok(())
}
