//! What nearly every test starts from: nodes, a quorate etcd cluster with TLS, and a gate in force before a warm ledger.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, EvictParams};
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate_testbed::etcd_cluster::{EtcdCluster, EtcdClusterBuilder};
use quorumgate_testbed::faults::{self, Standing};
use quorumgate_testbed::gate::{Gate, GateBuilder};
use quorumgate_testbed::kubectl::Output;
use quorumgate_testbed::{Bed, Sandbox, eventually};

/// How long anything may take that ought to happen soon, on a machine that does other things besides.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The settle time of a test's gate. Far below what a real one needs: tests bound the life of their requests themselves.
pub(crate) const SETTLE_TIME: Duration = Duration::from_secs(8);

/// How `kubectl get pods` shows a member that was made to crash.
const CRASH_LOOP: &str = "CrashLoopBackOff";

/// One test's world.
///
/// When a test fails its fields are dropped in this order: the webhooks have to go before the replicas that answer them.
pub(crate) struct World {
    pub(crate) gate: Gate,
    pub(crate) sandbox: Sandbox,
    pub(crate) etcd: EtcdCluster,
}

/// Chooses a world.
pub(crate) struct WorldBuilder {
    name: String,
    nodes: usize,
    etcd: EtcdClusterBuilder,
    gate: GateBuilder,
    warm: bool,
}

impl World {
    /// Three nodes, three members, two replicas of the gate.
    pub(crate) async fn new(name: &str) -> Result<Self> {
        Self::builder(name).start().await
    }

    pub(crate) fn builder(name: &str) -> WorldBuilder {
        WorldBuilder {
            name: name.to_owned(),
            nodes: 3,
            etcd: EtcdCluster::builder("etcd"),
            gate: gate(),
            warm: true,
        }
    }

    pub(crate) fn bed(&self) -> &Bed {
        self.sandbox.bed()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.sandbox.namespace()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        self.sandbox.api()
    }

    pub(crate) fn budgets(&self) -> Api<QuorumDisruptionBudget> {
        self.sandbox.api()
    }

