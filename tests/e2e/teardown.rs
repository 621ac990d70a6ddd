//! Teardowns: one that takes members that serve has to be announced, whoever asks for it. A
//! namespace, an owner that goes, and a cluster in which nobody serves hold nothing back.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use quorumgate_testbed::eventually;
use serde_json::json;

use crate::asking::{By, refusal};
use crate::unreadable_owner::Widgets;
use crate::world::{SOON, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_with_members_goes_even_without_a_quorum() -> Result<()> {
    let world = World::new("ns-delete").await?;
    let _broken = world.crash_all(&["etcd-1", "etcd-2"]).await?;
    world.delete_namespace().await?;
    world.close().await
}

/// A delete by kubectl, by `kubectl replace --force` and by tools that wait for the pods.
#[tokio::test(flavor = "multi_thread")]
async fn a_delete_of_serving_members_is_refused_until_it_is_announced() -> Result<()> {
    let world = World::new("sts-delete").await?;
    let command = format!(
        "kubectl -n {} annotate --overwrite statefulset etcd quorumgate.io/intent=delete",
        world.namespace()
    );
    for how in [DeleteParams::background(), DeleteParams::foreground()] {
        let (code, message) = refusal(sets(&world).delete("etcd", &how).await)?;
        ensure!(
            code == 403 && message.contains(&command),
            "{code}: {message}"
        );
    }
    let all = DeleteParams::background();
    let (code, message) = refusal(
        sets(&world)
            .delete_collection(&all, &ListParams::default())
            .await,
    )?;
    ensure!(code == 403, "{code}: {message}");
    let manifest = manifest_of(&world).await?;
    let file = world.sandbox.directory().join("set.json");
    std::fs::write(&file, serde_json::to_vec(&manifest)?)?;
    let file = file.to_string_lossy();
    let replaced = world
        .kubectl(&["replace", "--force", "--timeout=20s", "-f", &file])
        .await?;
    let said = replaced.success().err().context("it was replaced")?;
    ensure!(format!("{said:#}").contains(&command), "{said:#}");
    ensure!(world.etcd.pods().await?.len() == 3, "a pod is gone");

    announce(&world, "delete").await?;
    delete_whole(&world, &DeleteParams::foreground()).await?;
    world.close().await
}

/// An announcement that is kept in Git is written again with every other change there.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_write_of_its_manager_renews_no_announcement() -> Result<()> {
    let world = World::new("intent-kept").await?;
    let recorded = async |value: Option<&str>| {
        eventually(SOON, "the announcement is on record", || async {
            let status = world.budgets().get("etcd").await?.status;
            let known = status.and_then(|status| status.stateful_set?.announcement);
            let known = known.map(|known| known.value);
            ensure!(known.as_deref() == value, "{known:?}");
            Ok(())
        })
        .await
    };
    announce(&world, "delete").await?;
    recorded(Some("delete")).await?;
    let yesterday = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(25);
    let known = json!({"value": "delete", "since": yesterday.to_string()});
    let status = json!({"status": {"statefulSet": {"announcement": known}}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(&status));
    world
        .budgets()
        .patch_status("etcd", &params, &patch)
        .await?;
    let note = json!({"metadata": {"annotations": {"team": "storage"}}});
    let note = Patch::Merge(&note);
    sets(&world).patch("etcd", &params, &note).await?;
    let delete = DeleteParams::background();
    let (code, message) = refusal(sets(&world).delete("etcd", &delete).await)?;
    ensure!(
        code == 403 && message.contains("remove it, and set it again"),
        "{code}: {message}"
    );

    let remove = json!({"metadata": {"annotations": {"quorumgate.io/intent": null}}});
    let remove = Patch::Merge(&remove);
    sets(&world).patch("etcd", &params, &remove).await?;
    recorded(None).await?;
    announce(&world, "delete").await?;
    delete_whole(&world, &delete).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_allows_teardowns_needs_no_announcement() -> Result<()> {
    let world = World::new("sts-allowed").await?;
    let allow = json!({"spec": {"policy": {"teardown": "Allow"}}});
    world
        .budgets()
        .patch("etcd", &PatchParams::default(), &Patch::Merge(&allow))
        .await?;
    world.etcd.scale(0).await?;
    no_pods(&world).await?;
    world.etcd.scale(3).await?;
    world.whole().await?;
    delete_whole(&world, &DeleteParams::background()).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_in_which_nobody_serves_is_deleted_unannounced() -> Result<()> {
    let world = World::new("sts-dead").await?;
    let _broken = world.crash_all(&["etcd-0", "etcd-1", "etcd-2"]).await?;
    eventually(SOON, "the delete passes", || async {
        let how = DeleteParams::background();
        sets(&world).delete("etcd", &how).await.map(drop)
    })
    .await?;
    no_pods(&world).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_goes_after_the_last_that_it_guarded() -> Result<()> {
    let world = World::new("dismissed").await?;
    announce(&world, "delete").await?;
    delete_whole(&world, &DeleteParams::foreground()).await?;
    a_pod_of_another_kind_of_set(&world).await?;
    let budgets = world.budgets();
    eventually(SOON, "the budget is gone", || async {
        ensure!(
            budgets.get_opt("etcd").await?.is_none(),
            "it is still there"
        );
        Ok(())
    })
    .await?;
    world.close().await
}

/// Checks a pod with the name and the label of a member, but with an owner of another kind. The
/// gate does not take such a pod for a member, so the pod does not keep a budget alive.
async fn a_pod_of_another_kind_of_set(world: &World) -> Result<()> {
    let pod = serde_json::from_value(json!({
        "metadata": {
            "name": "etcd-next",
            "labels": {"statefulset.kubernetes.io/pod-name": "etcd-next"},
            "ownerReferences": [{
                "apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "name": "etcd", "uid": "k", "controller": true,
            }],
        },
        "spec": {
            "schedulingGates": [{"name": "quorumgate.io/never"}],
            "containers": [{"name": "etcd", "image": "etcd"}],
        },
    }))?;
    world.pods().create(&PostParams::default(), &pod).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_whose_owner_lives_is_not_deleted_by_accident() -> Result<()> {
    let world = World::builder("sts-owned").start().await?;
    let owner = own(&world).await?;

    not_deleted(&world, &owner).await?;

    announce(&world, "delete").await?;
    delete_whole(&world, &DeleteParams::background()).await?;
    world.close().await
}

/// An owner that never was may be named by anybody who patches the StatefulSet. The garbage
/// collector deletes the StatefulSet for that, and with `whenDeleted: Delete` all data.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_never_was_takes_nothing_along() -> Result<()> {
    let world = World::new("sts-stale").await?;
    let retention =
        json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}});
    sets(&world)
        .patch("etcd", &PatchParams::default(), &Patch::Merge(&retention))
        .await?;
    let uids = world.etcd.pods().await?;
    let uids: Vec<_> = uids.into_iter().map(|pod| pod.metadata.uid).collect();
    for controller in [true, false] {
        let stale = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "stale", "controller": controller,
            "uid": format!("0000-{controller}"),
        }]);
        name_owners(&world, &stale).await?;
        // The garbage collector is told, and so are people.
        eventually(SOON, "the garbage collector is refused", || async {
            let events = world.kubectl(&["get", "events", "-o", "wide"]).await?;
            let events = events.success()?;
            let of_set = |line: &&str| line.contains("statefulset/etcd");
            let says = |line: &str| line.contains("never seen");
            ensure!(events.lines().filter(of_set).any(says), "{events}");
            Ok(())
        })
        .await?;
        not_deleted(&world, "never seen").await?;
        let (code, message) = refusal(world.etcd.scale(0).await)?;
        ensure!(code == 403, "{code}: {message}");
        name_owners(&world, &serde_json::Value::Null).await?;
    }
    let now = world.etcd.pods().await?;
    let now: Vec<_> = now.into_iter().map(|pod| pod.metadata.uid).collect();
    ensure!(now == uids, "{now:?} instead of {uids:?}");
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn orphaned_members_stay_gated_and_their_budget_outlives_the_set() -> Result<()> {
    let world = World::new("sts-orphan").await?;
    let uid = world.budget().await?.metadata.uid;
    let set = orphaned(&world).await?;

    let broken = world.crash("etcd-2").await?;
    let (code, message) = refusal(world.delete("etcd-0").await)?;
    ensure!(code == 429, "{code}: {message}");
    broken.mend();

    recreate(&world, set).await?;
    world.whole().await?;
    ensure!(
        world.budget().await?.metadata.uid == uid,
        "the budget was recreated with the set"
    );
    world.close().await
}

