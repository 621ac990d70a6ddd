//! Members that lost their data: none starts under an identity whose data it does not have, and
//! each is replaced under a new id, in steps that survive the gate.

mod corrupt;
mod crash_loop;
mod in_pods;
pub(crate) mod kills;
mod memory;
mod ordered;
mod places;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_client::GetOptions;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use quorumgate::api::ReplacementStatus;
use quorumgate_testbed::etcd_cluster::{EtcdCluster, EtcdClusterBuilder, EtcdVersion, Shape};
use quorumgate_testbed::faults::{self, PodFaults, Standing};
use quorumgate_testbed::writer::{Report, Writer};
use quorumgate_testbed::{Sandbox, eventually};
use serde_json::{Value, json};

use crate::asking::refusal;
use crate::rollouts::kills::driver;
use crate::teardown::{announce, no_pods, recreate};
use crate::world::{SOON, World};

/// The time limit for a replacement: etcd takes no new member for some seconds after a removal.
const REPLACED: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_volume_is_lost_is_replaced_and_no_write_is_lost() -> Result<()> {
    one_is_lost(EtcdVersion::V3_7, "replace-lost").await
}

/// The leader loses its volume, and is replaced while a client writes.
pub(crate) async fn one_is_lost(version: EtcdVersion, name: &str) -> Result<()> {
    let world = protected(name, version, "Auto").await?;
    let writer = Writer::start(&world.etcd).await?;
    let leader = world.etcd.leader().await?;
    let before = world.etcd.member(&leader).await?.id;
    lose_volume(&world, &leader).await?;
    let replacement = finished(&world, &leader).await?;
    ensure!(replacement.reason == "VolumeLost", "{replacement:?}");
    is_whole_without(&world, before).await?;
    world
        .reported("DataProtected", |c| c.status == "True")
        .await?;
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}

/// The next leader knows the members by the budget alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_just_replaced_is_not_told_as_refilled_by_the_next_leader() -> Result<()>
{
    let world = protected("replaced-led", EtcdVersion::V3_7, "Manual").await?;
    let writer = Writer::start(&world.etcd).await?;
    let leader = world.etcd.leader().await?;
    let pods = world.etcd.pod_names();
    let pod = pods
        .iter()
        .find(|pod| **pod != leader)
        .context("no other")?;
    let applied = async || {
        let status = world.budget().await?.status.unwrap_or_default();
        let mut members = status.members.into_iter();
        let member = members.find(|member| member.pod.as_ref() == Some(pod));
        anyhow::Ok((member.and_then(|member| member.applied), status.refills))
    };
    eventually(SOON, "what it has is on record", || async {
        let (known, _) = applied().await?;
        let known = known.context("nothing is")?;
        ensure!(known.raft_index > 200, "{known:?}");
        Ok(())
    })
    .await?;
    let old = world.etcd.member(pod).await?.id;
    request(&world, &format!("{old:x}")).await?;
    finished(&world, pod).await?;
    let first = driver(&world).await?;
    world.gate.replica(first).kill().await?;
    let uid = world.etcd.pod_uid(pod).await?;
    let refills = eventually(SOON, "the next leader has seen the new member", || async {
        let (known, refills) = applied().await?;
        let known = known.context("nothing is on record")?;
        ensure!(known.pod_uid == uid, "{known:?}");
        ensure!(driver(&world).await? != first, "the old one leads");
        Ok(refills)
    })
    .await?;
    ensure!(refills.is_empty(), "{refills:?}");
    world.reported("DataIntact", |c| c.status == "True").await?;
    world.gate.replica(first).restart().await?;
    is_whole_without(&world, old).await?;
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}

