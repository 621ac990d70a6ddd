//! A control plane for one benchmark, which a busy neighbour would disturb. It is deleted after the
//! benchmark.

use anyhow::Result;
use quorumgate_testbed::control_plane::ControlPlane;
use quorumgate_testbed::paths::State;

/// Does the work with a new control plane, on a runtime like the gate's.
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
