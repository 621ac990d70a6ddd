//! Updates of a running pod: an update that would restart etcd is refused, all others pass.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Container, Service};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use quorumgate_testbed::etcd_cluster::{EtcdClusterBuilder, EtcdVersion, Shape, Tls};
use quorumgate_testbed::eventually;
use quorumgate_testbed::writer::Writer;
use serde_json::{Value, json};

use crate::asking::{By, refusal};
use crate::bystanders;
use crate::world::{SOON, World};

const INSTEAD: &str = "delete or evict the pod";
/// The longest time without a write where nothing restarts, on a busy machine.
const PAUSE: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn a_new_image_of_etcd_or_a_deadline_is_refused_and_what_leaves_etcd_alone_passes()
-> Result<()> {
    let world = World::builder("restart-image")
        .etcd(|etcd| etcd.shape(Shape::Druid))
        .start()
        .await?;
    let pod = "etcd-1";
    let before = world.last_seq().await?;

    for change in [image("etcd", "etcd:3.6.16"), deadline(3600)] {
        let (code, message) = refusal(world.change(pod, None, &change).await)?;
        ensure!(code == 403, "{change}: {code}: {message}");
        ensure!(message.contains(INSTEAD), "{change}: {message}");
    }
    let said = world
        .kubectl(&["set", "image", "pod", pod, "etcd=etcd:3.6.16"])
        .await?;
    ensure!(
        !said.succeeded() && said.stderr.contains(INSTEAD),
        "{said:?}"
    );
    let dry_run = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let patch = Patch::Strategic(image("etcd", "etcd:3.6.16"));
    let (code, _) = refusal(world.pods().patch(pod, &dry_run, &patch).await)?;
    ensure!(code == 403, "a dry run was refused with {code}");

    world
        .change(pod, None, &image("backup-restore", "alpine"))
        .await?;
    let labelled = json!({"metadata": {"labels": {"more": "yes"}}});
    world.change(pod, None, &labelled).await?;

    // None of these updates is written to the ledger, and etcd's containers did not restart.
    ensure!(world.granted().await?.is_empty(), "a grant was given");
    ensure!(world.last_seq().await? == before, "the ledger was written");
    let etcd = world.container(pod, "etcd").await?;
    ensure!(etcd.image.as_deref() != Some("etcd:3.6.16"), "{etcd:?}");
    world.restarted(pod, "backup-restore").await?;
    ensure!(world.restarts(pod, "etcd").await? == 0, "etcd restarted");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_is_refused_only_where_its_policy_restarts_etcd() -> Result<()> {
    let world = World::builder("restart-resize")
        .etcd(resizable)
        .start()
        .await?;
    let pod = "etcd-0";
    let resize = ["patch", "pod", pod, "--subresource=resize", "--patch"];

    let memory = requests("memory", "80Mi").to_string();
    let said = world.kubectl(&[&resize[..], &[&memory]].concat()).await?;
    ensure!(
        !said.succeeded() && said.stderr.contains(INSTEAD),
        "{said:?}"
    );
    let (code, message) = refusal(
        world
            .change(pod, Some("resize"), &requests("memory", "80Mi"))
            .await,
    )?;
    ensure!(
        code == 403 && message.contains("RestartContainer"),
        "{code}: {message}"
    );

    let cpu = requests("cpu", "20m").to_string();
    let said = world.kubectl(&[&resize[..], &[&cpu]].concat()).await?;
    said.success()?;
    // The same amount in another notation.
    world
        .change(pod, Some("resize"), &requests("memory", "67108864"))
        .await?;

    let etcd = world.container(pod, "etcd").await?;
    let resources = etcd.resources.context("no resources")?;
    let amounts = resources.requests.context("no requests")?;
    ensure!(amounts["cpu"].0 == "20m", "{amounts:?}");
    ensure!(amounts["memory"].0 == "67108864", "{amounts:?}");
    ensure!(world.granted().await?.is_empty(), "a grant was given");
    world.close().await
}

/// etcd as a native sidecar, and a container beside it that is called like etcd's and only sleeps.
#[tokio::test(flavor = "multi_thread")]
async fn etcd_is_not_restarted_in_place_wherever_in_its_pod_it_runs() -> Result<()> {
    let world = World::new("restart-elsewhere").await?;
    let etcd = json!({
        "name": "main", "image": EtcdVersion::default().image()?, "command": ["etcd"],
        "args": ["--data-dir=/tmp/data", "--name=$(POD_NAME)"],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"requests": {"cpu": "10m"}},
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
    });
    let sleeps = json!({"name": "etcd", "image": "busybox", "command": ["sleep", "infinity"]});
    let mut sidecar = etcd.clone();
    sidecar["restartPolicy"] = json!("Always");
    for (name, list, containers, inits) in [
        (
            "native",
            "initContainers",
            json!([sleeps]),
            json!([sidecar]),
        ),
        ("beside", "containers", json!([sleeps, etcd]), json!([])),
    ] {
        let set = json!({
            "metadata": {"name": name, "labels": {"quorumgate.io/enroll": "true"}},
            "spec": {
                "replicas": 1, "serviceName": name, "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": {
                    "nodeSelector": world.sandbox.node_selector(),
                    "terminationGracePeriodSeconds": 1,
                    "containers": containers, "initContainers": inits,
                }},
            },
        });
        let sets: kube::Api<StatefulSet> = world.sandbox.api();
        let set = serde_json::from_value(set)?;
        sets.create(&PostParams::default(), &set).await?;
        let pod = format!("{name}-0");
        eventually(SOON, format!("{pod} runs"), || async {
            world.budgets().get(name).await?;
            let pod = world.pods().get(&pod).await?;
            let phase = pod.status.and_then(|status| status.phase);
            ensure!(phase.as_deref() == Some("Running"), "{phase:?}");
            anyhow::Ok(())
        })
        .await?;
        let main = |change: Value| {
            let mut container = json!({"name": "main"});
            json_patch::merge(&mut container, &change);
            json!({"spec": {list: [container]}})
        };
        let image = main(json!({"image": "etcd:9.9"}));
        let resize = main(json!({"resources": {"requests": {"cpu": "20m"}}}));
        for (sub, change) in [(None, image), (Some("resize"), resize), (None, deadline(9))] {
            let (code, message) = refusal(world.change(&pod, sub, &change).await)?;
            ensure!(code == 403, "{name} {change}: {code}: {message}");
        }
        let beside = json!({"spec": {"containers": [{"name": "etcd", "image": "busybox:2"}]}});
        world.change(&pod, None, &beside).await?;
    }
    world.close().await
}

