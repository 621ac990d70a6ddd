//! The limits of the gate's service account, tested with its own token. RBAC cannot express all of
//! them; admission policies of the API server hold the rest.

use std::fmt::Debug;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Api, Client, ResourceExt as _};
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate::api::etcd_member::{EtcdMember, EtcdMemberSpec};
use quorumgate_testbed::{Bed, Sandbox, eventually, kubeconfig};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::asking::{eviction, refusal};
use crate::world::{SOON, World, gate};

/// A client with a token of the gate's service account.
async fn account(world: &World) -> Result<Client> {
    let home = format!("{}-gate", world.namespace());
    let file = world
        .bed()
        .service_account_kubeconfig(&home, "quorumgate")
        .await?;
    kubeconfig::client_from(&file).await
}

/// Checks that a policy refuses the patch with these words. Before that, waits until the policies
/// are in force, by patches that change nothing.
async fn forbidden<K>(api: &Api<K>, name: &str, patch: Value, words: &str) -> Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let refused = api.patch(name, &params, &Patch::Merge(&patch)).await;
    let (code, message) = refusal(refused).with_context(|| patch.to_string())?;
    ensure!(
        matches!(code, 403 | 422) && message.contains(words),
        "{patch}: {code}: {message}"
    );
    Ok(())
}

async fn allowed<K>(api: &Api<K>, name: &str, patch: Value) -> Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let patched = api.patch(name, &params, &Patch::Merge(&patch)).await;
    patched.with_context(|| format!("{patch}"))?;
    Ok(())
}

/// The words of the policy for StatefulSets.
const NOTHING_ELSE: &str = "updateStrategy and replicas, and nothing else";

#[tokio::test(flavor = "multi_thread")]
async fn of_a_stateful_set_the_account_changes_its_strategy_and_its_annotation_only() -> Result<()>
{
    let world = World::new("account-sets").await?;
    let sets: Api<StatefulSet> = Api::namespaced(account(&world).await?, world.namespace());
    let changed = json!({"spec": {"template": {"metadata": {"annotations": {"a": "changed"}}}}});
    eventually(SOON, "the policies are in force", || async {
        forbidden(&sets, "etcd", changed.clone(), NOTHING_ELSE).await
    })
    .await?;
    for replicas in [0, 1, 5] {
        let patch = json!({"spec": {"replicas": replicas}});
        forbidden(&sets, "etcd", patch, "changes replicas by one").await?;
    }
    for patch in [
        json!({"spec": {"minReadySeconds": 7}}),
        json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}}),
        json!({"spec": {"template": {"spec": {"containers": [{"name": "etcd", "image": "mine"}]}}}}),
    ] {
        forbidden(&sets, "etcd", patch, NOTHING_ELSE).await?;
    }
    let until = json!({"quorumgate.io/override-until": "2030-01-01T00:00:00Z"});
    let override_ = json!({"metadata": {"annotations": until}});
    forbidden(&sets, "etcd", override_, "annotations").await?;
    for metadata in [
        json!({"labels": {"quorumgate.io/enroll": "true", "new": "label"}}),
        json!({"finalizers": ["example.org/mine"]}),
        json!({"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}]}),
    ] {
        let patch = json!({"metadata": metadata});
        forbidden(&sets, "etcd", patch, "no label, owner or finalizer").await?;
    }
    // The gate's own changes pass.
    allowed(&sets, "etcd", json!({"spec": {"replicas": 4}})).await?;
    let memory = json!({"quorumgate.io/previous-update-strategy": "{\"type\":\"RollingUpdate\"}"});
    for patch in [
        json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}}),
        json!({"metadata": {"annotations": memory}, "spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}}),
        json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}),
    ] {
        allowed(&sets, "etcd", patch).await?;
    }
    // The policy does not apply to other accounts.
    let others: Api<StatefulSet> = world.sandbox.api();
    allowed(&others, "etcd", changed).await?;
    let (code, _) = refusal(sets.delete("etcd", &DeleteParams::default()).await)?;
    ensure!(code == 403, "a delete: {code}");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_namespace_the_account_changes_its_one_label_only() -> Result<()> {
    let world = World::new("account-ns").await?;
    let admin: Api<Namespace> = Api::all(world.sandbox.client());
    let security = json!({"pod-security.kubernetes.io/enforce": "baseline"});
    let label = json!({"metadata": {"labels": security}});
    admin
        .patch(
            world.namespace(),
            &PatchParams::default(),
            &Patch::Merge(&label),
        )
        .await?;
    let namespaces: Api<Namespace> = Api::all(account(&world).await?);
    let name = world.namespace();
    let removed = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": null}}});
    eventually(SOON, "the policies are in force", || async {
        let words = "quorumgate.io/gated and nothing else";
        forbidden(&namespaces, name, removed.clone(), words).await
    })
    .await?;
    let loosened =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}});
    let added = json!({"metadata": {"labels": {"istio-injection": "enabled"}}});
    for patch in [loosened, added] {
        forbidden(
            &namespaces,
            name,
            patch,
            "quorumgate.io/gated and nothing else",
        )
        .await?;
    }
    let annotated = json!({"metadata": {"annotations": {"scheduler.alpha.kubernetes.io/node-selector": "a=b"}}});
    forbidden(
        &namespaces,
        name,
        annotated,
        "nothing of a namespace but a label",
    )
    .await?;
    let gated = |value: Value| json!({"metadata": {"labels": {"quorumgate.io/gated": value}}});
    for never in ["kube-system", &format!("{name}-gate")] {
        forbidden(&namespaces, never, gated(json!("true")), "is ever gated").await?;
    }
    allowed(&namespaces, name, gated(Value::Null)).await?;
    allowed(&namespaces, name, gated(json!("true"))).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_go_by_the_account_only_as_they_were_looked_at_and_where_the_webhooks_ask()
