//! The connection to the API server, and the username that the API server knows this process by.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::client::ClientBuilder;
use kube::{Api, Client, Config};
use tracing::warn;

use super::bounded::Bound;
use super::counted::Count;
use super::dated::Date;
use super::fitted::Fit;
use crate::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// The time limit for an answer of the API server: far above the usual time, and below the settle
/// time.
const ANSWER: Duration = Duration::from_secs(30);

/// The read timeout of a connection. A watch gets a bookmark every minute.
const SILENCE: Duration = Duration::from_secs(150);

/// A client for the cluster that KUBECONFIG names or, without it, for the cluster of this pod.
/// Its requests are counted in `metrics`, and the dates of its answers correct `clock`.
pub(super) async fn connect(clock: &Clock, metrics: &Arc<Metrics>) -> Result<Client> {
    let mut config = Config::infer()
        .await
        .context("no Kubernetes cluster: set KUBECONFIG, or run in a pod with a service account")?;
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    let address = config.cluster_url.to_string();
    let client = ClientBuilder::try_from(config)
        .with_context(|| format!("cannot make a client for the Kubernetes API at {address}"))?
        .with_layer(&Bound(ANSWER))
        .with_layer(&Date::new(clock.clone(), Arc::clone(metrics)))
        .with_layer(&Count(Arc::clone(metrics)))
        .with_layer(&Fit::new(ANSWER))
        .build();
    client
        .apiserver_version()
        .await
        .with_context(|| format!("the Kubernetes API at {address} does not answer"))?;
    Ok(client)
}

/// The prefix of every service account's username.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The username of this process, as the API server gives it. The webhook recognises the gate's own
/// requests by this name, so it has to be one that nobody else uses: a service account's. With
/// `any`, every other username is accepted too.
///
/// # Errors
///
/// When the API server cannot be asked, gives no username, or gives one that is not a
/// service account's.
pub(super) async fn own_username(client: &Client, any: bool) -> Result<String> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .context("cannot find out the username that the Kubernetes API gives this process")?;
    let user = review.status.and_then(|status| status.user_info);
    own(user.and_then(|user| user.username).unwrap_or_default(), any)
}

fn own(name: String, any: bool) -> Result<String> {
    if name.is_empty() {
        bail!("the Kubernetes API gives this process no username");
    }
    if !any && !name.starts_with(SERVICE_ACCOUNT) {
        bail!(
            "the Kubernetes API knows this process as {name:?}, which is no service account: whatever else comes under that name, such as a person's kubectl, would be taken for the gate's own steps, to which no override applies; run it in a pod, or set KUBECONFIG to a file with a service account's token (--any-username, where nobody else uses that name)"
        );
    }
    if any && !name.starts_with(SERVICE_ACCOUNT) {
        warn!(
            username = name,
            "all requests of this username count as the gate's own steps"
        );
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_does_not_share_a_persons_name() {
        let account = "system:serviceaccount:quorumgate:quorumgate";
        assert_eq!(own(account.into(), false).unwrap(), account);
        for person in ["kubernetes-admin", "system:admin", "system:node:a"] {
            let refused = own(person.into(), false).unwrap_err().to_string();
            assert!(refused.contains(person), "{refused}");
            assert!(refused.contains("--any-username"), "{refused}");
            assert_eq!(own(person.into(), true).unwrap(), person);
        }
        own(String::new(), true).unwrap_err();
    }
}
