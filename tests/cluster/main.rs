//! The core cases against any cluster that `KUBECONFIG` names, where quorumgate is installed:
//! `make cluster`.
//!
//! The other end-to-end tests run on a test bed, whose node agent stands in for the kubelet. These
//! cases run where kubelets, a container runtime and a network are real. They need only what every
//! cluster has: the Kubernetes API with its proxy to pods, and `kubectl`. They create a namespace
//! with the etcd cluster of `manifests/examples`, and delete it at the end.
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `ETCD_IMAGE` | the example's | an image of etcd that the nodes have or can pull |
//! | `STORAGE_CLASS` | the cluster's default | the class of the members' volumes |
//!
//! Cases run one after another, since they share the etcd cluster. Each begins when all members
//! serve. A case that needs something that this cluster does not offer is skipped, and the output
//! says why.

#![expect(clippy::print_stdout, reason = "the output is what a person reads")]

mod cases;
mod cluster;
mod members;
mod writer;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use tokio::time::timeout;

use cluster::Cluster;

/// The time limit of one case.
const LONGEST: Duration = Duration::from_secs(600);

/// The outcome of a case that did not fail.
pub(crate) enum Outcome {
    Passed,
    /// The case needs something that this cluster does not offer.
    Skipped(String),
}

/// Faults that cannot be made from outside the nodes, so that only the test bed has cases for them.
const NOT_HERE: [(&str, &str); 5] = [
    (
        "members that hang or are cut off from their peers",
        "needs the nodes' processes and firewalls",
    ),
    (
        "nodes without power, kubelets that hang",
        "needs the nodes themselves",
    ),
    (
        "an API server that restarts, a gate whose clock is wrong",
        "would break what others use",
    ),
    (
        "kills of the gate between a permission and its delete",
        "needs a debugger's timing",
    ),
    (
        "etcd with TLS and with passwords",
        "the example cluster has neither",
    ),
];

#[tokio::main]
async fn main() -> ExitCode {
    // `cargo test` without arguments runs every test target. Without a cluster this one does
    // nothing.
    if std::env::var_os("KUBECONFIG").is_none() {
        println!("cluster: KUBECONFIG is not set, so no case was run");
        return ExitCode::SUCCESS;
    }
    match run().await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            println!("cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs every case. Returns the number of failed cases.
async fn run() -> Result<usize> {
    let chosen: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let cluster = Cluster::start().await?;
    println!("cluster: {cluster}\n");
    let (mut passed, mut skipped, mut failed) = (0, 0, 0);
    for (name, case) in cases::ALL {
        if !chosen.is_empty() && !chosen.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let begun = Instant::now();
        let outcome = async {
            cluster.whole().await?;
            case(&cluster).await
        };
        let outcome = timeout(LONGEST, outcome).await;
        let outcome = outcome.unwrap_or_else(|_| Err(anyhow!("it took longer than {LONGEST:?}")));
        let took = begun.elapsed().as_secs_f64();
        match outcome {
            Ok(Outcome::Passed) => {
                passed += 1;
                println!("{name} ... ok ({took:.0} s)");
            }
            Ok(Outcome::Skipped(why)) => {
                skipped += 1;
                println!("{name} ... skipped: {why}");
            }
            Err(error) => {
                failed += 1;
                println!("{name} ... FAILED ({took:.0} s): {error:#}");
            }
        }
    }
    if let Err(error) = cluster.end().await {
        failed += 1;
        println!("the namespace is deleted at the end ... FAILED: {error:#}");
    }
    for (what, why) in NOT_HERE {
        println!("{what} ... not here: {why}");
    }
    println!("\n{passed} passed, {skipped} skipped, {failed} failed");
    ensure!(
        passed + skipped + failed > 0,
        "no case has a name with {chosen:?}"
    );
    Ok(failed)
}
