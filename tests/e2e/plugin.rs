//! `kubectl quorum`, run as its users run it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use quorumgate_testbed::eventually;
use quorumgate_testbed::kubectl::{Invocation, Output};
use serde_json::{Value, json};

use crate::asking::{By, refusal};
use crate::world::{SOON, World};

/// The exit code of a plain no.
const NO: i32 = 3;

/// `kubectl quorum ARGS...` in the namespace of the test, by the credentials of this file.
fn plugin(world: &World, kubeconfig: &Path, args: &[&str]) -> Result<Invocation> {
    let gate = Path::new(env!("CARGO_BIN_EXE_quorumgate"));
    let program = gate.with_file_name("kubectl-quorum");
    ensure!(
        program.exists(),
        "{} is missing: cargo build --package kubectl-quorum",
        program.display()
    );
    Ok(Invocation::new(program)
        .kubeconfig(kubeconfig)
        .args(["--namespace", world.namespace()])
        .args(args)
        .timeout(Duration::from_secs(60)))
}

/// The same as an administrator.
pub(crate) async fn quorum(world: &World, args: &[&str]) -> Result<Output> {
    let kubeconfig = world.bed().admin_kubeconfig();
    let said = plugin(world, &kubeconfig, args)?.await?;
    eprintln!(
        "$ kubectl quorum {}\n{}{}",
        args.join(" "),
        said.stdout,
        said.stderr
    );
    Ok(said)
}

