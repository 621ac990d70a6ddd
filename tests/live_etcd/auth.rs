//! etcd's own authentication, and the calls that it refuses to the gate.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use etcd_client::{Client, ConnectOptions, Error, UserAddOptions};
use quorumgate::clock::Clock;
use quorumgate::etcd::{Admin, AdminError, Connections, Endpoint, TlsIdentity, User};
use quorumgate::quorum::evidence::{Probe, Unanswered};
use tokio::time::Instant;

use crate::cluster::{Builder, Cluster, PATIENCE, probe, prober, round};
use crate::version::Version;

crate::on_every_version!(
    a_certificate_is_enough_to_ask_and_root_to_move_leadership,
    without_client_certificates_etcd_refuses_what_it_guards,
    a_user_with_a_password_is_let_in_and_again_when_its_token_is_known_no_more,
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
    applied_everywhere(&cluster).await?;

    // etcd does not know the user of the certificate. `Status` wants a user name, and any will do.
    everything_is_answered(&cluster).await?;
    assert_eq!(
        move_leader(&cluster).await?,
        refusal(version, "etcdserver: user name not found")
    );

    add_user(&mut etcd, USER, "").await?;
    applied_everywhere(&cluster).await?;
    everything_is_answered(&cluster).await?;
    assert_eq!(
        move_leader(&cluster).await?,
        refusal(version, "etcdserver: permission denied")
    );

    make_root(&mut etcd, USER).await?;
    applied_everywhere(&cluster).await?;
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
            assert!(probe.status.is_ok(), "etcd 3.4 answers every user");
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

/// etcd 3.4 lets every user move leadership.
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

/// Waits until every member has applied all earlier changes. Before that a slow follower may answer
/// one call without authentication, and refuse the next one. A linearizable read waits for what was
/// committed before it, and the permission is checked only then.
async fn applied_everywhere(cluster: &Cluster) -> Result<()> {
    for member in 0..3 {
        match cluster.client(member).await?.get("any", None).await {
            Ok(_) => {}
            Err(Error::GRpcStatus(refused)) if is_of_the_user(refused.message()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn is_of_the_user(message: &str) -> bool {
    ["etcdserver: user name", "etcdserver: permission denied"]
        .iter()
        .any(|why| message.starts_with(why))
}

/// Adds a user. Without a password the user is known by certificate only.
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

/// A user with a password, without TLS.
async fn a_user_with_a_password_is_let_in_and_again_when_its_token_is_known_no_more(
    version: Version,
) -> Result<()> {
    let cluster = Builder::new(version).without_tls().start().await?;
    let mut etcd = cluster.client(0).await?;
    for name in ["root", USER] {
        add_user(&mut etcd, name, "secret").await?;
        make_root(&mut etcd, name).await?;
    }
    etcd.auth_enable().await?;
    applied_everywhere(&cluster).await?;

    let prober = prober();
    let as_user = |password: &str| -> Result<Vec<_>> {
        let user = TlsIdentity::of_user(User::new(USER, password));
        let user = Arc::new(user);
        let endpoints = cluster.endpoints()?.into_iter();
        Ok(endpoints
            .map(|endpoint| Endpoint {
                tls: Some(Arc::clone(&user)),
                ..endpoint
            })
            .collect())
    };
    let endpoints = as_user("secret")?;
    let whole = async || {
        for probe in round(&prober, &endpoints).await.probes {
            assert!(probe.status?.leader.is_some());
            assert_eq!(probe.read, Ok(()));
            assert_eq!(probe.members?.len(), 3);
        }
        anyhow::Ok(())
    };
    whole().await?;
    // The connections stay, and etcd does not know their tokens any more.
    let url = format!("http://{}", cluster.member(0)?.client_address());
    let as_root = ConnectOptions::new().with_user("root", "secret");
    let mut root = Client::connect([url], Some(as_root)).await?;
    root.auth_disable().await?;
    etcd.auth_enable().await?;
    applied_everywhere(&cluster).await?;
    whole().await?;

    let leader = cluster_leader(&round(&prober, &endpoints).await.probes)?;
    let seen = round(&prober, &endpoints).await.probes.into_iter();
    let ids = seen.map(|probe| probe.status.map(|status| status.member_id));
    let ids: Vec<_> = ids.collect::<Result<_, _>>()?;
    let to = *ids.get((leader + 1) % 3).context("it has an id")?;
    let admin = Admin::new(Connections::new(Clock::system()));
    let from = endpoints.get(leader).context("it has one")?;
    let moved = admin.move_leader(from, to, Instant::now() + PATIENCE).await;
    assert_eq!(moved, Ok(()));

    // A refused login proves nothing about the member.
    let wrong = as_user("wrong")?;
    let probe = probe(&self::prober(), wrong.first().context("it has one")?).await?;
    if version != Version::V3_4 {
        let why = "etcdserver: authentication failed, invalid user ID or password";
        assert_eq!(probe.status, Err(Unanswered::Denied(why.to_owned())));
    }
    Ok(())
}

fn cluster_leader(probes: &[Probe]) -> Result<usize> {
    let leads = |probe: &Probe| {
        let status = probe.status.as_ref();
        status.is_ok_and(|status| status.leader == Some(status.member_id))
    };
    probes.iter().position(leads).context("no member leads")
}