/// Tools that make the set again from a repository drop a label that somebody added by kubectl.
#[tokio::test(flavor = "multi_thread")]
async fn a_set_made_anew_without_its_label_stays_guarded_and_that_is_said() -> Result<()> {
    let world = World::new("sts-unlabelled").await?;
    let budget = world.budget().await?.metadata.uid;
    let mut set = orphaned(&world).await?;
    let label = "quorumgate.io/enroll";
    let labels = set.metadata.labels.as_mut().context("no labels")?;
    labels.remove(label).context("it had no label")?;
    recreate(&world, set).await?;
    let command = format!(
        "kubectl -n {} label statefulset etcd {label}=true",
        world.namespace()
    );
    world
        .reported("Enrolled", |c| {
            let says = c.message.contains(&command);
            c.status == "False" && c.reason == "NotLabelled" && says
        })
        .await?;
    world.whole().await?;
    let same = world.budget().await?.metadata.uid == budget;
    ensure!(same, "the budget was recreated with the set");

    let uid = world.etcd.pod_uid("etcd-0").await?;
    world.lets_go(By::Delete, "etcd-0").await?;
    world.has_to_wait("etcd-1", &["etcd-0"]).await?;
    world.has_to_wait("etcd-2", &["etcd-0"]).await?;
    not_deleted(&world, "").await?;
    world.replaced("etcd-0", &uid).await?;
    world.whole().await?;

    let labelled = ["label", "statefulset", "etcd", "quorumgate.io/enroll=true"];
    world.kubectl(&labelled).await?.success()?;
    world.reported("Enrolled", |c| c.status == "True").await?;
    world.close().await
}

