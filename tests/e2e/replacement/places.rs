//! Members whose data is neither on one claim nor in the pod.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, EmptyDirVolumeSource, PersistentVolume, PersistentVolumeClaim, Pod,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Api, ResourceExt as _};
use quorumgate::api::DataPlace;
use quorumgate::api::names::{ASKED, IDENTITY};
use quorumgate_testbed::etcd_cluster::{EtcdVersion, Storage};
use quorumgate_testbed::eventually;
use quorumgate_testbed::writer::Writer;
use serde_json::{Value, json};

use super::in_pods::drain_every_node;
use super::{
    finished, gates, is_whole_without, nothing_is_lost, protected, recorded, request, write_some,
};
use crate::asking::{By, refusal};
use crate::claims::lift;
use crate::teardown::{announce, no_pods};
use crate::world::{SOON, World};

/// The time limit of a drain beside a member that comes back.
const DRAINED: Duration = Duration::from_secs(240);
/// The time limit until all three pods are made anew.
const ROLLED: Duration = Duration::from_secs(300);

/// Each pod with its node.
async fn nodes(world: &World) -> Result<BTreeMap<String, String>> {
    let pods = world.etcd.pods().await?.into_iter();
    pods.map(|pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        Ok((pod.name_any(), node.context("no node")?))
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn members_in_directories_of_nodes_come_back_to_their_nodes_with_their_data() -> Result<()> {
    let world = World::builder("on-nodes")
        .nodes(4)
        .etcd(|etcd| etcd.storage(Storage::Node))
        .start()
        .await?;
    recorded(&world).await?;
    let before = nodes(&world).await?;
    let members = world.etcd.members().await?;
    let ids: Vec<u64> = members.iter().map(|member| member.id).collect();
    let writer = Writer::start(&world.etcd).await?;
    drain_every_node(&world, DRAINED).await?;
    world.whole().await?;
    let after = nodes(&world).await?;
    ensure!(before == after, "{before:?}, then {after:?}");
    let members = world.etcd.members().await?;
    let now: Vec<u64> = members.iter().map(|member| member.id).collect();
    ensure!(ids == now, "{ids:x?}, then {now:x?}");
    nothing_is_lost(writer, &world.etcd).await?;
    let status = world.budget().await?.status.context("no status")?;
    let places: Vec<_> = status.members.iter().map(|member| member.data).collect();
    ensure!(places == [Some(DataPlace::Node); 3], "{places:?}");
    world.close().await
}

/// The write-ahead log has the writes that were acknowledged last. etcd without it begins anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_ahead_log_on_its_own_claim_is_guarded_and_replaced_with_the_data() -> Result<()> {
    let world = World::builder("wal-apart")
        .etcd(|etcd| etcd.storage(Storage::WalApart))
        .start()
        .await?;
    recorded(&world).await?;
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    for claim in ["data-etcd-1", "wal-etcd-1"] {
        let (code, message) = refusal(claims.delete(claim, &DeleteParams::default()).await)?;
        ensure!(code == 403 && message.contains(claim), "{code}: {message}");
    }
    let uids = async || -> Result<BTreeMap<String, Option<String>>> {
        let all = claims.list(&ListParams::default()).await?;
        let uids = all.into_iter().map(|claim| (claim.name_any(), claim.uid()));
        Ok(uids.collect())
    };
    let before = uids().await?;
    let writer = Writer::start(&world.etcd).await?;
    let id = world.etcd.member("etcd-1").await?.id;
    request(&world, &format!("{id:x}")).await?;
    finished(&world, "etcd-1").await?;
    is_whole_without(&world, id).await?;
    nothing_is_lost(writer, &world.etcd).await?;
    let after = uids().await?;
    for (claim, uid) in &before {
        let is_new = after.get(claim) != Some(uid);
        ensure!(is_new == claim.ends_with("etcd-1"), "{claim}: {after:?}");
    }
    world.close().await
}

/// No pod mounts the claims then, so their names and the record tell whose they are.
#[tokio::test(flavor = "multi_thread")]
async fn claims_of_stopped_members_stay_whatever_their_template_and_owners_say_by_now() -> Result<()>
{
    let world = World::new("asleep-claims").await?;
    recorded(&world).await?;
    let before = write_some(&world.etcd).await?;
    announce(&world, "hibernate").await?;
    world.etcd.scale(0).await?;
    no_pods(&world).await?;

    let sets: Api<StatefulSet> = world.sandbox.api();
    let params = PatchParams::default();
    let elsewhere = |path: &str| {
        json!({"spec": {
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"},
            "template": {"spec": {"containers": [{
                "name": "etcd", "volumeMounts": [{"name": "data", "mountPath": path}],
            }]}},
        }})
    };
    let template = sets.get("etcd").await?.spec.context("no spec")?.template;
    let patch = Patch::Strategic(elsewhere("/elsewhere"));
    sets.patch("etcd", &params, &patch).await?;
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    let stale = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "none",
    }]}});
    let all = ["data-etcd-0", "data-etcd-1", "data-etcd-2"];
    for claim in all {
        let (_, message) = refusal(claims.delete(claim, &DeleteParams::default()).await)?;
        ensure!(message.contains("etcd"), "{message}");
        claims.patch(claim, &params, &Patch::Merge(&stale)).await?;
    }
    eventually(SOON, "the garbage collector was refused", || async {
        let events = world.kubectl(&["get", "events", "-o", "wide"]).await?;
        let events = events.success()?;
        let of_claim = |claim: &&str| {
            let about = format!("persistentvolumeclaim/{claim}");
            events.lines().filter(|line| line.contains(&about)).count() > 1
        };
        ensure!(all.iter().all(of_claim), "{events}");
        Ok(())
    })
    .await?;
    for claim in all {
        let found = claims.get(claim).await?;
        ensure!(found.metadata.deletion_timestamp.is_none(), "{claim} goes");
        let none = json!({"metadata": {"ownerReferences": null}});
        claims.patch(claim, &params, &Patch::Merge(&none)).await?;
    }

    let back = json!({"spec": {"template": template}});
    sets.patch("etcd", &params, &Patch::Merge(&back)).await?;
    world.etcd.scale(3).await?;
    world.whole().await?;
    before.assert_nothing_lost(&world.etcd).await?;
    world.close().await
}