-> Result<()> {
    let world = World::new("account-pods").await?;
    let client = account(&world).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), world.namespace());
    let careless = DeleteParams::default().dry_run();
    eventually(SOON, "the policies are in force", || async {
        refused_for(
            pods.delete("etcd-0", &careless).await,
            "as it was looked at",
        )
    })
    .await?;
    let pod = world.pods().get("etcd-0").await?;
    let exactly = kube::api::Preconditions {
        uid: pod.uid(),
        resource_version: pod.resource_version(),
    };
    let forced = careless
        .clone()
        .grace_period(0)
        .preconditions(exactly.clone());
    refused_for(pods.delete("etcd-0", &forced).await, "never by force")?;
    refused_for(
        dry_eviction(&pods, "etcd-0", &json!({})).await,
        "as it was looked at",
    )?;
    // In a namespace that no webhook selects, the account may delete nothing at all.
    let elsewhere: Api<Pod> = Api::namespaced(client.clone(), "default");
    let stray = stray(&world).await?;
    let exactly_that = kube::api::Preconditions {
        uid: stray.uid(),
        resource_version: stray.resource_version(),
    };
    let delete = careless.clone().preconditions(exactly_that);
    let name = stray.name_any();
    refused_for(
        elsewhere.delete(&name, &delete).await,
        "where the webhooks ask",
    )?;
    let exactly_that = json!({"preconditions": {
        "uid": stray.uid(), "resourceVersion": stray.resource_version(),
    }});
    refused_for(
        dry_eviction(&elsewhere, &name, &exactly_that).await,
        "where the webhooks ask",
    )?;
    let admin: Api<Pod> = Api::namespaced(world.sandbox.client(), "default");
    admin.delete(&name, &DeleteParams::default()).await?;
    // The gate's own form of a delete passes.
    let delete = careless.preconditions(exactly);
    pods.delete("etcd-0", &delete).await.context("its delete")?;
    world.close().await
}

/// Creates a pod that is named like a StatefulSet's, in a namespace without an enrolled cluster.
/// The pod never runs.
async fn stray(world: &World) -> Result<Pod> {
    let name = format!("{}-0", world.namespace());
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "schedulingGates": [{"name": "quorumgate.io/never"}],
            "containers": [{"name": "etcd", "image": "etcd"}],
        },
    }))?;
    let pods: Api<Pod> = Api::namespaced(world.sandbox.client(), "default");
    Ok(pods.create(&PostParams::default(), &pod).await?)
}

async fn dry_eviction(pods: &Api<Pod>, pod: &str, options: &Value) -> Result<Status, kube::Error> {
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    pods.create_subresource("eviction", pod, &dry, &eviction(pod, options))
        .await
}

