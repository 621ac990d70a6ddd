//! A member that is broken while the others serve.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::faults::{self, Cut, PodFaults, Standing};
use quorumgate_testbed::{Sandbox, eventually};

const SOON: Duration = Duration::from_secs(60);

/// The member that breaks, which the StatefulSet controller takes last.
pub(crate) const BROKEN: &str = "etcd-0";

/// A fault that lasts until the member is replaced, or the fault taken away.
pub(crate) enum Broken {
    Crashing(Standing),
    CutOff(Cut),
}

impl Broken {
    /// Lets the next incarnation start, or the container the next time. A member that is cut off
    /// stays so until the returned value is dropped.
    pub(crate) fn replaced(self) -> Option<Cut> {
        match self {
            Self::Crashing(standing) => {
                standing.mend();
                None
            }
            Self::CutOff(cut) => Some(cut),
        }
    }
}

/// Makes the member crash at every start, and waits until that is seen.
pub(crate) async fn crash(sandbox: &Sandbox, etcd: &EtcdCluster) -> Result<Broken> {
    let standing = faults::crash_loop(sandbox, BROKEN)?;
    eventually(SOON, format!("{BROKEN} is seen to crash"), async || {
        let status = etcd.pod(BROKEN).await?.status.context("no status")?;
        let containers = status.container_statuses.unwrap_or_default();
        let state = containers.into_iter().find_map(|container| container.state);
        let waiting = state.and_then(|state| state.waiting?.reason);
        ensure!(
            waiting.as_deref() == Some("CrashLoopBackOff"),
            "{waiting:?}"
        );
        ensure!(!etcd.is_ready(BROKEN).await?, "it is Ready");
        Ok(())
    })
    .await?;
    Ok(Broken::Crashing(standing))
}

/// Cuts the member off from its peers, and waits until it has lost its leader.
pub(crate) async fn cut_off(sandbox: &Sandbox, etcd: &EtcdCluster) -> Result<Broken> {
    let cut = PodFaults::find(sandbox, BROKEN).await?.partition()?;
    eventually(
        SOON,
        format!("{BROKEN} has lost its leader"),
        async || match etcd.endpoint_status(BROKEN).await?.leader {
            Some(leader) => bail!("it follows {leader:x}"),
            None => Ok(()),
        },
    )
    .await?;
    Ok(Broken::CutOff(cut))
}
