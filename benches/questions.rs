//! Reviews about members of many clusters. They are dry runs of deletes, which are judged like real
//! ones and leave nothing behind.

use std::ops::Range;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};

use crate::caller::post;
use crate::deletion::deletion;
use crate::paper_member::{cluster_name, namespace_of};

/// The number of clusters in the reviews.
const CLUSTERS: usize = 300;
/// The number of pods that are read concurrently.
const AT_ONCE: usize = 8;

/// Requests, ready to be sent.
pub(crate) struct Questions(Vec<Vec<u8>>);

impl Questions {
    /// Reviews about the second member of some hundred of these clusters, spread over all of them.
    pub(crate) async fn prepare(client: &Client, clusters: Range<u32>) -> Result<Self> {
        let step = (clusters.len() / CLUSTERS).max(1);
        let requests = stream::iter(clusters.step_by(step))
            .map(|cluster| {
                let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace_of(cluster));
                async move {
                    let pod = pods.get(&format!("{}-1", cluster_name(cluster))).await?;
                    let review = deletion(&serde_json::to_value(pod)?, true);
                    anyhow::Ok(post("/validate/pods", &serde_json::to_vec(&review)?))
                }
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        Ok(Self(requests))
    }

    /// The requests in an endless sequence, with another beginning for each caller.
    pub(crate) fn from(&self, caller: usize) -> impl Iterator<Item = &[u8]> {
        let first = caller * self.0.len() / 8;
        self.0.iter().cycle().skip(first).map(Vec::as_slice)
    }
}