fn refused_for<T>(answer: Result<T, kube::Error>, words: &str) -> Result<()> {
    let (code, message) = refusal(answer)?;
    ensure!(
        matches!(code, 403 | 422) && message.contains(words),
        "{code}: {message}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_writes_no_budget_or_event_but_its_own() -> Result<()> {
    let world = World::new("account-own").await?;
    let client = account(&world).await?;
    let sandbox: &Sandbox = &world.sandbox;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let pdbs: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), world.namespace());
    let pdb: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "theirs"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}},
    }))?;
    eventually(SOON, "the policies are in force", || async {
        refused_for(pdbs.create(&dry, &pdb).await, "of its own making only")
    })
    .await?;
    let theirs = sandbox.api::<PodDisruptionBudget>();
    theirs.create(&PostParams::default(), &pdb).await?;
    let delete = DeleteParams::default().dry_run();
    refused_for(
        pdbs.delete("theirs", &delete).await,
        "of its own making only",
    )?;

    // The companion itself passes, and none that stops the drains of others.
    let companion = json!({
        "metadata": {
            "name": "quorumgate-etcd", "labels": {"app.kubernetes.io/managed-by": "quorumgate"},
            "ownerReferences": [{
                "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget", "name": "etcd", "uid": "u",
            }],
        },
        "spec": {"minAvailable": 2, "selector": {"matchExpressions": [
            {"key": "statefulset.kubernetes.io/pod-name", "operator": "Exists"},
        ]}},
    });
    let changed = |change: Value| {
        let mut changed = companion.clone();
        json_patch::merge(&mut changed, &change);
        serde_json::from_value::<PodDisruptionBudget>(changed)
    };
    let others: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), "default");
    others.create(&dry, &changed(json!({}))?).await?;
    for change in [
        json!({"spec": {"selector": {"matchExpressions": null}}}),
        json!({"spec": {"minAvailable": null, "maxUnavailable": 0}}),
        json!({"metadata": {"ownerReferences": null}}),
        json!({"metadata": {"ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "etcd", "uid": "u",
        }]}}),
        json!({"metadata": {"name": "quorumgate-other"}}),
    ] {
        let refused = others.create(&dry, &changed(change.clone())?).await;
        refused_for(refused, "belongs to its budget").with_context(|| change.to_string())?;
    }

    let budgets: Api<QuorumDisruptionBudget> = Api::namespaced(client.clone(), world.namespace());
    let mut budget = QuorumDisruptionBudget::with_defaults(&quorumgate::quorum::ClusterRef::new(
        world.namespace(),
        "other",
    ));
    refused_for(
        budgets.create(&dry, &budget).await,
        "of its own making only",
    )?;
    let ours = ("app.kubernetes.io/managed-by", "quorumgate");
    budget.labels_mut().insert(ours.0.into(), ours.1.into());
    budgets.create(&dry, &budget).await?;
    let until = ("quorumgate.io/override-until", "2030-01-01T00:00:00Z");
    budget
        .annotations_mut()
        .insert(until.0.into(), until.1.into());
    refused_for(budgets.create(&dry, &budget).await, "overrides nothing")?;
    // A grant is open, and a delete of the budget would lose it.
    world.lets_go(crate::asking::By::Delete, "etcd-0").await?;
    refused_for(
        budgets.delete("etcd", &delete).await,
        "no budget with open grants",
    )?;

    let events: Api<Event> = Api::namespaced(client, world.namespace());
    let event: Event = serde_json::from_value(json!({
        "metadata": {"name": "forged"}, "eventTime": "2026-01-01T00:00:00.000000Z", "action": "Scale",
        "reason": "Forged", "reportingController": "kubelet", "reportingInstance": "a", "type": "Normal",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "etcd-0", "namespace": world.namespace()},
    }))?;
    refused_for(events.create(&dry, &event).await, "Events of its own only")?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_writes_no_etcd_member_but_its_own() -> Result<()> {
    let world = World::builder("account-members")
        .feature("EtcdMembers")
        .component("etcd-members")
        .start()
        .await?;
    let ours: Api<EtcdMember> = Api::namespaced(account(&world).await?, world.namespace());
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let mut other = EtcdMember::new("other-0", EtcdMemberSpec::default());
    eventually(SOON, "the policies are in force", || async {
        refused_for(
            ours.create(&dry, &other).await,
            "EtcdMembers of its own making only",
        )
    })
    .await?;
    let all: Api<EtcdMember> = world.sandbox.api();
    all.create(&PostParams::default(), &other).await?;
    let claimed = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "quorumgate"}}});
    forbidden(&ours, "other-0", claimed, "of its own making only").await?;
    let delete = DeleteParams::default().dry_run();
    refused_for(
        ours.delete("other-0", &delete).await,
        "of its own making only",
    )?;
    let label = ("app.kubernetes.io/managed-by", "quorumgate");
    other.labels_mut().insert(label.0.into(), label.1.into());
    other.metadata.name = Some("other-1".into());
    ours.create(&dry, &other).await?;
    world.close().await
}

