//! kube-controller-manager, with all default controllers and short times to notice a lost node.

use std::process::Command;

use super::Tuning;
use super::layout::{Layout, SERVICE_RANGE, path_flag};

/// The command that starts it.
pub(super) fn command(layout: &Layout, tuning: &Tuning) -> Command {
    let kubeconfig = layout.state.kubeconfig("system:kube-controller-manager");
    let mut manager = Command::new(layout.kubernetes.join("kube-controller-manager"));
    manager.args([
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", layout.ports.controller_manager),
        path_flag("kubeconfig", &kubeconfig),
        // The port is used for health checks only, which need neither.
        "--authentication-skip-lookup=true".into(),
        path_flag(
            "tls-cert-file",
            &layout.pki_file("kube-controller-manager.crt"),
        ),
        path_flag(
            "tls-private-key-file",
            &layout.pki_file("kube-controller-manager.key"),
        ),
        path_flag("root-ca-file", &layout.authority_file()),
        path_flag(
            "service-account-private-key-file",
            &layout.pki_file("sa.key"),
        ),
        path_flag("cluster-signing-cert-file", &layout.authority_file()),
        path_flag("cluster-signing-key-file", &layout.pki_file("ca.key")),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--use-service-account-credentials=true".into(),
        "--leader-elect=false".into(),
        "--enable-hostpath-provisioner=true".into(),
        "--node-monitor-period=1s".into(),
        format!(
            "--node-monitor-grace-period={}s",
            tuning.node_grace_period.as_secs()
        ),
        "--node-startup-grace-period=20s".into(),
        // Tests take several nodes away at once. With the defaults one node would be evicted in ten
        // seconds, or none.
        "--node-eviction-rate=20".into(),
        "--secondary-node-eviction-rate=20".into(),
        "--large-cluster-size-threshold=0".into(),
        "--unhealthy-zone-threshold=1".into(),
        "--terminated-pod-gc-threshold=20".into(),
        "--concurrent-statefulset-syncs=10".into(),
        "--concurrent-namespace-syncs=10".into(),
        "--kube-api-qps=500".into(),
        "--kube-api-burst=1000".into(),
        "--profiling=false".into(),
    ]);
    if let Some(gates) = tuning.controller_gates {
        manager.arg(format!("--feature-gates={gates}"));
    }
    manager
}
