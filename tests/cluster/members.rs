//! The members through the API server's proxy to pods, and a way to break one from outside.

use anyhow::{Context as _, Result, bail, ensure};
use http::Request;
use jiff::{Timestamp, ToSpan as _};
use quorumgate::api::names::OVERRIDE_UNTIL;
use quorumgate_testbed::eventually;

use crate::cluster::{Cluster, PATIENCE, PODS, is_ready};

/// The name of an image that no registry has.
pub(crate) const NO_IMAGE: &str = "quorumgate.invalid/none:1";

impl Cluster {
    /// The answer of a pod's port to a GET.
    pub(crate) async fn ask(&self, pod: &str, port: u16, path: &str) -> Result<String> {
        let request = Request::get(self.proxied(pod, port, path)).body(Vec::new())?;
        Ok(self.client().request_text(request).await?)
    }

    /// The answer of a pod's port to a POST of JSON.
    pub(crate) async fn post(
        &self,
        pod: &str,
        port: u16,
        path: &str,
        body: String,
    ) -> Result<String> {
        let request = Request::post(self.proxied(pod, port, path));
        let request = request
            .header("content-type", "application/json")
            .body(body.into_bytes())?;
        Ok(self.client().request_text(request).await?)
    }

    fn proxied(&self, pod: &str, port: u16, path: &str) -> String {
        let namespace = self.namespace();
        format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{path}")
    }

    /// The pod of the leader, from etcd's own metrics.
    pub(crate) async fn leader(&self) -> Result<&'static str> {
        eventually(PATIENCE, "a member leads", || async {
            for pod in PODS {
                let metrics = self.ask(pod, 2381, "/metrics").await?;
                if metrics
                    .lines()
                    .any(|line| line == "etcd_server_is_leader 1")
                {
                    return Ok(pod);
                }
            }
            bail!("no member reports that it leads")
        })
        .await
    }

    /// Sets an override on this pod for the next ten minutes, so that the pod may go in any case.
    pub(crate) async fn lift(&self, pod: &str) -> Result<()> {
        let until = Timestamp::now().checked_add(10.minutes())?;
        let until = format!("{OVERRIDE_UNTIL}={until:.0}");
        let annotate = ["annotate", "pod", pod, "--overwrite", &until];
        self.kubectl(&annotate).await?.success().map(drop)
    }

    /// Makes the kubelet stop a member and try to pull an image that does not exist. The member's
    /// next pod has the right image.
    pub(crate) async fn break_member(&self, pod: &str) -> Result<()> {
        self.lift(pod).await?;
        let image = format!("etcd={NO_IMAGE}");
        self.kubectl(&["set", "image", &format!("pod/{pod}"), &image])
            .await?
            .success()?;
        eventually(PATIENCE, format!("{pod} does not serve"), || async {
            let status = self.budget().await?.status.context("no status")?;
            ensure!(status.current_healthy == Some(2), "it does");
            Ok(())
        })
        .await?;
        eventually(PATIENCE, format!("{pod} is not Ready"), || async {
            ensure!(!is_ready(&self.pod(pod).await?), "it is");
            Ok(())
        })
        .await
    }
}