/// Reads are not admitted, so no policy can limit them. RBAC alone has to refuse.
#[tokio::test(flavor = "multi_thread")]
async fn the_account_lists_no_secrets_anywhere_and_writes_none_of_others() -> Result<()> {
    let bed = Bed::up().await?;
    let mut sandbox = bed.sandbox("account-secrets").await?;
    sandbox.add_nodes(1).await?;
    let gate = gate().start(&sandbox).await?;
    let home = format!("{}-gate", sandbox.namespace());
    let file = bed.service_account_kubeconfig(&home, "quorumgate").await?;
    let client = kubeconfig::client_from(&file).await?;
    for namespace in [sandbox.namespace(), "kube-system", "default"] {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let listed = secrets.list(&ListParams::default()).await;
        let (code, _) = refusal(listed).with_context(|| format!("a list in {namespace}"))?;
        ensure!(code == 403, "a list of Secrets in {namespace}: {code}");
        let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "new"}}))?;
        let (code, _) = refusal(secrets.create(&PostParams::default(), &secret).await)?;
        ensure!(code == 403, "a new Secret in {namespace}: {code}");
    }
    let everywhere: Api<Secret> = Api::all(client.clone());
    match refusal(everywhere.list(&ListParams::default()).await)? {
        (403, _) => {}
        (code, message) => bail!("a list of all Secrets: {code}: {message}"),
    }
    // In its own namespace it writes the two of its own certificates.
    let secrets: Api<Secret> = Api::namespaced(client, &home);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let secret = |name: &str, kind: &str, annotations: Value| -> Result<Secret> {
        let data = json!({"tls.crt": "", "tls.key": ""});
        let metadata = json!({"name": name, "annotations": annotations});
        let secret = json!({"metadata": metadata, "type": kind, "data": data});
        Ok(serde_json::from_value(secret)?)
    };
    let tls = "kubernetes.io/tls";
    let refused = async |secret: Secret, words: &str| {
        let (code, message) = refusal(secrets.create(&dry, &secret).await)?;
        ensure!(code == 422 && message.contains(words), "{code}: {message}");
        anyhow::Ok(())
    };
    let other = secret("other", tls, json!({}))?;
    eventually(SOON, "the policies are in force", || async {
        refused(other.clone(), "the two Secrets of its own certificates").await
    })
    .await?;
    // The controller of tokens would fill such a Secret with the token of any account here.
    let account = json!({"kubernetes.io/service-account.name": "default"});
    let token = secret(
        "quorumgate-serving",
        "kubernetes.io/service-account-token",
        account,
    )?;
    refused(token, "of the type kubernetes.io/tls only").await?;
    for own in ["quorumgate-serving", "quorumgate-authority"] {
        let own = secret(own, tls, json!({}))?;
        secrets.create(&dry, &own).await?;
        let name = own.name_any();
        let (code, _) = refusal(secrets.delete(&name, &DeleteParams::default()).await)?;
        ensure!(code == 403, "a delete of {name}: {code}");
    }
    gate.close().await?;
    sandbox.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_writes_endpoints_of_its_own_service_only() -> Result<()> {
    let bed = Bed::up().await?;
    let sandbox = bed.sandbox("account-endpoints").await?;
    let home = format!("{}-gate", sandbox.namespace());
    let openshift = restricted_endpoints(&home);
    let apply = ["apply", "--server-side", "--filename=-"];
    let applied = bed.kubectl(apply).stdin(openshift.as_str()).await?;
    applied.success()?;
    // The gate's own writes pass: the endpoint of its only replica becomes ready.
    let gate = gate();
    let gate = gate.replicas(1).keeping_endpoints().start(&sandbox).await?;
    let file = bed.pod_kubeconfig(&home, "quorumgate-0").await?;
    let client = kubeconfig::client_from(&file).await?;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &home);
    let admin: Api<EndpointSlice> = Api::namespaced(sandbox.client(), &home);
    eventually(SOON, "the replica is called", || async {
        let slice = admin.get("quorumgate-0").await?;
        let conditions = slice.endpoints.first().and_then(|e| e.conditions.clone());
        ensure!(conditions.context("none")?.ready == Some(true));
        anyhow::Ok(())
    })
    .await?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let own = admin.get("quorumgate-0").await?;
    let mut new = own.clone();
    new.metadata = kube::api::ObjectMeta {
        name: Some("another".into()),
        labels: own.metadata.labels.clone(),
        owner_references: own.metadata.owner_references.clone(),
        ..kube::api::ObjectMeta::default()
    };
    let of_another_service = |slice: &EndpointSlice| {
        let mut slice = slice.clone();
        let label = ("kubernetes.io/service-name", "theirs");
        slice.labels_mut().insert(label.0.into(), label.1.into());
        slice
    };
    eventually(SOON, "the policies are in force", || async {
        let refused = slices.create(&dry, &of_another_service(&new)).await;
        refused_for(refused, "of its own Service only")
    })
    .await?;
    refused_for(slices.create(&dry, &new).await, "the pod of its name")?;
    for owner in new.owner_references_mut() {
        owner.name = "another".into();
    }
    refused_for(
        slices.create(&dry, &new).await,
        "its own pod and nobody else",
    )?;
    let mut two = own.clone();
    two.endpoints.extend(own.endpoints.clone());
    refused_for(
        slices.replace("quorumgate-0", &dry, &two).await,
        "its own pod and nobody else",
    )?;
    // A peer marks the endpoint of a lost replica as not ready.
    let mut struck = own.clone();
    let conditions = struck.endpoints.iter_mut().flat_map(|e| &mut e.conditions);
    conditions.for_each(|conditions| conditions.ready = Some(false));
    slices.replace("quorumgate-0", &dry, &struck).await?;

    callers_are_sent_to_the_replica_s_own_pod(&sandbox, &home, &slices, new).await?;

    // The slice belongs to another writer, and the account may only remove endpoints from it.
    let create = PostParams::default();
    let elsewhere = admin
        .create(&create, &somebodys("elsewhere", "theirs")?)
        .await?;
    let mut less = elsewhere.clone();
    less.endpoints.clear();
    let own_only = "of its own Service only";
    refused_for(slices.replace("elsewhere", &dry, &less).await, own_only)?;
    let mut taken = elsewhere;
    taken.metadata.labels = own.metadata.labels.clone();
    refused_for(slices.replace("elsewhere", &dry, &taken).await, own_only)?;
    let left = admin
        .create(&create, &somebodys("left", "quorumgate")?)
        .await?;
    let mut more = left.clone();
    for endpoint in &mut more.endpoints {
        endpoint.addresses = vec!["192.0.2.9".into()];
    }
    let less_only = "take endpoints out, and nothing else";
    refused_for(slices.replace("left", &dry, &more).await, less_only)?;
    let mut less = left;
    less.endpoints.pop();
    slices.replace("left", &dry, &less).await?;
    less.endpoints.clear();
    slices.replace("left", &dry, &less).await?;
    refused_for(
        slices.create(&dry, &somebodys("new", "quorumgate")?).await,
        less_only,
    )?;

    a_right_is_asked_for_to_choose_addresses(&bed, &home, &somebodys("made", "theirs")?).await?;
    let delete = ["delete", "--filename=-"];
    bed.kubectl(delete)
        .stdin(openshift.as_str())
        .await?
        .success()?;
    gate.close().await?;
    sandbox.close().await
}

