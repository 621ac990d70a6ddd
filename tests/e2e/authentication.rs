//! Clusters with authentication: by client certificates, which the gate finds through etcd's own
//! settings, or by users and passwords. Evidence needs any user; moving leadership needs the role
//! `root`.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use quorumgate_testbed::etcd_cluster::{Auth, EtcdVersion, PASSWORD, Tls, TlsTold};
use serde_json::json;

use crate::asking::By;
use crate::leadership::Held;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn with_the_root_role_the_gate_moves_leadership() -> Result<()> {
    let world = with_auth("auth-root", Auth::GateIsRoot).await?;
    let held = Held::leader(&world).await?;
    let warnings = delete(&world, held.pod()).await?;
    ensure!(!warnings.contains("leader"), "{warnings}");
    held.has_handed_over().await?;
    held.release().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_it_the_leader_goes_as_such_with_a_warning() -> Result<()> {
    let world = with_auth("auth-user", Auth::GateIsUser).await?;
    let held = Held::leader(&world).await?;
    let warnings = delete(&world, held.pod()).await?;
    for part in [
        "Warning:",
        "leadership could not be moved",
        "permission denied",
    ] {
        ensure!(warnings.contains(part), "no {part:?} in {warnings:?}");
    }
    held.goes_as_leader().await?;
    held.release().await?;
    world.close().await
}

async fn with_auth(name: &str, auth: Auth) -> Result<World> {
    let world = World::builder(name)
        .etcd(|etcd| etcd.auth(auth))
        .start()
        .await?;
    world.etcd.enable_auth().await?;
    world.whole().await?;
    Ok(world)
}

/// The standard error of `kubectl delete`, which has the gate's warnings.
async fn delete(world: &World, pod: &str) -> Result<String> {
    let output = world
        .kubectl(&["delete", "pod", pod, "--wait=false"])
        .await?;
    ensure!(output.succeeded(), "{}", output.stderr);
    Ok(output.stderr)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn a_cluster_of_etcd_3_5_with_users_and_passwords_is_guarded() -> Result<()> {
    by_password("auth-pass-35", EtcdVersion::V3_5).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_etcd_3_7_with_users_and_passwords_is_guarded() -> Result<()> {
    by_password("auth-pass-37", EtcdVersion::V3_7).await
}

/// A cluster without TLS, so that only the password says who the gate is. Before the budget names
/// the password, etcd refuses the gate, and the budget reports that.
async fn by_password(name: &str, version: EtcdVersion) -> Result<()> {
    let world = World::builder(name)
        .etcd(|etcd| {
            etcd.version(version)
                .tls(Tls::None)
                .auth(Auth::Password)
                .gate_user("quorumgate")
        })
        .start()
        .await?;
    let plain = |condition: &Condition| condition.reason == "Plaintext";
    world.reported("MembersAskedByTLS", plain).await?;
    world.etcd.enable_auth().await?;
    let command = r#"patch qdb etcd --type merge -p '{"spec":{"members":{"auth":{"secret":{"name":"etcd-user"}}}}}'"#;
    let denied = |condition: &Condition| {
        condition.reason == "AccessDenied" && condition.message.contains(command)
    };
    world.reported("EvidenceLive", denied).await?;

    user(&world, "wrong").await?;
    name_the_user(&world).await?;
    let failed = ["authentication failed", "Secret gate-user"];
    let login_failed = |live: &Condition| failed.iter().all(|part| live.message.contains(part));
    world.reported("EvidenceLive", login_failed).await?;
    user(&world, PASSWORD).await?;
    world.whole().await?;
    let held = Held::leader(&world).await?;
    let warnings = delete(&world, held.pod()).await?;
    ensure!(!warnings.contains("leader"), "{warnings}");
    held.has_handed_over().await?;
    world
        .has_to_wait_by(By::Delete, &other(&world, held.pod()), &["of 3 voters"])
        .await?;
    held.release().await?;
    world.whole().await?;
    world.close().await
}

fn other(world: &World, than: &str) -> String {
    let mut pods = world.etcd.pod_names().into_iter();
    pods.find(|pod| pod != than).unwrap_or_default()
}

async fn user(world: &World, password: &str) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/basic-auth",
        "metadata": {"name": "gate-user"},
        "stringData": {"username": "quorumgate", "password": password},
    });
    let apply = PatchParams::apply("test").force();
    let secrets = world.sandbox.api::<Secret>();
    secrets
        .patch("gate-user", &apply, &Patch::Apply(secret))
        .await?;
    Ok(())
}

async fn name_the_user(world: &World) -> Result<()> {
    let named = json!({"spec": {"members": {"auth": {"secret": {"name": "gate-user"}}}}});
    let params = PatchParams::default();
    let budgets = world.budgets();
    budgets.patch("etcd", &params, &Patch::Merge(named)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_found_behind_flags_on_volumes_of_any_name() -> Result<()> {
    by_tls("tls-flags", TlsTold::Flags, "etcd-client").await
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_found_behind_variables() -> Result<()> {
    by_tls("tls-vars", TlsTold::Variables, "etcd-server").await
}

/// A cluster whose own settings are all that names the Secrets for client TLS.
async fn by_tls(name: &str, told: TlsTold, shown: &str) -> Result<()> {
    let world = World::builder(name)
        .etcd(|etcd| etcd.tls_told(told))
        .start()
        .await?;
    world.whole().await?;
    let secrets = ["of Secret etcd-ca", &format!("of Secret {shown}")];
    let by_tls = |condition: &Condition| {
        condition.status == "True" && secrets.iter().all(|part| condition.message.contains(part))
    };
    world.reported("MembersAskedByTLS", by_tls).await?;
    world.lets_go(By::Delete, "etcd-0").await?;
    world.has_to_wait("etcd-1", &["of 3 voters"]).await?;
    world.close().await
}