/// Where no replica of the gate answers, a pod is created as its template says. On the new claim of
/// a replacement etcd begins under the id that was removed, and never starts again.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_claim_that_was_begun_while_the_gate_was_down_is_given_up() -> Result<()> {
    let world = protected("replace-unasked", EtcdVersion::V3_6, "Manual").await?;
    // On the new claim etcd ends over and over, or it runs and never joins.
    let soon = json!({"spec": {"rollout": {"progressDeadline": "20s"}}});
    change_budget(&world, soon).await?;
    let writer = Writer::start(&world.etcd).await?;
    let id = world.etcd.member("etcd-1").await?.id;
    let uid = world.etcd.pod_uid("etcd-1").await?;
    let finalizers = async |finalizers: Value| {
        let change = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        let params = PatchParams::default();
        world.pods().patch("etcd-1", &params, &change).await
    };
    finalizers(json!(["testbed.quorumgate.io/held"])).await?;
    request(&world, &format!("{id:x}")).await?;
    eventually(REPLACED, "the old pod is deleted", || async {
        let pod = world.pods().get("etcd-1").await?;
        ensure!(pod.metadata.deletion_timestamp.is_some(), "not yet");
        Ok(())
    })
    .await?;
    for replica in world.gate.replicas() {
        replica.kill().await?;
    }
    finalizers(Value::Null).await?;
    eventually(SOON, "etcd has ended in the new pod", || async {
        let pod = world.pods().get("etcd-1").await?;
        ensure!(
            pod.metadata.uid != Some(uid.clone()),
            "the old pod is there"
        );
        let status = pod.status.unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let restarts = containers.first().map(|etcd| etcd.restart_count);
        ensure!(restarts >= Some(1), "restarts: {restarts:?}");
        Ok(())
    })
    .await?;
    for replica in world.gate.replicas() {
        replica.restart().await?;
    }
    finished(&world, "etcd-1").await?;
    is_whole_without(&world, id).await?;
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_no_member_has_asks_for_nothing_and_is_reported() -> Result<()> {
    let world = protected("replace-nobody", EtcdVersion::V3_7, "Manual").await?;
    request(&world, "8e9e05c52164694d").await?;
    world
        .reported("DataProtected", |c| c.reason == "NoSuchMember")
        .await?;
    ensure!(world.granted().await?.is_empty(), "something was permitted");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn two_of_three_lost_volumes_make_no_empty_quorum_on_etcd_3_5() -> Result<()> {
    two_lost(EtcdVersion::V3_5, "lost-3-5").await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_three_lost_volumes_make_no_empty_quorum_on_etcd_3_7() -> Result<()> {
    two_lost(EtcdVersion::V3_7, "lost-3-7").await
}

/// Two of three members lose their volumes, and every pod is started anew, the survivor last. The
/// two are kept from starting, and the survivor has every write. It answers no client without the
/// others, so its volume is read.
pub(crate) async fn two_lost(version: EtcdVersion, name: &str) -> Result<()> {
    let world = protected(name, version, "Auto").await?;
    let before = write_some(&world.etcd).await?;
    let (ids, _) = identities(&world).await?;
    let last = restart_all_and_lose_two(&world, &world.etcd).await?;
    for pod in ["etcd-0", "etcd-1"] {
        eventually(SOON, format!("{pod} is kept from starting"), || async {
            let gates = gates(&world, pod).await?;
            ensure!(gates == ["quorumgate.io/identity"], "{gates:?}");
            Ok(())
        })
        .await?;
        let freed = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
        let params = PatchParams::default();
        let (code, message) = refusal(world.pods().patch(pod, &params, &freed).await)?;
        let says = "under its old identity and without its data";
        ensure!(code == 403 && message.contains(says), "{code}: {message}");
    }
    // No member is up, and a new cluster is announced. The survivor would come back to it with the
    // data of the old one.
    let anew = json!({"metadata": {"annotations": {"quorumgate.io/intent": "bootstrap"}}});
    change_budget(&world, anew).await?;
    world
        .reported("DataProtected", |c| {
            c.message
                .contains("bootstrap waits, because etcd-2 may have every write")
        })
        .await?;
    drop(last);
    eventually(SOON, "the survivor runs", || async {
        let pod = world.pods().get("etcd-2").await?;
        let phase = pod.status.and_then(|status| status.phase);
        ensure!(phase.as_deref() == Some("Running"), "{phase:?}");
        Ok(())
    })
    .await?;
    // Another replica that looks finds no other reason to let them start either.
    let leader = driver(&world).await?;
    world.gate.replica(leader).restart().await?;
    driver(&world).await?;
    world
        .reported("DataProtected", |c| {
            c.status == "False" && c.message.contains("etcd-0") && c.message.contains("etcd-1")
        })
        .await?;
    for pod in ["etcd-0", "etcd-1"] {
        let here = world.pods().get(pod).await?;
        let node = here.spec.and_then(|spec| spec.node_name);
        ensure!(node.is_none(), "{pod} was let start on {node:?}");
    }
    kept(&world, &before).await?;
    let status = world.budget().await?.status.unwrap_or_default();
    ensure!(status.replacements.is_empty(), "{:?}", status.replacements);
    let recorded = status
        .volumes
        .iter()
        .map(|v| u64::from_str_radix(&v.member_id, 16));
    let recorded: BTreeSet<u64> = recorded.collect::<Result<_, _>>()?;
    ensure!(recorded == ids, "the records changed: {recorded:?}");
    world.close().await
}

/// The end of the record of what a held pod lost is no reason to start the pod.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_pod_outlives_warn_its_budget_and_another_membership() -> Result<()> {
    let world = protected("held", EtcdVersion::default(), "Manual").await?;
    let last = restart_all_and_lose_two(&world, &world.etcd).await?;
    are_held(&world).await?;
    drop(last);
    eventually(SOON, "an Event on the pod says why", || async {
        let described = world.kubectl(&["describe", "pod", "etcd-0"]).await?;
        let described = described.success()?;
        ensure!(described.contains("KeptFromStarting"), "{described}");
        let status = world.pods().get("etcd-0").await?.status;
        let conditions = status.and_then(|s| s.conditions).unwrap_or_default();
        let held = conditions.iter().find(|c| c.type_ == "quorumgate.io/Held");
        let held = held.context("no condition on the pod")?;
        let says = held.message.as_deref().unwrap_or_default();
        ensure!(
            held.status == "True" && says.contains("new claim"),
            "{held:?}"
        );
        Ok(())
    })
    .await?;
    change_budget(&world, json!({"spec": {"enforcement": "Warn"}})).await?;
    are_held(&world).await?;
    let by_others =
        json!({"spec": {"enforcement": "Enforce", "dataProtection": {"membership": "Pod"}}});
    change_budget(&world, by_others).await?;
    are_held(&world).await?;
    let uid = world.budget().await?.metadata.uid;
    world
        .budgets()
        .delete("etcd", &DeleteParams::default())
        .await?;
    eventually(SOON, "there is another budget", || async {
        let other = world.budget().await?;
        ensure!(other.metadata.uid != uid, "it is the old one");
        anyhow::Ok(())
    })
    .await?;
    are_held(&world).await?;
    world.trusted().await?;
    are_held(&world).await?;
    world.delete_namespace().await?;
    world.close().await
}

/// Checks that the leader has looked at the budget as it is, and that the first two pods wait.
async fn are_held(world: &World) -> Result<()> {
    eventually(SOON, "the leader looked at the budget as it is", || async {
        let budget = world.budget().await?;
        let looked = budget.status.and_then(|status| status.observed_generation);
        ensure!(looked == budget.metadata.generation, "{looked:?}");
        anyhow::Ok(())
    })
    .await?;
    world
        .reported("DataProtected", |c| {
            let is_said = c.message.contains("etcd-0") && c.message.contains("etcd-1");
            c.status == "False" && is_said
        })
        .await?;
    for pod in ["etcd-0", "etcd-1"] {
        let gates = gates(world, pod).await?;
        ensure!(gates == ["quorumgate.io/identity"], "{pod}: {gates:?}");
        let here = world.pods().get(pod).await?;
        let node = here.spec.and_then(|spec| spec.node_name);
        ensure!(node.is_none(), "{pod} was started on {node:?}");
    }
    Ok(())
}

/// The StatefulSet and its claims are deleted on purpose, and applied again at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_cluster_begins_anew_when_a_person_says_so() -> Result<()> {
    let world = protected("wiped", EtcdVersion::default(), "Manual").await?;
    // The gate deletes a budget of its own soon after the last pod.
    let kept = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "somebody"}}});
    change_budget(&world, kept).await?;
    let set = world.etcd.stateful_set().await?;
    announce(&world, "delete").await?;
    let sets: Api<StatefulSet> = world.sandbox.api();
    sets.delete("etcd", &DeleteParams::background()).await?;
    no_pods(&world).await?;
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    claims
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    eventually(SOON, "no claim is left", || async {
        let left = claims.list(&ListParams::default()).await?.items.len();
        ensure!(left == 0, "{left} are left");
        anyhow::Ok(())
    })
    .await?;
    recreate(&world, set).await?;
    for pod in ["etcd-0", "etcd-1", "etcd-2"] {
        eventually(SOON, format!("{pod} waits"), || async {
            let gates = gates(&world, pod).await?;
            ensure!(gates == ["quorumgate.io/identity"], "{gates:?}");
            Ok(())
        })
        .await?;
    }
    let anew = json!({"metadata": {"annotations": {"quorumgate.io/intent": "bootstrap"}}});
    change_budget(&world, anew).await?;
    world.whole().await?;
    eventually(SOON, "the new cluster is on record", || async {
        let status = world.budget().await?.status.unwrap_or_default();
        ensure!(status.cluster_id.is_some(), "no id is on record");
        ensure!(status.expected_members == Some(3), "{status:?}");
        ensure!(status.volumes.len() == 3, "{:?}", status.volumes);
        anyhow::Ok(())
    })
    .await?;
    let written = write_some(&world.etcd).await?;
    written.assert_nothing_lost(&world.etcd).await?;

    // The announcement is spent: a pod that is made now joins the new cluster.
    let uid = world.etcd.pod_uid("etcd-0").await?;
    eventually(SOON, "etcd-0 may go", || world.delete("etcd-0")).await?;
    world.replaced("etcd-0", &uid).await?;
    let spec = world.pods().get("etcd-0").await?.spec;
    let joins = serde_json::to_string(&spec)?.contains("existing");
    ensure!(joins, "it would start a cluster of its own: {spec:?}");
    world.close().await
}

