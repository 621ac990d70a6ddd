//! Memory beside objects that are nobody's members: 300 StatefulSets of 1.25 MB, 10,000 small
//! ones, and 3,000 pods of 20 KB with the labels of a guarded cluster's pods. Anybody with `edit`
//! in one namespace can create all of them.
//!
//! A replica starts, looks at the cluster and judges evictions. Then a hundred members are created
//! at one time, by dry runs, whose settings are in 32 ConfigMaps of a megabyte. `quorumgate
//! uninstall` removes the gate. The benchmark fails if one of them takes more than its target at
//! any moment.

mod plane;
mod resident;
mod shown;
mod spread;
mod table;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{EvictParams, PostParams};
use kube::{Api, Resource as _};
use quorumgate_testbed::Bed;
use quorumgate_testbed::control_plane::{Component, ControlPlane};
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::gate::Gate;
use serde_json::json;
use tokio::process::{Child, Command};

use resident::Resident;
use shown::shown;
use spread::Spread;
use table::Table;

/// The target in MiB, half of the Deployment's limit.
const LIMIT: f64 = 256.0;

const FAT_SETS: usize = 300;
const FAT: usize = 1_250_000;
const SETS: usize = 10_000;
const PODS: usize = 3000;
const POD: usize = 20_000;

/// The number of concurrent requests.
const AT_ONCE: usize = 16;
const EVICTIONS: usize = 50;
const MAPS: usize = 32;
const MAP: usize = 1_000_000;
const CREATES: usize = 100;
const SOON: Duration = Duration::from_secs(120);
const IN_A_WHILE: Duration = Duration::from_secs(300);
/// The pause between two looks at the memory of a process that ends by itself.
const OFTEN: Duration = Duration::from_millis(5);

fn main() -> Result<()> {
    quorumgate::install_crypto_provider();
    plane::with(measure)
}

async fn measure(plane: &ControlPlane) -> Result<()> {
    let begun = Instant::now();
    let bed = Bed::up_with(plane.clone()).await?;
    let mut sandbox = bed.sandbox("crowds").await?;
    sandbox.add_nodes(1).await?;
    let etcd = EtcdCluster::builder("etcd").apply(&sandbox).await?;
    etcd.quorate(SOON).await?;
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    let gate = Gate::builder(env!("CARGO_BIN_EXE_quorumgate"), manifests)
        .replicas(1)
        .everywhere()
        .argument("--settle-time=10s")
        .start(&sandbox)
        .await?;
    gate.in_force(SOON).await?;
    shown(&gate, 1, SOON).await?;
    // They would act on the crowd.
    for component in [Component::Scheduler, Component::ControllerManager] {
        component.process(&plane.state).stop(SOON).await?;
    }
    crowd(&etcd).await?;

    let replica = gate.replica(0);
    replica.restart().await?;
    let process = replica.identity().context("the gate has ended")?;
    let process = process.pid().to_string();
    let start = Resident::read(&process)?;
    shown(&gate, 1, IN_A_WHILE).await?;
    evict(&etcd).await?;
    let looks = Resident::read(&process)?;
    create(&etcd).await?;
    let creates = Resident::read(&process)?;
    replica.kill().await?;
    let removal = removal(&bed, &gate, &sandbox).await?;

    let mib = |kib: f64| kib / 1024.0;
    let rows = [
        ("start", mib(start.most)),
        ("start, looks and evictions", mib(looks.most)),
        ("the same, and creates of members", mib(creates.most)),
        ("uninstall", mib(removal)),
    ];
    let mut table = Table::new(format!(
        "Crowds: {FAT_SETS} StatefulSets of {FAT} bytes, {SETS} small ones, {PODS} pods of {POD} bytes ({:.0} s)",
        begun.elapsed().as_secs_f64()
    ));
    for (what, most) in rows {
        let what = format!("{what}: most memory, MiB");
        table = table.row(&what, Spread::once(most), ..=LIMIT);
    }
    table
        .row(
            "resident in the end, MiB",
            Spread::once(mib(creates.now)),
            ..,
        )
        .print()?;
    let missed: Vec<&str> = rows
        .iter()
        .filter(|(_, most)| *most > LIMIT)
        .map(|(what, _)| *what)
        .collect();
    // The control plane is deleted as a whole: nothing ends by itself without its controllers.
    std::mem::forget((gate, sandbox));
    ensure!(
        missed.is_empty(),
        "more than {LIMIT} MiB: {}",
        missed.join(", ")
    );
    Ok(())
}