/// The volume is the one on record, and the member would begin empty on it under its old id.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_with_another_data_directory_empties_no_member() -> Result<()> {
    let world = World::new("other-dir").await?;
    recorded(&world).await?;
    is_held_by(
        "another directory, in which its data is not",
        world,
        |template| {
            let text = template.to_string();
            let other = text.replace("/new.etcd", "/other.etcd");
            Ok(serde_json::from_str(&other)?)
        },
    )
    .await
}

/// The claim is mounted where it was, and etcd finds another directory below it.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_with_a_mount_below_the_data_directory_empties_no_member() -> Result<()> {
    let world = World::new("hidden-dir").await?;
    recorded(&world).await?;
    // In particular not "a new pod, in which its data begins empty", by which it would be replaced.
    is_held_by(
        "another directory, in which its data is not",
        world,
        |mut template| {
            let directory = argument(&template, "--data-dir=")?;
            let mount = json!({"name": "hides", "mountPath": format!("{directory}/member")});
            push(&mut template, "/spec/containers/0/volumeMounts", mount)?;
            let volume = json!({"name": "hides", "emptyDir": {}});
            push(&mut template, "/spec/volumes", volume)?;
            Ok(template)
        },
    )
    .await
}

/// Has the template changed so that the first new pod has to wait, and back.
async fn is_held_by(
    says: &str,
    world: World,
    change: impl FnOnce(Value) -> Result<Value>,
) -> Result<()> {
    let before = write_some(&world.etcd).await?;
    let ids = ids(&world).await?;
    let old = template(&world).await?;
    let other = change(old.clone())?;
    ensure!(other != old, "nothing is changed in {old}");
    let uids = world.pod_uids().await?;
    set_template(&world, &other).await?;
    world
        .reported("DataProtected", |c| {
            c.status == "False" && c.message.contains(says)
        })
        .await?;
    let now = world.pod_uids().await?;
    let changed = uids.iter().filter(|(pod, uid)| now.get(*pod) != Some(*uid));
    ensure!(changed.count() == 1, "{uids:?}, then {now:?}");

    set_template(&world, &old).await?;
    world.whole().await?;
    let after = self::ids(&world).await?;
    ensure!(
        after == ids,
        "a member was replaced: {ids:?}, then {after:?}"
    );
    before.assert_nothing_lost(&world.etcd).await?;
    world.close().await
}