/// Checks that the volume of the survivor has every write.
async fn kept(world: &World, before: &Report) -> Result<()> {
    let volume = volume(&world.sandbox, "etcd-2").await?;
    let path = volume.spec.and_then(|spec| spec.host_path);
    let member = PathBuf::from(path.context("not on this host")?.path).join("new.etcd/member");
    let mut files = vec![member.join("snap/db")];
    for entry in fs::read_dir(member.join("wal"))? {
        files.push(entry?.path());
    }
    let mut data = String::new();
    for file in files {
        let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
        data.push_str(String::from_utf8_lossy(&bytes).trim_end_matches('\0'));
    }
    for write in &before.acknowledged {
        ensure!(data.contains(&write.key), "{} is lost", write.key);
    }
    Ok(())
}

/// The same without the gate: the two empty members are a quorum before the survivor comes, and
/// every write is gone.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_gate_two_lost_volumes_lose_every_write_on_etcd_3_5() -> Result<()> {
    two_lost_lose_every_write(EtcdVersion::V3_5, "lost-bare").await
}

pub(crate) async fn two_lost_lose_every_write(version: EtcdVersion, name: &str) -> Result<()> {
    let (world, bare) = unguarded(version, name).await?;
    let before = write_some(&bare).await?;
    let last = restart_all_and_lose_two(&world, &bare).await?;
    eventually(SOON, "the empty members serve", || async {
        let keys = keys_of(&bare, "bare-0").await?;
        ensure!(keys == 0, "{keys} keys are there");
        let status = bare.endpoint_status("bare-0").await?;
        ensure!(status.leader.is_some(), "nobody leads: {status:?}");
        Ok(())
    })
    .await?;
    drop(last);
    let read = before.assert_nothing_lost(&bare).await;
    ensure!(read.is_err(), "no write was lost");
    world.close().await
}

