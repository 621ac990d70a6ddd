//! The control plane by itself: start, stop, restart, and sandboxes without pods.
//!
//! Tests that disturb a control plane have one of their own, so that tests on the shared one do not
//! notice.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use quorumgate_testbed::control_plane::{Component, ControlPlane};
use quorumgate_testbed::node::ready_condition;
use quorumgate_testbed::paths::State;
use quorumgate_testbed::process::{Background, Identity};
use quorumgate_testbed::{Bed, eventually};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(60);

/// A control plane in a directory of the test, which is stopped at the end of the test in any case.
struct Private {
    plane: ControlPlane,
    _directory: tempfile::TempDir,
}

impl Private {
    fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let state = State::at(directory.path().join("private"));
        Ok(Self {
            plane: ControlPlane {
                state,
                ..ControlPlane::from_env()?
            },
            _directory: directory,
        })
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // The call needs a new runtime, since this value may be dropped in the test's.
        let plane = self.plane.clone();
        let down = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(plane.down())
        });
        if !matches!(down.join(), Ok(Ok(_))) {
            eprintln!("the private control plane is not stopped completely");
        }
    }
}

fn pid(plane: &ControlPlane, component: Component) -> Option<i32> {
    component.process(&plane.state).running().map(Identity::pid)
}

fn config_map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name.into()),
        ..ObjectMeta::default()
    };
    ConfigMap {
        metadata,
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn a_control_plane_lives_through_up_crash_restart_and_down() -> Result<()> {
    let private = Private::new()?;
    let plane = &private.plane;

    // `up` is idempotent, and the second call is quick.
    let bed = Bed::up_with(plane.clone()).await?;
    let pids = Component::ALL.map(|component| pid(plane, component));
    assert!(pids.iter().all(Option::is_some), "{pids:?}");
    let started = Instant::now();
    plane.up().await?;
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "the second `up` took {:?}",
        started.elapsed()
    );
    assert_eq!(Component::ALL.map(|component| pid(plane, component)), pids);

    // A killed scheduler is started again by `up`, which leaves the others alone.
    Component::Scheduler.process(&plane.state).kill().await?;
    let healths = plane.check().await;
    let unwell: Vec<_> = healths
        .iter()
        .filter(|(_, health)| health.is_err())
        .map(|(c, _)| *c)
        .collect();
    assert_eq!(unwell, [Component::Scheduler]);
    plane.up().await?;
    assert!(pid(plane, Component::Scheduler).is_some_and(|new| Some(new) != pids[3]));
    assert_eq!(pid(plane, Component::ControllerManager), pids[2]);

    // A restart of the API server keeps its data and its address.
    let maps: Api<ConfigMap> = Api::namespaced(bed.client(), "default");
    maps.create(&PostParams::default(), &config_map("survivor"))
        .await?;
    bed.restart_api_server().await?;
    assert_ne!(pid(plane, Component::ApiServer), pids[1]);
    eventually(PATIENCE, "the object is still there", async || {
        maps.get("survivor").await
    })
    .await?;

    // A hung API server is noticed and replaced too.
    let hung = pid(plane, Component::ApiServer);
    Component::ApiServer.process(&plane.state).freeze()?;
    plane.up().await?;
    assert_ne!(pid(plane, Component::ApiServer), hung);

    // After a crash of everything, `up` brings it all back with its data.
    for component in Component::ALL {
        component.process(&plane.state).kill().await?;
    }
    plane.up().await?;
    maps.get("survivor").await?;

    // `down` stops everything and leaves nothing behind. It is idempotent too.
    let pids = Component::ALL.map(|component| component.process(&plane.state).running());
    plane.down().await?;
    assert!(pids.iter().flatten().all(|process| !process.is_running()));
    assert!(!plane.state.root().exists());
    assert!(plane.down().await?.is_empty());
    Ok(())
}

/// Waits until a namespace is gone.
async fn namespace_goes(bed: &Bed, name: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(bed.client());
    eventually(PATIENCE, "its namespace is gone", async || {
        namespaces
            .get_opt(name)
            .await
            .is_ok_and(|found| found.is_none())
    })
    .await
}