/// Runs the plugin until it ends with this code and has said all of these.
async fn says(world: &World, args: &[&str], code: i32, parts: &[&str]) -> Result<String> {
    eventually(SOON, format!("{args:?} says {parts:?}"), || async {
        let said = quorum(world, args).await?;
        ensure!(said.code == code, "{said:?}");
        for part in parts {
            ensure!(said.stdout.contains(part), "{part}: {}", said.stdout);
        }
        ensure!(!said.stdout.contains('\x1b'), "colours without a terminal");
        Ok(said.stdout)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_a_degraded_and_a_lost_cluster_are_told_and_explained() -> Result<()> {
    let world = World::new("plugin-told").await?;
    says(&world, &["status"], 0, &["3 of 3, 2 needed", "enforces"]).await?;
    says(&world, &["explain", "etcd-0"], 0, &["may be deleted now"]).await?;
    let nodes: Vec<_> = world
        .sandbox
        .nodes()
        .iter()
        .map(quorumgate_testbed::Node::name)
        .collect();
    let drain = ["drain", "--dry-run=server"];
    let drain: Vec<_> = drain.iter().chain(&nodes).copied().collect();
    let turns = ["evicted at once", "evicted in turn"];
    says(&world, &drain, 0, &turns).await?;
    let by_budgets = ["drain", "--dry-run=client"];
    let by_budgets: Vec<_> = by_budgets.iter().chain(&nodes).copied().collect();
    says(&world, &by_budgets, 0, &turns).await?;
    let name = "quorumdisruptionbudget.quorumgate.io/etcd\n";
    says(&world, &["status", "-o", "name"], 0, &[name]).await?;
    let namespace = world.namespace();
    let completed = ["__complete", "--", "status", "-n", namespace, "e"];
    says(&world, &completed, 0, &["etcd\n:4"]).await?;
    let completed = ["__complete", "--", "explain", "-n", namespace, ""];
    says(&world, &completed, 0, &["etcd-0\netcd-1\netcd-2\n:4"]).await?;

    let broken = world.crash("etcd-2").await?;
    says(
        &world,
        &["status"],
        0,
        &["2 of 3, 2 needed", "etcd-2  voter"],
    )
    .await?;
    let why = [
        "cannot be deleted now; the same request may pass later",
        "rule  NoHeadroom",
        "with  etcd-2",
        "do    fix those",
    ];
    says(&world, &["explain", "etcd-0"], NO, &why).await?;
    let json = says(
        &world,
        &["explain", "etcd-0", "-o", "json"],
        NO,
        &["NoHeadroom"],
    )
    .await?;
    let json: Value = serde_json::from_str(&json)?;
    ensure!(json["verdict"] == "Denied" && json["code"] == 429, "{json}");
    ensure!(json["reason"] == "NoHeadroom", "{json}");
    let members = &json["cluster"]["members"];
    ensure!(members[2]["state"] == "NotServing", "{json}");
    says(&world, &drain, NO, &["waits", "in this order"]).await?;
    says(&world, &by_budgets, NO, &["waits", "allows no disruption"]).await?;

    // The override is asked for, and nobody is there to say yes.
    let long = ["override", "etcd-0", "--for", "5m", "--reason", "the test"];
    let unanswered = quorum(&world, &long).await?;
    ensure!(unanswered.code == 1, "{unanswered:?}");
    ensure!(unanswered.stderr.contains("add --yes"), "{unanswered:?}");
    let (code, _) = refusal(world.ask(By::Delete, "etcd-0").await)?;
    ensure!(code == 429, "{code}");
    let sure: Vec<_> = long.into_iter().chain(["--yes"]).collect();
    says(&world, &sure, 0, &["is overridden until"]).await?;
    let pod = world.pods().get("etcd-0").await?;
    let annotations = pod.metadata.annotations.unwrap_or_default();
    ensure!(annotations["quorumgate.io/override-reason"] == "the test");
    says(
        &world,
        &["explain", "etcd-0"],
        0,
        &[
            "may be deleted now, with a warning",
            "it goes by an override",
        ],
    )
    .await?;
    world.lets_go(By::Delete, "etcd-0").await?;

    drop(broken);
    world.whole().await?;
    let broken = world.crash_all(&["etcd-1", "etcd-2"]).await?;
    let lost = ["QuorumHealthy is False"];
    says(&world, &["status", "-o", "yaml"], 0, &["quorum: Lost"]).await?;
    says(&world, &["status"], 0, &lost).await?;
    drop(broken);
    world.whole().await?;
    world.close().await
}

/// A kubeconfig of a service account that may read what the chart gives to viewers.
async fn viewer(world: &World) -> Result<PathBuf> {
    let create = PostParams::default();
    let made = |value: Value| serde_json::from_value(value).context("made");
    let accounts: Api<ServiceAccount> = world.sandbox.api();
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "viewer"}}))?;
    accounts.create(&create, &account).await?;
    let roles: Api<Role> = world.sandbox.api();
    let role: Role = made(json!({
        "metadata": {"name": "viewer"},
        "rules": [
            {"apiGroups": ["quorumgate.io"], "resources": ["quorumdisruptionbudgets"],
             "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        ],
    }))?;
    roles.create(&create, &role).await?;
    let bindings: Api<RoleBinding> = world.sandbox.api();
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer"}],
    }))?;
    bindings.create(&create, &binding).await?;
    let bed = world.bed();
    bed.service_account_kubeconfig(world.namespace(), "viewer")
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_sees_and_is_told_what_it_may_not() -> Result<()> {
    let world = World::new("plugin-viewer").await?;
    let kubeconfig = viewer(&world).await?;
    let ask = async |args: &[&str]| plugin(&world, &kubeconfig, args)?.await;
    eventually(SOON, "the viewer sees the cluster", || async {
        let said = ask(&["status"]).await?;
        ensure!(said.code == 0 && said.stdout.contains("3 of 3"), "{said:?}");
        Ok(())
    })
    .await?;
    let said = ask(&["status", "-A"]).await?;
    ensure!(said.code == 1, "{said:?}");
    ensure!(said.stderr.contains("your user may not read"), "{said:?}");
    let said = ask(&["explain", "etcd-0"]).await?;
    ensure!(said.code == 1, "{said:?}");
    ensure!(said.stdout.contains("It is not known whether"), "{said:?}");
    ensure!(said.stdout.contains("etcd-1  "), "{said:?}");
    let change = ["override", "qdb/etcd", "--for=5m", "--reason=none", "--yes"];
    let said = ask(&change).await?;
    ensure!(said.code == 1, "{said:?}");
    ensure!(said.stderr.contains("was not changed"), "{said:?}");
    let said = ask(&["explain", "nobody"]).await?;
    ensure!(said.code != 0, "{said:?}");
    world.close().await
}

