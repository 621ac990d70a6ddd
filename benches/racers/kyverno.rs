//! Kyverno's admission controller.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use quorumgate_testbed::{Bed, eventually};
use serde_json::{Value, json};

use super::{PATIENCE, Process, Racer, Starting, apply, apply_all, free_port, program, spawn};
use crate::caller::SERVER_NAME;

const POLICY: &str = include_str!("policies/kyverno.yaml");
const PATH: &str = "/vpol/keeps-pods";
const BY_READINESS: &str = include_str!("policies/readiness-kyverno.yaml");
const PATH_BY_READINESS: &str = "/vpol/one-at-a-time";

/// The name of its namespace and of its parts.
const NAME: &str = "kyverno";
/// The Secret that it writes its authority to.
const AUTHORITY: &str = "authority";

impl Racer {
    /// Starts it with the policy of the race, and waits until that answers.
    pub(crate) async fn kyverno(bed: &Bed, directory: &Path, review: &Value) -> Result<Self> {
        let first = Self::new_kyverno(bed, directory, (POLICY, PATH)).await?;
        let start = async || Self::start_kyverno(bed, directory, PATH).await;
        first.once_more(review, start).await
    }

    /// Starts it with a policy that takes one pod at a time by their readiness, and waits until it
    /// refuses `forbidden`.
    pub(crate) async fn kyverno_by_readiness(
        bed: &Bed,
        directory: &Path,
        forbidden: &Value,
    ) -> Result<Self> {
        let first = Self::new_kyverno(bed, directory, (BY_READINESS, PATH_BY_READINESS)).await?;
        first.refuses(forbidden).await
    }

    /// Starts it on a control plane that does not know it.
    async fn new_kyverno(
        bed: &Bed,
        directory: &Path,
        (policy, path): (&str, &'static str),
    ) -> Result<Starting> {
        for crds in std::env::split_paths(&program("QUORUMGATE_RACE_KYVERNO_CRDS")?) {
            apply(bed, &["--server-side", "-f", &crds.to_string_lossy()], "").await?;
        }
        apply_all(bed, &objects()).await?;
        apply(bed, &["-f", "-"], policy).await?;
        Self::start_kyverno(bed, directory, path).await
    }

    async fn start_kyverno(bed: &Bed, directory: &Path, path: &'static str) -> Result<Starting> {
        let address = free_port()?;
        let begun = Instant::now();
        let mut command = Command::new(program("QUORUMGATE_RACE_KYVERNO")?);
        command
            .envs([
                ("KYVERNO_NAMESPACE", NAME),
                ("KYVERNO_SERVICEACCOUNT_NAME", NAME),
                ("KYVERNO_DEPLOYMENT", NAME),
                ("KYVERNO_POD_NAME", NAME),
                ("INIT_CONFIG", NAME),
                ("METRICS_CONFIG", NAME),
            ])
            .arg(format!("--kubeconfig={}", bed.admin_kubeconfig().display()))
            .arg(format!("--serverIP={SERVER_NAME}:{}", address.port()))
            .arg(format!("--webhookServerPort={}", address.port()))
            .arg(format!("--caSecretName={AUTHORITY}"))
            .args([
                "--webhookServerHost=127.0.0.1",
                "--tlsSecretName=serving",
                "--disableMetrics",
                "--admissionReports=false",
                "--enableReporting=",
                "--controllerRuntimeMetricsAddress=0",
                "--clientRateLimitQPS=1000",
                "--clientRateLimitBurst=1000",
                "-v=0",
            ]);
        let process = Process::Peer(spawn(command, directory, NAME)?);
        // It makes its certificate itself.
        let secrets: Api<Secret> = Api::namespaced(bed.client(), NAME);
        let made = eventually(PATIENCE, "Kyverno has a certificate", async || {
            let secret = secrets.get(AUTHORITY).await?;
            let certificate = secret.data.and_then(|mut data| data.remove("tls.crt"));
            anyhow::Ok(String::from_utf8(certificate.context("none yet")?.0)?)
        });
        Ok(Starting {
            racer: Self {
                name: "Kyverno",
                deletes: path,
                evictions: path,
                address,
                authority: made.await?,
                process,
                ready_after: f64::NAN,
            },
            begun,
        })
    }
}

/// The namespace, and the configuration without which Kyverno does not start.
fn objects() -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}}),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": NAME},
        }),
    ]
}