/// A cluster that the gate does not guard.
async fn unguarded(version: EtcdVersion, name: &str) -> Result<(World, EtcdCluster)> {
    let world = World::new(name).await?;
    let bare = EtcdCluster::builder("bare")
        .version(version)
        .shape(Shape::Foreign)
        .apply(&world.sandbox)
        .await?;
    bare.quorate(SOON).await?;
    Ok((world, bare))
}

/// Where quorum is lost and every volume is there, pods come back on their claims, and nobody is
/// removed or kept from starting.
#[tokio::test(flavor = "multi_thread")]
async fn with_quorum_lost_pods_come_back_on_their_claims_and_nothing_is_removed() -> Result<()> {
    nothing_is_lost_with_quorum(EtcdVersion::V3_7, "replace-none").await
}

pub(crate) async fn nothing_is_lost_with_quorum(version: EtcdVersion, name: &str) -> Result<()> {
    let world = protected(name, version, "Auto").await?;
    let before = write_some(&world.etcd).await?;
    let (ids, claims) = identities(&world).await?;
    let broken = world.crash_all(&["etcd-0", "etcd-1"]).await?;
    world
        .reported("QuorumHealthy", |c| c.status == "False")
        .await?;
    drop(broken);
    world.whole().await?;
    ensure!(
        identities(&world).await? == (ids, claims),
        "a member or a claim is another one"
    );
    let status = world.budget().await?.status.unwrap_or_default();
    ensure!(status.replacements.is_empty(), "{:?}", status.replacements);
    before.assert_nothing_lost(&world.etcd).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_owner_changes_the_members_nothing_is_replaced_and_it_is_said_why() -> Result<()>
{
    owned_are_left_alone(EtcdVersion::V3_7, "replace-owner").await
}

pub(crate) async fn owned_are_left_alone(version: EtcdVersion, name: &str) -> Result<()> {
    let world = protected(name, version, "Auto").await?;
    wish(&world, &json!({"membership": "Owner"})).await?;
    let member = world.etcd.member("etcd-1").await?;
    request(&world, &format!("{:x}", member.id)).await?;
    world
        .reported("DataProtected", |c| {
            c.reason == "Owner" && c.message.contains("scale-in")
        })
        .await?;
    let (code, message) = refusal(world.etcd.scale(2).await)?;
    ensure!(code == 403, "a scale-in: {code}: {message}");
    ensure!(world.last_seq().await? == 0, "something was permitted");
    world.close().await
}

/// As with etcd-druid, whose sidecar changes the member list: the gate gives up claim and pod, and
/// calls nothing in etcd.
#[tokio::test(flavor = "multi_thread")]
async fn where_the_pod_changes_the_members_its_claim_goes_and_only_with_a_trace_of_it() -> Result<()>
{
    by_pod_with_a_trace(EtcdVersion::V3_7, "replace-pod").await
}

pub(crate) async fn by_pod_with_a_trace(version: EtcdVersion, name: &str) -> Result<()> {
    let world = protected(name, version, "Manual").await?;
    wish(&world, &json!({"membership": "Pod"})).await?;
    let writer = Writer::start(&world.etcd).await?;
    let pod = world.etcd.followers().await?.remove(0);
    let id = world.etcd.member(&pod).await?.id;
    request(&world, &format!("{id:x}")).await?;
    world
        .reported("DataProtected", |c| c.reason == "NoTrace")
        .await?;
    ensure!(world.last_seq().await? == 0, "something was permitted");

    let (_, before) = identities(&world).await?;
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": pod},
        "spec": {"holderIdentity": format!("{id:x}:1:Member")},
    }))?;
    let leases: Api<Lease> = world.sandbox.api();
    leases.create(&PostParams::default(), &lease).await?;
    eventually(REPLACED, "the claim is a new one", || async {
        let (_, after) = identities(&world).await?;
        let others = before.difference(&after).count();
        ensure!(
            after.len() == 3 && others == 1,
            "{before:?} became {after:?}"
        );
        Ok(())
    })
    .await?;
    let listed = world.etcd.member(&pod).await?;
    ensure!(listed.id == id, "the gate changed the members: {listed:?}");
    // The sidecar's part, which it does before etcd starts.
    world.etcd.remove(&pod).await?;
    world.etcd.add_learner(&pod).await?;
    eventually(SOON, format!("{pod} is let start"), || async {
        let gates = gates(&world, &pod).await?;
        ensure!(gates.is_empty(), "it is kept from starting");
        Ok(())
    })
    .await?;
    eventually(REPLACED, format!("{pod} is promoted"), || {
        world.etcd.promote(&pod)
    })
    .await?;
    finished(&world, &pod).await?;
    is_whole_without(&world, id).await?;
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}

