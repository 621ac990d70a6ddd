//! Open Policy Agent as a server of its own, which answers from the review alone.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use serde_json::Value;

use super::{Process, Racer, Starting, certificate, free_port, program, spawn};

const POLICY: &str = include_str!("policies/opa.rego");

impl Racer {
    /// Starts it, and waits until its policy answers.
    pub(crate) async fn opa(directory: &Path, review: &Value) -> Result<Self> {
        let policy = directory.join("policy.rego");
        fs::write(&policy, POLICY)?;
        let authority = certificate(directory, "opa")?;
        let address = free_port()?;
        let begun = Instant::now();
        let mut command = Command::new(program("QUORUMGATE_RACE_OPA")?);
        command
            .args(["run", "--server", "--log-level=error"])
            .arg(format!("--addr=https://{address}"))
            .arg(format!(
                "--tls-cert-file={}",
                directory.join("opa/tls.crt").display()
            ))
            .arg(format!(
                "--tls-private-key-file={}",
                directory.join("opa/tls.key").display()
            ))
            .arg(&policy);
        let racer = Self {
            name: "OPA",
            deletes: "/",
            evictions: "/",
            address,
            authority,
            process: Process::Peer(spawn(command, directory, "opa")?),
            ready_after: f64::NAN,
        };
        Starting { racer, begun }.answers_rightly(review).await
    }
}
