//! A release where the platform chooses users and groups, as `OpenShift` does. A policy imitates
//! its security context constraint `restricted-v2`. [`crate::privilege`] has one for endpoints.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::control_plane::Tuning;
use quorumgate_testbed::{Bed, eventually};
use serde_json::json;

use super::{chart, helm};
use crate::world::{SOON, on_a_plane_of_its_own};

const HOME: &str = "quorumgate";

fn policy() -> String {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "restricted-v2"},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": HOME}},
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["pods"],
                }],
            },
            "variables": [
                {
                    "name": "pod",
                    "expression": "has(object.spec.securityContext) ? [dyn(object.spec.securityContext)] : []",
                },
                {
                    "name": "containers",
                    "expression": "object.spec.containers.filter(c, has(c.securityContext)).map(c, dyn(c.securityContext))",
                },
            ],
            "validations": [
                {
                    "expression": "(variables.pod + variables.containers).all(c, !has(c.runAsUser) && !has(c.runAsGroup) && !has(c.fsGroup))",
                    "message": "the range of the namespace says which user and which groups",
                },
                {
                    "expression": "!has(object.spec.hostNetwork) || !object.spec.hostNetwork",
                    "message": "pods have a network of their own",
                },
                {
                    "expression": "size(variables.containers) == size(object.spec.containers) && variables.containers.all(c, c.capabilities.drop == ['ALL'] && !c.allowPrivilegeEscalation)",
                    "message": "containers have no capability and gain none",
                },
            ],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "restricted-v2"},
        "spec": {"policyName": "restricted-v2", "validationActions": ["Deny"]},
    });
    format!("{policy}\n---\n{binding}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_starts_where_the_platform_chooses_users_and_groups() -> Result<()> {
    on_a_plane_of_its_own("openshift", Tuning::default(), release).await
}

async fn release(bed: Bed) -> Result<()> {
    let mut sandbox = bed.sandbox("db").await?;
    let program = Path::new(env!("CARGO_BIN_EXE_quorumgate"));
    sandbox.map_image("quorumgate", program.parent().context("no directory")?);
    sandbox.add_nodes(1).await?;
    bed.kubectl(["create", "namespace", HOME])
        .await?
        .success()?;
    let apply = ["apply", "--server-side", "--filename=-"];
    bed.kubectl(apply).stdin(policy()).await?.success()?;
    eventually(SOON, "a user of the pod's choice is refused", || async {
        let run = [
            "run",
            "chosen",
            "--image=none",
            "--dry-run=server",
            "--namespace",
            HOME,
        ];
        let chosen = json!({"spec": {"securityContext": {"runAsUser": 65532}}});
        let ran = bed
            .kubectl(run)
            .args([format!("--overrides={chosen}")])
            .await?;
        ensure!(
            ran.stderr.contains("the range of the namespace"),
            "{}",
            ran.stderr
        );
        Ok(())
    })
    .await?;
    let chart = chart();
    let values = format!("--values={chart}/values-openshift.yaml");
    let run = async |args: &[&str]| {
        helm(&bed, args)
            .args(["--namespace", HOME, "--timeout=150s"])
            .timeout(Duration::from_secs(160))
            .await?
            .success()
    };
    // The replica, and then the pods of both hooks.
    run(&[
        "install",
        "quorumgate",
        &chart,
        &values,
        "--wait",
        "--set=replicas=1",
        "--set=listenAddress=$(QUORUMGATE_POD_IP)",
        "--set=service.selector=true",
        "--set=service.port=8443",
    ])
    .await?;
    let tested = run(&["test", "quorumgate"]).await?;
    ensure!(tested.contains("Succeeded"), "{tested}");
    run(&["uninstall", "quorumgate", "--wait"]).await?;
    sandbox.close().await
}
