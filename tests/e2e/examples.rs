//! The worked examples of docs/enrol.md, applied as a reader would, until a refusal says why.
//!
//! The one of etcd-druid is not here: `rollouts::druid` and `members` work on its shape.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{EvictParams, Patch, PatchParams};
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate_testbed::etcd_cluster::EtcdVersion;
use quorumgate_testbed::gate::Gate;
use quorumgate_testbed::pki::{Authority, Request, Usage};
use quorumgate_testbed::{Bed, Sandbox, eventually};
use serde_json::{Value, json};

use crate::asking::refusal;
use crate::manifests::repository;
use crate::world::{SOON, gate};

/// The namespace in the examples' files.
const NAMESPACE: &str = "etcd-example";

#[tokio::test(flavor = "multi_thread")]
async fn etcd_by_flags() -> Result<()> {
    let example = Example::start("example-flags").await?;
    for file in ["statefulset.yaml", "budget.yaml"] {
        let path = format!("manifests/examples/{file}");
        example.apply(&documents(&path)?).await?;
    }
    example.try_out("etcd", Asked::InPlaintext).await
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_with_tls() -> Result<()> {
    let example = Example::start("example-tls").await?;
    let certificates = example.place(&documents("manifests/examples/tls/certificates.yaml")?)?;
    example.apply(&issued(&certificates)?).await?;
    let members = documents("manifests/examples/tls/statefulset.yaml")?;
    example.apply(&members).await?;
    example.try_out("etcd-tls", Asked::ByTls).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_of_etcd_operator() -> Result<()> {
    let example = Example::start("example-operator").await?;
    let mut objects = documents("tests/e2e/examples/etcd-operator.yaml")?;
    // The operator takes any label from the StatefulSet, so the reader writes the budget.
    objects.extend(documented("QuorumDisruptionBudget")?);
    example.apply(&objects).await?;
    // It begins with Warn, and the reader has watched it for a while.
    let budgets: Api<QuorumDisruptionBudget> = example.sandbox.api();
    let enforces = Patch::Merge(json!({"spec": {"enforcement": "Enforce"}}));
    budgets
        .patch("etcd", &PatchParams::default(), &enforces)
        .await?;
    example.try_out("etcd", Asked::InPlaintext).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_of_the_bitnami_chart() -> Result<()> {
    let example = Example::start("example-bitnami").await?;
    let objects = documents("tests/e2e/examples/bitnami.yaml")?;
    example.apply(&objects).await?;
    example.try_out("etcd", Asked::InPlaintext).await
}

/// The transport by which the gate asks the members.
#[derive(Clone, Copy)]
enum Asked {
    ByTls,
    InPlaintext,
}

/// A namespace with three nodes and a gate.
struct Example {
    gate: Gate,
    sandbox: Sandbox,
}

impl Example {
    async fn start(name: &str) -> Result<Self> {
        let mut sandbox = Bed::up().await?.sandbox(name).await?;
        sandbox.add_nodes(3).await?;
        let gate = gate().start(&sandbox).await?;
        Ok(Self { gate, sandbox })
    }

    /// Applies these objects in the namespace of the test.
    async fn apply(&self, objects: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": self.place(objects)?});
        let namespace = format!("--namespace={}", self.sandbox.namespace());
        let args = [
            "apply",
            "--server-side",
            "--force-conflicts",
            &namespace,
            "-f",
            "-",
        ];
        let bed = self.sandbox.bed();
        let output = bed.kubectl(args).stdin(list.to_string()).await?;
        output.success().map(drop)
    }

    /// The objects as this test bed runs them: in the namespace and on the nodes of the test, each
    /// pod listening at its own address, since all share one network.
    fn place(&self, objects: &[Value]) -> Result<Vec<Value>> {
        let text = serde_json::to_string(objects)?
            .replace(NAMESPACE, self.sandbox.namespace())
            .replace("0.0.0.0", "$(POD_IP)");
        let mut objects: Vec<Value> = serde_json::from_str(&text)?;
        for object in &mut objects {
            let Some(pod) = object.pointer_mut("/spec/template/spec") else {
                continue;
            };
            *field(pod, "nodeSelector")? = json!(self.sandbox.node_selector());
            let container = pod.pointer_mut("/containers/0").context("no container")?;
            *field(container, "image")? = json!(EtcdVersion::default().image()?);
            let variables = container.get_mut("env").and_then(Value::as_array_mut);
            let ip =
                json!({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}});
            variables.context("no variables")?.insert(0, ip);
        }
        Ok(objects)
    }

    /// Waits until all members of the cluster serve and are asked like this. Then one member goes
    /// by an eviction, and meanwhile the next one has to stay, with a reason.
    async fn try_out(self, cluster: &str, asked: Asked) -> Result<()> {
        let budgets: Api<QuorumDisruptionBudget> = self.sandbox.api();
        let all_serve = || async {
            let budget = budgets.get(cluster).await?;
            let status = budget.status.context("no status yet")?;
            ensure!(status.ledger.trusted, "not trusted: {:?}", status.ledger);
            ensure!(status.grants.is_empty(), "grants are open");
            ensure!(
                status.current_healthy == Some(3) && status.expected_members == Some(3),
                "{:?} of {:?} serve",
                status.current_healthy,
                status.expected_members
            );
            let mut conditions = status.conditions.iter();
            let found = conditions.find(|condition| condition.type_ == "MembersAskedByTLS");
            let found = found.context("no condition about TLS")?;
            let expected = match asked {
                Asked::ByTls => "True",
                Asked::InPlaintext => "False",
            };
            ensure!(found.status == expected, "{found:?}");
            anyhow::Ok(())
        };
        eventually(SOON, "all members serve", all_serve).await?;
        self.gate.in_force(SOON).await?;

        let pods: Api<Pod> = self.sandbox.api();
        let (first, second) = (format!("{cluster}-1"), format!("{cluster}-2"));
        let evict = async |pod: &str| pods.evict(pod, &EvictParams::default()).await.map(drop);
        eventually(SOON, "a member may go", || evict(&first)).await?;
        let (code, message) = refusal(evict(&second).await)?;
        ensure!(
            code == 429 && message.contains(&second),
            "{code}: {message}"
        );
        eventually(SOON, "all members serve again", all_serve).await?;
        self.gate.close().await?;
        self.sandbox.close().await
    }
}

/// The Secrets that cert-manager would issue for these Certificates.
fn issued(objects: &[Value]) -> Result<Vec<Value>> {
    let authority = Authority::new("etcd")?;
    let certificates = objects.iter().filter(|object| {
        let is_authority = object.pointer("/spec/isCA").is_some();
        object["kind"] == "Certificate" && !is_authority
    });
    let secret = |certificate: &Value| {
        let spec = &certificate["spec"];
        let name = spec["commonName"].as_str().context("no common name")?;
        let names: Vec<String> =
            serde_json::from_value(spec["dnsNames"].clone()).unwrap_or_default();
        let request = if names.is_empty() {
            Request::new(name, Usage::Client)
        } else {
            // Pods have no network of their own, so a peer is seen to come from this address.
            let here = ["127.0.0.1".to_owned()];
            Request::new(name, Usage::Peer).names(names.into_iter().chain(here))
        };
        let issued = authority.issue(&request)?;
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": spec["secretName"]},
            "stringData": {
                "tls.crt": issued.certificate,
                "tls.key": issued.key,
                "ca.crt": authority.certificate(),
            },
        }))
    };
    certificates.map(secret).collect()
}

/// The first object of this kind in docs/enrol.md. Its block is indented as a whole, which YAML
/// does not mind, and has no empty line.
fn documented(kind: &str) -> Result<Vec<Value>> {
    let text = read("docs/enrol.md")?;
    let named = format!("kind: {kind}\n");
    let block = text.split("\n\n").find(|block| block.contains(&named));
    let block = block.with_context(|| format!("docs/enrol.md has no {kind}"))?;
    Ok(serde_saphyr::from_multiple(block)?)
}

fn documents(path: &str) -> Result<Vec<Value>> {
    Ok(serde_saphyr::from_multiple(&read(path)?)?)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(repository(path)).with_context(|| path.to_owned())
}

fn field<'a>(of: &'a mut Value, name: &str) -> Result<&'a mut Value> {
    let fields = of.as_object_mut().context("no object")?;
    Ok(fields.entry(name).or_insert(Value::Null))
}
