//! A copy of a cluster in another namespace, with its data: cluster and members have the same ids.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_client::{Client, ConnectOptions};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use quorumgate::api::{QuorumDisruptionBudget, QuorumDisruptionBudgetStatus, Scheme, condition};
use quorumgate_testbed::control_plane::Tuning;
use quorumgate_testbed::faults::{copy_data, crash_loop, lose_data};
use quorumgate_testbed::{Bed, Sandbox, eventually};
use serde_json::json;

use crate::asking::refusal;
use crate::data_lost::{faults, named};
use crate::manifests::repository;
use crate::shapes::{all_serve, apply_text, enrol, is_live, serves, shown};
use crate::world::{SOON, gate, on_a_plane_of_its_own};

const WHOSE: &str = "whose";

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_with_the_same_ids_in_another_namespace_counts_for_nothing() -> Result<()> {
    on_a_plane_of_its_own("copies", Tuning::default(), copied).await
}

async fn copied(bed: Bed) -> Result<()> {
    let mut original = bed.sandbox("original").await?;
    let mut copy = bed.sandbox("copy").await?;
    original.add_nodes(3).await?;
    copy.add_nodes(3).await?;
    for sandbox in [&original, &copy] {
        let set = apply_text(sandbox, &manifest()?).await?;
        serves(sandbox, &set).await?;
    }
    put(&original, "the original's").await?;
    put(&copy, "nobody's").await?;
    let copies = tempfile::tempdir()?;
    copy_data(&named(&faults(&original).await?), copies.path())?;
    lose_data(&named(&faults(&copy).await?), Some(copies.path()))?;
    eventually(SOON, "the copy has the data of the original", || async {
        let mut client = client(&copy, "etcd-0").await?;
        let found = client.get(WHOSE, None).await?;
        let whose = found.kvs().first().context("no key")?.value_str()?;
        ensure!(whose == "the original's", "{whose}");
        anyhow::Ok(())
    })
    .await?;
    put(&copy, "the copy's").await?;

    let gate = gate().everywhere().start(&original).await?;
    for sandbox in [&original, &copy] {
        enrol(sandbox, "etcd").await?;
        is_live(sandbox, "etcd", Scheme::Http).await?;
        all_serve(sandbox, "etcd").await?;
        trusted(sandbox).await?;
    }
    let (one, other) = (status(&original).await?, status(&copy).await?);
    ensure!(one.cluster_id.is_some(), "no cluster is on record");
    ensure!(one.cluster_id == other.cluster_id, "the ids differ");
    let ids = |status: &QuorumDisruptionBudgetStatus| {
        let members = status.members.iter();
        let ids = members.map(|member| (member.name.clone(), member.member_id.clone()));
        ids.collect::<Vec<_>>()
    };
    ensure!(ids(&one) == ids(&other), "{one:?}, {other:?}");

    names(&original, &copy).await?;
    names(&copy, &original).await?;
    none_counts_for_the_other(&original, &copy).await?;
    none_counts_for_the_other(&copy, &original).await?;
    a_member_without_a_pod_is_missed(&original, &copy).await?;
    gate.close().await?;
    copy.close().await?;
    original.close().await
}

/// The manifest of etcd's documentation. Without the namespace in the token it makes the same ids
/// everywhere.
fn manifest() -> Result<String> {
    let text = fs::read_to_string(repository("tests/e2e/shapes/documentation.yaml"))?;
    let text = text
        .replace("=etcd-$(K8S_NAMESPACE)", "=etcd")
        .replace("--data-dir=/data\n", "--data-dir=/data/etcd\n")
        .replace("            - --wal-dir=/data/wal\n", "");
    ensure!(text.contains("--initial-cluster-token=etcd\n"), "{text}");
    Ok(text)
}

/// The condition names the other one.
async fn names(here: &Sandbox, there: &Sandbox) -> Result<()> {
    eventually(SOON, "the condition names the other budget", || async {
        let conditions = status(here).await?.conditions;
        let kind = condition::CLUSTER_ID_CONSISTENT;
        let found = conditions.iter().find(|c| c.type_ == kind);
        let said = &found.context("no condition")?.message;
        ensure!(
            said.contains(&format!("{}/etcd", there.namespace())),
            "{said}"
        );
        anyhow::Ok(())
    })
    .await
}

/// A member that is down is missed here, and not there. The others are judged by it alone.
async fn none_counts_for_the_other(here: &Sandbox, there: &Sandbox) -> Result<()> {
    consistent(here, "True", "OneClusterID").await?;
    let broken = crash_loop(here, "etcd-2")?;
    eventually(SOON, "etcd-1 has to stay here", || async {
        let (code, message) = refusal(may_go(here, "etcd-1").await)?;
        let says = message.contains("etcd-2") && !message.contains(there.namespace());
        ensure!(code == 429 && says, "{code}: {message}");
        anyhow::Ok(())
    })
    .await?;
    goes(there, "etcd-1").await?;
    consistent(there, "True", "OneClusterID").await?;
    broken.mend();
    all_serve(here, "etcd").await?;
    goes(here, "etcd-1").await?;
    Ok(())
}

