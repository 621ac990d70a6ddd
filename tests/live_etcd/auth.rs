//! etcd's own authentication: what it keeps the gate from, and what not.

use anyhow::{Context as _, Result};
use etcd_client::{Client, UserAddOptions};
use quorumgate::clock::Clock;
use quorumgate::etcd::{Admin, AdminError, Connections};
use quorumgate::quorum::evidence::Unanswered;
use tokio::time::Instant;

use crate::cluster::{Builder, Cluster, PATIENCE, probe, prober, round};
use crate::version::Version;

crate::on_every_version!(
    a_certificate_is_enough_to_ask_and_root_to_move_leadership,
    without_client_certificates_etcd_refuses_what_it_guards,
);

const USER: &str = "quorumgate";

async fn a_certificate_is_enough_to_ask_and_root_to_move_leadership(
    version: Version,
) -> Result<()> {
    let cluster = Builder::new(version).start().await?;
    let mut etcd = cluster.client(0).await?;
    add_user(&mut etcd, "root", "").await?;
    make_root(&mut etcd, "root").await?;
    etcd.auth_enable().await?;

    // Nobody of that name is known to etcd. Status wants a name, of anybody.
    everything_is_answered(&cluster).await?;
    assert_eq!(
        move_leader(&cluster).await?,
        refusal(version, "etcdserver: user name not found")
    );

    add_user(&mut etcd, USER, "").await?;
    everything_is_answered(&cluster).await?;
    assert_eq!(
        move_leader(&cluster).await?,
        refusal(version, "etcdserver: permission denied")
    );

    make_root(&mut etcd, USER).await?;
    everything_is_answered(&cluster).await?;
    assert_eq!(move_leader(&cluster).await?, Ok(()));
    Ok(())
}

async fn without_client_certificates_etcd_refuses_what_it_guards(version: Version) -> Result<()> {
    let cluster = Builder::new(version)
        .members(1)
        .without_tls()
        .start()
        .await?;
    let mut etcd = cluster.client(0).await?;
    add_user(&mut etcd, "root", "secret").await?;
    make_root(&mut etcd, "root").await?;
    etcd.auth_enable().await?;

    let endpoint = cluster.endpoints()?.pop().context("it has one")?;
    let probe = probe(&prober(), &endpoint).await?;

    assert_eq!(
        probe.read,
        Ok(()),
        "the read index was confirmed before the user was looked at"
    );
    let denied = Unanswered::Denied("etcdserver: user name is empty".to_owned());
    match version {
        Version::V3_4 => {
            assert!(probe.status.is_ok(), "3.4 tells everybody");
            assert_eq!(probe.members?.len(), 1);
        }
        Version::V3_5 | Version::V3_6 | Version::V3_7 => {
            assert_eq!(probe.status, Err(denied.clone()));
            assert_eq!(probe.members, Err(denied));
        }
    }
    Ok(())
}

async fn everything_is_answered(cluster: &Cluster) -> Result<()> {
    let round = round(&prober(), &cluster.endpoints_as(USER)?).await;
    for probe in round.probes {
        assert!(probe.status?.leader.is_some());
        assert_eq!(probe.read, Ok(()));
        assert_eq!(probe.members?.len(), 3);
    }
    Ok(())
}

/// Up to 3.4 everybody may move leadership.
fn refusal(version: Version, why: &str) -> Result<(), AdminError> {
    match version {
        Version::V3_4 => Ok(()),
        Version::V3_5 | Version::V3_6 | Version::V3_7 => {
            Err(AdminError::PermissionDenied(why.to_owned()))
        }
    }
}

async fn move_leader(cluster: &Cluster) -> Result<Result<(), AdminError>> {
    let leader = cluster.leader().await?;
    let ids = cluster.ids().await?;
    let to = *ids.get((leader + 1) % 3).context("it has an id")?;
    let endpoint = cluster
        .endpoints_as(USER)?
        .into_iter()
        .nth(leader)
        .context("it has one")?;
    let admin = Admin::new(Connections::new(Clock::system()));
    Ok(admin
        .move_leader(&endpoint, to, Instant::now() + PATIENCE)
        .await)
}

/// Without a password a user is known by certificate only.
async fn add_user(etcd: &mut Client, name: &str, password: &str) -> Result<()> {
    let options = match password {
        "" => Some(UserAddOptions::new().with_no_pwd()),
        _ => None,
    };
    etcd.user_add(name, password, options).await?;
    Ok(())
}

async fn make_root(etcd: &mut Client, name: &str) -> Result<()> {
    if !etcd.role_list().await?.roles().contains(&"root".to_owned()) {
        etcd.role_add("root").await?;
    }
    etcd.user_grant_role(name, "root").await?;
    Ok(())
}