/// An admitted delete of a StatefulSet covers the pods that existed then, and no later ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_set_made_anew_at_once_loses_the_old_pods_and_keeps_its_own() -> Result<()> {
    let world = World::new("sts-anew").await?;
    let set = world.etcd.stateful_set().await?;
    let old = set.metadata.uid.clone().context("no UID")?;
    // Without a quorum a living member may go only because of the teardown.
    let broken = world.crash_all(&["etcd-1", "etcd-2"]).await?;
    announce(&world, "delete").await?;
    sets(&world)
        .delete("etcd", &DeleteParams::background())
        .await?;
    recreate(&world, set).await?;
    drop(broken);
    eventually(SOON, "every pod is of the new set", || async {
        let pods = world.etcd.pods().await?;
        ensure!(pods.len() == 3, "there are {}", pods.len());
        for pod in pods {
            let owners = pod.metadata.owner_references.unwrap_or_default();
            ensure!(owners.iter().all(|owner| owner.uid != old), "{owners:?}");
        }
        Ok(())
    })
    .await?;
    world.whole().await?;
    world.trusted().await?;
    eventually(SOON, "the delete is forgotten", || async {
        let status = world.budget().await?.status.unwrap_or_default();
        let recorded = status.recorded_deletes.stateful_sets;
        ensure!(recorded.is_empty(), "{recorded:?}");
        Ok(())
    })
    .await?;

    // The garbage collector deletes every object whose owner is gone.
    let broken = world.crash("etcd-2").await?;
    let uid = world.etcd.pod_uid("etcd-0").await?;
    let another = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "etcd", "uid": old, "controller": true,
    }]}});
    world
        .pods()
        .patch("etcd-0", &PatchParams::default(), &Patch::Merge(&another))
        .await?;
    let (code, message) = refusal(world.delete("etcd-0").await)?;
    ensure!(code == 429, "{code}: {message}");
    ensure!(world.etcd.pod_uid("etcd-0").await? == uid, "it went");
    broken.mend();
    world.close().await
}

/// Creates a deleted StatefulSet again, and returns its UID.
pub(crate) async fn recreate(world: &World, set: StatefulSet) -> Result<String> {
    let made = sets(world)
        .create(&PostParams::default(), &anew(set))
        .await?;
    made.metadata.uid.context("no UID")
}