/// The ids of the members, and the UIDs of their claims.
pub(crate) async fn identities(world: &World) -> Result<(BTreeSet<u64>, BTreeSet<String>)> {
    let members = world.etcd.members().await?;
    let ids = members.iter().map(|member| member.id).collect();
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    let claims = claims.list(&ListParams::default()).await?.items.into_iter();
    let uids = claims.filter_map(|claim| claim.metadata.uid).collect();
    Ok((ids, uids))
}

/// A world of this version whose budget says when members are replaced, and whose volumes are on
/// record.
pub(crate) async fn protected(name: &str, version: EtcdVersion, mode: &str) -> Result<World> {
    protected_with(name, mode, |etcd| etcd.version(version)).await
}

pub(crate) async fn protected_with(
    name: &str,
    mode: &str,
    choose: impl FnOnce(EtcdClusterBuilder) -> EtcdClusterBuilder,
) -> Result<World> {
    let world = World::builder(name).etcd(choose).start().await?;
    wish(&world, &json!({"replace": mode})).await?;
    recorded(&world).await?;
    Ok(world)
}

pub(crate) async fn recorded(world: &World) -> Result<()> {
    eventually(SOON, "the volumes are on record", || async {
        let status = world.budget().await?.status.context("no status yet")?;
        let members: Vec<_> = status.volumes.iter().map(|v| &v.member).collect();
        ensure!(members.len() == 3, "{members:?}");
        Ok(())
    })
    .await
}