/// The ids of the members.
async fn ids(world: &World) -> Result<Vec<u64>> {
    let members = world.etcd.members().await?;
    let mut ids: Vec<u64> = members.iter().map(|member| member.id).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// The template stays as it is, and another object says something else when a pod is made anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_with_another_data_directory_empties_no_member() -> Result<()> {
    let world = World::new("told-dir").await?;
    recorded(&world).await?;
    let before = write_some(&world.etcd).await?;
    let mut told = template(&world).await?;
    let directory = argument(&told, "--data-dir=")?;
    let map = Setting::create(&world, "ETCD_DATA_DIR", &directory).await?;
    arguments(&mut told)?.retain(|word| !is_argument(word, "--data-dir="));
    let from = json!([{"configMapRef": {"name": Setting::MAP}}]);
    told["spec"]["containers"][0]["envFrom"] = from;
    let old = world.pod_uids().await?;
    set_template(&world, &told).await?;
    all_anew(&world, &old).await?;

    let other = format!("{directory}-other");
    map.holds_etcd_1_while_it_says(&world, &other).await?;
    before.assert_nothing_lost(&world.etcd).await?;
    world.close().await
}

/// The same of the mount: its path below the volume comes from another object.
#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_a_config_map_moves_empties_no_member() -> Result<()> {
    let world = World::new("told-mount").await?;
    recorded(&world).await?;
    let before = write_some(&world.etcd).await?;
    let mut told = template(&world).await?;
    let directory = argument(&told, "--data-dir=")?;
    let own = directory.rsplit('/').next().context("no directory")?;
    let map = Setting::create(&world, "dir", own).await?;
    let variable = json!({
        "name": "DIR", "valueFrom": {"configMapKeyRef": {"name": Setting::MAP, "key": "dir"}},
    });
    push(&mut told, "/spec/containers/0/env", variable)?;
    let mounts = told.pointer_mut("/spec/containers/0/volumeMounts");
    let mounts = mounts.and_then(Value::as_array_mut).context("no mounts")?;
    let over = |mount: &&mut Value| {
        let path = mount["mountPath"].as_str().unwrap_or_default();
        directory.starts_with(path)
    };
    let mount = mounts.iter_mut().find(over).context("no mount")?;
    mount["subPathExpr"] = json!("$(DIR)");
    mount["mountPath"] = json!(directory);
    let old = world.pod_uids().await?;
    set_template(&world, &told).await?;
    all_anew(&world, &old).await?;

    map.holds_etcd_1_while_it_says(&world, "two").await?;
    before.assert_nothing_lost(&world.etcd).await?;
    world.close().await
}

/// A setting of the members in a ConfigMap.
struct Setting {
    maps: Api<ConfigMap>,
    key: &'static str,
    value: String,
}

impl Setting {
    /// The name of the ConfigMap.
    const MAP: &'static str = "directories";

    async fn create(world: &World, key: &'static str, value: &str) -> Result<Self> {
        let maps: Api<ConfigMap> = world.sandbox.api();
        let map = json!({"metadata": {"name": Self::MAP}, "data": {key: value}});
        let map: ConfigMap = serde_json::from_value(map)?;
        maps.create(&PostParams::default(), &map).await?;
        let value = value.to_owned();
        Ok(Self { maps, key, value })
    }

    async fn edit(&self, value: &str) -> Result<()> {
        let edited = Patch::Merge(json!({"data": {self.key: value}}));
        let params = PatchParams::default();
        self.maps.patch(Self::MAP, &params, &edited).await?;
        Ok(())
    }

    /// Has etcd-1 made anew while the ConfigMap has another value, and then changed back.
    async fn holds_etcd_1_while_it_says(&self, world: &World, other: &str) -> Result<()> {
        self.edit(other).await?;
        world.lets_go(By::Delete, "etcd-1").await?;
        world
            .reported("DataProtected", |c| {
                c.status == "False" && c.message.contains("etcd-1")
            })
            .await?;
        let held = gates(world, "etcd-1").await?;
        ensure!(!held.is_empty(), "it is not held");
        self.edit(&self.value).await?;
        world.whole().await
    }
}

