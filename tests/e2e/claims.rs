//! Claims of members: which may be deleted, and what a claim that is terminating means for its pod.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use quorumgate_testbed::etcd_cluster::{EtcdCluster, EtcdVersion, Shape};
use quorumgate_testbed::eventually;
use quorumgate_testbed::writer::Writer;
use serde_json::json;

use crate::asking::{By, refusal};
use crate::teardown::{announce, no_pods, own};
use crate::world::{SOON, World};

/// The time limit for what the gate says by itself, on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn the_claim_of_a_serving_member_stays_and_that_of_no_member_goes() -> Result<()> {
    let world = World::new("claim-serves").await?;
    let (code, message) = refusal(delete(&world, "etcd-1").await)?;
    let says = "etcd-1 serves from the volume of data-etcd-1";
    ensure!(code == 403 && message.contains(says), "{code}: {message}");
    let (code, message) = refusal(delete_all(&world).await)?;
    ensure!(code == 403, "{code}: {message}");
    nothing_is_marked(&world).await?;
    ensure!(world.granted().await?.is_empty(), "a refusal took a grant");

    let before = world.last_seq().await?;
    for foreign in ["cache", "data-web-0", "data-web-etcd-1"] {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"name": foreign},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
        }))?;
        claims(&world)
            .create(&PostParams::default(), &claim)
            .await?;
        claims(&world)
            .delete(foreign, &DeleteParams::default())
            .await?;
    }
    ensure!(world.last_seq().await? == before, "the ledger was written");
    world.close().await
}

/// Owner references that are left over from a restore have the garbage collector delete claims, and
/// the usual advice for a claim that hangs is to strip its finalizers.
#[tokio::test(flavor = "multi_thread")]
async fn stale_owners_and_stripped_finalizers_destroy_no_data() -> Result<()> {
    let world = World::new("claim-stale").await?;
    let writer = Writer::start(&world.etcd).await?;
    let stale = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "11111111-1111-1111-1111-111111111111"}]);
    let owned = json!({"metadata": {"ownerReferences": stale}});
    let all = ["etcd-0", "etcd-1", "etcd-2"];
    for pod in all {
        change_claim(&world, pod, &owned).await?;
    }
    eventually(SOON, "the garbage collector was refused", || async {
        let events = world.kubectl(&["get", "events", "-o", "wide"]).await?;
        let events = events.success()?;
        let refused = events.lines().filter(|line| line.contains("ClaimInUse"));
        ensure!(refused.count() >= all.len(), "{events}");
        Ok(())
    })
    .await?;
    nothing_is_marked(&world).await?;
    let stripped = json!({"metadata": {"finalizers": null}});
    for pod in all {
        let (code, message) = refusal(change_claim(&world, pod, &stripped).await)?;
        ensure!(code == 403 && message.contains(pod), "{code}: {message}");
    }
    let neither = json!({"metadata": {"finalizers": null, "ownerReferences": stale}});
    let (code, message) = refusal(change_claim(&world, "etcd-0", &neither).await)?;
    ensure!(code == 403, "{code}: {message}");
    let labelled = json!({"metadata": {"labels": {"more": "yes"}, "ownerReferences": null}});
    for pod in all {
        change_claim(&world, pod, &labelled).await?;
    }
    let report = writer.stop().await?;
    report.assert_nothing_lost(&world.etcd).await?;
    ensure!(report.longest_gap < SOON, "writes stopped");

    // By an override the claim of one member terminates, and still nobody takes its protection off.
    lift(&world, "pod", "etcd-2").await?;
    delete(&world, "etcd-2").await?;
    let annotation = "quorumgate.io/override-until-";
    let annotate = ["annotate", "pod", "etcd-2", annotation];
    world.kubectl(&annotate).await?.success()?;
    ensure!(is_marked(&world, "etcd-2").await?, "it is not terminating");
    let (code, message) = refusal(change_claim(&world, "etcd-2", &stripped).await)?;
    ensure!(code == 403, "{code}: {message}");
    world.delete_namespace().await?;
    world.close().await
}