pub(crate) async fn wish(world: &World, protection: &Value) -> Result<()> {
    change_budget(world, json!({"spec": {"dataProtection": protection}})).await
}

pub(crate) async fn request(world: &World, id: &str) -> Result<()> {
    let annotations = json!({"quorumgate.io/replace": id});
    change_budget(world, json!({"metadata": {"annotations": annotations}})).await
}

async fn change_budget(world: &World, change: Value) -> Result<()> {
    let (budgets, params) = (world.budgets(), PatchParams::default());
    let change = Patch::Merge(change);
    budgets.patch(world.etcd.name(), &params, &change).await?;
    Ok(())
}

/// The latest replacement of a member, once it is finished.
pub(crate) async fn finished(world: &World, pod: &str) -> Result<ReplacementStatus> {
    eventually(REPLACED, format!("{pod} is replaced"), || async {
        let replacement = replacement(world, pod).await?;
        let replacement = replacement.context("no replacement has begun")?;
        ensure!(replacement.completion_time.is_some(), "{replacement:?}");
        Ok(replacement)
    })
    .await
}

pub(crate) async fn replacement(world: &World, pod: &str) -> Result<Option<ReplacementStatus>> {
    let status = world.budget().await?.status.unwrap_or_default();
    let mut all = status.replacements.into_iter();
    Ok(all.find(|one| one.member == pod))
}

/// Waits until every member serves and none has the id.
pub(crate) async fn is_whole_without(world: &World, id: u64) -> Result<()> {
    world.whole().await?;
    let members = world.etcd.members().await?;
    let voters = members.iter().filter(|member| !member.is_learner).count();
    ensure!(voters == 3 && members.len() == 3, "{members:?}");
    ensure!(members.iter().all(|member| member.id != id), "{members:?}");
    Ok(())
}

pub(crate) async fn nothing_is_lost(writer: Writer, etcd: &EtcdCluster) -> Result<()> {
    let report = writer.stop().await?;
    report.assert_nothing_lost(etcd).await
}

/// Writes for a while, and returns what was acknowledged once every member has it.
pub(crate) async fn write_some(etcd: &EtcdCluster) -> Result<Report> {
    let writer = Writer::start(etcd).await?;
    eventually(SOON, "some writes are acknowledged", || async {
        ensure!(writer.acknowledged() >= 20, "{}", writer.acknowledged());
        Ok(())
    })
    .await?;
    let report = writer.stop().await?;
    for pod in etcd.pod_names() {
        eventually(SOON, format!("{pod} has every write"), || async {
            let keys = keys_of(etcd, &pod).await?;
            let written = i64::try_from(report.acknowledged.len())?;
            ensure!(keys >= written, "{keys} of {written}");
            anyhow::Ok(())
        })
        .await?;
    }
    Ok(report)
}