/// Waits until each pod is another one, and all members serve.
async fn all_anew(world: &World, old: &BTreeMap<String, Option<String>>) -> Result<()> {
    eventually(ROLLED, "every pod is made anew", || async {
        let now = world.pod_uids().await?;
        let all = old.iter().all(|(pod, uid)| now.get(pod) != Some(uid));
        ensure!(all && now.len() == old.len(), "{old:?}, then {now:?}");
        anyhow::Ok(())
    })
    .await?;
    world.whole().await?;
    recorded(world).await
}

/// A member that is forced keeps the cluster id and lists itself alone. With two more, three
/// clusters of one would take writes under one Service.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_forces_new_clusters_takes_no_member() -> Result<()> {
    let world = World::new("forced-new").await?;
    recorded(&world).await?;
    let writer = Writer::start(&world.etcd).await?;
    let old = template(&world).await?;
    let mut forced = old.clone();
    arguments(&mut forced)?.push(json!("--force-new-cluster"));
    let uids = world.pod_uids().await?;
    set_template(&world, &forced).await?;
    for pod in world.etcd.pod_names() {
        for by in By::BOTH {
            let (code, message) = refusal(world.ask(by, &pod).await)?;
            let says = message.contains("--force-new-cluster");
            ensure!(code == 403 && says, "{code}: {message}");
        }
    }
    ensure!(world.pod_uids().await? == uids, "a pod went");
    set_template(&world, &old).await?;
    world.lets_go(By::Delete, "etcd-2").await?;
    world.whole().await?;
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}

/// The delete of a pod is judged by its template, which does not say so. The next pod waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_that_forces_new_clusters_starts_no_member() -> Result<()> {
    let world = World::new("told-force").await?;
    is_held_by_variable(world, "ETCD_FORCE_NEW_CLUSTER", "true").await
}

/// The template names the data directory, and nothing in it the one of the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_with_another_log_directory_empties_no_member() -> Result<()> {
    let world = World::new("told-log").await?;
    is_held_by_variable(world, "ETCD_WAL_DIR", "/tmp/another-log").await
}

/// Has a variable of a ConfigMap set, beside the flags of the template, while a pod is made anew.
async fn is_held_by_variable(world: World, key: &'static str, value: &str) -> Result<()> {
    recorded(&world).await?;
    let before = write_some(&world.etcd).await?;
    let map = Setting::create(&world, key, "").await?;
    let mut told = template(&world).await?;
    let from = json!([{"configMapRef": {"name": Setting::MAP}}]);
    let container = told.pointer_mut("/spec/containers/0");
    let container = container.and_then(Value::as_object_mut);
    let container = container.context("no container")?;
    container.insert("envFrom".to_owned(), from);
    let old = world.pod_uids().await?;
    set_template(&world, &told).await?;
    all_anew(&world, &old).await?;

    map.holds_etcd_1_while_it_says(&world, value).await?;
    before.assert_nothing_lost(&world.etcd).await?;
    world.close().await
}

/// A member that restarts serves nothing for seconds, and comes back on its claim.
#[tokio::test(flavor = "multi_thread")]
async fn the_claim_of_a_member_that_restarts_stays() -> Result<()> {
    let world = World::new("claim-restart").await?;
    recorded(&world).await?;
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    let uid = claims.get("data-etcd-2").await?.uid();
    let old = world.etcd.pod_uid("etcd-2").await?;
    world.lets_go(By::Delete, "etcd-2").await?;
    // Asks again and again until the next pod serves, as a garbage collector might.
    let how = DeleteParams::default();
    eventually(SOON, "the next pod serves", || async {
        let (code, message) = refusal(claims.delete("data-etcd-2", &how).await)?;
        ensure!(code == 403 || code == 429, "{code}: {message}");
        ensure!(message.contains("serves from the volume"), "{message}");
        Ok(())
    })
    .await?;
    world.replaced("etcd-2", &old).await?;
    world.whole().await?;
    ensure!(
        claims.get("data-etcd-2").await?.uid() == uid,
        "another claim"
    );
    world.close().await
}

