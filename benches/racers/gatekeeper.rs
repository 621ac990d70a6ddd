//! Gatekeeper's webhook.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use quorumgate_testbed::{Bed, eventually};
use serde_json::Value;

use super::{PATIENCE, Process, Racer, Starting, apply, certificate, free_port, program, spawn};

const TEMPLATE: &str = include_str!("policies/template.yaml");
const CONSTRAINT: &str = include_str!("policies/constraint.yaml");
const SYNCHRONISED: &str = include_str!("policies/readiness-sync.yaml");
const BY_READINESS: &str = include_str!("policies/readiness-template.yaml");
const ONE_AT_A_TIME: &str = include_str!("policies/readiness-constraint.yaml");

impl Racer {
    /// Starts it with the policy of the race, and waits until that answers.
    pub(crate) async fn gatekeeper(bed: &Bed, directory: &Path, review: &Value) -> Result<Self> {
        let policy = [TEMPLATE];
        let first = Self::new_gatekeeper(bed, directory, (&policy, CONSTRAINT)).await?;
        first
            .once_more(review, async || Self::start_gatekeeper(bed, directory))
            .await
    }

    /// Starts it with a policy that takes one pod at a time by their readiness, and waits until it
    /// refuses `forbidden`.
    pub(crate) async fn gatekeeper_by_readiness(
        bed: &Bed,
        directory: &Path,
        forbidden: &Value,
    ) -> Result<Self> {
        let policy = [SYNCHRONISED, BY_READINESS];
        let first = Self::new_gatekeeper(bed, directory, (&policy, ONE_AT_A_TIME)).await?;
        first.refuses(forbidden).await
    }

    /// Starts it on a control plane that does not know it.
    async fn new_gatekeeper(
        bed: &Bed,
        directory: &Path,
        (policy, constraint): (&[&str], &str),
    ) -> Result<Starting> {
        let crds = program("QUORUMGATE_RACE_GATEKEEPER_CRDS")?;
        apply(bed, &["--server-side", "-f", &crds.to_string_lossy()], "").await?;
        apply(
            bed,
            &["-f", "-"],
            "{apiVersion: v1, kind: Namespace, metadata: {name: gatekeeper-system}}",
        )
        .await?;
        for object in policy {
            apply(bed, &["-f", "-"], object).await?;
        }
        let starting = Self::start_gatekeeper(bed, directory)?;
        eventually(
            PATIENCE,
            "Gatekeeper makes the CRD of its policy",
            async || apply(bed, &["-f", "-"], constraint).await,
        )
        .await?;
        Ok(starting)
    }

    fn start_gatekeeper(bed: &Bed, directory: &Path) -> Result<Starting> {
        let authority = certificate(directory, "gatekeeper")?;
        let address = free_port()?;
        let begun = Instant::now();
        let mut command = Command::new(program("QUORUMGATE_RACE_GATEKEEPER")?);
        command
            .env("KUBECONFIG", bed.admin_kubeconfig())
            .env("POD_NAMESPACE", "gatekeeper-system")
            .args([
                "--operation=webhook",
                "--operation=generate",
                "--debug-use-fake-pod",
                "--disable-cert-rotation",
                "--host=127.0.0.1",
                "--health-addr=127.0.0.1:0",
                "--prometheus-port=0",
                "--log-level=ERROR",
            ])
            .arg(format!("--port={}", address.port()))
            .arg(format!(
                "--cert-dir={}",
                directory.join("gatekeeper").display()
            ));
        Ok(Starting {
            racer: Self {
                name: "Gatekeeper",
                deletes: "/v1/admit",
                evictions: "/v1/admit",
                address,
                authority,
                process: Process::Peer(spawn(command, directory, "gatekeeper")?),
                ready_after: f64::NAN,
            },
            begun,
        })
    }
}