/// Creates the objects, in the namespace of the cluster.
async fn crowd(etcd: &EtcdCluster) -> Result<()> {
    let (client, namespace) = (etcd.client(), etcd.namespace());
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selector = sets.get(etcd.name()).await?.spec.context("no spec")?;
    let labels = selector.selector.match_labels.unwrap_or_default();
    let create = PostParams::default();
    let lengths = std::iter::repeat_n(FAT, FAT_SETS).chain(std::iter::repeat_n(0, SETS));
    let created = lengths.enumerate().map(async |(number, length)| {
        let set = set(number, length)?;
        sets.create(&create, &set).await?;
        anyhow::Ok(())
    });
    let created = stream::iter(created).buffer_unordered(AT_ONCE);
    created.try_collect::<()>().await?;
    let created = (0..PODS).map(async |number| {
        let name = format!("crowd-{number}");
        let mut labels = labels.clone();
        labels.insert("statefulset.kubernetes.io/pod-name".into(), name.clone());
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels, "annotations": {"more": "x".repeat(POD)}},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "idle", "image": "idle"}]},
        }))?;
        pods.create(&create, &pod).await?;
        anyhow::Ok(())
    });
    let created = stream::iter(created).buffer_unordered(AT_ONCE);
    created.try_collect::<()>().await
}

fn set(number: usize, length: usize) -> Result<StatefulSet> {
    let labels = json!({"app": "crowd"});
    let env = json!([{"name": "MORE", "value": "x".repeat(length)}]);
    Ok(serde_json::from_value(json!({
        "metadata": {"name": format!("crowd-{number}"), "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "idle", "image": "idle", "env": env}]},
            },
        },
    }))?)
}

/// Asks for evictions of a member, by dry runs. Any answer of the gate is one.
async fn evict(etcd: &EtcdCluster) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(etcd.client().clone(), etcd.namespace());
    let dry_run = EvictParams {
        post_options: PostParams {
            dry_run: true,
            ..PostParams::default()
        },
        ..EvictParams::default()
    };
    for _ in 0..EVICTIONS {
        match pods.evict(&format!("{}-0", etcd.name()), &dry_run).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 429 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Asks for pods of members whose settings are in large ConfigMaps, by dry runs, all at one time.
/// Any answer is one.
async fn create(etcd: &EtcdCluster) -> Result<()> {
    let (client, namespace) = (etcd.client(), etcd.namespace());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let names: Vec<String> = (0..MAPS).map(|number| format!("crowd-{number}")).collect();
    for name in &names {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            data: Some([("more".to_owned(), "x".repeat(MAP))].into()),
            ..ConfigMap::default()
        };
        maps.create(&PostParams::default(), &map).await?;
    }
    let from: Vec<_> = names
        .iter()
        .map(|name| json!({"configMapRef": {"name": name}}))
        .collect();
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    let owner = sets.get(etcd.name()).await?.controller_owner_ref(&());
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": format!("{}-0", etcd.name()), "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "etcd", "image": "etcd", "envFrom": from}]},
    }))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let created = (0..CREATES).map(async |_| match pods.create(&dry_run, &pod).await {
        Ok(_) | Err(kube::Error::Api(_)) => Ok(()),
        Err(error) => Err(error),
    });
    try_join_all(created).await?;
    Ok(())
}

/// Removes the gate. Returns the most memory of the command in KiB.
async fn removal(bed: &Bed, gate: &Gate, sandbox: &quorumgate_testbed::Sandbox) -> Result<f64> {
    let command = Command::new(env!("CARGO_BIN_EXE_quorumgate"))
        .arg("uninstall")
        .arg(format!("--timeout={}s", SOON.as_secs()))
        .arg(format!(
            "--webhook-configuration={}",
            gate.webhook_configuration()
        ))
        .arg(format!("--lease-namespace={}-gate", sandbox.namespace()))
        .env("KUBECONFIG", bed.admin_kubeconfig())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    most(command).await
}

/// The most memory that a process takes until its end, in KiB.
async fn most(mut process: Child) -> Result<f64> {
    let id = process.id().context("it has ended")?.to_string();
    let mut most: f64 = 0.0;
    loop {
        // A process that has ended has no memory any more.
        if let Ok(resident) = Resident::read(&id) {
            most = resident.most;
        }
        if let Some(status) = process.try_wait()? {
            ensure!(status.success(), "quorumgate uninstall: {status}");
            return Ok(most);
        }
        tokio::time::sleep(OFTEN).await;
    }
}