/// A volume goes with its claim, whatever its reclaim policy, and cannot be taken back.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_terminates_under_its_member_is_said_until_it_is_replaced() -> Result<()> {
    let world = protected("volume-goes", EtcdVersion::default(), "Manual").await?;
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    let claim = claims.get("data-etcd-2").await?;
    let volume = claim.spec.and_then(|spec| spec.volume_name);
    let volume = volume.context("it is not bound")?;
    let volumes: Api<PersistentVolume> = Api::all(world.sandbox.client());
    let id = world.etcd.member("etcd-2").await?.id;
    lift(&world, "pod", "etcd-2").await?;
    volumes.delete(&volume, &DeleteParams::default()).await?;
    let annotate = ["annotate", "pod", "etcd-2", "quorumgate.io/override-until-"];
    world.kubectl(&annotate).await?.success()?;
    world
        .reported("DataProtected", |c| {
            c.reason == "VolumeTerminating" && c.message.contains("etcd-2")
        })
        .await?;
    request(&world, &format!("{id:x}")).await?;
    finished(&world, "etcd-2").await?;
    is_whole_without(&world, id).await?;
    world
        .reported("DataProtected", |c| c.status == "True")
        .await?;
    world.close().await
}

/// The pod template as it is.
async fn template(world: &World) -> Result<Value> {
    let set = world.etcd.stateful_set().await?;
    Ok(serde_json::to_value(set.spec.context("no spec")?.template)?)
}

async fn set_template(world: &World, template: &Value) -> Result<()> {
    let sets: Api<StatefulSet> = world.sandbox.api();
    let change = Patch::Merge(json!({"spec": {"template": template}}));
    sets.patch("etcd", &PatchParams::default(), &change).await?;
    Ok(())
}

/// The words of etcd's command line.
fn arguments(template: &mut Value) -> Result<&mut Vec<Value>> {
    let words = template.pointer_mut("/spec/containers/0/args");
    words.and_then(Value::as_array_mut).context("no arguments")
}

fn is_argument(word: &Value, flag: &str) -> bool {
    word.as_str().is_some_and(|word| word.starts_with(flag))
}

/// The value of one of etcd's arguments.
fn argument(template: &Value, flag: &str) -> Result<String> {
    let mut template = template.clone();
    let words = arguments(&mut template)?;
    let word = words.iter().find(|word| is_argument(word, flag));
    let word = word.and_then(Value::as_str).context("no such argument")?;
    Ok(word.trim_start_matches(flag).to_owned())
}

fn push(template: &mut Value, list: &str, item: Value) -> Result<()> {
    if template.pointer(list).is_none() {
        let (parent, name) = list.rsplit_once('/').context("no list")?;
        let parent = template.pointer_mut(parent).context("no parent")?;
        parent[name] = json!([]);
    }
    let list = template.pointer_mut(list).and_then(Value::as_array_mut);
    list.context("no list")?.push(item);
    Ok(())
}

/// Kubernetes gives a pod that waits for a node the next claim of that name.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_not_deleted_under_a_pod_that_waits_for_a_node() -> Result<()> {
    let world = World::new("claim-awaited").await?;
    recorded(&world).await?;
    let id = world.etcd.member("etcd-2").await?.id;
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    for node in world.sandbox.nodes() {
        world.kubectl(&["cordon", node.name()]).await?.success()?;
    }
    let old = world.etcd.pod_uid("etcd-2").await?;
    world.lets_go(By::Delete, "etcd-2").await?;
    eventually(SOON, "the next pod waits for a node", || async {
        let pod = world.pods().get("etcd-2").await?;
        ensure!(
            pod.metadata.uid != Some(old.clone()),
            "the old one is there"
        );
        Ok(())
    })
    .await?;
    let how = DeleteParams::default();
    let (code, message) = refusal(claims.delete("data-etcd-2", &how).await)?;
    let command = format!("quorumgate.io/replace={id:x}");
    ensure!(
        code == 403 && message.contains(&command),
        "{code}: {message}"
    );
    let name = super::volume(&world.sandbox, "etcd-2").await?.name_any();
    let volumes: Api<PersistentVolume> = Api::all(world.sandbox.client());
    let (code, message) = refusal(volumes.delete(&name, &how).await)?;
    ensure!(
        code == 403 && message.contains(&command),
        "{code}: {message}"
    );
    request(&world, &format!("{id:x}")).await?;
    for node in world.sandbox.nodes() {
        world.kubectl(&["uncordon", node.name()]).await?.success()?;
    }
    finished(&world, "etcd-2").await?;
    is_whole_without(&world, id).await?;
    world.close().await
}

