//! Permissions that the gate must not have, and Secrets that it must not reveal.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::discovery::Discovery;
use quorumgate_testbed::{Bed, eventually};
use serde_json::{Value, json};

use crate::asking::{By, refusal};
use crate::rollouts::told::wish;
use crate::world::{SOON, World, gate};

const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

/// A call that a role may allow: API group, resource with its subresource, verb.
type Call = (String, String, String);

#[tokio::test(flavor = "multi_thread")]
async fn the_service_account_is_denied_every_verb_that_its_role_leaves_out() -> Result<()> {
    let bed = Bed::up().await?;
    let mut sandbox = bed.sandbox("denied").await?;
    sandbox.add_nodes(1).await?;
    let gate = gate().start(&sandbox).await?;
    let account = format!(
        "system:serviceaccount:{}-gate:quorumgate",
        sandbox.namespace()
    );

    let granted = granted()?;
    let mut calls = every_call(&bed).await?;
    ensure!(calls.len() > 400, "only {} were discovered", calls.len());
    calls.extend(granted.iter().cloned());
    let reviews: Api<SubjectAccessReview> = Api::all(bed.client());
    let allowed: BTreeSet<Call> = stream::iter(calls)
        .map(|call| {
            let (reviews, account) = (&reviews, &account);
            async move {
                let allowed = is_allowed(reviews, account, &call).await?;
                anyhow::Ok(allowed.then_some(call))
            }
        })
        .buffer_unordered(16)
        .try_filter_map(|call| async { Ok(call) })
        .try_collect()
        .await?;
    let beyond: Vec<_> = allowed.difference(&granted).collect();
    let missing: Vec<_> = granted.difference(&allowed).collect();
    ensure!(
        beyond.is_empty() && missing.is_empty(),
        "allowed beyond the role: {beyond:?}; granted and denied: {missing:?}"
    );
    gate.close().await?;
    sandbox.close().await
}

/// Every call that the cluster-wide roles of the manifests grant.
fn granted() -> Result<BTreeSet<Call>> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&manifest("rbac.yaml")?)?;
    let granting = objects.iter().filter(|object| {
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        object.get("kind") == Some(&"ClusterRole".into())
            && matches!(name, Some("quorumgate" | "quorumgate-secrets"))
    });
    let rules = granting.filter_map(|role| role.get("rules")?.as_array());
    let mut calls = BTreeSet::new();
    for rule in rules.flatten() {
        // Grants for one resource name do not cover the name in the question below.
        if rule.get("resourceNames").is_some() {
            continue;
        }
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                for verb in texts(rule, "verbs") {
                    calls.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    Ok(calls)
}

fn texts(rule: &Value, field: &str) -> Vec<String> {
    let list = rule.get(field).and_then(Value::as_array);
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// Every verb on every resource of Kubernetes and of the gate. Other CRDs are left out: they come
/// and go with other tests, and some are owners of StatefulSets, which the gate reads with a role
/// of its own.
async fn every_call(bed: &Bed) -> Result<BTreeSet<Call>> {
    let known = Discovery::new(bed.client()).run().await?;
    let mut calls = BTreeSet::new();
    let mut add = |group: &str, resource: &str| {
        for verb in VERBS {
            calls.insert((group.to_owned(), resource.to_owned(), verb.to_owned()));
        }
    };
    let is_ours = |group: &str| {
        !group.contains('.') || group.ends_with(".k8s.io") || group == "quorumgate.io"
    };
    for group in known.groups().filter(|group| is_ours(group.name())) {
        for (resource, capabilities) in group.recommended_resources() {
            add(&resource.group, &resource.plural);
            for (part, _) in &capabilities.subresources {
                add(&part.group, &format!("{}/{}", resource.plural, part.plural));
            }
        }
    }
    // Discovery leaves these subresources out, or shows them under another group.
    for part in [
        "pods/eviction",
        "pods/exec",
        "pods/ephemeralcontainers",
        "serviceaccounts/token",
    ] {
        add("", part);
    }
    Ok(calls)
}

async fn is_allowed(
    reviews: &Api<SubjectAccessReview>,
    account: &str,
    (group, resource, verb): &Call,
) -> Result<bool> {
    let (resource, part) = match resource.split_once('/') {
        Some((resource, part)) => (resource, Some(part.to_owned())),
        None => (resource.as_str(), None),
    };
    let attributes = ResourceAttributes {
        group: Some(group.clone()),
        resource: Some(resource.to_owned()),
        subresource: part,
        verb: Some(verb.clone()),
        namespace: Some("default".to_owned()),
        name: Some("anything".to_owned()),
        ..ResourceAttributes::default()
    };
    // The group system:authenticated is left out: its permissions are not from the gate's roles.
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(account.to_owned()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.context("no answer")?.allowed)
}

fn manifest(name: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/base");
    Ok(std::fs::read_to_string(path.join(name))?)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deployment_s_pod_keeps_to_the_restricted_standard() -> Result<()> {
    let bed = Bed::up().await?;
    let sandbox = bed.sandbox("restricted").await?;
    let namespace = sandbox.namespace();
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    bed.kubectl(["label", "namespace", namespace, enforce])
        .await?
        .success()?;
    bed.kubectl([
        "--namespace",
        namespace,
        "create",
        "serviceaccount",
        "quorumgate",
    ])
    .await?
    .success()?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&manifest("deployment.yaml")?)?;
    let template = objects
        .iter()
        .find_map(|object| object.pointer("/spec/template/spec"));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "quorumgate"},
        "spec": template.context("no template")?,
    });
    let create = |pod: Value| {
        let create = [
            "create",
            "--dry-run=server",
            "--namespace",
            namespace,
            "-f",
            "-",
        ];
        bed.kubectl(create).stdin(pod.to_string())
    };
    create(pod.clone()).await?.success()?;

    let mut looser = pod;
    let container = looser.pointer_mut("/spec/containers/0/securityContext");
    *container.context("no securityContext")? = json!({});
    let refused = create(looser).await?;
    ensure!(
        !refused.succeeded() && refused.stderr.contains("violates PodSecurity"),
        "the standard is not enforced: {}",
        refused.stderr
    );
    sandbox.close().await
}

