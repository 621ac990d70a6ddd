//! Tests of `quorumgate::etcd` against real etcd processes of every supported version.
//!
//! They need etcd binaries (`make testbed` builds them; Debian's `etcd-server` is 3.4) and no
//! Kubernetes. Each test has its own members, at their own addresses in 127.0.0.0/8.
//! `cargo test --test live_etcd v3_6` runs the tests of one version.

mod addresses;
mod admin;
mod alarms;
mod attention;
mod auth;
mod certificates;
mod cluster;
mod connections;
mod faults;
mod health;
mod learner;
mod member;
mod relay;
mod steady;
mod version;

/// Makes one test per version from each scenario of a module.
macro_rules! on_every_version {
    ($($scenario:ident),+ $(,)?) => {
        crate::on_every_version!(@version v3_4, V3_4, $($scenario),+);
        crate::on_every_version!(@version v3_5, V3_5, $($scenario),+);
        crate::on_every_version!(@version v3_6, V3_6, $($scenario),+);
        crate::on_every_version!(@version v3_7, V3_7, $($scenario),+);
    };
    (@version $module:ident, $version:ident, $($scenario:ident),+) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $scenario() -> anyhow::Result<()> {
                    let version = crate::version::Version::$version;
                    crate::steady::on_a_steady_machine(async || super::$scenario(version).await).await
                }
            )+
        }
    };
}
pub(crate) use on_every_version;