/// etcd as a native sidecar that is called like it, and etcd under another name beside a container
/// that is called like it. No member of three restarts, so no write waits for an election.
#[tokio::test(flavor = "multi_thread")]
async fn three_members_serve_on_while_somebody_changes_all_of_them_in_place() -> Result<()> {
    let world = World::builder("restart-all")
        .etcd(|etcd| etcd.tls(Tls::None))
        .start()
        .await?;
    for (set, list, etcd) in [
        ("native", "initContainers", "etcd"),
        ("beside", "containers", "main"),
    ] {
        let pods = three(&world, set, list, etcd).await?;
        let writer = writer_to(&world, &pods).await?;
        let before = starts(&world, &pods).await?;
        let container = |change: Value| {
            let mut container = json!({"name": etcd});
            json_patch::merge(&mut container, &change);
            json!({"spec": {list: [container]}})
        };
        let newer = container(json!({"image": "etcd:9.9"}));
        let resize = container(json!({"resources": {"requests": {"cpu": "20m"}}}));
        for (part, change) in [(None, newer), (Some("resize"), resize)] {
            for pod in &pods {
                let (code, message) = refusal(world.change(pod, part, &change).await)?;
                ensure!(
                    code == 403 && message.contains(INSTEAD),
                    "{pod} {change}: {code}: {message}"
                );
            }
        }
        // The kubelet acts a moment after a change. What restarts no etcd passes on all of them.
        let other = if etcd == "etcd" { "sleeps" } else { "etcd" };
        for pod in &pods {
            world.change(pod, None, &image(other, "alpine")).await?;
            world.restarted(pod, other).await?;
        }
        let written = writer.acknowledged();
        eventually(SOON, "writes go on", || async {
            let now = writer.acknowledged();
            ensure!(now > written + 10, "{now} after {written}");
            anyhow::Ok(())
        })
        .await?;
        let report = writer.stop().await?;
        let gap = report.longest_gap;
        ensure!(gap < PAUSE, "{set}: nothing could be written for {gap:?}");
        let after = starts(&world, &pods).await?;
        ensure!(before == after, "{before:?}, then {after:?}");
    }
    world.close().await
}

/// A writer to the members in these pods, once they have a leader.
async fn writer_to(world: &World, pods: &[String]) -> Result<Writer> {
    let mut addresses = Vec::new();
    for pod in pods {
        let status = world.pods().get(pod).await?.status.context("no status")?;
        addresses.push(status.pod_ip.context("no address")?.parse::<IpAddr>()?);
    }
    let dialer = world.etcd.dialer().await?;
    for address in &addresses {
        eventually(SOON, "the member takes writes", || async {
            let mut client = dialer.dial(*address, Duration::from_secs(5)).await?;
            client.put("formed", "yes", None).await?;
            anyhow::Ok(())
        })
        .await?;
    }
    Ok(Writer::start_at(dialer, move || addresses.clone()))
}