/// Deletes the StatefulSet without its pods, and returns what it was.
pub(crate) async fn orphaned(world: &World) -> Result<StatefulSet> {
    let set = world.etcd.stateful_set().await?;
    sets(world).delete("etcd", &DeleteParams::orphan()).await?;
    eventually(SOON, "the StatefulSet is gone", || async {
        ensure!(
            sets(world).get_opt("etcd").await?.is_none(),
            "it is still there"
        );
        Ok(())
    })
    .await?;
    Ok(set)
}

/// A StatefulSet as its owner would write it.
fn anew(set: StatefulSet) -> StatefulSet {
    StatefulSet {
        metadata: ObjectMeta {
            name: set.metadata.name,
            labels: set.metadata.labels,
            owner_references: set.metadata.owner_references,
            ..ObjectMeta::default()
        },
        spec: set.spec,
        status: None,
    }
}

pub(crate) async fn manifest_of(world: &World) -> Result<serde_json::Value> {
    let mut manifest = serde_json::to_value(anew(world.etcd.stateful_set().await?))?;
    let kind = json!({"apiVersion": "apps/v1", "kind": "StatefulSet"});
    json_patch::merge(&mut manifest, &kind);
    Ok(manifest)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_announced_hibernation_takes_every_member_and_waking_brings_them_back() -> Result<()> {
    let world = World::new("hibernate").await?;
    let (code, message) = refusal(world.etcd.scale(0).await)?;
    let command = "annotate --overwrite statefulset etcd quorumgate.io/intent=hibernate";
    ensure!(
        code == 403 && message.contains(command),
        "{code}: {message}"
    );
    announce(&world, "delete").await?;
    let (code, message) = refusal(world.etcd.scale(0).await)?;
    ensure!(code == 403, "{code}: {message}");

    announce(&world, "hibernate").await?;
    world.etcd.scale(0).await?;
    no_pods(&world).await?;
    world.etcd.scale(3).await?;
    world.whole().await?;
    world.close().await
}

/// An operator hibernates a cluster whose custom resource asks for no members.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_asks_for_no_members_scales_them_away_and_nobody_else() -> Result<()> {
    let world = World::new("sts-asks").await?;
    let widgets = Widgets::define(&world).await?;
    widgets.may_be_read(&world).await?;
    widgets.own(&world).await?;
    let command = "annotate --overwrite statefulset etcd quorumgate.io/intent=hibernate";
    for size in [None, Some(3)] {
        if let Some(size) = size {
            widgets.ask_for(&world, size).await?;
        }
        // The role takes effect a moment after it was made.
        eventually(SOON, "nobody scales to none", || async {
            let (code, message) = refusal(world.etcd.scale(0).await)?;
            let says = message.contains(command) && message.contains("Widget main");
            ensure!(code == 403 && says, "{code}: {message}");
            Ok(())
        })
        .await?;
    }
    ensure!(world.etcd.pods().await?.len() == 3, "a pod is gone");

    widgets.ask_for(&world, 0).await?;
    // It asks for no members, and not for their end.
    not_deleted(&world, "").await?;
    world.etcd.scale(0).await?;
    no_pods(&world).await?;
    widgets.ask_for(&world, 3).await?;
    world.etcd.scale(3).await?;
    world.whole().await?;
    let (code, message) = refusal(world.etcd.scale(0).await)?;
    ensure!(code == 403, "{code}: {message}");

    widgets.delete(&world).await?;
    no_pods(&world).await?;
    widgets.forget(&world).await?;
    world.close().await
}

