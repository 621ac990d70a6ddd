//! The starting point of nearly every test: nodes, a quorate etcd cluster with TLS, and a gate in
//! force with a trusted ledger.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate_testbed::control_plane::{ControlPlane, Tuning};
use quorumgate_testbed::etcd_cluster::{EtcdCluster, EtcdClusterBuilder};
use quorumgate_testbed::faults::{self, Standing};
use quorumgate_testbed::gate::{Gate, GateBuilder};
use quorumgate_testbed::kubectl::Output;
use quorumgate_testbed::paths::State;
use quorumgate_testbed::{Bed, Node, Sandbox, eventually};

/// The time limit for anything that should happen soon, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(240);

/// The settle time of a test's gate. It is far below what a real gate needs: tests bound the life
/// of their requests themselves.
pub(crate) const SETTLE_TIME: Duration = Duration::from_secs(8);

/// The state that `kubectl get pods` shows for a member that crashes again and again.
const CRASH_LOOP: &str = "CrashLoopBackOff";

/// A function that makes a fault of one pod.
pub(crate) type Fault = fn(&Sandbox, &str) -> Result<Standing>;

/// The world of one test.
///
/// A failed test drops the fields in this order: the webhooks have to go before the replicas that
/// answer them.
pub(crate) struct World {
    pub(crate) gate: Gate,
    pub(crate) sandbox: Sandbox,
    pub(crate) etcd: EtcdCluster,
}

/// The builder of a [`World`].
pub(crate) struct WorldBuilder {
    name: String,
    nodes: usize,
    etcd: EtcdClusterBuilder,
    gate: GateBuilder,
    trusted: bool,
    quorate: bool,
    tuning: Tuning,
}

impl World {
    /// Starts a world with three nodes, three members and two replicas of the gate.
    pub(crate) async fn new(name: &str) -> Result<Self> {
        Self::builder(name).start().await
    }