/// For each pod when etcd's container started, and how often.
async fn starts(world: &World, pods: &[String]) -> Result<BTreeMap<String, (Option<String>, i32)>> {
    let mut all = BTreeMap::new();
    for pod in pods {
        let found = world.pods().get(pod).await?;
        let status = found.status.context("no status")?;
        let init = status.init_container_statuses.into_iter().flatten();
        let containers = init.chain(status.container_statuses.into_iter().flatten());
        let image = EtcdVersion::default().image()?;
        for container in containers.filter(|container| container.image.contains(&image)) {
            all.insert(
                pod.clone(),
                (container.container_id, container.restart_count),
            );
        }
    }
    ensure!(all.len() == pods.len(), "{all:?}");
    Ok(all)
}

/// Three enrolled members on a StatefulSet whose etcd is in a container of this list and name.
/// Returns their pods, which the gate guards.
async fn three(world: &World, set: &str, list: &str, etcd: &str) -> Result<Vec<String>> {
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": set},
        "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": true,
            "selector": {"app": set}, "ports": [{"port": 2379}],
        },
    }))?;
    let services: Api<Service> = world.sandbox.api();
    services.create(&PostParams::default(), &service).await?;
    let pods: Vec<String> = (0..3).map(|n| format!("{set}-{n}")).collect();
    let cluster = pods
        .iter()
        .map(|pod| format!("{pod}=http://{pod}.{set}:2380"));
    let cluster: Vec<_> = cluster.collect();
    let from = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let mut member = json!({
        "name": etcd, "image": EtcdVersion::default().image()?, "command": ["etcd"],
        "args": [
            "--name=$(POD_NAME)",
            "--data-dir=/data/etcd",
            "--listen-client-urls=http://$(POD_IP):2379",
            "--advertise-client-urls=http://$(POD_IP):2379",
            "--listen-peer-urls=http://$(POD_IP):2380",
            format!("--initial-advertise-peer-urls=http://$(POD_NAME).{set}:2380"),
            format!("--initial-cluster={}", cluster.join(",")),
        ],
        "env": [
            {"name": "POD_NAME", "valueFrom": from("metadata.name")},
            {"name": "POD_IP", "valueFrom": from("status.podIP")},
        ],
        "resources": {"requests": {"cpu": "10m"}},
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    });
    let is_native = list == "initContainers";
    let other = if is_native { "sleeps" } else { "etcd" };
    let sleeps = json!({"name": other, "image": "busybox", "command": ["sleep", "infinity"]});
    let (containers, inits) = if is_native {
        json_patch::merge(&mut member, &json!({"restartPolicy": "Always"}));
        (json!([sleeps]), json!([member]))
    } else {
        (json!([sleeps, member]), json!([]))
    };
    let stateful_set: StatefulSet = serde_json::from_value(json!({
        "metadata": {"name": set, "labels": {"quorumgate.io/enroll": "true"}},
        "spec": {
            "replicas": 3, "serviceName": set, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": set}},
            "template": {"metadata": {"labels": {"app": set}}, "spec": {
                "nodeSelector": world.sandbox.node_selector(),
                "terminationGracePeriodSeconds": 1,
                "containers": containers, "initContainers": inits,
            }},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Mi"}},
            }}],
        },
    }))?;
    let sets: Api<StatefulSet> = world.sandbox.api();
    sets.create(&PostParams::default(), &stateful_set).await?;
    eventually(SOON, format!("all members of {set} serve"), || async {
        let status = world
            .budgets()
            .get(set)
            .await?
            .status
            .context("no status")?;
        let healthy = status.current_healthy;
        ensure!(healthy == Some(3), "{healthy:?} serve");
        anyhow::Ok(())
    })
    .await?;
    Ok(pods)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_lets_a_member_restart_in_place_and_its_grant_holds_back_the_others()
