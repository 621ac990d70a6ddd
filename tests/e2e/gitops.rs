//! The gate beside a tool that makes the cluster what a repository says, again and again, as Argo
//! CD does with `selfHeal` and server-side apply.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON values are read by the names of their fields; one that is missing fails the test"
)]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Resource, ResourceExt as _};
use quorumgate::api::condition;
use quorumgate_testbed::eventually;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::world::{SOON, World};

const FEATURE: &str = "QuorumAwareUpdatesWithOnDelete";
/// The time limit for a rollout of three members on a busy machine.
const ROLLOUT: Duration = Duration::from_secs(300);
/// How often the tool applies everything.
const EVERY: Duration = Duration::from_secs(1);

/// The objects that a repository says.
type Git = Arc<Mutex<Vec<Value>>>;

/// A tool that applies them by server-side apply and force.
struct Tool {
    git: Git,
    rounds: Arc<Mutex<Result<usize, String>>>,
    task: JoinHandle<()>,
}

impl Tool {
    fn start(client: &Client, objects: Vec<Value>) -> Self {
        let git: Git = Arc::new(Mutex::new(objects));
        let rounds = Arc::new(Mutex::new(Ok(0)));
        let (client, said, done) = (client.clone(), Arc::clone(&git), Arc::clone(&rounds));
        let task = tokio::spawn(async move {
            let mut turns = tokio::time::interval(EVERY);
            loop {
                turns.tick().await;
                let objects = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
                for object in &objects {
                    if let Err(error) = apply(&client, object).await {
                        let what = format!("{}: {error:#}", object["kind"]);
                        *done.lock().unwrap_or_else(PoisonError::into_inner) = Err(what);
                        return;
                    }
                }
                if let Ok(rounds) = done.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                    *rounds += 1;
                }
            }
        });
        Self { git, rounds, task }
    }

    /// Waits until it has applied everything so many times more.
    async fn applies(&self, times: usize) -> Result<()> {
        let done = || {
            let rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
            rounds.clone().map_err(anyhow::Error::msg)
        };
        let before = done()?;
        let what = format!("it has applied everything {times} times more");
        eventually(SOON, what, async || {
            let now = done()?;
            ensure!(now >= before + times, "{} times", now - before);
            Ok(())
        })
        .await
    }

    /// Changes what the repository says.
    fn commit(&self, change: impl FnOnce(&mut Vec<Value>)) {
        change(&mut self.git.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn apply(client: &Client, object: &Value) -> Result<DynamicObject> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (group, version) = text("/apiVersion")
        .context("no apiVersion")?
        .rsplit_once('/')
        .unwrap_or(("", "v1"));
    let kind = GroupVersionKind::gvk(group, version, text("/kind").context("no kind")?);
    let kind = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    };
    let name = text("/metadata/name").context("no name")?;
    let by = PatchParams::apply("argocd-controller").force();
    Ok(api.patch(name, &by, &Patch::Apply(object)).await?)
}

/// The object as a repository says it: without what API servers and the gate add.
fn as_in_git<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Result<Value> {
    let mut said = serde_json::to_value(object)?;
    let fields = said.as_object_mut().context("no object")?;
    fields.remove("status");
    fields.insert("apiVersion".to_owned(), K::api_version(&()).into());
    fields.insert("kind".to_owned(), K::kind(&()).into());
    let metadata = object.meta();
    let kept = json!({"name": metadata.name, "namespace": metadata.namespace});
    said["metadata"] = kept;
    if metadata.namespace.is_none() {
        said["metadata"] = json!({"name": metadata.name});
    }
    Ok(said)
}

/// A webhook configuration as a repository says it. The gate's chart leaves `caBundle` and the path
/// out; here webhooks are called by URLs, so that all of it is left out.
fn without_callees(mut configuration: Value) -> Value {
    for webhook in configuration["webhooks"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        if let Some(webhook) = webhook.as_object_mut() {
            webhook.remove("clientConfig");
        }
    }
    configuration
}