#[tokio::test]
async fn namespaces_of_sandboxes_are_distinct_and_go_after_close() -> Result<()> {
    let bed = Bed::up().await?;
    let (first, second) = (bed.sandbox("twin").await?, bed.sandbox("twin").await?);
    assert_ne!(first.namespace(), second.namespace());
    let (name, directory) = (first.namespace().to_owned(), first.directory());
    first
        .api::<ConfigMap>()
        .create(&PostParams::default(), &config_map("content"))
        .await?;
    first.close().await?;
    assert!(!directory.exists());
    namespace_goes(&bed, &name).await?;
    let namespaces: Api<Namespace> = Api::all(bed.client());
    assert!(namespaces.get_opt(second.namespace()).await?.is_some());
    second.close().await
}

#[tokio::test]
async fn a_sandbox_that_is_dropped_unclosed_is_torn_down_but_its_files_stay() -> Result<()> {
    let bed = Bed::up().await?;
    let sandbox = bed.sandbox("dropped").await?;
    let (name, directory) = (sandbox.namespace().to_owned(), sandbox.directory());
    std::fs::write(directory.join("some.log"), "why it failed")?;
    drop(sandbox);
    namespace_goes(&bed, &name).await?;
    assert!(directory.join("some.log").exists());
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

#[tokio::test]
async fn a_sandbox_whose_test_was_killed_is_swept_away_by_the_next_up() -> Result<()> {
    let bed = Bed::up().await?;
    let sandbox = bed.sandbox("orphan").await?;
    let (name, directory) = (sandbox.namespace().to_owned(), sandbox.directory());
    let logs = directory.join("logs");
    let process = Background::new("helper", &directory, &logs);
    let mut helper = Command::new("sleep");
    helper.arg("600");
    process.spawn(helper)?;
    // A test that is killed runs no destructors, and its process is gone then.
    std::mem::forget(sandbox);
    std::fs::write(directory.join("owner"), "1 1")?;

    Bed::up().await?;
    assert_eq!(process.running(), None);
    namespace_goes(&bed, &name).await?;
    assert!(logs.join("helper.log").exists());
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

#[tokio::test]
async fn users_have_the_rights_of_their_groups_and_no_others() -> Result<()> {
    let bed = Bed::up().await?;
    let stranger = bed.client_as("stranger", &[]).await?;
    let refusal = Api::<Pod>::namespaced(stranger, "default")
        .list(&ListParams::default())
        .await;
    assert!(matches!(refusal, Err(kube::Error::Api(status)) if status.code == 403));

    let master = bed.client_as("somebody", &["system:masters"]).await?;
    Api::<Pod>::namespaced(master, "default")
        .list(&ListParams::default())
        .await?;

    let whoami = bed
        .kubectl(["auth", "whoami", "-o", "jsonpath={.status.userInfo}"])
        .kubeconfig(&bed.kubeconfig_as("two-groups", &["system:masters", "extra"])?)
        .await?
        .success()?;
    ensure!(
        whoami.contains("two-groups") && whoami.contains("extra"),
        "{whoami}"
    );
    Ok(())
}

#[tokio::test]
async fn a_service_account_signs_in_with_a_token() -> Result<()> {
    let bed = Bed::up().await?;
    let sandbox = bed.sandbox("token").await?;
    let kubeconfig = bed
        .service_account_kubeconfig(sandbox.namespace(), "default")
        .await?;
    let whoami = bed
        .kubectl([
            "auth",
            "whoami",
            "-o",
            "jsonpath={.status.userInfo.username}",
        ])
        .kubeconfig(&kubeconfig)
        .await?
        .success()?;
    assert_eq!(
        whoami,
        format!("system:serviceaccount:{}:default", sandbox.namespace())
    );
    sandbox.close().await
}

#[tokio::test]
async fn the_audit_log_tells_who_deleted_which_pod_and_how() -> Result<()> {
    let bed = Bed::up().await?;
    let sandbox = bed.sandbox("audit").await?;
    let log = bed.audit_log();
    let pods: Api<Pod> = sandbox.api();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "doomed" },
        "spec": {
            "nodeSelector": sandbox.node_selector(),
            "containers": [{ "name": "main", "image": "none" }],
        },
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    pods.delete("doomed", &DeleteParams::default().grace_period(0))
        .await?;
    let events = log.events(sandbox.namespace())?;
    let delete = events
        .iter()
        .find(|event| event.verb == "delete")
        .expect("the delete is logged");
    assert_eq!(delete.user.username, "admin");
    assert_eq!(delete.object_ref.name, "doomed");
    assert_eq!(delete.response_status.code, 200);
    assert_eq!(delete.request_object["gracePeriodSeconds"], 0);
    assert!(
        events
            .iter()
            .any(|event| event.verb == "create" && event.object_ref.name == "doomed")
    );
    sandbox.close().await
}

#[tokio::test]
async fn a_claim_is_bound_by_the_hostpath_provisioner_and_its_directory_goes_with_it() -> Result<()>
{
    use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
    let bed = Bed::up().await?;
    let sandbox = bed.sandbox("claim").await?;
    let claims: Api<PersistentVolumeClaim> = sandbox.api();
    let claim = serde_json::from_value(json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    }))?;
    claims.create(&PostParams::default(), &claim).await?;
    let volume = eventually(PATIENCE, "the claim is bound", async || {
        let spec = claims.get("data").await.ok()?.spec?;
        spec.volume_name
    })
    .await?;
    let volume = Api::<PersistentVolume>::all(bed.client())
        .get(&volume)
        .await?;
    let path = volume
        .spec
        .and_then(|spec| spec.host_path)
        .expect("a host path")
        .path;
    eventually(PATIENCE, "the directory is there", async || {
        Path::new(&path).is_dir()
    })
    .await?;
    sandbox.close().await?;
    eventually(PATIENCE, "the directory is gone", async || {
        !Path::new(&path).exists()
    })
    .await
}