/// The pods of an orphaned cluster that a StatefulSet without replicas adopts.
#[tokio::test(flavor = "multi_thread")]
async fn adopted_members_stay_until_their_hibernation_is_announced() -> Result<()> {
    let world = World::new("adopted-asleep").await?;
    let mut set = orphaned(&world).await?;
    if let Some(spec) = &mut set.spec {
        spec.replicas = Some(0);
    }
    recreate(&world, set).await?;
    world
        .told_by_event("OutsideOrdinals", "intent=hibernate")
        .await?;
    for pod in ["etcd-0", "etcd-1", "etcd-2"] {
        world.etcd.serves(pod, SOON).await?;
    }
    for (label, status) in [
        ("quorumgate.io/enroll-", "False"),
        ("quorumgate.io/enroll=true", "True"),
    ] {
        let labelled = world
            .kubectl(&["label", "statefulset", "etcd", label])
            .await?;
        labelled.success()?;
        world.reported("Enrolled", |c| c.status == status).await?;
    }
    announce(&world, "hibernate").await?;
    no_pods(&world).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_in_waits_until_the_members_are_removed_from_etcd() -> Result<()> {
    let world = World::builder("scale-in")
        .nodes(5)
        .etcd(|etcd| etcd.replicas(5))
        .start()
        .await?;
    let (code, message) = refusal(world.etcd.scale(3).await)?;
    ensure!(code == 403, "{code}: {message}");
    for part in ["etcd-3", "etcd-4", "member remove"] {
        ensure!(
            message.contains(part),
            "the refusal does not name {part}: {message}"
        );
    }
    for leaving in ["etcd-4", "etcd-3"] {
        world.etcd.remove(leaving).await?;
    }
    eventually(SOON, "the scale-in is accepted", || world.etcd.scale(3)).await?;
    eventually(SOON, "three pods are left", || async {
        let pods = world.etcd.pods().await?;
        ensure!(pods.len() == 3, "there are {}", pods.len());
        Ok(())
    })
    .await?;
    world.etcd.quorate(SOON).await?;
    world.close().await
}

/// Announces a teardown of the test's cluster.
pub(crate) async fn announce(world: &World, intent: &str) -> Result<()> {
    let announce = json!({"metadata": {"annotations": {"quorumgate.io/intent": intent}}});
    sets(world)
        .patch("etcd", &PatchParams::default(), &Patch::Merge(&announce))
        .await?;
    Ok(())
}

fn sets(world: &World) -> Api<StatefulSet> {
    world.sandbox.api()
}

/// Gives the StatefulSet a controlling owner, and returns the owner's name.
pub(crate) async fn own(world: &World) -> Result<String> {
    // The gate may read owners of those kinds only for which a role was bound.
    let leave: ClusterRole = serde_json::from_value(json!({
        "metadata": {
            "name": format!("owners-{}", world.namespace()),
            "labels": {
                "quorumgate.io/aggregate-to-owners": "true",
                "testbed.quorumgate.io/namespace": world.namespace(),
            },
        },
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
    }))?;
    Api::<ClusterRole>::all(world.sandbox.client())
        .create(&PostParams::default(), &leave)
        .await?;
    let maps: Api<ConfigMap> = world.sandbox.api();
    let owner: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "operator-object"}}))?;
    let owner = maps.create(&PostParams::default(), &owner).await?;
    let reference = OwnerReference {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: "operator-object".into(),
        uid: owner.metadata.uid.unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    };
    name_owners(world, &json!([reference])).await?;
    eventually(SOON, "the owner is on record", || async {
        let set = world.budget().await?.status.and_then(|s| s.stateful_set);
        let owners = set.context("no StatefulSet is on record")?.owners;
        ensure!(
            owners.iter().any(|owner| owner.uid == reference.uid),
            "{owners:?}"
        );
        Ok(())
    })
    .await?;
    Ok("operator-object".into())
}

async fn name_owners(world: &World, owners: &serde_json::Value) -> Result<()> {
    let patch = json!({"metadata": {"ownerReferences": owners}});
    sets(world)
        .patch("etcd", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Checks that a delete of the StatefulSet with its pods is refused, and that the answer says this.
async fn not_deleted(world: &World, says: &str) -> Result<()> {
    let (sets, how) = (sets(world), DeleteParams::background());
    let (code, message) = refusal(sets.delete("etcd", &how).await)?;
    ensure!(code == 403 && message.contains(says), "{code}: {message}");
    Ok(())
}

/// Deletes the StatefulSet, and waits until its pods are gone.
async fn delete_whole(world: &World, how: &DeleteParams) -> Result<()> {
    sets(world).delete("etcd", how).await?;
    no_pods(world).await
}

pub(crate) async fn no_pods(world: &World) -> Result<()> {
    eventually(SOON, "no pod is left", || async {
        let pods = world.etcd.pods().await?;
        ensure!(pods.is_empty(), "{} are left", pods.len());
        Ok(())
    })
    .await
}