-> Result<()> {
    let world = World::builder("restart-override")
        .etcd(resizable)
        .start()
        .await?;
    let pod = "etcd-1";
    let uid = world.etcd.pod_uid(pod).await?;
    // Another name of the image that runs.
    let same = EtcdVersion::default().image()?.replace(':', ":v");

    for useless in [in_minutes(-1)?, in_minutes(25 * 60)?] {
        world.lift("pod/etcd-1", &useless).await?;
        let (code, message) = refusal(world.change(pod, None, &image("etcd", &same)).await)?;
        ensure!(code == 403, "{useless}: {code}: {message}");
    }
    world.lift("pod/etcd-1", &in_minutes(10)?).await?;
    let (code, _) = refusal(world.change("etcd-0", None, &image("etcd", &same)).await)?;
    ensure!(code == 403, "the override of {pod} lifted another: {code}");
    world.change(pod, None, &image("etcd", &same)).await?;
    let granted = world.granted().await?;
    ensure!(granted == [pod], "grants: {granted:?}");
    world.has_to_wait("etcd-0", &[pod]).await?;

    world.restarted(pod, "etcd").await?;
    ensure!(world.etcd.pod_uid(pod).await? == uid, "it was replaced");
    world.etcd.serves(pod, SOON).await?;
    // The pod did not go. After the settle time its member counts again.
    world.settled().await?;
    world.whole().await?;

    world.lift("qdb/etcd", &in_minutes(10)?).await?;
    world
        .change("etcd-0", Some("resize"), &requests("memory", "80Mi"))
        .await?;
    let granted = world.granted().await?;
    ensure!(granted == ["etcd-0"], "grants: {granted:?}");
    world.restarted("etcd-0", "etcd").await?;
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_no_members_and_terminating_ones_may_be_changed() -> Result<()> {
    let world = World::new("restart-foreign").await?;
    // The pod's name is like that of a StatefulSet's pod, so that the gate is asked.
    bystanders::bare_pod(&world, "loner-0").await?;
    world
        .change("loner-0", None, &image("sleep", "alpine"))
        .await?;
    world.change("loner-0", None, &deadline(3600)).await?;

    let node = world.agent_of("etcd-2").await?;
    node.freeze()?;
    world.lets_go(By::Delete, "etcd-2").await?;
    world
        .change("etcd-2", None, &image("etcd", "etcd:3.6.16"))
        .await?;
    node.thaw()?;

    // While no replica answers, containers of members cannot change. Labels can.
    for replica in world.gate.replicas() {
        replica.kill().await?;
    }
    let (code, message) = refusal(
        world
            .change("etcd-0", None, &image("etcd", "etcd:3.6.16"))
            .await,
    )?;
    ensure!(
        code == 500 && message.contains("restarts.quorumgate.io"),
        "{code}: {message}"
    );
    let labelled = json!({"metadata": {"labels": {"more": "yes"}}});
    world.change("etcd-0", None, &labelled).await?;
    world.close().await
}

impl World {
    /// Patches a pod or one of its subresources.
    async fn change(
        &self,
        pod: &str,
        part: Option<&str>,
        change: &Value,
    ) -> Result<(), kube::Error> {
        let (pods, params) = (self.pods(), PatchParams::default());
        let patch = Patch::Strategic(change);
        match part {
            None => pods.patch(pod, &params, &patch).await.map(drop),
            Some(part) => pods
                .patch_subresource(part, pod, &params, &patch)
                .await
                .map(drop),
        }
    }

    async fn container(&self, pod: &str, name: &str) -> Result<Container> {
        let spec = self.etcd.pod(pod).await?.spec.context("no spec")?;
        let mut containers = spec.containers.into_iter();
        let found = containers.find(|container| container.name == name);
        found.with_context(|| format!("no container {name}"))
    }

    /// The restart count of a container.
    async fn restarts(&self, pod: &str, name: &str) -> Result<i32> {
        let status = self.etcd.pod(pod).await?.status.context("no status")?;
        let mut containers = status.container_statuses.into_iter().flatten();
        let found = containers.find(|container| container.name == name);
        Ok(found.context("no such container")?.restart_count)
    }

    /// Waits until the restart count of a container rises.
    async fn restarted(&self, pod: &str, name: &str) -> Result<()> {
        eventually(SOON, format!("{name} of {pod} restarted"), || async {
            let restarts = self.restarts(pod, name).await?;
            ensure!(restarts > 0, "it did not");
            Ok(())
        })
        .await
    }

    async fn lift(&self, what: &str, until: &str) -> Result<()> {
        let annotation = format!("quorumgate.io/override-until={until}");
        let args = ["annotate", what, "--overwrite", &annotation];
        self.kubectl(&args).await?.success().map(drop)
    }
}

/// Makes a resize of memory restart etcd's container, and a resize of CPU not.
fn resizable(etcd: EtcdClusterBuilder) -> EtcdClusterBuilder {
    let policy = json!([
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
    ]);
    let resources = json!({"requests": {"cpu": "10m", "memory": "64Mi"}});
    etcd.container_field("resizePolicy", policy)
        .container_field("resources", resources)
}

fn image(container: &str, image: &str) -> Value {
    json!({"spec": {"containers": [{"name": container, "image": image}]}})
}

fn deadline(seconds: i64) -> Value {
    json!({"spec": {"activeDeadlineSeconds": seconds}})
}

fn requests(resource: &str, amount: &str) -> Value {
    let resources = json!({"requests": {resource: amount}});
    json!({"spec": {"containers": [{"name": "etcd", "resources": resources}]}})
}

fn in_minutes(minutes: i64) -> Result<String> {
    let until = Timestamp::now().checked_add(SignedDuration::from_mins(minutes))?;
    Ok(until.to_string())
}
