//! kube-apiserver, with RBAC and Node authorization, NodeRestriction, webhooks by URL, and an audit
//! log.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::Tuning;
use super::audit;
use super::layout::{Layout, SERVICE_RANGE, TOKEN_ISSUER, path_flag};

/// Writes its configuration files.
pub(super) fn configure(layout: &Layout, tuning: &Tuning) -> Result<()> {
    write(&policy_file(layout), audit::POLICY)?;
    if let Some(port) = tuning.collector {
        let tracing = json!({
            "apiVersion": "apiserver.config.k8s.io/v1beta1",
            "kind": "TracingConfiguration",
            "endpoint": format!("127.0.0.1:{port}"),
            "samplingRatePerMillion": 1_000_000,
        });
        write(&tracing_file(layout), &tracing.to_string())?;
    }
    Ok(())
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// The command that starts it.
pub(super) fn command(layout: &Layout, tuning: &Tuning) -> Command {
    let toleration = tuning.not_ready_toleration.as_secs();
    let mut server = Command::new(layout.kubernetes.join("kube-apiserver"));
    server.args([
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        format!("--secure-port={}", layout.ports.api_server),
        format!(
            "--etcd-servers=http://127.0.0.1:{}",
            layout.ports.etcd_client
        ),
        path_flag("tls-cert-file", &layout.pki_file("kube-apiserver.crt")),
        path_flag(
            "tls-private-key-file",
            &layout.pki_file("kube-apiserver.key"),
        ),
        path_flag("client-ca-file", &layout.authority_file()),
        path_flag("service-account-key-file", &layout.pki_file("sa.pub")),
        path_flag(
            "service-account-signing-key-file",
            &layout.pki_file("sa.key"),
        ),
        format!("--service-account-issuer={TOKEN_ISSUER}"),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--allow-privileged=true".into(),
        format!("--default-not-ready-toleration-seconds={toleration}"),
        format!("--default-unreachable-toleration-seconds={toleration}"),
        path_flag("audit-policy-file", &policy_file(layout)),
        path_flag("audit-log-path", &layout.state.audit_log()),
        "--audit-log-maxsize=1024".into(),
        // Endpoints of the `kubernetes` Service may not be loopback addresses, and no pod here uses
        // them.
        "--endpoint-reconciler-type=none".into(),
        // These settings reduce work while nothing happens.
        "--profiling=false".into(),
        "--etcd-count-metric-poll-period=0".into(),
    ]);
    if tuning.collector.is_some() {
        server.arg(path_flag("tracing-config-file", &tracing_file(layout)));
    }
    server
}

fn policy_file(layout: &Layout) -> PathBuf {
    layout.state.root().join("audit-policy.yaml")
}

fn tracing_file(layout: &Layout) -> PathBuf {
    layout.state.root().join("tracing.yaml")
}