/// The volume behind the claim of a pod.
async fn volume(sandbox: &Sandbox, pod: &str) -> Result<PersistentVolume> {
    let claims: Api<PersistentVolumeClaim> = sandbox.api();
    let claim = claims.get(&format!("data-{pod}")).await?;
    let name = claim.spec.and_then(|spec| spec.volume_name);
    let volumes: Api<PersistentVolume> = Api::all(sandbox.client());
    Ok(volumes.get(&name.context("not bound")?).await?)
}

/// Destroys the data of a member and its `PersistentVolume`, as when a node with local volumes is
/// lost and comes back empty.
async fn lose_volume(world: &World, pod: &str) -> Result<()> {
    let volume = volume(&world.sandbox, pod).await?;
    let name = volume.metadata.name.context("no name")?;
    destroy(world, pod, &name).await
}

/// Destroys the data of a member, and this `PersistentVolume` of its claim.
pub(crate) async fn destroy(world: &World, pod: &str, name: &str) -> Result<()> {
    remove_volume(world, name).await?;
    PodFaults::find(&world.sandbox, pod).await?.corrupt_data()
}

/// Removes a `PersistentVolume` as the controller of volumes does after a failure of the storage. A
/// person is refused.
pub(crate) async fn remove_volume(world: &World, name: &str) -> Result<()> {
    let binder = [
        "--as=system:serviceaccount:kube-system:persistent-volume-binder",
        "--as-group=system:masters",
    ];
    let loose = r#"--patch={"metadata": {"finalizers": null}}"#;
    for request in [
        ["delete", "pv", name, "--wait=false"].as_slice(),
        &["patch", "pv", name, "--type=merge", loose],
    ] {
        let words = [binder.as_slice(), request].concat();
        world.kubectl(&words).await?.success()?;
    }
    Ok(())
}

/// Gives up the volumes of the first two members, and starts all pods anew, the third one when the
/// returned value is dropped. An override lets a person do so.
async fn restart_all_and_lose_two(world: &World, etcd: &EtcdCluster) -> Result<Standing> {
    let name = etcd.name();
    let sets: Api<StatefulSet> = world.sandbox.api();
    let until = Timestamp::now() + SignedDuration::from_mins(10);
    let annotations = json!({"quorumgate.io/override-until": until.to_string()});
    let lifted = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    sets.patch(name, &PatchParams::default(), &lifted).await?;
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    let mut old = Vec::new();
    for n in [0, 1] {
        let claim = claims.get(&format!("data-{name}-{n}")).await?;
        old.extend(claim.metadata.uid);
    }
    let last = faults::hold_in_container_creating(&world.sandbox, &format!("{name}-2"))?;
    let pods: Api<Pod> = world.sandbox.api();
    let gone = DeleteParams::default();
    for n in [0, 1] {
        claims.delete(&format!("data-{name}-{n}"), &gone).await?;
    }
    for n in [2, 1, 0] {
        pods.delete(&format!("{name}-{n}"), &gone).await?;
    }
    for n in [0, 1] {
        let pod = format!("{name}-{n}");
        eventually(SOON, format!("{pod} is on a new volume"), || async {
            let claim = claims.get(&format!("data-{pod}")).await?;
            let uid = claim.metadata.uid.unwrap_or_default();
            ensure!(!old.contains(&uid), "it has its old claim");
            let pod = pods.get(&pod).await?;
            ensure!(pod.metadata.deletion_timestamp.is_none(), "it terminates");
            anyhow::Ok(())
        })
        .await?;
    }
    let dropped =
        Patch::Merge(json!({"metadata": {"annotations": {"quorumgate.io/override-until": null}}}));
    sets.patch(name, &PatchParams::default(), &dropped).await?;
    Ok(last)
}

pub(crate) async fn gates(world: &World, pod: &str) -> Result<Vec<String>> {
    let pod = world.pods().get(pod).await?;
    let gates = pod.spec.and_then(|spec| spec.scheduling_gates);
    Ok(gates.into_iter().flatten().map(|gate| gate.name).collect())
}

/// The number of keys that a member has, by its own word.
async fn keys_of(etcd: &EtcdCluster, pod: &str) -> Result<i64> {
    let options = GetOptions::new()
        .with_all_keys()
        .with_count_only()
        .with_serializable();
    let mut client = etcd.connect_to(pod).await?;
    Ok(client.get("", Some(options)).await?.count())
}
