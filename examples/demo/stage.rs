//! The environment of the demo: nodes, an etcd cluster with a writer, and two replicas of the gate.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::gate::{Gate, Replica};
use quorumgate_testbed::kubectl::Output;
use quorumgate_testbed::writer::Writer;
use quorumgate_testbed::{Bed, Sandbox, eventually};

use crate::voice;

/// The time limit for anything on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// All running parts.
pub(crate) struct Stage {
    pub(crate) sandbox: Sandbox,
    pub(crate) etcd: EtcdCluster,
    pub(crate) writer: Writer,
    pub(crate) gate: Gate,
}

impl Stage {
    /// Starts all parts, and prints how long each took.
    pub(crate) async fn set() -> Result<Self> {
        let bed = timed(
            "control plane (kube-apiserver, kube-controller-manager, kube-scheduler, etcd)",
            Bed::up(),
        )
        .await?;
        let mut sandbox = bed.sandbox("demo").await?;
        timed("three nodes", sandbox.add_nodes(3)).await?;
        let etcd = EtcdCluster::builder("etcd").apply(&sandbox).await?;
        timed(
            "three etcd members with TLS, quorate",
            etcd.quorate(PATIENCE),
        )
        .await?;
        let writer = Writer::start(&etcd).await?;
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
        let gate = Gate::builder(program()?, manifests)
            .argument("--settle-time=10s")
            .argument("--feature-gates=QuorumAwareUpdatesWithOnDelete=true")
            .start(&sandbox);
        let gate = timed("two replicas of quorumgate, registered by manifests/", gate).await?;
        gate.in_force(PATIENCE).await?;
        let metrics: Vec<_> = gate.replicas().iter().map(Replica::metrics_url).collect();
        voice::say(&format!("metrics of the replicas: {}", metrics.join(" ")));
        Ok(Self {
            sandbox,
            etcd,
            writer,
            gate,
        })
    }

    /// Waits until the new ledger is trusted.
    pub(crate) async fn trusted(&self) -> Result<()> {
        eventually(PATIENCE, "the ledger is trusted", || async {
            let budgets = self.sandbox.api::<QuorumDisruptionBudget>();
            let status = budgets
                .get(self.etcd.name())
                .await?
                .status
                .context("no status yet")?;
            ensure!(status.ledger.trusted, "it is not trusted");
            Ok(())
        })
        .await
    }

    /// Waits until no grant is open and every member serves.
    pub(crate) async fn whole(&self) -> Result<()> {
        self.etcd.quorate(PATIENCE).await?;
        eventually(
            PATIENCE,
            "every member serves and no permission is open",
            || async {
                let budgets = self.sandbox.api::<QuorumDisruptionBudget>();
                let status = budgets
                    .get(self.etcd.name())
                    .await?
                    .status
                    .context("no status yet")?;
                ensure!(status.grants.is_empty(), "permissions are open");
                ensure!(
                    status.disruptions_allowed == Some(1),
                    "not all members serve"
                );
                Ok(())
            },
        )
        .await
    }

    /// Waits until every member's pod is Ready.
    pub(crate) async fn all_ready(&self) -> Result<()> {
        eventually(PATIENCE, "every pod is Ready", || async {
            for pod in self.etcd.pods().await? {
                let conditions = pod.status.and_then(|status| status.conditions);
                let mut conditions = conditions.into_iter().flatten();
                let ready = conditions.any(|is| is.type_ == "Ready" && is.status == "True");
                ensure!(ready, "{:?} is not", pod.metadata.name);
            }
            Ok(())
        })
        .await
    }

    /// Runs kubectl in the demo's namespace and prints what it says. Complaints come first, since a
    /// command that has to wait complains before it is done.
    pub(crate) async fn kubectl(&self, line: &str) -> Result<Output> {
        let words = line.split_whitespace().map(|word| {
            if word.contains('{') {
                format!("'{word}'")
            } else {
                word.to_owned()
            }
        });
        let words: Vec<_> = words.collect();
        voice::command(&format!("kubectl {}", words.join(" ")));
        let output = self.quietly(line).await?;
        voice::output(output.stderr.trim_end());
        voice::output(output.stdout.trim_end());
        Ok(output)
    }

    /// Runs kubectl in the demo's namespace.
    pub(crate) async fn quietly(&self, line: &str) -> Result<Output> {
        let mut args = vec!["--namespace", self.sandbox.namespace()];
        args.extend(line.split_whitespace());
        self.sandbox
            .bed()
            .kubectl(args)
            .timeout(Duration::from_secs(180))
            .await
    }
}

async fn timed<T>(what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let start = Instant::now();
    let done = work.await.with_context(|| what.to_owned())?;
    voice::say(&format!(
        "  {:>5.1} s  {what}",
        start.elapsed().as_secs_f64()
    ));
    Ok(done)
}

/// The directory of the binaries, which were built with this program.
pub(crate) fn built() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let target = here.ancestors().nth(2);
    let target = target.context("this program lies in no build directory")?;
    Ok(target.to_owned())
}

/// The path of the gate's binary.
fn program() -> Result<PathBuf> {
    let program = built()?.join("quorumgate");
    ensure!(
        program.is_file(),
        "{} is missing: run `cargo build --release` first, or `make demo`",
        program.display()
    );
    Ok(program)
}