/// A volume without its claim is emptied by its provisioner, under the running etcd.
#[tokio::test(flavor = "multi_thread")]
async fn volumes_that_are_taken_from_their_claims_lose_no_data() -> Result<()> {
    let world = World::new("claim-volumes").await?;
    let writer = Writer::start(&world.etcd).await?;
    let volumes: Api<PersistentVolume> = Api::all(world.sandbox.client());
    let other = json!({"spec": {"claimRef": {"uid": "11111111-1111-1111-1111-111111111111"}}});
    let none = json!({"spec": {"claimRef": null}});
    let unprotected = json!({"metadata": {"finalizers": null}});
    let params = PatchParams::default();
    let mut bound = Vec::new();
    for pod in ["etcd-0", "etcd-1", "etcd-2"] {
        let claim = claims(&world).get(&format!("data-{pod}")).await?;
        let volume = claim.spec.and_then(|spec| spec.volume_name);
        bound.push((pod, volume.context("it is not bound")?));
    }
    for (pod, volume) in &bound {
        for change in [&other, &none, &unprotected] {
            let patched = volumes.patch(volume, &params, &Patch::Merge(change)).await;
            let (code, message) = refusal(patched.map(drop))?;
            ensure!(code == 403 && message.contains(pod), "{code}: {message}");
        }
        let deleted = volumes.delete(volume, &DeleteParams::default()).await;
        let (code, message) = refusal(deleted.map(drop))?;
        ensure!(code == 403 && message.contains(pod), "{code}: {message}");
        let kept = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
        volumes.patch(volume, &params, &Patch::Merge(&kept)).await?;
    }
    let report = writer.stop().await?;
    report.assert_nothing_lost(&world.etcd).await?;

    // The claims of a cluster that is gone take their volumes along.
    world.delete_namespace().await?;
    for (_, volume) in &bound {
        volumes.delete(volume, &DeleteParams::default()).await?;
        eventually(SOON, format!("{volume} is gone"), || async {
            ensure!(volumes.get_opt(volume).await?.is_none(), "it is there");
            Ok(())
        })
        .await?;
    }
    world.close().await
}

/// A claim on which all members have their data, each in a directory of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_all_members_share_stays_whatever_its_name() -> Result<()> {
    let world = World::new("claim-shared").await?;
    for claim in ["shared", "snapshots"] {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"name": claim},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}},
        }))?;
        claims(&world)
            .create(&PostParams::default(), &claim)
            .await?;
    }
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "sharing"},
        "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": true,
            "selector": {"app": "sharing"}, "ports": [{"port": 2380}],
        },
    }))?;
    let services: Api<Service> = world.sandbox.api();
    services.create(&PostParams::default(), &service).await?;
    let set = sharing(&world)?;
    let sets: Api<StatefulSet> = world.sandbox.api();
    sets.create(&PostParams::default(), &set).await?;
    let pods = ["sharing-0", "sharing-1", "sharing-2"];
    for pod in pods {
        eventually(SOON, format!("{pod} runs"), || async {
            let pod = world.pods().get(pod).await?;
            let phase = pod.status.and_then(|status| status.phase);
            ensure!(phase.as_deref() == Some("Running"), "{phase:?}");
            anyhow::Ok(())
        })
        .await?;
    }
    let how = DeleteParams::default();
    let what = "the shared claim is known to be in use";
    eventually(SOON, what, || async {
        let (code, message) = refusal(claims(&world).delete("shared", &how).await)?;
        ensure!(
            code == 403 && message.contains("sharing-1"),
            "{code}: {message}"
        );
        Ok(())
    })
    .await?;
    let stripped = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let params = PatchParams::default();
    let patched = claims(&world).patch("shared", &params, &stripped).await;
    let (code, message) = refusal(patched)?;
    ensure!(code == 403, "{code}: {message}");
    // Snapshots are nobody's data.
    claims(&world).delete("snapshots", &how).await?;
    world.delete_namespace().await?;
    world.close().await
}

/// An enrolled StatefulSet of three members on one claim.
fn sharing(world: &World) -> Result<StatefulSet> {
    let listens = |port: u16| format!("http://$(POD_IP):{port}");
    let peer = |pod: &str| format!("http://{pod}.sharing:2380");
    let members = [0, 1, 2].map(|n| format!("sharing-{n}={}", peer(&format!("sharing-{n}"))));
    let args = [
        "--name=$(POD_NAME)".to_owned(),
        "--data-dir=/var/lib/etcd/data".to_owned(),
        format!("--listen-client-urls={}", listens(2379)),
        format!("--advertise-client-urls={}", listens(2379)),
        format!("--listen-peer-urls={}", listens(2380)),
        format!("--initial-advertise-peer-urls={}", peer("$(POD_NAME)")),
        format!("--initial-cluster={}", members.join(",")),
    ];
    let from = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    Ok(serde_json::from_value(json!({
        "metadata": {"name": "sharing", "labels": {"quorumgate.io/enroll": "true"}},
        "spec": {
            "replicas": 3, "serviceName": "sharing", "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "sharing"}},
            "template": {"metadata": {"labels": {"app": "sharing"}}, "spec": {
                "nodeSelector": world.sandbox.node_selector(),
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "etcd", "image": EtcdVersion::default().image()?,
                    "command": ["etcd"], "args": args,
                    "env": [
                        {"name": "POD_NAME", "valueFrom": from("metadata.name")},
                        {"name": "POD_IP", "valueFrom": from("status.podIP")},
                    ],
                    "volumeMounts": [
                        {"name": "data", "mountPath": "/var/lib/etcd", "subPathExpr": "$(POD_NAME)"},
                        {"name": "snapshots", "mountPath": "/snapshots"},
                    ],
                }],
                "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}},
                    {"name": "snapshots", "persistentVolumeClaim": {"claimName": "snapshots"}},
                ],
            }},
        },
    }))?)
}