/// A slice that another writer keeps.
fn somebodys(name: &str, service: &str) -> Result<EndpointSlice> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/service-name": service,
            "endpointslice.kubernetes.io/managed-by": "somebody",
        }},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.1"]}, {"addresses": ["192.0.2.2"]}],
        "ports": [{"name": "webhooks", "port": 8443}],
    }))?)
}

/// The token of a pod sends callers nowhere else, and one that no pod has sends them nowhere.
async fn callers_are_sent_to_the_replica_s_own_pod(
    sandbox: &Sandbox,
    home: &str,
    slices: &Api<EndpointSlice>,
    mut new: EndpointSlice,
) -> Result<()> {
    let admin: Api<EndpointSlice> = Api::namespaced(sandbox.client(), home);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let own = admin.get("quorumgate-0").await?;
    let elsewhere = "at the pod's own address and ports";
    let mut thief = own.clone();
    for endpoint in &mut thief.endpoints {
        endpoint.addresses = vec!["192.0.2.7".into()];
    }
    let replaced = slices.replace("quorumgate-0", &dry, &thief).await;
    refused_for(replaced, elsewhere)?;
    let mut thief = own.clone();
    for port in thief.ports.iter_mut().flatten() {
        port.port = Some(9);
    }
    let replaced = slices.replace("quorumgate-0", &dry, &thief).await;
    refused_for(replaced, elsewhere)?;
    let strikes_only = "may strike the endpoint of another";
    for target in new.endpoints.iter_mut().flat_map(|e| &mut e.target_ref) {
        target.name = Some("another".into());
    }
    refused_for(slices.create(&dry, &new).await, strikes_only)?;
    // The garbage collector takes the slice of an owner that never was.
    let pods: Api<Pod> = Api::namespaced(sandbox.client(), home);
    let owner = pods.get("quorumgate-0").await?;
    let owner: Pod = serde_json::from_value(json!({
        "metadata": {"name": "another", "labels": owner.labels()},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "a", "image": "none"}]},
    }))?;
    let owner = pods.create(&PostParams::default(), &owner).await?;
    let mut out = new;
    for reference in out.owner_references_mut() {
        reference.uid = owner.uid().context("no UID")?;
    }
    let conditions = out.endpoints.iter_mut().flat_map(|e| &mut e.conditions);
    conditions.for_each(|conditions| conditions.ready = Some(false));
    let peer = admin.create(&PostParams::default(), &out).await?;
    let mut back = peer.clone();
    let conditions = back.endpoints.iter_mut().flat_map(|e| &mut e.conditions);
    conditions.for_each(|conditions| conditions.ready = Some(true));
    refused_for(slices.replace("another", &dry, &back).await, strikes_only)?;
    let mut moved = peer.clone();
    for endpoint in &mut moved.endpoints {
        endpoint.addresses = vec!["192.0.2.7".into()];
    }
    refused_for(slices.replace("another", &dry, &moved).await, strikes_only)?;
    slices.replace("another", &dry, &peer).await?;
    // A token that no pod has shows none.
    let bed = sandbox.bed();
    let file = bed.service_account_kubeconfig(home, "quorumgate").await?;
    let unbound = kubeconfig::client_from(&file).await?;
    let unbound: Api<EndpointSlice> = Api::namespaced(unbound, home);
    let mut moved = own.clone();
    for endpoint in &mut moved.endpoints {
        endpoint.addresses = vec!["192.0.2.7".into()];
    }
    let replaced = unbound.replace("quorumgate-0", &dry, &moved).await;
    refused_for(replaced, strikes_only)?;
    Ok(())
}

