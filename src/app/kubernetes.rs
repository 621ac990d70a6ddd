//! The way to the API server, and the name it knows this process by.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::{Api, Client, Config};

/// A client for the cluster that KUBECONFIG names, or the one this process runs in.
pub(super) async fn connect() -> Result<Client> {
    let config = Config::infer()
        .await
        .context("no Kubernetes cluster: set KUBECONFIG, or run in a pod with a service account")?;
    let address = config.cluster_url.to_string();
    let client = Client::try_from(config)
        .with_context(|| format!("cannot make a client for the Kubernetes API at {address}"))?;
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
