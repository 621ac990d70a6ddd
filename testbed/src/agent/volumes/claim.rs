//! Persistent volumes: the directory of a claim's volume on this host.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, Client};

use crate::agent::retry::Retry;

/// The host directory of a claim. Waits until the claim is bound and the API server lets this node
/// read it.
pub(super) async fn path(client: &Client, namespace: &str, claim: &str) -> anyhow::Result<PathBuf> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let mut retry = Retry::for_start();
    loop {
        match bound(&claims, &volumes, claim).await {
            Ok(Some(volume)) => return host_path(&volume),
            Ok(None) => tracing::debug!(%claim, "not bound yet"),
            Err(error) => tracing::debug!(%claim, %error, "claim"),
        }
        retry.wait().await;
    }
}

async fn bound(
    claims: &Api<PersistentVolumeClaim>,
    volumes: &Api<PersistentVolume>,
    claim: &str,
) -> kube::Result<Option<PersistentVolume>> {
    let claim = claims.get(claim).await?;
    let is_bound = claim.status.and_then(|s| s.phase).as_deref() == Some("Bound");
    match claim.spec.and_then(|s| s.volume_name) {
        Some(volume) if is_bound => volumes.get(&volume).await.map(Some),
        _ => Ok(None),
    }
}

fn host_path(volume: &PersistentVolume) -> anyhow::Result<PathBuf> {
    let spec = volume
        .spec
        .as_ref()
        .context("a persistent volume without spec")?;
    let path = match (&spec.host_path, &spec.local) {
        (Some(source), _) => &source.path,
        (None, Some(source)) => &source.path,
        (None, None) => bail!("a persistent volume that is not on this host"),
    };
    let path = PathBuf::from(path);
    fs::create_dir_all(&path).with_context(|| format!("volume directory {}", path.display()))?;
    Ok(path)
}