async fn change_claim(
    world: &World,
    pod: &str,
    change: &serde_json::Value,
) -> Result<(), kube::Error> {
    let claim = format!("data-{pod}");
    let (claims, change) = (claims(world), Patch::Merge(change));
    let patched = claims.patch(&claim, &PatchParams::default(), &change).await;
    patched.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_no_claim_goes() -> Result<()> {
    let world = World::new("claim-lost").await?;
    let broken = world.crash_all(&["etcd-1", "etcd-2"]).await?;
    for pod in ["etcd-0", "etcd-1", "etcd-2"] {
        let what = format!("the claim of {pod} is kept for the sake of quorum");
        eventually(SOON, what, || async {
            let (code, message) = refusal(delete(&world, pod).await)?;
            ensure!(code == 429, "{code}: {message}");
            Ok(())
        })
        .await?;
    }
    nothing_is_marked(&world).await?;
    ensure!(world.granted().await?.is_empty(), "a refusal took a grant");
    drop(broken);
    world.whole().await?;
    world.close().await
}

/// The claim of a dead member goes while the others keep the data, and then no other may. What is
/// marked does not hold the namespace back.
#[tokio::test(flavor = "multi_thread")]
async fn one_claim_of_a_dead_member_goes_and_the_namespace_with_all_of_them() -> Result<()> {
    let world = World::new("claim-dead").await?;
    let broken = world.crash("etcd-2").await?;
    // The member restarts again and again. While it starts nobody knows whether it will serve.
    eventually(SOON, "the claim of etcd-2 may go", || {
        delete(&world, "etcd-2")
    })
    .await?;
    ensure!(is_marked(&world, "etcd-2").await?, "it is not terminating");
    ensure!(
        causes(&world, "etcd-2").await? == ["Replace"],
        "no permission is open"
    );
    let (code, message) = refusal(delete(&world, "etcd-1").await)?;
    ensure!(code == 403, "{code}: {message}");
    let (code, message) = refusal(world.delete("etcd-1").await)?;
    ensure!(code == 429, "{code}: {message}");

    broken.mend();
    world.etcd.serves("etcd-2", SOON).await?;
    // Its data goes with its pod, so it does not count.
    world
        .has_to_wait_by(By::Delete, "etcd-1", &["etcd-2"])
        .await?;
    world.delete_namespace().await?;
    world.close().await
}

/// By an override the claim of a serving member is marked. Its pod then takes the data along, and
/// the member has to join anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_claim_is_marked_goes_while_all_others_serve_and_counts_when_it_is_back()
-> Result<()> {
    let world = World::new("claim-marked").await?;
    let old = claims(&world).get("data-etcd-2").await?.metadata.uid;
    lift(&world, "pod", "etcd-2").await?;
    delete(&world, "etcd-2").await?;
    world
        .kubectl(&["annotate", "pod", "etcd-2", "quorumgate.io/override-until-"])
        .await?
        .success()?;
    ensure!(is_marked(&world, "etcd-2").await?, "it is not terminating");
    let broken = world.crash("etcd-1").await?;
    for by in By::BOTH {
        let (code, message) = refusal(world.ask(by, "etcd-2").await)?;
        ensure!(code == 429, "{by:?}: {code}: {message}");
    }
    broken.mend();
    world.etcd.serves("etcd-1", SOON).await?;

    let dry = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    let pods = world.pods();
    eventually(SOON, "etcd-2 may go", || pods.delete("etcd-2", &dry)).await?;

    // etcd takes no empty member under its old identity.
    world.etcd.remove("etcd-2").await?;
    world.etcd.add_learner("etcd-2").await?;
    eventually(SOON, "etcd-2 goes", || world.delete("etcd-2")).await?;
    let open = causes(&world, "etcd-2").await?;
    ensure!(open.contains(&"Replace".to_owned()), "{open:?}");
    eventually(SOON, "the data is gone with the pod", || async {
        let claim = claims(&world).get_opt("data-etcd-2").await?;
        let uid = claim.context("there is no new claim")?.metadata.uid;
        ensure!(uid != old, "it is the old claim");
        anyhow::Ok(())
    })
    .await?;
    eventually(SOON, "etcd-2 is promoted", || world.etcd.promote("etcd-2")).await?;
    world.whole().await?;
    world.close().await
}

/// The finalizer `kubernetes.io/pvc-protection` keeps the data until the pod goes. Everybody should
/// know by then, so the gate says it before anybody asks for the member.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_terminates_under_its_member_is_said_before_anybody_asks() -> Result<()> {
    let world = World::new("claim-said").await?;
    world
        .reported("DataProtected", |c| c.status == "True")
        .await?;
    lift(&world, "pod", "etcd-2").await?;
    delete(&world, "etcd-2").await?;
    let marked = Instant::now();
    world
        .reported("DataProtected", |c| {
            let says = ["etcd-2", "kubernetes.io/pvc-protection"]
                .iter()
                .all(|part| c.message.contains(part));
            c.status == "False" && c.reason == "ClaimTerminating" && says
        })
        .await?;
    let took = marked.elapsed();
    ensure!(took < AT_ONCE, "it took {took:?}");
    world
        .reported("Ready", |c| {
            c.status == "False" && c.message.contains("etcd-2")
        })
        .await?;
    ensure!(is_marked(&world, "etcd-2").await?, "it is not terminating");
    world.etcd.serves("etcd-2", SOON).await?;
    ensure!(world.granted().await? == ["etcd-2"], "others were granted");
    world.delete_namespace().await?;
    world.close().await
}

