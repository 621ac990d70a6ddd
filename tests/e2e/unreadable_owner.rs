//! Clusters of an operator whose custom resources the gate may not read.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use quorumgate_testbed::eventually;
use serde_json::json;

use crate::asking::refusal;
use crate::teardown::{orphaned, recreate};
use crate::world::{SOON, World};

/// The time limit for the garbage collector, which discovers new kinds every 30 s.
const PATIENCE: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_resource_that_the_gate_may_not_read_takes_its_cluster_along_in_the_background()
-> Result<()> {
    owner_and_all("unread-bg", &DeleteParams::background()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_resource_that_the_gate_may_not_read_takes_its_cluster_along_in_the_foreground()
-> Result<()> {
    owner_and_all("unread-fg", &DeleteParams::foreground()).await
}

/// Checks that a person's delete of the StatefulSet is refused, and that a delete of its owner
/// removes the whole cluster.
async fn owner_and_all(name: &str, how: &DeleteParams) -> Result<()> {
    let world = World::new(name).await?;
    let widgets = Widgets::define(&world).await?;
    widgets.own(&world).await?;
    let sets: Api<StatefulSet> = world.sandbox.api();
    let uid = world.etcd.stateful_set().await?.metadata.uid;
    let exactly = kube::api::Preconditions {
        uid,
        resource_version: None,
    };
    for delete in [
        DeleteParams::background(),
        DeleteParams::foreground(),
        // The garbage collector sends these preconditions. Here a person does.
        DeleteParams::background().preconditions(exactly),
    ] {
        let (code, message) = refusal(sets.delete("etcd", &delete).await)?;
        ensure!(code == 429, "{code}: {message}");
        for part in [
            "Widget main could not be read",
            "forbidden",
            "quorumgate.io/intent=delete",
            "quorumgate.io/aggregate-to-owners=true",
        ] {
            ensure!(message.contains(part), "nothing of {part}: {message}");
        }
    }

    widgets.objects(&world).delete("main", how).await?;
    eventually(PATIENCE, "nothing is left", || async {
        let pods = world.etcd.pods().await?;
        let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
        ensure!(names.is_empty(), "{} are left", names.join(", "));
        let set = sets.get_opt("etcd").await?;
        ensure!(set.is_none(), "the StatefulSet is left");
        let owner = widgets.objects(&world).get_opt("main").await?;
        ensure!(owner.is_none(), "its owner is left");
        Ok(())
    })
    .await?;
    widgets.forget(&world).await?;
    world.close().await
}

/// A kind of custom resource for this test.
pub(crate) struct Widgets {
    kind: ApiResource,
}

impl Widgets {
    pub(crate) async fn define(world: &World) -> Result<Self> {
        let group = format!("{}.example.org", world.namespace());
        let definition: CustomResourceDefinition = serde_json::from_value(json!({
            "metadata": {"name": format!("widgets.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                        "type": "object", "properties": {"size": {"type": "integer"}},
                    }}}},
                }],
            },
        }))?;
        Api::all(world.sandbox.client())
            .create(&PostParams::default(), &definition)
            .await?;
        let kind = ApiResource {
            api_version: format!("{group}/v1"),
            group,
            version: "v1".into(),
            kind: "Widget".into(),
            plural: "widgets".into(),
        };
        Ok(Self { kind })
    }

    fn objects(&self, world: &World) -> Api<DynamicObject> {
        Api::namespaced_with(world.sandbox.client(), world.namespace(), &self.kind)
    }

    /// Creates an object, and makes the test's StatefulSet anew as its own, as operators do.
    pub(crate) async fn own(&self, world: &World) -> Result<()> {
        let object = DynamicObject::new("main", &self.kind);
        let owner = eventually(SOON, "the kind is served", || async {
            let created = self.objects(world);
            created.create(&PostParams::default(), &object).await
        })
        .await?;
        let reference = json!({
            "apiVersion": self.kind.api_version, "kind": "Widget", "name": "main",
            "uid": owner.uid().context("no UID")?, "controller": true, "blockOwnerDeletion": true,
        });
        let owners = serde_json::from_value(json!([reference]))?;
        let mut set = orphaned(world).await?;
        set.metadata.owner_references = Some(owners);
        let uid = recreate(world, set).await?;
        world.whole().await?;
        eventually(SOON, "the owner is on record", || async {
            let set = world.budget().await?.status.and_then(|s| s.stateful_set);
            let set = set.filter(|set| set.uid == uid);
            let owners = set.context("the new StatefulSet is not on record")?.owners;
            ensure!(owners.len() == 1, "{owners:?}");
            Ok(())
        })
        .await
    }

    /// Lets the gate read objects of this kind, as an administrator does.
    pub(crate) async fn may_be_read(&self, world: &World) -> Result<()> {
        let role: ClusterRole = serde_json::from_value(json!({
            "metadata": {
                "name": format!("widgets-{}", world.namespace()),
                "labels": {
                    "quorumgate.io/aggregate-to-owners": "true",
                    "testbed.quorumgate.io/namespace": world.namespace(),
                },
            },
            "rules": [{"apiGroups": [self.kind.group], "resources": ["widgets"], "verbs": ["get"]}],
        }))?;
        let roles: Api<ClusterRole> = Api::all(world.sandbox.client());
        roles.create(&PostParams::default(), &role).await?;
        Ok(())
    }

    /// Has the owner ask for so many members.
    pub(crate) async fn ask_for(&self, world: &World, size: u32) -> Result<()> {
        let size = Patch::Merge(json!({"spec": {"size": size}}));
        let (objects, params) = (self.objects(world), PatchParams::default());
        objects.patch("main", &params, &size).await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, world: &World) -> Result<()> {
        let (objects, how) = (self.objects(world), DeleteParams::background());
        objects.delete("main", &how).await?;
        Ok(())
    }

    pub(crate) async fn forget(&self, world: &World) -> Result<()> {
        let definitions: Api<CustomResourceDefinition> = Api::all(world.sandbox.client());
        let name = format!("{}.{}", self.kind.plural, self.kind.group);
        definitions.delete(&name, &DeleteParams::default()).await?;
        Ok(())
    }
}