/// Writes a report, which is an archive.
async fn reports(world: &World, home: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.tar.gz");
    let archive = file.display().to_string();
    let report = ["report", "--gate-namespace", home, "--file", &archive];
    says(world, &report, 0, &["Wrote "]).await?;
    let written = std::fs::read(&file).context("the report")?;
    ensure!(
        written.starts_with(&[0x1f, 0x8b]),
        "{} bytes",
        written.len()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_finds_what_is_wrong_and_a_rollout_is_stopped_and_let_go_on() -> Result<()> {
    let world = World::builder("plugin-doctor")
        .feature("QuorumAwareUpdatesWithOnDelete")
        .start()
        .await?;
    let home = format!("{}-gate", world.namespace());
    let configuration = world.gate.webhook_configuration();
    let doctor = [
        "doctor",
        "--gate-namespace",
        &home,
        "--webhook-configuration",
        configuration,
    ];
    // The replicas are no Deployment here, which the doctor says.
    let parts = [
        "its authority (caBundle) is valid for",
        "voters serve, and the gate answers",
        "there is no such Deployment",
        "fix: name it if it is elsewhere",
    ];
    says(&world, &doctor, NO, &parts).await?;
    // Other tests on this control plane have gates, too.
    let before = ["a gate is installed already", "your user may create all"];
    says(&world, &["doctor", "--pre"], NO, &before).await?;
    let versions = ["version", "--gate-namespace", &home];
    says(
        &world,
        &versions,
        0,
        &["Gate:        unknown", "Kubernetes:  v1."],
    )
    .await?;
    reports(&world, &home).await?;
    let elsewhere = ["doctor", "--webhook-configuration", "elsewhere"];
    // Other tests on this control plane have configurations, too, and the first one is named.
    says(&world, &elsewhere, NO, &["is missing, and quorumgate-"]).await?;

    says(
        &world,
        &["rollout", "status", "etcd", "--watch=false"],
        0,
        &["up to date", "updated by the gate"],
    )
    .await?;
    says(
        &world,
        &["rollout", "pause", "etcd"],
        0,
        &["no new step starts"],
    )
    .await?;
    let paused = world.budget().await?.spec.paused;
    ensure!(paused == Some(true), "{paused:?}");
    let change = json!({"spec": {"template": {"metadata": {"annotations": {"test": "changed"}}}}});
    let change = change.to_string();
    let patch = ["patch", "statefulset", "etcd", "--patch", &change];
    world.kubectl(&patch).await?.success()?;
    says(
        &world,
        &["rollout", "status", "etcd", "--watch=false"],
        NO,
        &["Paused: 0 of 3"],
    )
    .await?;
    let limited = ["rollout", "status", "etcd", "--timeout=1s"];
    let said = quorum(&world, &limited).await?;
    ensure!(said.code == 1, "{said:?}");
    ensure!(said.stdout.contains("; paused, to continue: "), "{said:?}");
    ensure!(said.stderr.contains("is not complete after 1s"), "{said:?}");
    says(
        &world,
        &["rollout", "resume", "etcd"],
        0,
        &["are not paused"],
    )
    .await?;
    // Waits until it is done.
    says(&world, &["rollout", "status", "etcd"], 0, &["up to date"]).await?;
    let nothing = quorum(&world, &["rollout", "status", "other"]).await?;
    ensure!(
        nothing.code == 1 && nothing.stderr.contains("there are: etcd"),
        "{nothing:?}"
    );

    // A drain of a node, by the kubectl of the control plane.
    let node = world.node_of("etcd-0").await?;
    let plane = world.bed().control_plane();
    let kubectl = plane.cache.binaries(plane.kubernetes);
    let programs = format!("{}:{}", kubectl.display(), std::env::var("PATH")?);
    let kubeconfig = world.bed().admin_kubeconfig();
    let drain = ["drain", &node, "--yes", "--timeout=60s"];
    let drained = plugin(&world, &kubeconfig, &drain)?
        .env("PATH", programs)
        .await?;
    ensure!(drained.succeeded(), "{drained:?}");
    world.kubectl(&["uncordon", &node]).await?.success()?;
    world.whole().await?;
    world.close().await
}
