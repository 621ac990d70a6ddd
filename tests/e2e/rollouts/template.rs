//! The pod template of the test's StatefulSet and its revisions.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use quorumgate_testbed::eventually;
use serde_json::{Value, json};

use crate::world::{SOON, World};

/// Changes the template. Returns the new update revision.
pub(crate) async fn change(world: &World, marker: &str) -> Result<String> {
    let before = revision(world).await?;
    world.etcd.change_template(marker).await?;
    another_than(world, &before).await
}

/// Patches the StatefulSet in a way that changes its template. Returns the new update revision.
pub(super) async fn change_by(world: &World, patch: Value) -> Result<String> {
    let before = revision(world).await?;
    patch_set(world, patch).await?;
    another_than(world, &before).await
}

/// Patches the StatefulSet.
pub(super) async fn patch_set(world: &World, patch: Value) -> Result<()> {
    let name = world.etcd.name();
    let patch = Patch::Strategic(patch);
    sets(world)
        .patch(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// A patch that gives etcd this image.
pub(super) fn image(image: &str) -> Value {
    let containers = json!([{"name": "etcd", "image": image}]);
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}

/// The image of etcd in the template.
pub(super) async fn current_image(world: &World) -> Result<String> {
    let spec = sets(world).get(world.etcd.name()).await?.spec;
    let template = spec.and_then(|spec| spec.template.spec);
    let mut containers = template.context("no template")?.containers.into_iter();
    let etcd = containers.find(|container| container.name == "etcd");
    etcd.and_then(|etcd| etcd.image).context("no image")
}

/// The StatefulSet's update revision, of its present template.
pub(super) async fn revision(world: &World) -> Result<String> {
    let set = sets(world).get(world.etcd.name()).await?;
    let status = set.status.context("no status")?;
    ensure!(
        status.observed_generation == set.metadata.generation,
        "not read yet"
    );
    status.update_revision.context("no update revision")
}

/// The members that have no pod with this revision.
pub(crate) async fn outdated(world: &World, revision: &str) -> Result<BTreeSet<String>> {
    let mut outdated: BTreeSet<_> = world.etcd.pod_names().into_iter().collect();
    for pod in world.etcd.pods().await? {
        let is = pod.labels().get("controller-revision-hash");
        if is.map(String::as_str) == Some(revision) {
            outdated.remove(&pod.name_any());
        }
    }
    Ok(outdated)
}

pub(super) async fn another_than(world: &World, before: &str) -> Result<String> {
    eventually(SOON, "the template has a new revision", async || {
        let now = revision(world).await?;
        ensure!(now != before, "still {now}");
        Ok(now)
    })
    .await
}

fn sets(world: &World) -> Api<StatefulSet> {
    world.sandbox.api()
}
