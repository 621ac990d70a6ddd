//! Clusters as charts and operators make them, enrolled by a label and nothing else: the gate has
//! to find out how their members are asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use quorumgate::api::{DataPlace, QuorumDisruptionBudget, Scheme, condition};
use quorumgate_testbed::etcd_cluster::EtcdVersion;
use quorumgate_testbed::{Bed, Sandbox, eventually};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::manifests::repository;
use crate::world::{SOON, gate};

/// The time from the label to evidence from etcd itself.
const LIVE: Duration = Duration::from_secs(10);

/// The shapes, and the schemes by which their members are asked.
const SHAPES: [(&str, Scheme); 7] = [
    ("one-secret", Scheme::Https),
    ("config-map-authority", Scheme::Https),
    ("other-names", Scheme::Https),
    ("own-authority", Scheme::Https),
    ("native-sidecar", Scheme::Http),
    ("variables-from-objects", Scheme::Https),
    ("configuration-file", Scheme::Https),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_shape_is_asked_within_ten_seconds_of_its_label() -> Result<()> {
    let mut sandbox = Bed::up().await?.sandbox("shapes").await?;
    sandbox.add_nodes(1).await?;
    let gate = gate().start(&sandbox).await?;
    for (shape, scheme) in SHAPES {
        let set = apply(&sandbox, shape).await?;
        serves(&sandbox, &set).await?;
        enrol(&sandbox, &set).await?;
        is_live(&sandbox, &set, scheme).await?;
        is_known_to_be_in_pods(&sandbox, &set).await?;
        if shape == "configuration-file" {
            cannot_be_made_to_join(&sandbox, &set).await?;
        }
    }
    gate.close().await?;
    sandbox.close().await
}

/// No argument and no variable of the pod says how this etcd starts, so the gate cannot either.
async fn cannot_be_made_to_join(sandbox: &Sandbox, set: &str) -> Result<()> {
    let budgets: Api<QuorumDisruptionBudget> = sandbox.api();
    eventually(SOON, "that is said on the first day", || async {
        let shown = shown(&budgets.get(set).await?, condition::DATA_PROTECTED)?;
        ensure!(shown.reason == "StateNotSet", "{shown:?}");
        Ok(())
    })
    .await
}

/// The data of each is on an `emptyDir`, also where only another object says which directory it is.
async fn is_known_to_be_in_pods(sandbox: &Sandbox, set: &str) -> Result<()> {
    let budgets: Api<QuorumDisruptionBudget> = sandbox.api();
    eventually(LIVE, "the place of the data is known", || async {
        let status = budgets.get(set).await?.status.context("no status")?;
        let places: Vec<_> = status.members.iter().map(|member| member.data).collect();
        ensure!(places == [Some(DataPlace::Pod)], "{set}: {places:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stateful_set_of_etcds_own_documentation_enrols_without_settings() -> Result<()> {
    let mut sandbox = Bed::up().await?.sandbox("shape-etcd").await?;
    sandbox.add_nodes(3).await?;
    let gate = gate().start(&sandbox).await?;
    let set = apply(&sandbox, "documentation").await?;
    serves(&sandbox, &set).await?;
    enrol(&sandbox, &set).await?;
    is_live(&sandbox, &set, Scheme::Http).await?;
    let budgets: Api<QuorumDisruptionBudget> = sandbox.api();
    eventually(SOON, "every member counts and is on its claim", || async {
        let status = budgets.get(&set).await?.status.context("no status")?;
        let (all, healthy) = (status.expected_members, status.current_healthy);
        ensure!(
            all == Some(3) && healthy == all,
            "{healthy:?} of {all:?} serve"
        );
        let places: Vec<_> = status.members.iter().map(|member| member.data).collect();
        ensure!(places == [Some(DataPlace::Claim); 3], "{places:?}");
        Ok(())
    })
    .await?;

    // Pods from before the budget start as their template says, and the next ones join.
    starts_anew(&sandbox, &set, "etcd-0, etcd-1, etcd-2").await?;
    let pods: Api<Pod> = sandbox.api();
    eventually(SOON, "etcd-1 may go", || async {
        pods.delete("etcd-1", &DeleteParams::default()).await?;
        anyhow::Ok(())
    })
    .await?;
    starts_anew(&sandbox, &set, "etcd-0, etcd-2").await?;
    gate.close().await?;
    sandbox.close().await
}

/// Waits until exactly these pods are said to start a cluster where their data is lost.
async fn starts_anew(sandbox: &Sandbox, set: &str, pods: &str) -> Result<()> {
    let budgets: Api<QuorumDisruptionBudget> = sandbox.api();
    eventually(SOON, format!("{pods} start anew"), || async {
        let shown = shown(&budgets.get(set).await?, condition::INITIAL_STATE_SET)?;
        let says = shown.message.contains(&format!("of {pods} is new"));
        ensure!(shown.reason == "StartsAnew" && says, "{shown:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_other_names_is_told_with_the_patch_that_helps() -> Result<()> {
    let mut sandbox = Bed::up().await?.sandbox("shape-names").await?;
    sandbox.add_nodes(1).await?;
    let gate = gate().start(&sandbox).await?;
    let text = fs::read_to_string(repository("tests/e2e/shapes/one-secret.yaml"))?;
    let text = text.replace("svc.cluster.local\"]", "example.org\"]");
    let set = apply_text(&sandbox, &text).await?;
    serves(&sandbox, &set).await?;
    enrol(&sandbox, &set).await?;

    let budgets: Api<QuorumDisruptionBudget> = sandbox.api();
    let namespace = sandbox.namespace();
    let name = format!("{{pod}}.one-secret.{namespace}.example.org");
    let members = json!({"spec": {"members": {"serverName": name}}});
    let command = format!("kubectl -n {namespace} patch qdb {set} --type merge -p '{members}'");
    eventually(SOON, "the condition says what to do", || async {
        let message = evidence(&budgets.get(&set).await?)?.1;
        ensure!(message.contains(&command), "{message}");
        Ok(())
    })
    .await?;
    let patch = Patch::Merge(&members);
    budgets.patch(&set, &PatchParams::default(), &patch).await?;
    is_live(&sandbox, &set, Scheme::Https).await?;
    gate.close().await?;
    sandbox.close().await
}

/// A script runs etcd, ends it, and runs it again. Its pod is not Ready meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_joins_by_itself_in_two_phases_counts_after_the_last() -> Result<()> {
    let mut sandbox = Bed::up().await?.sandbox("shape-joins").await?;
    sandbox.add_nodes(3).await?;
    let gate = gate().start(&sandbox).await?;
    let phases = sandbox.directory().join("phases");
    let text = fs::read_to_string(repository("tests/e2e/shapes/self-joining.yaml"))?;
    let text = text.replace("PHASES", &phases.to_string_lossy());
    let set = apply_text(&sandbox, &text).await?;
    serves(&sandbox, &set).await?;
    enrol(&sandbox, &set).await?;
    is_live(&sandbox, &set, Scheme::Http).await?;
    all_serve(&sandbox, &set).await?;
    let budgets: Api<QuorumDisruptionBudget> = sandbox.api();
    let status = budgets.get(&set).await?.status.context("no status")?;
    let by = status.joins_by.context("its script is not known")?;
    ensure!(by == "ConfigMap joining-scripts", "{by}");

    let pods: Api<Pod> = sandbox.api();
    let old = pods.get("joining-0").await?.metadata.uid;
    eventually(SOON, "joining-0 may go", || async {
        pods.delete("joining-0", &DeleteParams::default()).await
    })
    .await?;
    // The phases in which joining-1 has to stay, each with what is said.
    let refused: Mutex<BTreeMap<String, BTreeSet<String>>> = Mutex::default();
    let phase = async || -> Result<String> {
        let uid = match pods.get_opt("joining-0").await? {
            Some(pod) => pod.metadata.uid,
            None => return Ok("gone".to_owned()),
        };
        if uid == old {
            return Ok("ends".to_owned());
        }
        let file = phases.join(uid.context("no UID")?);
        Ok(fs::read_to_string(file)
            .unwrap_or_default()
            .trim()
            .to_owned())
    };
    let dry = DeleteParams::default().dry_run();
    let allowed = eventually(SOON, "joining-1 may go", async || {
        let before = phase().await?;
        match pods.delete("joining-1", &dry).await {
            Ok(_) => Ok(Ok(phase().await?)),
            Err(kube::Error::Api(status)) if status.code == 429 => {
                if phase().await? == before {
                    let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
                    let said = refused.entry(before).or_default();
                    said.insert(status.message.clone());
                }
                bail!("{}", status.message)
            }
            Err(other) => Ok(Err(other)),
        }
    })
    .await??;
    let refused = refused.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(
        allowed == "last",
        "it was allowed in {allowed}: {refused:?}"
    );
    for (phase, says) in [
        ("first", "joining-0 (it has just started"),
        ("between", "joining-0"),
    ] {
        let said = refused.get(phase).into_iter().flatten();
        let says = said.into_iter().any(|message| message.contains(says));
        ensure!(says, "{phase}: {refused:?}");
    }

    all_serve(&sandbox, &set).await?;
    eventually(SOON, "joining-1 goes", || async {
        pods.delete("joining-1", &DeleteParams::default()).await
    })
    .await?;
    gate.close().await?;
    sandbox.close().await
}

/// Waits until the budget says that all three voters serve.
pub(crate) async fn all_serve(sandbox: &Sandbox, set: &str) -> Result<()> {
    let budgets: Api<QuorumDisruptionBudget> = sandbox.api();
    eventually(SOON, "all voters serve", || async {
        let status = budgets.get(set).await?.status.context("no status")?;
        let (voters, healthy) = (status.voters, status.current_healthy);
        ensure!(
            voters == Some(3) && healthy == voters,
            "{healthy:?} of {voters:?} serve"
        );
        Ok(())
    })
    .await
}

/// Applies the objects of a shape, without its label. Returns the name of its StatefulSet.
async fn apply(sandbox: &Sandbox, shape: &str) -> Result<String> {
    let path = format!("tests/e2e/shapes/{shape}.yaml");
    let text = fs::read_to_string(repository(&path)).with_context(|| path)?;
    apply_text(sandbox, &text).await
}

pub(crate) async fn apply_text(sandbox: &Sandbox, text: &str) -> Result<String> {
    let namespace = sandbox.namespace();
    let text = text.replace("NAMESPACE", namespace).replace(
        "image: ETCD",
        &format!("image: {}", EtcdVersion::default().image()?),
    );
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    let mut objects = Vec::new();
    let mut set = None;
    for mut document in documents {
        let text = |at: &str| document.pointer(at).and_then(Value::as_str);
        match text("/kind") {
            Some("Certificates") => {
                objects.extend(certificates(&document)?);
                continue;
            }
            Some("StatefulSet") => set = text("/metadata/name").map(str::to_owned),
            Some(_) | None => {}
        }
        if let Some(Value::Object(pod)) = document.pointer_mut("/spec/template/spec") {
            pod.insert("nodeSelector".to_owned(), json!(sandbox.node_selector()));
        }
        objects.push(document);
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let namespace = format!("--namespace={namespace}");
    let args = ["apply", "--server-side", &namespace, "-f", "-"];
    let applied = sandbox.bed().kubectl(args).stdin(list.to_string()).await?;
    applied.success()?;
    set.context("no StatefulSet")
}

/// The certificates of a shape: the names of the server, and by kind and name the objects with
/// what is under each key.
#[derive(Deserialize)]
struct Certificates {
    names: Vec<String>,
    objects: BTreeMap<String, BTreeMap<String, String>>,
}

/// The Secrets and ConfigMaps with the certificates of a shape.
fn certificates(of: &Value) -> Result<Vec<Value>> {
    let Certificates { names, objects } = Certificates::deserialize(of)?;
    let pem = pki(&names)?;
    let made = objects.into_iter().map(|(object, keys)| {
        let (kind, name) = object.split_once(' ').context("kind and name")?;
        let data: Result<BTreeMap<String, &String>> = keys
            .into_iter()
            .map(|(key, what)| Ok((key, pem.get(what.as_str()).context(what)?)))
            .collect();
        let field = if kind == "Secret" {
            "stringData"
        } else {
            "data"
        };
        Ok(json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, field: data?}))
    });
    made.collect()
}

/// An authority with its key, pairs that it issued for a server of these names and for a client,
/// and a certificate that is its own authority.
fn pki(names: &[String]) -> Result<BTreeMap<&'static str, String>> {
    let authority = |name: &str| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, name.to_owned());
        CertifiedIssuer::self_signed(params, KeyPair::generate()?)
    };
    let (ca, own) = (authority("shape")?, authority("own")?);
    let mut pem = BTreeMap::from([
        ("ca", ca.pem()),
        ("ca-key", ca.key().serialize_pem()),
        ("self", own.pem()),
        ("self-key", own.key().serialize_pem()),
    ]);
    for (name, key, names) in [
        ("server", "server-key", names.to_vec()),
        ("client", "client-key", Vec::new()),
    ] {
        let mut params = CertificateParams::new(names)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        let pair = KeyPair::generate()?;
        pem.insert(name, params.signed_by(&pair, &ca)?.pem());
        pem.insert(key, pair.serialize_pem());
    }
    Ok(pem)
}

/// Waits until every pod of the shape is ready.
pub(crate) async fn serves(sandbox: &Sandbox, set: &str) -> Result<()> {
    let sets: Api<StatefulSet> = sandbox.api();
    eventually(SOON, format!("{set} runs"), || async {
        let found = sets.get(set).await?;
        let wanted = found.spec.and_then(|spec| spec.replicas);
        let ready = found.status.and_then(|status| status.ready_replicas);
        ensure!(
            ready.is_some() && ready == wanted,
            "{ready:?} of {wanted:?} are ready"
        );
        anyhow::Ok(())
    })
    .await
}

pub(crate) async fn enrol(sandbox: &Sandbox, set: &str) -> Result<()> {
    let sets: Api<StatefulSet> = sandbox.api();
    let label = json!({"metadata": {"labels": {"quorumgate.io/enroll": "true"}}});
    let patch = Patch::Merge(&label);
    sets.patch(set, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until the budget says that etcd itself answers, and by which way.
pub(crate) async fn is_live(sandbox: &Sandbox, set: &str, scheme: Scheme) -> Result<()> {
    let budgets: Api<QuorumDisruptionBudget> = sandbox.api();
    eventually(LIVE, format!("{set} is asked"), || async {
        let budget = budgets.get(set).await?;
        let (status, message) = evidence(&budget)?;
        ensure!(status == "True", "{status}: {message}");
        let way = budget.status.and_then(|status| status.way);
        let way = way.context("no way is recorded")?;
        ensure!(way.scheme == scheme, "{way:?}");
        ensure!(
            way.authority.is_some() == (scheme == Scheme::Https),
            "{way:?}"
        );
        anyhow::Ok(())
    })
    .await
}

/// The status and the message of `EvidenceLive`.
fn evidence(budget: &QuorumDisruptionBudget) -> Result<(String, String)> {
    let found = shown(budget, condition::EVIDENCE_LIVE)?;
    Ok((found.status, found.message))
}

/// A condition of a budget.
pub(crate) fn shown(budget: &QuorumDisruptionBudget, kind: &str) -> Result<Condition> {
    let conditions = budget.status.as_ref().map(|status| &status.conditions);
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|shown| shown.type_ == kind);
    found
        .cloned()
        .with_context(|| format!("no condition {kind}"))
}
