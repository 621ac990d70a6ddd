//! Updates of a running pod: an update that would restart etcd is refused, all others pass.

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Container;
use kube::api::{Patch, PatchParams, PostParams};
use quorumgate_testbed::etcd_cluster::{EtcdClusterBuilder, EtcdVersion, Shape};
use quorumgate_testbed::eventually;
use serde_json::{Value, json};

use crate::asking::{By, refusal};
use crate::bystanders;
use crate::world::{SOON, World};

const INSTEAD: &str = "delete or evict the pod";

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
