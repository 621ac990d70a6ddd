//! A replica beside other admission webhooks: Open Policy Agent and Gatekeeper, each with a policy
//! that keeps pods by their names, which is what they can do without asking etcd, and OpenKruise
//! with its budgets for pods. `make race` builds them from their Go modules and runs this.
//!
//! All answer the same reviews, byte for byte but the uid: the DELETE and the eviction of a
//! Deployment's pod that exists. The servers are processes, and take turns on the machine that the
//! callers also run on. All but OPA, which needs none, share a control plane, which is idle. OPA
//! and Gatekeeper log errors only, quorumgate and OpenKruise as they do by default.
//!
//! In the end quorumgate and OpenKruise permit what they guard ([`guarded`]).
//!
//! The processor time is that of the server's threads, so that the callers' share is left out.

mod caller;
mod deletion;
mod guarded;
mod kruise;
mod plane;
mod processor;
mod racers;
mod resident;
mod reviews;
mod round;
mod spread;
mod table;
mod turn;

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use quorumgate_testbed::Bed;
use quorumgate_testbed::control_plane::ControlPlane;
use serde_json::{Value, json};

use racers::Racer;
use reviews::Reviews;
use spread::Spread;
use table::Table;
use turn::{Serves as _, Turn};

/// A DELETE as the API server sends it, with managed fields.
const REVIEW: &str = include_str!("foreign_pod.json");
const CONNECTIONS: [usize; 3] = [1, 16, 128];
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(3);
/// The number of calls after which memory is measured again, over this many connections.
const CALLS: usize = 100_000;
const CALLERS: usize = 16;

fn main() -> Result<()> {
    quorumgate::install_crypto_provider();
    plane::with(race)
}

async fn race(plane: &ControlPlane) -> Result<()> {
    let bed = Bed::up_with(plane.clone()).await?;
    let mut sandbox = bed.sandbox("race").await?;
    let directory = tempfile::tempdir()?;
    let delete: Value = serde_json::from_str(REVIEW)?;
    let pod = existing_pod(&bed, &delete).await?;
    let delete = of_pod(delete, &pod)?;
    let eviction = eviction(&delete)?;
    let racers = [
        Racer::quorumgate(&sandbox, &delete).await?,
        Racer::opa(directory.path(), &delete).await?,
        Racer::gatekeeper(&bed, directory.path(), &delete).await?,
        Racer::openkruise(&bed, directory.path(), &delete).await?,
    ];
    let idle: Vec<_> = racers.iter().map(Racer::memory).collect::<Result<_>>()?;
    for racer in &racers {
        Turn::take(racer, &racer.reviews(&delete)?, CALLERS, WARM_UP).await?;
    }
    for (what, review) in [("delete", &delete), ("eviction", &eviction)] {
        for connections in CONNECTIONS {
            run(&racers, what, review, connections).await?;
        }
    }
    for racer in &racers {
        hundred_thousand(racer, &racer.reviews(&delete)?).await?;
    }
    let mut table = Table::new("Start and memory");
    let mib = |kib: f64| Spread::once(kib / 1024.0);
    for (racer, idle) in racers.iter().zip(idle) {
        let (name, busy) = (racer.name, racer.memory()?);
        table = table
            .row(
                &format!("{name}: from start to the right answer, s"),
                Spread::once(racer.ready_after),
                ..,
            )
            .row(&format!("{name}: resident idle, MiB"), mib(idle.now), ..)
            .row(
                &format!("{name}: resident after {CALLS} more calls, MiB"),
                mib(busy.now),
                ..,
            )
            .row(&format!("{name}: most of it, MiB"), mib(busy.most), ..);
    }
    table.print()?;
    let [ours, _, _, kruise] = &racers;
    guarded::race(&mut sandbox, ours, kruise).await?;
    for racer in racers {
        racer.close().await?;
    }
    sandbox.close().await
}