/// Nothing manages such a pod, and it starts as the member whose name it has.
#[tokio::test(flavor = "multi_thread")]
async fn a_bare_pod_in_the_place_of_a_member_waits_without_its_volume() -> Result<()> {
    let world = World::new("bare-pod").await?;
    recorded(&world).await?;
    let sets: Api<StatefulSet> = world.sandbox.api();
    let orphans = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    sets.delete("etcd", &orphans).await?;
    let mut pod = world.pods().get("etcd-0").await?;
    eventually(SOON, "no StatefulSet owns etcd-0", || async {
        let owners = world.pods().get("etcd-0").await?.metadata.owner_references;
        ensure!(owners.is_none_or(|owners| owners.is_empty()), "not yet");
        Ok(())
    })
    .await?;
    world.lets_go(By::Delete, "etcd-0").await?;
    eventually(SOON, "etcd-0 is gone", || async {
        let pod = world.pods().get_opt("etcd-0").await?;
        ensure!(pod.is_none(), "not yet");
        Ok(())
    })
    .await?;

    pod.metadata = ObjectMeta {
        name: Some("etcd-0".to_owned()),
        labels: Some([("app".to_owned(), "etcd".to_owned())].into()),
        ..ObjectMeta::default()
    };
    pod.status = None;
    let spec = pod.spec.as_mut().context("no spec")?;
    spec.node_name = None;
    for volume in spec.volumes.iter_mut().flatten() {
        if volume.persistent_volume_claim.take().is_some() {
            volume.empty_dir = Some(EmptyDirVolumeSource::default());
        }
    }
    let created = world.pods().create(&PostParams::default(), &pod).await?;
    let gates = created.spec.and_then(|spec| spec.scheduling_gates);
    let gates = gates.context("it starts")?;
    ensure!(gates.iter().any(|gate| gate.name == IDENTITY), "{gates:?}");
    world.has_to_wait("etcd-1", &["etcd-0"]).await?;
    world.close().await
}

/// The webhook of new pods fails open. The gate that comes back finds such a pod before it serves.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_created_past_the_gate_is_made_anew_where_its_data_is() -> Result<()> {
    let world = World::builder("past-gate")
        .nodes(4)
        .etcd(|etcd| etcd.storage(Storage::Node))
        .start()
        .await?;
    recorded(&world).await?;
    world.etcd.move_leader("etcd-0").await?;
    let before = write_some(&world.etcd).await?;
    let id = world.etcd.member("etcd-2").await?.id;
    let node = world.node_of("etcd-2").await?;
    world.kubectl(&["cordon", &node]).await?.success()?;
    let old = world.etcd.pod_uid("etcd-2").await?;
    world.lets_go(By::Delete, "etcd-2").await?;
    for replica in world.gate.replicas() {
        replica.freeze()?;
    }
    let unguarded = eventually(SOON, "etcd-2 is created without the gate", || async {
        let pod = world.pods().get("etcd-2").await?;
        let is_new = pod.metadata.uid.as_ref() != Some(&old);
        ensure!(is_new, "the old one is there");
        anyhow::Ok(pod)
    })
    .await?;
    let is_marked = |pod: &Pod| pod.annotations().contains_key(ASKED);
    ensure!(!is_marked(&unguarded), "the gate was asked");
    for replica in world.gate.replicas() {
        replica.thaw()?;
    }
    eventually(SOON, "etcd-2 is made anew", || async {
        let pod = world.pods().get("etcd-2").await?;
        let is_new = pod.metadata.uid != unguarded.metadata.uid;
        ensure!(is_new && is_marked(&pod), "not yet");
        Ok(())
    })
    .await?;
    world.kubectl(&["uncordon", &node]).await?.success()?;
    world.whole().await?;
    ensure!(world.node_of("etcd-2").await? == node, "on another node");
    let now = world.etcd.member("etcd-2").await?.id;
    ensure!(now == id, "{id:x}, then {now:x}");
    before.assert_nothing_lost(&world.etcd).await?;
    world.close().await
}
