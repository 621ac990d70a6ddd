//! The wait until the gate has looked at very many clusters.

use std::time::Duration;

use anyhow::{Result, ensure};
use quorumgate_testbed::eventually;
use quorumgate_testbed::gate::Gate;

/// The pause between two reads of the metrics. Those of ten thousand clusters are megabytes, and
/// producing them takes the gate's processor time.
const BETWEEN: Duration = Duration::from_secs(2);

/// Waits until the gate's metrics show this number of clusters of three.
pub(crate) async fn shown(gate: &Gate, clusters: u32, within: Duration) -> Result<()> {
    eventually(
        within,
        format!("{clusters} clusters are shown"),
        async || {
            tokio::time::sleep(BETWEEN).await;
            let metrics = gate.metrics(0).await?;
            let shown = metrics.lines().filter(|line| {
                line.starts_with("quorumgate_cluster_serving_voters{") && line.ends_with(" 3")
            });
            let shown = u32::try_from(shown.count())?;
            ensure!(shown == clusters, "{shown} are");
            anyhow::Ok(())
        },
    )
    .await
}