/// The only member of a cluster may go by the default policy. With its claim marked it would take
/// the only copy along.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_marked_before_the_enrolment_keeps_its_pod() -> Result<()> {
    let world = World::new("claim-before").await?;
    let single = EtcdCluster::builder("single")
        .replicas(1)
        .shape(Shape::Foreign)
        .apply(&world.sandbox)
        .await?;
    single.quorate(SOON).await?;
    delete(&world, "single-0").await?;
    ensure!(
        is_marked(&world, "single-0").await?,
        "it is not terminating"
    );
    let enrol = json!({"metadata": {"labels": {"quorumgate.io/enroll": "true"}}});
    patch(&world, "single", &enrol).await?;
    eventually(SOON, "it is enrolled", || world.budget_of(&single)).await?;
    world.trusted_of(&single).await?;
    eventually(SOON, "its pod stays for the data", || async {
        let (code, message) = refusal(world.delete("single-0").await)?;
        let says = "the data of single-0 would be destroyed";
        ensure!(code == 429 && message.contains(says), "{code}: {message}");
        Ok(())
    })
    .await?;
    lift(&world, "statefulset", "single").await?;
    world.lets_go(By::Delete, "single-0").await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_takes_the_claims_along_by_the_retention_policy_even_without_a_quorum()
-> Result<()> {
    let world = World::new("claim-owner").await?;
    let owner = own(&world).await?;
    retain(&world, "Delete", "Delete").await?;
    let _broken = world.crash_all(&["etcd-1", "etcd-2"]).await?;
    let owners: Api<ConfigMap> = world.sandbox.api();
    owners.delete(&owner, &DeleteParams::background()).await?;
    no_pods(&world).await?;
    eventually(SOON, "no claim is left", || async {
        let left = claims(&world).list(&ListParams::default()).await?.items;
        let names: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
        ensure!(names.is_empty(), "{} are left", names.join(", "));
        anyhow::Ok(())
    })
    .await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claims_that_a_deleted_set_left_may_go() -> Result<()> {
    let world = World::new("claim-left").await?;
    let sets: Api<StatefulSet> = world.sandbox.api();
    announce(&world, "delete").await?;
    sets.delete("etcd", &DeleteParams::foreground()).await?;
    no_pods(&world).await?;
    let every = ListParams::default();
    eventually(SOON, "every claim goes", || async {
        delete_all(&world).await?;
        let left = claims(&world).list(&every).await?.items.len();
        ensure!(left == 0, "{left} are left");
        anyhow::Ok(())
    })
    .await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_in_takes_its_claims_along_by_the_retention_policy() -> Result<()> {
    let world = World::new("claim-scale-in").await?;
    retain(&world, "Retain", "Delete").await?;
    scale_in(&world).await?;
    no_claim(&world, "etcd-2").await?;
    nothing_else_goes(&world).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claim_of_a_removed_member_stays_until_somebody_deletes_it() -> Result<()> {
    let world = World::new("claim-removed").await?;
    scale_in(&world).await?;
    ensure!(!is_marked(&world, "etcd-2").await?, "nobody deleted it");
    let what = "the claim of a removed member may go";
    eventually(SOON, what, || delete(&world, "etcd-2")).await?;
    no_claim(&world, "etcd-2").await?;
    nothing_else_goes(&world).await?;
    world.close().await
}

/// Removes `etcd-2` from etcd, and its pod.
async fn scale_in(world: &World) -> Result<()> {
    world.etcd.remove("etcd-2").await?;
    eventually(SOON, "the scale-in is accepted", || world.etcd.scale(2)).await?;
    eventually(SOON, "two pods are left", || async {
        let pods = world.etcd.pods().await?;
        ensure!(pods.len() == 2, "there are {}", pods.len());
        anyhow::Ok(())
    })
    .await
}

/// Checks that the claims of the members that are left stay, and waits until no grant is open.
async fn nothing_else_goes(world: &World) -> Result<()> {
    for pod in ["etcd-0", "etcd-1"] {
        let (code, message) = refusal(delete(world, pod).await)?;
        ensure!(code == 403, "{code}: {message}");
    }
    world.settled().await
}

pub(crate) fn claims(world: &World) -> Api<PersistentVolumeClaim> {
    world.sandbox.api()
}

/// Deletes the claim of a pod.
async fn delete(world: &World, pod: &str) -> Result<(), kube::Error> {
    let claim = format!("data-{pod}");
    claims(world)
        .delete(&claim, &DeleteParams::default())
        .await
        .map(drop)
}

async fn delete_all(world: &World) -> Result<(), kube::Error> {
    claims(world)
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .map(drop)
}

async fn is_marked(world: &World, pod: &str) -> Result<bool> {
    let claim = claims(world).get(&format!("data-{pod}")).await?;
    Ok(claim.metadata.deletion_timestamp.is_some())
}

async fn nothing_is_marked(world: &World) -> Result<()> {
    for pod in world.etcd.pod_names() {
        ensure!(
            !is_marked(world, &pod).await?,
            "the claim of {pod} is terminating"
        );
    }
    Ok(())
}

async fn no_claim(world: &World, pod: &str) -> Result<()> {
    let claim = format!("data-{pod}");
    eventually(SOON, format!("{claim} is gone"), || async {
        let left = claims(world).get_opt(&claim).await?;
        ensure!(left.is_none(), "it is still there");
        anyhow::Ok(())
    })
    .await
}

/// The kinds of the open causes of a member's grant.
async fn causes(world: &World, pod: &str) -> Result<Vec<String>> {
    let status = world.budget().await?.status.unwrap_or_default();
    let grants = status
        .grants
        .into_iter()
        .filter(|grant| grant.member == pod);
    Ok(grants
        .flat_map(|grant| grant.causes)
        .map(|cause| cause.kind)
        .collect())
}

pub(crate) async fn patch(world: &World, set: &str, change: &serde_json::Value) -> Result<()> {
    let sets: Api<StatefulSet> = world.sandbox.api();
    sets.patch(set, &PatchParams::default(), &Patch::Merge(change))
        .await?;
    Ok(())
}

/// Sets the retention policy of the StatefulSet. Waits until its claims have the owners that follow
/// from that.
pub(crate) async fn retain(world: &World, when_deleted: &str, when_scaled: &str) -> Result<()> {
    let policy = json!({"whenDeleted": when_deleted, "whenScaled": when_scaled});
    let change = json!({"spec": {"persistentVolumeClaimRetentionPolicy": policy}});
    patch(world, "etcd", &change).await?;
    let owned = when_deleted == "Delete";
    eventually(SOON, "the claims have their owners", || async {
        let all = claims(world).list(&ListParams::default()).await?.items;
        let owners: BTreeMap<String, usize> = all
            .iter()
            .map(|claim| (claim.name_any(), claim.owner_references().len()))
            .collect();
        let is_so = owners.values().all(|owners| (*owners > 0) == owned);
        ensure!(is_so, "{owners:?}");
        anyhow::Ok(())
    })
    .await
}

/// Overrides the gate for ten minutes.
pub(crate) async fn lift(world: &World, kind: &str, name: &str) -> Result<()> {
    let until = Timestamp::now().checked_add(SignedDuration::from_mins(10))?;
    let annotation = format!("quorumgate.io/override-until={until}");
    let annotate = ["annotate", kind, name, "--overwrite", &annotation];
    world.kubectl(&annotate).await?.success().map(drop)
}
