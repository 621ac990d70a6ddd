//! kube-scheduler, with short back-offs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::layout::{Layout, path_flag};

/// Writes its configuration file.
pub(super) fn configure(layout: &Layout) -> Result<()> {
    let config = config_file(layout);
    fs::write(&config, configuration(layout))
        .with_context(|| format!("cannot write {}", config.display()))
}

/// The command that starts it.
pub(super) fn command(layout: &Layout) -> Command {
    let mut scheduler = Command::new(layout.kubernetes.join("kube-scheduler"));
    scheduler.args([
        path_flag("config", &config_file(layout)),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", layout.ports.scheduler),
        // The port is used for health checks only, which need neither.
        "--authentication-skip-lookup=true".into(),
        path_flag("tls-cert-file", &layout.pki_file("kube-scheduler.crt")),
        path_flag(
            "tls-private-key-file",
            &layout.pki_file("kube-scheduler.key"),
        ),
    ]);
    scheduler
}

fn config_file(layout: &Layout) -> PathBuf {
    layout.state.root().join("kube-scheduler.yaml")
}

fn configuration(layout: &Layout) -> String {
    format!(
        "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: {}
  qps: 500
  burst: 1000
leaderElection:
  leaderElect: false
enableProfiling: false
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
",
        layout.state.kubeconfig("system:kube-scheduler").display()
    )
}