    pub(crate) fn builder(name: &str) -> WorldBuilder {
        WorldBuilder {
            name: name.to_owned(),
            nodes: 3,
            etcd: EtcdCluster::builder("etcd"),
            gate: gate(),
            trusted: true,
            quorate: true,
            tuning: Tuning::default(),
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

    /// Runs kubectl in the namespace of the test.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<Output> {
        let mut all = vec!["--namespace", self.namespace()];
        all.extend(args);
        self.bed()
            .kubectl(all)
            .timeout(Duration::from_secs(120))
            .await
    }

    /// The budget of the test's cluster.
    pub(crate) async fn budget(&self) -> Result<QuorumDisruptionBudget> {
        self.budget_of(&self.etcd).await
    }

    /// The budget of another cluster in this world.
    pub(crate) async fn budget_of(&self, etcd: &EtcdCluster) -> Result<QuorumDisruptionBudget> {
        Ok(self.budgets().get(etcd.name()).await?)
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
        self.whole_within(SOON, &self.etcd).await
    }

    /// Waits until every member of another cluster in this world serves, no grant is open, and the
    /// budget says so.
    pub(crate) async fn whole_within(&self, within: Duration, etcd: &EtcdCluster) -> Result<()> {
        etcd.quorate(within).await?;
        let what = format!("the budget of {} shows a whole cluster", etcd.name());
        eventually(within, what, || async {
            let budget = self.budget_of(etcd).await?;
            let status = budget.status.context("no status yet")?;
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
    pub(crate) async fn crash(&self, pod: &str) -> Result<Standing> {
        self.break_by(faults::crash_loop, pod).await
    }

    /// Kills members and keeps them from starting, until the returned values are dropped.
    pub(crate) async fn crash_all(&self, pods: &[&str]) -> Result<Vec<Standing>> {
        self.break_all_by(faults::crash_loop, pods).await
    }

    /// Breaks a member by a fault that crashes one of its containers, until the returned value is
    /// dropped.
    pub(crate) async fn break_by(&self, fault: Fault, pod: &str) -> Result<Standing> {
        let mut broken = self.break_all_by(fault, &[pod]).await?;
        broken.pop().context("nothing was broken")
    }

    /// Breaks members. Waits until the API server reports them as broken. If the others make a
    /// majority, also waits until those serve without them, since one of the broken members may
    /// have been the leader.
    async fn break_all_by(&self, fault: Fault, pods: &[&str]) -> Result<Vec<Standing>> {
        let broken = pods.iter().map(|pod| fault(&self.sandbox, pod));
        let broken = broken.collect::<Result<_>>()?;
        for pod in pods {
            eventually(SOON, format!("{pod} is in {CRASH_LOOP}"), || async {
                let said = self
                    .kubectl(&["get", "pod", pod, "--no-headers"])
                    .await?
                    .success()?;
                ensure!(said.contains(CRASH_LOOP), "{said}");
                Ok(())
            })
            .await?;
        }
        let members = self.etcd.pod_names();
        let (out, others): (Vec<_>, Vec<_>) = members
            .iter()
            .partition(|member| pods.contains(&member.as_str()));
        if others.len() > out.len() {
            for member in others {
                self.etcd.serves(member, SOON).await?;
            }
        }
        Ok(broken)
    }

    /// The UIDs of the pods, by name.
    pub(crate) async fn pod_uids(&self) -> Result<BTreeMap<String, Option<String>>> {
        let pods = self.etcd.pods().await?.into_iter();
        Ok(pods.map(|pod| (pod.name_any(), pod.uid())).collect())
    }

    /// A condition of the budget.
    pub(crate) async fn condition(&self, kind: &str) -> Result<Condition> {
        let status = self.budget().await?.status.context("no status yet")?;
        let mut conditions = status.conditions.into_iter();
        let found = conditions.find(|condition| condition.type_ == kind);
        found.with_context(|| format!("no condition {kind}"))
    }

    /// Waits until the budget reports the condition `kind` with what `holds` asks of it. A report
    /// comes a moment after what it tells, so a single look at it proves nothing.
    pub(crate) async fn reported(
        &self,
        kind: &str,
        holds: impl Fn(&Condition) -> bool,
    ) -> Result<()> {
        eventually(SOON, &format!("the budget's {kind} says so"), || async {
            let condition = self.condition(kind).await?;
            ensure!(holds(&condition), "{condition:?}");
            Ok(())
        })
        .await
    }

    /// Waits for an Event with this reason that mentions `part`.
    pub(crate) async fn told_by_event(&self, reason: &str, part: &str) -> Result<()> {
        eventually(SOON, format!("the gate says {reason}"), || async {
            let events = self.events(reason).await?;
            ensure!(events.contains(part), "{events}");
            Ok(())
        })
        .await
    }

    /// The Events with this reason, as kubectl prints them.
    pub(crate) async fn events(&self, reason: &str) -> Result<String> {
        let selector = format!("reason={reason}");
        let list = ["get", "events", "--field-selector", &selector];
        self.kubectl(&list).await?.success()
    }

    /// The highest sequence number that the ledger has given out.
    pub(crate) async fn last_seq(&self) -> Result<i64> {
        let status = self.budget().await?.status.context("no status")?;
        Ok(status.ledger.last_seq)
    }

    /// Runs `kubectl drain`, which ends when only pods of a `DaemonSet` are left on the node.
    pub(crate) async fn drain(&self, node: &str, options: &[&str]) -> Result<()> {
        let mut args = vec!["drain", node, "--ignore-daemonsets"];
        args.extend(["--delete-emptydir-data", "--timeout=100s"]);
        args.extend(options);
        self.kubectl(&args).await?.success().map(drop)
    }

    /// Deletes the namespace, and waits until it is gone.
    pub(crate) async fn delete_namespace(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.sandbox.client());
        namespaces
            .delete(self.namespace(), &DeleteParams::default())
            .await?;
        eventually(SOON, "the namespace is gone", || async {
            let left = namespaces.get_opt(self.namespace()).await?;
            let status = left.map(|namespace| namespace.status);
            ensure!(status.is_none(), "{status:?}");
            Ok(())
        })
        .await
    }

    /// The node of a pod, with its agent.
    pub(crate) async fn agent_of(&self, pod: &str) -> Result<Node> {
        let name = self.node_of(pod).await?;
        let node = self.sandbox.node(&name).cloned();
        node.with_context(|| format!("{name} is none of this test's nodes"))
    }

    /// The name of a pod's node.
    pub(crate) async fn node_of(&self, pod: &str) -> Result<String> {
        let spec = self
            .etcd
            .pod(pod)
            .await?
            .spec
            .context("a pod without spec")?;
        spec.node_name.context("it is on no node")
    }

    /// Waits until the ledger is trusted and the gate in force.
    pub(crate) async fn trusted(&self) -> Result<()> {
        self.trusted_of(&self.etcd).await
    }

    /// Waits until the ledger of any cluster here is trusted.
    pub(crate) async fn trusted_of(&self, etcd: &EtcdCluster) -> Result<()> {
        eventually(SOON, "the ledger is trusted", || async {
            let budget = self.budget_of(etcd).await?;
            let status = budget.status.context("no status yet")?;
            ensure!(status.ledger.trusted, "not trusted: {:?}", status.ledger);
            Ok(())
        })
        .await
    }

    /// Ends in order. The gate ends first, since its pid files are in the sandbox.
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

    /// Sets the number of replicas of the gate.
    pub(crate) fn replicas(mut self, replicas: usize) -> Self {
        self.gate = self.gate.replicas(replicas);
        self
    }

    /// Switches a feature of the gate on.
    pub(crate) fn feature(mut self, name: &str) -> Self {
        self.gate = self.gate.argument(format!("--feature-gates={name}=true"));
        self
    }

    /// Installs a component of the manifests.
    pub(crate) fn component(mut self, name: &'static str) -> Self {
        self.gate = self.gate.component(name);
        self
    }

    /// Lets the gate make its own certificates.
    pub(crate) fn own_certificates(mut self) -> Self {
        self.gate = self.gate.own_certificates();
        self
    }

    /// Gives each replica of the gate a clock that can be set.
    pub(crate) fn clocks_of_their_own(mut self) -> Self {
        self.gate = self.gate.clocks_of_their_own();
        self
    }

    /// Lets API servers call the replicas by the endpoints of the gate's Service.
    pub(crate) fn reached_by_endpoints(mut self) -> Self {
        self.gate = self.gate.reached_by_endpoints();
        self
    }

    /// Does not wait until the cluster is quorate.
    pub(crate) fn unformed(mut self) -> Self {
        self.quorate = false;
        self
    }

    /// Adds an argument of the gate.
    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.gate = self.gate.argument(argument);
        self
    }

    /// Lets the API server of a control plane of its own, and the gate, send their traces to the
    /// collector at this port on loopback.
    pub(crate) fn traced_at(mut self, port: u16) -> Self {
        self.tuning.collector = Some(port);
        self.argument(&format!("--otlp-endpoint=http://127.0.0.1:{port}"))
    }

    /// Does not wait for the ledger to be trusted.
    pub(crate) fn untrusted(mut self) -> Self {
        self.trusted = false;
        self
    }

    pub(crate) async fn start(self) -> Result<World> {
        self.start_on(Bed::up().await?).await
    }

    /// Runs a test on a control plane of its own, and stops that afterwards. For tests that break
    /// what others rely on.
    pub(crate) async fn on_a_plane_of_its_own(
        self,
        test: impl AsyncFnOnce(World) -> Result<()>,
    ) -> Result<()> {
        let name = self.name.clone();
        let tuning = self.tuning;
        on_a_plane_of_its_own(&name, tuning, async |bed| {
            test(self.start_on(bed).await?).await
        })
        .await
    }

    async fn start_on(self, bed: Bed) -> Result<World> {
        let mut sandbox = bed.sandbox(&self.name).await?;
        sandbox.add_nodes(self.nodes).await?;
        let etcd = self.etcd.apply(&sandbox).await?;
        let gate = self.gate.start(&sandbox).await?;
        if self.quorate {
            etcd.quorate(SOON).await?;
        }
        gate.in_force(SOON).await?;
        let world = World {
            gate,
            sandbox,
            etcd,
        };
        if self.trusted {
            world.trusted().await?;
        }
        Ok(world)
    }
}

/// Runs a test on a control plane of its own, and stops that afterwards.
pub(crate) async fn on_a_plane_of_its_own(
    name: &str,
    tuning: Tuning,
    test: impl AsyncFnOnce(Bed) -> Result<()>,
) -> Result<()> {
    let mut plane = ControlPlane::from_env()?;
    let mut beside = plane.state.root().as_os_str().to_owned();
    beside.push(format!("-{name}"));
    plane.state = State::at(beside);
    plane.tuning = tuning;
    let outcome = async { test(Bed::up_with(plane.clone()).await?).await }.await;
    let stopped = plane.down().await;
    outcome.and(stopped.map(drop))
}

/// The builder of the gate under test, with a short settle time.
pub(crate) fn gate() -> GateBuilder {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    Gate::builder(env!("CARGO_BIN_EXE_quorumgate"), manifests)
        .argument(format!("--settle-time={}s", SETTLE_TIME.as_secs()))
}