/// A string that looks like a part of a key, stored in a place for something else.
const CANARY: &str = "MIICANARYCANARYCANARYCANARYCANARYCANARYCANARYCANARYCANARYCANARYC";

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_told_to_anybody() -> Result<()> {
    let world = World::new("canary").await?;
    let secrets = secrets(&world).await?;
    ensure!(
        secrets.len() > 10,
        "only {} lines are secret",
        secrets.len()
    );

    // These answers are a permission, a refusal, and a failure to read a key, which is unreadable
    // because its line breaks are gone.
    world.lets_go(By::Delete, "etcd-0").await?;
    let mut told = refusal(world.delete("etcd-1").await)?.1;
    world.whole().await?;
    // Named in the budget, so that the gate finds no other certificate that etcd accepts.
    let client = format!("{}-client", world.etcd.name());
    wish(
        &world,
        json!({"members": {"tls": {"clientSecret": {"name": client}}}}),
    )
    .await?;
    let key = format!("-----BEGIN PRIVATE KEY-----{CANARY}-----END PRIVATE KEY-----");
    give_the_gate(&world, &key).await?;
    let problem = "line breaks";
    told += &eventually(SOON, "the key is said to be unreadable", || async {
        match refusal(world.delete("etcd-1").await)? {
            (429, said) if said.contains(problem) => Ok(said),
            (code, said) => bail!("{code}: {said}"),
        }
    })
    .await?;
    eventually(SOON, "the budget says so", || async {
        let said = serde_json::to_string(&world.budget().await?)?;
        ensure!(said.contains(problem), "{said}");
        Ok(())
    })
    .await?;
    told += &everything_told(&world).await?;

    ensure!(told.contains(problem), "nothing was told of the key");
    let numbers: Vec<String> = CANARY.bytes().take(8).map(|b| b.to_string()).collect();
    for secret in secrets
        .iter()
        .map(String::as_str)
        .chain([CANARY, &numbers.join(", ")])
    {
        ensure!(!told.contains(secret), "{secret} was told: {told}");
    }
    world.close().await
}

/// Every line of every private key in the namespace, and every token.
async fn secrets(world: &World) -> Result<BTreeSet<String>> {
    let found: Api<Secret> = world.sandbox.api();
    let mut lines = BTreeSet::new();
    for secret in found.list(&ListParams::default()).await? {
        for (field, value) in secret.data.unwrap_or_default() {
            if field.ends_with("key") {
                let text = String::from_utf8(value.0)?;
                let secret = text.lines().filter(|line| !line.starts_with("-----"));
                lines.extend(secret.map(str::to_owned));
            }
        }
    }
    Ok(lines)
}

/// Replaces the gate's key for client TLS to etcd.
async fn give_the_gate(world: &World, key: &str) -> Result<()> {
    let secrets: Api<Secret> = world.sandbox.api();
    let patch = json!({"stringData": {"tls.key": key}});
    let name = format!("{}-client", world.etcd.name());
    secrets
        .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// Logs and metrics of every replica, the budget, and every Event.
async fn everything_told(world: &World) -> Result<String> {
    let mut told = serde_json::to_string(&world.budget().await?)?;
    let events: Api<Event> = world.sandbox.api();
    for event in events.list(&ListParams::default()).await? {
        write!(told, "{}", serde_json::to_string(&event)?)?;
    }
    for replica in 0..world.gate.replicas().len() {
        told += &world.gate.log(replica)?;
        told += &world.gate.metrics(replica).await?;
    }
    Ok(told)
}
