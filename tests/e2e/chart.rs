//! The chart, rendered and installed by the real helm.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON values are read by the names of their fields; one that is missing fails the test"
)]

mod life;
mod of_etcd;
mod openshift;
mod rendered;
mod same_objects;
mod values;

use std::ffi::OsStr;

use quorumgate_testbed::Bed;
use quorumgate_testbed::kubectl::Invocation;

use crate::manifests::repository;

/// An invocation of `helm ARGS...` as the administrator of this control plane. Its own files are
/// beside the control plane's.
fn helm<A: AsRef<OsStr>>(bed: &Bed, args: impl IntoIterator<Item = A>) -> Invocation {
    let home = bed.state().root().join("helm");
    Invocation::new(repository("scripts/helm"))
        .kubeconfig(&bed.admin_kubeconfig())
        .env("HELM_CACHE_HOME", home.join("cache"))
        .env("HELM_CONFIG_HOME", home.join("config"))
        .env("HELM_DATA_HOME", home.join("data"))
        .args(args)
}

/// The directory of the chart.
fn chart() -> String {
    repository("charts/quorumgate")
        .to_string_lossy()
        .into_owned()
}
