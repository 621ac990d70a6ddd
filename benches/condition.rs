//! The condition of the members when a rollout begins.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use quorumgate_testbed::etcd_cluster::{EtcdCluster, Readiness};
use quorumgate_testbed::faults::{self, Cut, PodFaults, Standing};
use quorumgate_testbed::{Sandbox, eventually};

const SOON: Duration = Duration::from_secs(60);

/// The broken member, which the StatefulSet controller takes last.
const BROKEN: &str = "etcd-0";

/// A condition of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// All members serve.
    Healthy,
    /// A member crashes at every start until it is replaced: the new template is the repair.
    Crashing,
    /// A member has lost contact with its peers until it is replaced, and its pod is Ready
    /// nevertheless. This is the example at the beginning of DEP-07.
    CutOff,
}

impl Condition {
    pub(crate) const ALL: [Self; 3] = [Self::Healthy, Self::Crashing, Self::CutOff];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Healthy => "all healthy",
            Self::Crashing => "one crashes",
            Self::CutOff => "one cut off, its pod Ready",
        }
    }

    /// The readiness probe of the pods.
    pub(crate) fn readiness(self) -> Readiness {
        match self {
            Self::Healthy | Self::Crashing => Readiness::Quorum,
            Self::CutOff => Readiness::Process,
        }
    }

    /// The leader at the start: another one in every round, and never the broken one.
    pub(crate) fn leader(self, round: usize) -> String {
        let ordinal = match self {
            Self::Healthy => round % 3,
            Self::Crashing | Self::CutOff => 1 + round % 2,
        };
        format!("etcd-{ordinal}")
    }

    /// Brings the members into this condition.
    pub(crate) async fn bring_about(
        self,
        sandbox: &Sandbox,
        etcd: &EtcdCluster,
    ) -> Result<Option<Broken>> {
        let fault = match self {
            Self::Healthy => return Ok(None),
            Self::Crashing => crash(sandbox, etcd).await?,
            Self::CutOff => cut_off(sandbox, etcd).await?,
        };
        let uid = etcd.pod_uid(BROKEN).await?;
        Ok(Some(Broken { uid, fault }))
    }
}

/// A member that is broken until it is replaced.
pub(crate) struct Broken {
    /// The UID of its pod.
    pub(crate) uid: String,
    fault: Fault,
}

enum Fault {
    Crashing(Standing),
    CutOff(Cut),
}

impl Broken {
    /// Lets the next incarnation start. The present incarnation stays broken.
    pub(crate) fn replaced(self) -> Option<Cut> {
        match self.fault {
            Fault::Crashing(standing) => {
                standing.mend();
                None
            }
            Fault::CutOff(cut) => Some(cut),
        }
    }
}

async fn crash(sandbox: &Sandbox, etcd: &EtcdCluster) -> Result<Fault> {
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
    Ok(Fault::Crashing(standing))
}

async fn cut_off(sandbox: &Sandbox, etcd: &EtcdCluster) -> Result<Fault> {
    let cut = PodFaults::of(sandbox, BROKEN).await?.partition()?;
    eventually(
        SOON,
        format!("{BROKEN} has lost its leader"),
        async || match etcd.endpoint_status(BROKEN).await?.leader {
            Some(leader) => bail!("it follows {leader:x}"),
            None => Ok(()),
        },
    )
    .await?;
    Ok(Fault::CutOff(cut))
}
