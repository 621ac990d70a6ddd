//! The etcd behind the API server.

use std::process::Command;

use super::layout::{Layout, path_flag};

/// The command for one member on loopback without fsync. The test bed's own state need not survive
/// a power loss.
pub(super) fn command(layout: &Layout) -> Command {
    let client = format!("http://127.0.0.1:{}", layout.ports.etcd_client);
    let peer = format!("http://127.0.0.1:{}", layout.ports.etcd_peer);
    let mut etcd = Command::new(layout.etcd.join("etcd"));
    etcd.args([
        "--name=control-plane".into(),
        path_flag("data-dir", &layout.state.etcd_data()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=control-plane={peer}"),
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ]);
    etcd
}