/// A quota keeps the pod of a member away, and the copy has a pod with its id. That one is not
/// taken for it.
async fn a_member_without_a_pod_is_missed(here: &Sandbox, there: &Sandbox) -> Result<()> {
    let quota: ResourceQuota = serde_json::from_value(json!({
        "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}},
    }))?;
    let quotas: Api<ResourceQuota> = here.api();
    quotas.create(&PostParams::default(), &quota).await?;
    eventually(SOON, "the quota is counted", || async {
        let status = quotas.get("none").await?.status;
        let used = status.and_then(|status| status.used).unwrap_or_default();
        ensure!(used.contains_key("pods"), "{used:?}");
        anyhow::Ok(())
    })
    .await?;
    let pods: Api<Pod> = here.api();
    pods.delete("etcd-2", &DeleteParams::default()).await?;
    eventually(SOON, "etcd-2 is gone", || async {
        ensure!(pods.get_opt("etcd-2").await?.is_none(), "it is there");
        anyhow::Ok(())
    })
    .await?;
    eventually(SOON, "etcd-1 has to stay here", || async {
        let (code, message) = refusal(may_go(here, "etcd-1").await)?;
        let says = message.contains("etcd-2 (it has no pod now)");
        ensure!(code == 429 && says, "{code}: {message}");
        let names = message.contains(there.namespace());
        ensure!(!names, "it names the copy: {message}");
        anyhow::Ok(())
    })
    .await?;
    for sandbox in [here, there] {
        consistent(sandbox, "True", "OneClusterID").await?;
    }
    goes(there, "etcd-1").await?;

    quotas.delete("none", &DeleteParams::default()).await?;
    look_again(here).await?;
    all_serve(here, "etcd").await?;
    consistent(here, "True", "OneClusterID").await?;
    goes(here, "etcd-1").await?;
    for (sandbox, whose) in [(here, "the original's"), (there, "the copy's")] {
        let mut client = client(sandbox, "etcd-1").await?;
        let found = client.get(WHOSE, None).await?;
        let now = found.kvs().first().context("no key")?.value_str()?;
        ensure!(now == whose, "{now} instead of {whose}");
    }
    Ok(())
}

/// Triggers the StatefulSet controller, which has tried in vain to create a pod, with growing
/// pauses.
async fn look_again(sandbox: &Sandbox) -> Result<()> {
    let sets: Api<StatefulSet> = sandbox.api();
    let again = json!({"metadata": {"annotations": {"testbed.quorumgate.io/look": "again"}}});
    let params = PatchParams::default();
    sets.patch("etcd", &params, &Patch::Merge(&again)).await?;
    Ok(())
}

/// Asks for a pod that stays: a dry run is answered as the request would be.
async fn may_go(sandbox: &Sandbox, pod: &str) -> Result<(), kube::Error> {
    let pods: Api<Pod> = sandbox.api();
    let dry = DeleteParams::default().dry_run();
    pods.delete(pod, &dry).await.map(drop)
}

/// Waits until a pod may go.
async fn goes(sandbox: &Sandbox, pod: &str) -> Result<()> {
    let what = format!("{pod} of {} may go", sandbox.namespace());
    eventually(SOON, what, || may_go(sandbox, pod)).await
}

async fn client(sandbox: &Sandbox, pod: &str) -> Result<Client> {
    let pods: Api<Pod> = sandbox.api();
    let status = pods.get(pod).await?.status.context("no status")?;
    let address = status.pod_ip.context("no address")?;
    let options = ConnectOptions::new().with_timeout(Duration::from_secs(5));
    Ok(Client::connect([format!("http://{address}:2379")], Some(options)).await?)
}

async fn put(sandbox: &Sandbox, whose: &str) -> Result<()> {
    eventually(SOON, "a write is acknowledged", || async {
        let mut client = client(sandbox, "etcd-0").await?;
        client.put(WHOSE, whose, None).await?;
        anyhow::Ok(())
    })
    .await
}

async fn budget(sandbox: &Sandbox) -> Result<QuorumDisruptionBudget> {
    let budgets: Api<QuorumDisruptionBudget> = sandbox.api();
    Ok(budgets.get("etcd").await?)
}

async fn status(sandbox: &Sandbox) -> Result<QuorumDisruptionBudgetStatus> {
    budget(sandbox).await?.status.context("no status")
}

async fn trusted(sandbox: &Sandbox) -> Result<()> {
    eventually(SOON, "the ledger is trusted", || async {
        let ledger = status(sandbox).await?.ledger;
        ensure!(ledger.trusted, "{ledger:?}");
        anyhow::Ok(())
    })
    .await
}

/// Waits until the budget says this of the id of its cluster.
async fn consistent(sandbox: &Sandbox, status: &str, reason: &str) -> Result<()> {
    eventually(SOON, format!("the budget says {reason}"), || async {
        let shown = shown(&budget(sandbox).await?, condition::CLUSTER_ID_CONSISTENT)?;
        ensure!(
            shown.status == status && shown.reason == reason,
            "{shown:?}"
        );
        anyhow::Ok(())
    })
    .await
}