/// Races over so many connections, in turns.
async fn run(racers: &[Racer], what: &str, review: &Value, connections: usize) -> Result<()> {
    let mut turns: Vec<Vec<Turn>> = racers.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (racer, turns) in racers.iter().zip(&mut turns) {
            let reviews = racer.reviews(review)?;
            turns.push(Turn::take(racer, &reviews, connections, ROUND).await?);
        }
    }
    let bytes = racers
        .first()
        .context("no racers")?
        .reviews(review)?
        .length();
    let title = format!(
        "A foreign pod's {what} of {bytes} bytes, {connections} connections, {ROUNDS} rounds in turns"
    );
    let mut table = Table::new(title);
    let (ours, peers) = turns.split_first().context("no racers")?;
    let per_processor = |turn: &Turn| turn.calls / turn.processor;
    for (racer, theirs) in racers.iter().skip(1).zip(peers) {
        let ratio = |number: fn(&Turn) -> f64| {
            Spread::of(
                ours.iter()
                    .zip(theirs)
                    .map(|(our, their)| number(our) / number(their)),
            )
        };
        let name = racer.name;
        table = table
            .row(
                &format!("calls per second of its processor, / {name}"),
                ratio(per_processor),
                5.0..,
            )
            .row(
                &format!("p99, / {name}"),
                ratio(|turn| turn.round.percentile(99)),
                ..=1.0 / 3.0,
            )
            .row(
                &format!("calls per second, / {name}"),
                ratio(|turn| turn.calls / turn.took),
                ..,
            );
    }
    for (racer, turns) in racers.iter().zip(&turns) {
        let name = racer.name;
        let each = |number: fn(&Turn) -> f64| Spread::of(turns.iter().map(number));
        table = table
            .row(
                &format!("{name}: calls per second"),
                each(|turn| turn.calls / turn.took),
                ..,
            )
            .row(
                &format!("{name}: p50, ms"),
                each(|turn| 1e3 * turn.round.percentile(50)),
                ..,
            )
            .row(
                &format!("{name}: p99, ms"),
                each(|turn| 1e3 * turn.round.percentile(99)),
                ..,
            )
            .row(
                &format!("{name}: processor time per call, µs"),
                each(|turn| 1e6 * turn.processor / turn.calls),
                ..,
            );
    }
    Ok(table.print()?)
}

async fn hundred_thousand(racer: &Racer, reviews: &Reviews) -> Result<()> {
    let mut callers = try_join_all((0..CALLERS).map(|_| racer.connected())).await?;
    let calling = callers.iter_mut().map(|caller| async move {
        let mut reviews = reviews.clone();
        for _ in 0..CALLS / CALLERS {
            caller.call(reviews.next()).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(calling).await?;
    Ok(())
}

/// The pod of the review, created on this control plane. No scheduler takes it, so that it stays.
async fn existing_pod(bed: &Bed, review: &Value) -> Result<Pod> {
    let old = review
        .pointer("/request/oldObject")
        .context("no old object")?;
    let mut pod: Pod = serde_json::from_value(old.clone())?;
    let namespace = pod.metadata.namespace.clone().context("no namespace")?;
    let home = Namespace {
        metadata: ObjectMeta {
            name: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let namespaces: Api<Namespace> = Api::all(bed.client());
    namespaces.create(&PostParams::default(), &home).await?;
    pod.metadata = ObjectMeta {
        name: pod.metadata.name,
        labels: pod.metadata.labels,
        annotations: pod.metadata.annotations,
        ..ObjectMeta::default()
    };
    let spec = pod.spec.as_mut().context("no spec")?;
    spec.scheduler_name = Some("nobody".into());
    spec.node_name = None;
    spec.service_account_name = None;
    spec.service_account = None;
    spec.automount_service_account_token = Some(false);
    pod.status = None;
    let pods: Api<Pod> = Api::namespaced(bed.client(), &namespace);
    Ok(pods.create(&PostParams::default(), &pod).await?)
}

/// The same review about the pod that exists.
fn of_pod(mut review: Value, pod: &Pod) -> Result<Value> {
    let uid = review
        .pointer_mut("/request/oldObject/metadata/uid")
        .context("no uid")?;
    *uid = json!(pod.metadata.uid);
    Ok(review)
}

/// The eviction of the same pod, as the API server asks about it: the review has no pod.
fn eviction(delete: &Value) -> Result<Value> {
    let mut review = delete.clone();
    let request = review
        .pointer_mut("/request")
        .and_then(Value::as_object_mut)
        .context("no request")?;
    let kind = json!({"group": "policy", "version": "v1", "kind": "Eviction"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    let object = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": request.get("name"), "namespace": request.get("namespace")},
    });
    for (field, value) in [
        ("kind", kind.clone()),
        ("requestKind", kind),
        ("resource", resource.clone()),
        ("requestResource", resource),
        ("subResource", json!("eviction")),
        ("requestSubResource", json!("eviction")),
        ("operation", json!("CREATE")),
        ("object", object),
        ("oldObject", Value::Null),
        (
            "options",
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"}),
        ),
    ] {
        request.insert(field.to_owned(), value);
    }
    Ok(review)
}