#[test]
fn the_program_passes_the_exit_code_of_kubectl_through() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let testbed = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
        command.env("QUORUMGATE_TESTBED", directory.path());
        command
    };
    // No control plane runs there: kubectl is not called, and the message says what to do.
    let output = testbed().args(["kubectl", "get", "pods"]).output()?;
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("testbed up"), "{message}");
    let output = testbed().args(["status"]).output()?;
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("kube-apiserver"));
    Ok(())
}

#[tokio::test]
async fn a_node_whose_lease_lapses_is_not_ready_and_comes_back_with_its_agent() -> Result<()> {
    let bed = Bed::up().await?;
    let mut sandbox = bed.sandbox("lapse").await?;
    sandbox.add_nodes(2).await?;
    let [lapsing, other] = sandbox.nodes() else {
        panic!("two nodes were added")
    };
    lapsing.freeze()?;
    lapsing.wait_ready("Unknown").await?;
    eventually(PATIENCE, "it is tainted as unreachable", async || {
        let taints = lapsing.object().await.ok()?.spec?.taints?;
        taints
            .into_iter()
            .find(|taint| taint.key == "node.kubernetes.io/unreachable")
    })
    .await?;
    assert_eq!(
        ready_condition(&other.object().await?).as_deref(),
        Some("True")
    );
    lapsing.thaw()?;
    lapsing.wait_ready("True").await?;
    lapsing.stop_agent().await?;
    lapsing.wait_ready("Unknown").await?;
    lapsing.start().await?;
    lapsing.wait_ready("True").await?;
    sandbox.close().await
}

#[tokio::test]
async fn a_sandbox_takes_its_nodes_and_their_agents_with_it() -> Result<()> {
    let bed = Bed::up().await?;
    let mut sandbox = bed.sandbox("nodes").await?;
    sandbox.add_nodes(1).await?;
    let [node] = sandbox.nodes() else {
        panic!("one node was added")
    };
    let node = node.clone();
    assert!(node.agent().running().is_some());
    sandbox.close().await?;
    assert_eq!(node.agent().running(), None);
    assert!(node.object().await.is_err());
    Ok(())
}
