//! A control plane for one benchmark: a busy neighbour would be measured, too. It is gone when the benchmark is.

use anyhow::Result;
use quorumgate_testbed::control_plane::ControlPlane;
use quorumgate_testbed::paths::State;

/// Does the work in a new control plane, on a runtime like the gate's own.
pub(crate) fn with(work: impl AsyncFnOnce(&ControlPlane) -> Result<()>) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let plane = ControlPlane {
        state: State::at(directory.path().join("state")),
        ..ControlPlane::from_env()?
    };
    tokio::runtime::Runtime::new()?.block_on(async {
        let worked = Box::pin(work(&plane)).await;
        plane.down().await?;
        worked
    })
}