async fn what_git_says(world: &World) -> Result<Vec<Value>> {
    let client = world.bed().client();
    let sets: Api<StatefulSet> = world.sandbox.api();
    let mut set = as_in_git(&sets.get(world.etcd.name()).await?)?;
    set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"});
    set["metadata"]["labels"] = json!({"quorumgate.io/enroll": "true"});
    let name = world.gate.webhook_configuration();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client);
    Ok(vec![
        set,
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": world.namespace(), "labels": {"team": "db"}},
        }),
        json!({
            "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget",
            "metadata": {"name": world.etcd.name(), "namespace": world.namespace()},
            "spec": {"statefulSetName": world.etcd.name(), "maxUnavailable": 1},
        }),
        without_callees(as_in_git(&validating.get(name).await?)?),
        without_callees(as_in_git(&mutating.get(name).await?)?),
    ])
}

/// The same with the callee, as it has to be in a configuration that is created. The certificate is
/// the gate's to write.
fn without_bundles(mut configuration: Value) -> Value {
    for webhook in configuration["webhooks"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        if let Some(callee) = webhook["clientConfig"].as_object_mut() {
            callee.remove("caBundle");
        }
    }
    configuration
}

/// The fields that change where two writers fight: generations of objects, and how the gate is
/// called.
async fn traces_of_a_fight(world: &World) -> Result<Value> {
    let client = world.bed().client();
    let sets: Api<StatefulSet> = world.sandbox.api();
    let set = sets.get(world.etcd.name()).await?;
    let name = world.gate.webhook_configuration();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let validating = validating.get(name).await?;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let mutating = mutating.get(name).await?;
    let namespaces: Api<Namespace> = Api::all(client);
    let namespace = namespaces.get(world.namespace()).await?;
    let strategy = set.spec.as_ref().map(|spec| json!(spec.update_strategy));
    let callees = |webhooks: Value| webhooks.as_array().cloned().unwrap_or_default();
    let callees = callees(json!(validating.webhooks)).into_iter();
    let callees = callees.map(|webhook| webhook["clientConfig"].clone());
    Ok(json!({
        "set": [set.metadata.generation, strategy],
        "validating": [validating.metadata.generation, callees.collect::<Vec<_>>()],
        "mutating": mutating.metadata.generation,
        "gated": namespace.labels().get("quorumgate.io/gated"),
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_applies_what_git_says_every_second_starts_no_fight() -> Result<()> {
    let builder = World::builder("gitops").own_certificates().feature(FEATURE);
    let world = builder.start().await?;
    let tool = Tool::start(&world.bed().client(), what_git_says(&world).await?);
    tool.applies(2).await?;
    world.trusted().await?;
    let before = traces_of_a_fight(&world).await?;
    ensure!(before["set"][1]["type"] == "OnDelete", "{before}");
    ensure!(before["gated"] == "true", "{before}");

    tool.applies(10).await?;
    let after = traces_of_a_fight(&world).await?;
    ensure!(before == after, "{before}\n{after}");
    for kind in [condition::GATE_ACTIVE, condition::LEDGER_TRUSTED] {
        let said = world.condition(kind).await?;
        ensure!(said.status == "True", "{said:?}");
    }

    tool.commit(|objects| {
        if let Some(set) = objects.first_mut() {
            set["spec"]["template"]["metadata"]["annotations"] = json!({"commit": "2"});
        }
    });
    eventually(ROLLOUT, "the change in git is rolled out", async || {
        let sets: Api<StatefulSet> = world.sandbox.api();
        let status = sets.get(world.etcd.name()).await?.status;
        let status = status.context("no status")?;
        let pods = world.pods().list(&kube::api::ListParams::default()).await?;
        let is_updated = |pod: &&k8s_openapi::api::core::v1::Pod| {
            let annotations = pod.annotations().get("commit");
            annotations.is_some_and(|commit| commit == "2")
        };
        match pods.iter().filter(is_updated).count() {
            3 if status.updated_replicas == Some(3) => Ok(()),
            updated => bail!("{updated} of 3 are updated"),
        }
    })
    .await?;
    world.whole().await?;
    tool.applies(2).await?;
    let rolled = traces_of_a_fight(&world).await?;
    ensure!(rolled["set"][1]["type"] == "OnDelete", "{rolled}");
    ensure!(rolled["validating"] == after["validating"], "{rolled}");
    drop(tool);
    world.close().await
}

/// As with `Replace=true` (Argo CD), `force: true` (Flux) or a repository that sets the field.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_takes_the_bundle_away_every_second_is_named_in_an_event() -> Result<()> {
    let builder = World::builder("gitops-fight").nodes(1).own_certificates();
    let builder = builder.etcd(|etcd| etcd.replicas(1)).untrusted();
    let world = builder.start().await?;
    let name = world.gate.webhook_configuration();
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(world.bed().client());
    let mut said = as_in_git(&configurations.get(name).await?)?;
    let for_all: Vec<Value> = said["webhooks"].as_array().cloned().unwrap_or_default();
    let emptied = for_all.into_iter().map(|mut webhook| {
        webhook["clientConfig"]["caBundle"] = json!("");
        webhook
    });
    said["webhooks"] = emptied.collect();
    let tool = Tool::start(&world.bed().client(), vec![said]);
    let events: Api<Event> = Api::namespaced(world.bed().client(), "default");
    eventually(SOON, "an Event names the other writer", async || {
        let all = events.list(&kube::api::ListParams::default()).await?;
        let mut about = all.iter().filter(|event| {
            event.involved_object.name.as_deref() == Some(name)
                && event.reason.as_deref() == Some("Contested")
        });
        let note = about.next().and_then(|event| event.message.clone());
        let note = note.context("no such Event")?;
        ensure!(note.contains("argocd-controller"), "{note}");
        Ok(())
    })
    .await?;
    drop(tool);
    world.close().await
}

/// The steps of "Switch the gate off" in docs/troubleshoot.md, in their order.
#[tokio::test(flavor = "multi_thread")]
async fn the_gate_is_off_only_while_the_tool_that_installed_it_is_suspended() -> Result<()> {
    let world = World::builder("gitops-off")
        .own_certificates()
        .start()
        .await?;
    world.trusted().await?;
    let client = world.bed().client();
    let name = world.gate.webhook_configuration().to_owned();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let git = vec![
        without_bundles(as_in_git(&validating.get(&name).await?)?),
        without_bundles(as_in_git(&mutating.get(&name).await?)?),
    ];
    let switch_off = async || {
        let all = "validatingwebhookconfiguration,mutatingwebhookconfiguration";
        let deleted = world.kubectl(&["delete", all, &name]).await?;
        deleted.success().map(drop)
    };
    let uid = world.etcd.pod_uid("etcd-2").await?;

    for replica in world.gate.replicas() {
        replica.term().await?;
    }
    let tool = Tool::start(&client, git.clone());
    tool.applies(1).await?;
    switch_off().await?;
    tool.applies(2).await?;
    eventually(SOON, "the tool has brought the webhooks back", async || {
        let only_ask = DeleteParams {
            dry_run: true,
            ..DeleteParams::default()
        };
        let refused = world.pods().delete("etcd-2", &only_ask).await.err();
        let message = refused.context("etcd-2 may go")?.to_string();
        ensure!(message.contains("failed calling webhook"), "{message}");
        Ok(())
    })
    .await?;

    drop(tool);
    world.gate.unregister().await?;
    world.delete("etcd-2").await?;
    world.replaced("etcd-2", &uid).await?;

    let tool = Tool::start(&client, git);
    tool.applies(1).await?;
    for replica in world.gate.replicas() {
        replica.restart().await?;
    }
    world.gate.in_force(SOON).await?;
    world
        .has_to_wait("etcd-1", &["earlier permissions may still be open"])
        .await?;
    let is_true = |said: &Condition| said.status == "True";
    world.reported(condition::GATE_ACTIVE, is_true).await?;
    world.trusted().await?;
    world.whole().await?;
    drop(tool);
    world.close().await
}