/// The policy that imitates a plugin of `OpenShift` refuses an account without the right
/// that the gate has.
async fn a_right_is_asked_for_to_choose_addresses(
    bed: &Bed,
    home: &str,
    slice: &EndpointSlice,
) -> Result<()> {
    let of_it = ["--namespace", home];
    let role = ["create", "role", "maker", "--verb=create"];
    let role = bed.kubectl(role).args(of_it);
    role.args(["--resource=endpointslices.discovery.k8s.io"])
        .await?
        .success()?;
    let binding = ["create", "rolebinding", "maker", "--role=maker"];
    let binding = bed.kubectl(binding).args(of_it);
    binding.args(["--user=maker"]).await?.success()?;
    let maker = kubeconfig::client_from(&bed.kubeconfig_as("maker", &[])?).await?;
    let maker: Api<EndpointSlice> = Api::namespaced(maker, home);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let made = maker.create(&dry, slice).await;
    refused_for(made, "may not choose addresses")?;
    Ok(())
}

/// The plugin `RestrictedEndpointsAdmission` of `OpenShift`, as a policy for one namespace.
fn restricted_endpoints(namespace: &str) -> String {
    let name = format!("restricted-endpoints-{namespace}");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [{
                    "apiGroups": ["discovery.k8s.io"], "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"], "resources": ["endpointslices"],
                }],
            },
            "validations": [{
                "expression": "authorizer.group('discovery.k8s.io').resource('endpointslices')\
                    .subresource('restricted').namespace(request.namespace).check('create').allowed()",
                "message": "this account may not choose addresses",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    format!("{policy}\n---\n{binding}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_pod_the_account_takes_its_own_scheduling_gate_off_only() -> Result<()> {
    let world = World::new("account-gates").await?;
    let others: Api<Pod> = world.sandbox.api();
    let gates = json!([{"name": "example.org/other"}, {"name": "quorumgate.io/identity"}]);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "held-0"},
        "spec": {"schedulingGates": gates, "containers": [{"name": "a", "image": "a"}]},
    }))?;
    others.create(&PostParams::default(), &pod).await?;
    let pods: Api<Pod> = Api::namespaced(account(&world).await?, world.namespace());
    let relabelled = json!({"metadata": {"labels": {"a": "b"}}});
    eventually(SOON, "the policies are in force", || async {
        forbidden(&pods, "held-0", relabelled.clone(), "may change nothing").await
    })
    .await?;
    let override_ = json!({"quorumgate.io/override-until": "2030-01-01T00:00:00Z"});
    for (patch, words) in [
        (json!({"spec": {"schedulingGates": []}}), "and no other"),
        (
            json!({"spec": {"schedulingGates": [{"name": "quorumgate.io/identity"}]}}),
            "and no other",
        ),
        (
            json!({"metadata": {"annotations": override_}}),
            "may change nothing",
        ),
        (
            json!({"spec": {"activeDeadlineSeconds": 7}}),
            "and nothing else",
        ),
    ] {
        forbidden(&pods, "held-0", patch, words).await?;
    }
    let to_status = async |change: Value| {
        let params = PatchParams::default();
        pods.patch_status("held-0", &params, &Patch::Strategic(change))
            .await
    };
    let condition =
        |kind: &str| json!({"status": {"conditions": [{"type": kind, "status": "True"}]}});
    let other_status = "quorumgate.io/Held and nothing else";
    for (change, words) in [
        (condition("Ready"), other_status),
        (json!({"status": {"phase": "Running"}}), other_status),
        (
            json!({"metadata": {"annotations": override_}}),
            "may change nothing",
        ),
        (relabelled, "may change nothing"),
        (
            json!({"metadata": {"finalizers": ["example.org/a"]}}),
            "may change nothing",
        ),
    ] {
        let (_, message) = refusal(to_status(change).await)?;
        ensure!(message.contains(words), "{message}");
    }
    to_status(condition("quorumgate.io/Held")).await?;
    let left = json!([{"name": "example.org/other"}]);
    allowed(&pods, "held-0", json!({"spec": {"schedulingGates": left}})).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_deletes_claims_by_their_uid_only() -> Result<()> {
    let world = World::new("account-claims").await?;
    let others: Api<PersistentVolumeClaim> = world.sandbox.api();
    for name in ["cache", "data-web-0"] {
        let claim = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
        }))?;
        others.create(&PostParams::default(), &claim).await?;
    }
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(account(&world).await?, world.namespace());
    let dry = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    eventually(SOON, "the policies are in force", || async {
        let (code, message) = refusal(claims.delete("data-web-0", &dry).await)?;
        ensure!(message.contains("as it was looked at"), "{code}: {message}");
        anyhow::Ok(())
    })
    .await?;
    let this = |uid: Option<String>| {
        let resource_version = None;
        dry.clone().preconditions(Preconditions {
            uid,
            resource_version,
        })
    };
    let uid = others.get("cache").await?.metadata.uid;
    let (_, message) = refusal(claims.delete("cache", &this(uid)).await)?;
    ensure!(message.contains("of StatefulSets only"), "{message}");
    let uid = others.get("data-web-0").await?.metadata.uid;
    claims.delete("data-web-0", &this(uid)).await?;
    let relabelled = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let params = PatchParams::default();
    let (_, message) = refusal(claims.patch("data-web-0", &params, &relabelled).await)?;
    let is_refused = message.contains("nothing of a claim but an annotation");
    ensure!(is_refused, "{message}");
    let annotate = async |key: &str| {
        let change = Patch::Merge(json!({"metadata": {"annotations": {key: "x"}}}));
        claims.patch("data-web-0", &params, &change).await
    };
    let (_, message) = refusal(annotate("a").await)?;
    ensure!(
        message.contains("quorumgate.io/holds and nothing else"),
        "{message}"
    );
    annotate("quorumgate.io/holds").await?;
    world.close().await
}