    /// kubectl in the namespace of the test.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<Output> {
        let mut all = vec!["--namespace", self.namespace()];
        all.extend(args);
        self.bed()
            .kubectl(all)
            .timeout(Duration::from_secs(120))
            .await
    }

    /// Deletes a pod as `kubectl delete pod --wait=false` does.
    pub(crate) async fn delete(&self, pod: &str) -> Result<(), kube::Error> {
        self.pods()
            .delete(pod, &DeleteParams::default())
            .await
            .map(drop)
    }

    /// Evicts a pod as `kubectl drain` does.
    pub(crate) async fn evict(&self, pod: &str) -> Result<(), kube::Error> {
        self.pods()
            .evict(pod, &EvictParams::default())
            .await
            .map(drop)
    }

    /// The budget of the test's cluster as it stands.
    pub(crate) async fn budget(&self) -> Result<QuorumDisruptionBudget> {
        Ok(self.budgets().get(self.etcd.name()).await?)
    }

    /// The members with an open grant.
    pub(crate) async fn granted(&self) -> Result<Vec<String>> {
        let status = self.budget().await?.status.unwrap_or_default();
        Ok(status
            .grants
            .into_iter()
            .map(|grant| grant.member)
            .collect())
    }

    /// Waits until no grant is open.
    pub(crate) async fn settled(&self) -> Result<()> {
        eventually(SOON, "every grant has settled", || async {
            match self.granted().await? {
                open if open.is_empty() => Ok(()),
                open => bail!("grants of {} are open", open.join(", ")),
            }
        })
        .await
    }

    /// Waits until another incarnation than `uid` of this pod serves.
    pub(crate) async fn replaced(&self, pod: &str, uid: &str) -> Result<()> {
        eventually(
            SOON,
            format!("another incarnation of {pod} exists"),
            || async {
                match self.etcd.pod_uid(pod).await {
                    Ok(now) => ensure!(now != uid, "it is still there"),
                    Err(error) => return Err(error),
                }
                Ok(())
            },
        )
        .await?;
        self.etcd.serves(pod, SOON).await
    }

    /// Waits until every member serves, no grant is open, and the budget says so.
    pub(crate) async fn whole(&self) -> Result<()> {
        self.etcd.quorate(SOON).await?;
        eventually(SOON, "the budget shows a whole cluster", || async {
            let status = self.budget().await?.status.context("no status yet")?;
            ensure!(status.grants.is_empty(), "grants are open");
            ensure!(
                status.current_healthy == status.expected_members,
                "{:?} of {:?} serve",
                status.current_healthy,
                status.expected_members
            );
            Ok(())
        })
        .await
    }

    /// Kills a member and keeps it from starting, until the returned value is dropped.
    ///
    /// Waits until the API server says so too, and until the others, where they still make a majority, serve without it.
    pub(crate) async fn crash(&self, pod: &str) -> Result<Standing> {
        let broken = faults::crash_loop(&self.sandbox, pod)?;
        eventually(SOON, format!("{pod} is in CrashLoopBackOff"), || async {
            let said = self
                .kubectl(&["get", "pod", pod, "--no-headers"])
                .await?
                .success()?;
            ensure!(said.contains(CRASH_LOOP), "{said}");
            Ok(())
        })
        .await?;
        self.others_serve().await?;
        Ok(broken)
    }

    /// Waits until the members that do not crash serve, where they can: one that crashed may have been the leader.
    async fn others_serve(&self) -> Result<()> {
        let listed = self
            .kubectl(&["get", "pods", "--no-headers"])
            .await?
            .success()?;
        let lines = listed.lines().map(|line| {
            let name = line.split_whitespace().next().unwrap_or_default();
            (name.to_owned(), line.contains(CRASH_LOOP))
        });
        let (mut up, mut members) = (Vec::new(), 0);
        for (pod, crashes) in lines.filter(|(pod, _)| self.etcd.pod_names().contains(pod)) {
            members += 1;
            if !crashes {
                up.push(pod);
            }
        }
        if up.len() > members / 2 {
            for pod in up {
                self.etcd.serves(&pod, SOON).await?;
            }
        }
        Ok(())
    }

    /// The node that a pod runs on.
    pub(crate) async fn node_of(&self, pod: &str) -> Result<String> {
        let spec = self
            .etcd
            .pod(pod)
            .await?
            .spec
            .context("a pod without spec")?;
        spec.node_name.context("it is on no node")
    }

    /// Waits until the ledger is warm and the gate in force.
    pub(crate) async fn warm(&self) -> Result<()> {
        eventually(SOON, "the ledger is warm", || async {
            let status = self.budget().await?.status.context("no status yet")?;
            ensure!(status.ledger.warm, "cold: {:?}", status.ledger);
            Ok(())
        })
        .await
    }

    /// Ends in good order: the gate first, whose pid files are in the sandbox.
    pub(crate) async fn close(self) -> Result<()> {
        self.gate.close().await?;
        self.sandbox.close().await
    }
}

impl WorldBuilder {
    pub(crate) fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    pub(crate) fn etcd(
        mut self,
        choose: impl FnOnce(EtcdClusterBuilder) -> EtcdClusterBuilder,
    ) -> Self {
        self.etcd = choose(self.etcd);
        self
    }

    /// Does not wait for the ledger to be warm.
    pub(crate) fn cold(mut self) -> Self {
        self.warm = false;
        self
    }

    pub(crate) async fn start(self) -> Result<World> {
        let bed = Bed::up().await?;
        let mut sandbox = bed.sandbox(&self.name).await?;
        sandbox.add_nodes(self.nodes).await?;
        let etcd = self.etcd.apply(&sandbox).await?;
        let gate = self.gate.start(&sandbox).await?;
        etcd.quorate(SOON).await?;
        gate.in_force(SOON).await?;
        let world = World {
            gate,
            sandbox,
            etcd,
        };
        if self.warm {
            world.warm().await?;
        }
        Ok(world)
    }
}

/// The gate under test, with a settle time for tests.
pub(crate) fn gate() -> GateBuilder {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    Gate::builder(env!("CARGO_BIN_EXE_quorumgate"), manifests)
        .argument(format!("--settle-time={}s", SETTLE_TIME.as_secs()))
}

/// The code and the message with which the API server refused.
pub(crate) fn refusal<T>(answer: Result<T, kube::Error>) -> Result<(u16, String)> {
    match answer {
        Ok(_) => bail!("it was allowed"),
        Err(kube::Error::Api(status)) => Ok((status.code, status.message)),
        Err(other) => Err(other.into()),
    }
}
