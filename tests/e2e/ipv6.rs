//! Clusters whose pods have addresses of IPv6 first.

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::etcd_cluster::EtcdClusterBuilder;

use crate::asking::{By, refusal};
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn members_at_addresses_of_ipv6_are_asked_and_judged() -> Result<()> {
    let world = World::builder("ipv6").etcd(EtcdClusterBuilder::ipv6);
    let world = world.start().await?;
    for pod in world.etcd.pod_names() {
        let address = world.etcd.pod_ip(&pod).await?;
        ensure!(address.is_ipv6(), "{pod} is at {address}");
        let status = world.etcd.pod(&pod).await?.status.context("no status")?;
        let all = status.pod_ips.map_or(0, |all| all.len());
        ensure!(all == 2, "{pod} has {all} addresses");
    }
    for kind in ["EvidenceLive", "MembersAskedByTLS", "QuorumHealthy"] {
        world.reported(kind, |shown| shown.status == "True").await?;
    }

    let broken = world.crash("etcd-2").await?;
    for by in By::BOTH {
        let (code, message) = refusal(world.ask(by, "etcd-0").await)?;
        let says = code == 429 && message.contains("etcd-2");
        ensure!(says, "{code}: {message}");
    }
    drop(broken);
    world.whole().await?;
    for by in By::BOTH {
        world.lets_go(by, "etcd-1").await?;
        world.whole().await?;
    }
    world.close().await
}