/// By a patch of a webhook configuration, pods could be deleted unasked.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_webhook_configuration_the_account_changes_bundle_and_word_only() -> Result<()> {
    let world = World::new("account-webhooks").await?;
    let client = account(&world).await?;
    let name = world.gate.webhook_configuration();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client);
    let told = "caBundle and the word in the path, and nothing else";
    let hook = "/webhooks/0";
    let changed =
        json!([{"op": "replace", "path": format!("{hook}/failurePolicy"), "value": "Ignore"}]);
    eventually(SOON, "the policies are in force", || async {
        hooks_forbidden(&validating, name, changed.clone(), told).await
    })
    .await?;
    for change in [
        json!({"op": "replace", "path": format!("{hook}/timeoutSeconds"), "value": 1}),
        json!({"op": "add", "path": format!("{hook}/objectSelector"), "value": {"matchLabels": {"a": "b"}}}),
        json!({"op": "remove", "path": hook}),
        json!({"op": "replace", "path": format!("{hook}/rules"), "value": []}),
        json!({"op": "replace", "path": "/webhooks", "value": []}),
    ] {
        hooks_forbidden(&validating, name, json!([change]), told).await?;
        hooks_forbidden(&mutating, name, json!([change]), told).await?;
    }
    let found = validating.get(name).await?.webhooks.unwrap_or_default();
    let first = found.first().context("no webhook")?;
    let url = first.client_config.url.clone().context("no URL")?;
    let host = url.split("/validate/").next().context("no host")?;
    let secret = "0123456789abcdef0123456789abcdef";
    let call = |url: String| json!([{"op": "replace", "path": format!("{hook}/clientConfig/url"), "value": url}]);
    let server = "calls the server that it called";
    for url in [
        format!("https://example.org/validate/pods/{secret}"),
        format!("{host}/validate/evictions/{secret}"),
        format!("{host}/mutate/pods/{secret}"),
        format!("{host}/validate/pods/{secret}/more"),
        format!("{host}/"),
    ] {
        hooks_forbidden(&validating, name, call(url), server).await?;
    }
    let label = json!({"op": "add", "path": "/metadata/labels", "value": {"a": "b"}});
    hooks_forbidden(
        &validating,
        name,
        json!([label]),
        "no label, annotation or owner",
    )
    .await?;
    let bundle =
        json!([{"op": "add", "path": format!("{hook}/clientConfig/caBundle"), "value": ""}]);
    let renewed = serde_json::from_value(call(format!("{host}/validate/pods/{secret}")))?;
    let bundle: json_patch::Patch = serde_json::from_value(bundle)?;
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    validating
        .patch(name, &dry, &Patch::Json::<()>(renewed))
        .await?;
    validating
        .patch(name, &dry, &Patch::Json::<()>(bundle.clone()))
        .await?;
    mutating
        .patch(name, &dry, &Patch::Json::<()>(bundle))
        .await?;
    for (code, what) in [
        (
            refusal(validating.delete(name, &DeleteParams::default()).await)?.0,
            "a delete",
        ),
        (
            refusal(mutating.delete(name, &DeleteParams::default()).await)?.0,
            "a delete",
        ),
    ] {
        ensure!(code == 403, "{what}: {code}");
    }
    world.close().await
}

async fn hooks_forbidden<K>(api: &Api<K>, name: &str, patch: Value, told: &str) -> Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let changes: json_patch::Patch = serde_json::from_value(patch.clone())?;
    let refused = api.patch(name, &params, &Patch::Json::<()>(changes)).await;
    let (code, message) = refusal(refused).with_context(|| patch.to_string())?;
    ensure!(
        matches!(code, 403 | 422) && message.contains(told),
        "{patch}: {code}: {message}"
    );
    Ok(())
}
