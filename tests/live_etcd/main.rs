//! What `quorumgate::etcd` finds out from real etcd processes, of every supported version.
//!
//! Needs the etcd binaries (`make testbed` builds them, Debian's `etcd-server` brings 3.4), no Kubernetes. Each test has
//! members of its own, at addresses of their own in 127.0.0.0/8. To see one version: `cargo test --test live_etcd v3_6`.

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

/// Makes a test per version of each scenario in a module.
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
