//! Certificates that do not match: each defect is named, and none makes the member appear dead.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use quorumgate::etcd::{Endpoint, Failure, Obstacle, TlsIdentity};
use quorumgate::quorum::evidence::Unanswered;
use quorumgate_testbed::pki::{Authority, Request, Usage};

use crate::cluster::{Builder, Cluster, identity, probe, prober};
use crate::version::Version;

crate::on_every_version!(
    certificates_that_do_not_fit_are_named,
    plaintext_and_tls_do_not_mix
);

const DAY: Duration = Duration::from_secs(24 * 3600);

fn endpoint(cluster: &Cluster) -> Result<Endpoint> {
    cluster.endpoints()?.pop().context("it has one")
}

async fn refusal(endpoint: &Endpoint) -> Result<String> {
    match probe(&prober(), endpoint).await?.status {
        Err(Unanswered::Tls(text)) => Ok(text),
        other => anyhow::bail!("no failure of TLS: {other:?}"),
    }
}

async fn certificates_that_do_not_fit_are_named(version: Version) -> Result<()> {
    let cluster = Builder::new(version).members(1).start().await?;
    let stranger = Authority::new("stranger")?;
    let ours = cluster.issue("quorumgate")?;
    let ca = cluster.authority.certificate();
    let good = endpoint(&cluster)?;
    let with = |tls: Arc<TlsIdentity>| Endpoint {
        tls: Some(tls),
        ..good.clone()
    };
    let named = |server_name: Option<&str>| Endpoint {
        server_names: server_name.map(str::to_owned).into_iter().collect(),
        ..good.clone()
    };

    // The gate rejects the member's certificate.
    let text = refusal(&with(identity(stranger.certificate(), Some(&ours))?)).await?;
    assert!(text.contains("issued by"), "{text}");
    let text = refusal(&named(Some("etcd-7.etcd.test.svc"))).await?;
    assert!(text.contains("etcd-7.etcd.test.svc"), "{text}");
    let text = refusal(&named(None)).await?;
    assert!(
        text.contains(&cluster.member(0)?.address.to_string()),
        "{text}"
    );

    // The gate's own certificate is unusable.
    let expired = Request::new("quorumgate", Usage::Client).until(SystemTime::now() - DAY);
    let expired = cluster.authority.issue(&expired)?;
    let text = refusal(&with(identity(ca, Some(&expired))?)).await?;
    let says = text.starts_with("the gate's client certificate expired on 2");
    assert!(says, "{text}");

    // The member rejects the gate's certificate. The gate learns that only after its own side of
    // the handshake is done.
    let foreign = stranger.issue(&Request::new("quorumgate", Usage::Client))?;
    let text = refusal(&with(identity(ca, Some(&foreign))?)).await?;
    assert!(text.contains("does not accept the gate's"), "{text}");
    let text = refusal(&with(identity(ca, None)?)).await?;
    assert!(text.contains("client certificate"), "{text}");

    assert_eq!(probe(&prober(), &good).await?.read, Ok(()));
    Ok(())
}

async fn plaintext_and_tls_do_not_mix(version: Version) -> Result<()> {
    let tls = Builder::new(version).members(1).start().await?;
    let mute = Endpoint {
        tls: None,
        ..endpoint(&tls)?
    };
    let status = probe(&prober(), &mute).await?.status;
    assert!(matches!(status, Err(Unanswered::Other(_))), "{status:?}");
    assert_eq!(tried(&mute).await, Err(Obstacle::ServesTls.into()));

    let plain = Builder::new(version)
        .members(1)
        .without_tls()
        .start()
        .await?;
    let tls = Some(plain.identity("quorumgate")?);
    let by_tls = Endpoint {
        tls,
        ..endpoint(&plain)?
    };
    refusal(&by_tls).await?;
    assert_eq!(tried(&by_tls).await, Err(Obstacle::ServesPlaintext.into()));
    assert_eq!(tried(&endpoint(&plain)?).await, Ok(()));
    Ok(())
}

/// The end of a trial of this way to a member.
async fn tried(endpoint: &Endpoint) -> std::result::Result<(), Failure> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    prober().try_out(endpoint, deadline).await.map(drop)
}
