//! The way to the API server, and the name it knows this process by.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::client::ClientBuilder;
use kube::{Api, Client, Config};

use super::bounded::Bound;

/// How long the API server may take to answer. Far above what it takes, and below the settle time.
const ANSWER: Duration = Duration::from_secs(30);

/// How long a connection may be silent while something is expected of it. A watch is sent a bookmark every minute.
const SILENCE: Duration = Duration::from_secs(150);

/// A client for the cluster that KUBECONFIG names, or the one this process runs in.
pub(super) async fn connect() -> Result<Client> {
    let mut config = Config::infer()
        .await
        .context("no Kubernetes cluster: set KUBECONFIG, or run in a pod with a service account")?;
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    let address = config.cluster_url.to_string();
    let client = ClientBuilder::try_from(config)
        .with_context(|| format!("cannot make a client for the Kubernetes API at {address}"))?
        .with_layer(&Bound(ANSWER))
        .build();
    client
        .apiserver_version()
        .await
        .with_context(|| format!("the Kubernetes API at {address} does not answer"))?;
    Ok(client)
}

/// The username of this process: its own requests are told from strangers' by it.
pub(super) async fn own_username(client: &Client) -> Result<String> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .context("cannot find out the username that the Kubernetes API gives this process")?;
    let user = review.status.and_then(|status| status.user_info);
    match user
        .and_then(|user| user.username)
        .filter(|name| !name.is_empty())
    {
        Some(name) => Ok(name),
        None => bail!("the Kubernetes API gives this process no username"),
    }
}
