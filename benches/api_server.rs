//! The view of callers of an API server that asks a webhook about deletes and evictions of pods:
//! 200 calls a second, each sent when it is due, whether or not earlier ones are answered. The API
//! server asks nobody, quorumgate or one of its peers, in turns.
//!
//! Half of the calls are deletes and half evictions, all of them dry runs, so that the pods stay.
//! Nine of ten are about pods that nobody guards: a Deployment's, and one that is named as a
//! StatefulSet's are. The tenth is about a pod that the server in turn guards. quorumgate guards
//! members on paper, of two hundred clusters, and OpenKruise pods with a budget, of forty; both let
//! them go. OPA and Gatekeeper keep one pod by its name.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, PostParams};
use kube::{Api, Client};
use quorumgate_testbed::control_plane::ControlPlane;
use quorumgate_testbed::{Bed, eventually};
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

use crate::foreign::Foreign;
use crate::on_paper;
use crate::population;
use crate::racers::{KEPT, Racer, kruise};
use crate::round::Round;
use crate::spread::Spread;
use crate::table::Table;
use crate::turn::Serves;

const ROUNDS: usize = 3;
/// The calls of one turn, and the time between two.
const CALLS: usize = 2000;
const BETWEEN: Duration = Duration::from_millis(5);
const SOON: Duration = Duration::from_secs(120);
const SECOND: Duration = Duration::from_secs(1);
/// The processor time of all servers in a second, in seconds, that is no hindrance to others.
const QUIET: f64 = 0.25;
/// The number of calls of which one is about a guarded pod.
const GUARDED: usize = 10;
const CLUSTERS: u32 = 200;
const BUDGETS: usize = 40;
const PODS: usize = 5;

pub(crate) async fn measure(plane: &ControlPlane) -> Result<()> {
    let bed = Bed::up_with(plane.clone()).await?;
    let mut sandbox = bed.sandbox("raced").await?;
    sandbox.add_nodes(3).await?;
    let directory = tempfile::tempdir()?;
    let foreign = Foreign::create(&bed).await?;
    let delete = &foreign.delete;
    let ours = Racer::quorumgate(&sandbox, delete).await?;
    let kruise = Racer::openkruise(&bed, directory.path(), delete).await?;
    let budgeted = kruise::pods(&sandbox, BUDGETS, PODS).await?;
    let members = on_paper::followers(plane, &sandbox, CLUSTERS).await?;
    ours.unregister(&bed, &foreign.namespace).await?;
    let members = places(&members)?;
    let kept = vec![Place {
        namespace: foreign.namespace.clone(),
        pod: KEPT.to_owned(),
    }];
    let sides = [
        Side::new(None, members.clone()),
        Side::new(Some(ours), members),
        Side::new(Some(kruise), places(&budgeted)?),
        Side::new(
            Some(Racer::opa(directory.path(), delete).await?),
            kept.clone(),
        ),
        Side::new(
            Some(Racer::gatekeeper(&bed, directory.path(), delete).await?),
            kept,
        ),
    ];
    let mut turns: Vec<Vec<Turn>> = sides.iter().map(|_| Vec::new()).collect();
    for round in 0..=ROUNDS {
        for (side, turns) in sides.iter().zip(&mut turns) {
            quiet(&sides).await?;
            let turn = side.turn(&bed, &foreign).await?;
            // The first round warms up.
            if round > 0 {
                turns.push(turn);
            }
        }
    }
    report(&sides, &turns)?;
    for side in sides {
        if let Some(racer) = side.racer {
            racer.close().await?;
        }
    }
    population::leave(sandbox);
    Ok(())
}

/// The place of a pod.
#[derive(Clone)]
struct Place {
    namespace: String,
    pod: String,
}

fn places(pods: &[Value]) -> Result<Vec<Place>> {
    let text = |pod: &Value, field: &str| {
        let text = pod.pointer(field).and_then(Value::as_str);
        text.map(str::to_owned)
            .with_context(|| format!("no {field}"))
    };
    let place = |pod| {
        anyhow::Ok(Place {
            namespace: text(pod, "/metadata/namespace")?,
            pod: text(pod, "/metadata/name")?,
        })
    };
    pods.iter().map(place).collect()
}

/// A server that the API server asks, or none, with the pods that it guards.
struct Side {
    racer: Option<Racer>,
    guarded: Vec<Place>,
}

/// The calls of one turn.
struct Turn {
    foreign: Round,
    guarded: Round,
    /// The calls that were carried out, those that were refused, and those that failed.
    done: f64,
    refused: f64,
    failed: f64,
}

/// The end of a call.
enum End {
    Done,
    Refused,
    Failed,
}

impl Side {
    fn new(racer: Option<Racer>, guarded: Vec<Place>) -> Self {
        Self { racer, guarded }
    }

    fn name(&self) -> &'static str {
        self.racer.as_ref().map_or("nobody", |racer| racer.name)
    }

    async fn turn(&self, bed: &Bed, foreign: &Foreign) -> Result<Turn> {
        let namespace = &foreign.namespace;
        if let Some(racer) = &self.racer {
            racer.register(bed, namespace).await?;
        }
        let turn = Turn::measure(&bed.client(), &foreign.places(), &self.guarded).await?;
        if let Some(racer) = &self.racer {
            racer.unregister(bed, namespace).await?;
        }
        Ok(turn)
    }
}

/// Waits until the servers have done what the turn before has left to them. quorumgate notes of
/// each cluster that it was not asked for a while.
async fn quiet(sides: &[Side]) -> Result<()> {
    let processor = || {
        let racers = sides.iter().filter_map(|side| side.racer.as_ref());
        racers.map(Serves::processor_time).sum::<Result<f64>>()
    };
    eventually(SOON, "the servers are quiet", async || {
        let before = processor()?;
        sleep(SECOND).await;
        let busy = processor()? - before;
        ensure!(busy < QUIET, "they took {busy} s in one");
        anyhow::Ok(())
    })
    .await
}

impl Foreign {
    fn places(&self) -> [Place; 2] {
        [&self.pod, &self.numbered].map(|pod| Place {
            namespace: self.namespace.clone(),
            pod: pod.clone(),
        })
    }
}

impl Turn {
    async fn measure(client: &Client, foreign: &[Place], guarded: &[Place]) -> Result<Self> {
        let begin = Instant::now();
        let mut foreign = foreign.iter().cycle();
        let mut guarded = guarded.iter().cycle();
        let mut calls = Vec::with_capacity(CALLS);
        let mut due = begin;
        for number in 0..CALLS {
            let is_guarded = number.is_multiple_of(GUARDED);
            let place = if is_guarded {
                guarded.next()
            } else {
                foreign.next()
            };
            // Both kinds of pods are deleted and evicted in turns.
            let evicts = (number / GUARDED).is_multiple_of(2);
            let call = call(client, place.context("no pod")?, evicts, due);
            calls.push(async move { (is_guarded, call.await) });
            due += BETWEEN;
        }
        let (mut foreign, mut guarded) = (Vec::new(), Vec::new());
        let (mut done, mut refused, mut failed) = (0.0, 0.0, 0.0);
        for (is_guarded, (took, end)) in join_all(calls).await {
            let calls = if is_guarded {
                &mut guarded
            } else {
                &mut foreign
            };
            calls.push(took);
            *match end {
                End::Done => &mut done,
                End::Refused => &mut refused,
                End::Failed => &mut failed,
            } += 1.0;
        }
        Ok(Self {
            foreign: Round::from_calls(foreign),
            guarded: Round::from_calls(guarded),
            done,
            refused,
            failed,
        })
    }
}

/// Makes a call when it is due. Returns the time from then until its answer.
async fn call(client: &Client, place: &Place, evicts: bool, due: Instant) -> (Duration, End) {
    sleep_until(due).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &place.namespace);
    let answer = if evicts {
        let dry_run = EvictParams {
            post_options: PostParams {
                dry_run: true,
                ..PostParams::default()
            },
            ..EvictParams::default()
        };
        pods.evict(&place.pod, &dry_run).await.map(drop)
    } else {
        let dry_run = DeleteParams::default().dry_run();
        pods.delete(&place.pod, &dry_run).await.map(drop)
    };
    let end = match answer {
        Ok(()) => End::Done,
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 429) => End::Refused,
        Err(_) => End::Failed,
    };
    (due.elapsed(), end)
}

fn report(sides: &[Side], turns: &[Vec<Turn>]) -> Result<()> {
    let title = format!(
        "{CALLS} dry runs of deletes and evictions through an API server, one every {} ms, {ROUNDS} rounds in turns",
        BETWEEN.as_millis()
    );
    let mut table = Table::new(title);
    let nobody = turns.first().context("nobody")?;
    for (side, turns) in sides.iter().zip(turns) {
        let name = side.name();
        let each = |number: fn(&Turn) -> f64| Spread::from_numbers(turns.iter().map(number));
        let ratio = |number: fn(&Turn) -> f64| {
            let pairs = turns.iter().zip(nobody);
            Spread::from_numbers(pairs.map(|(asked, unasked)| number(asked) / number(unasked)))
        };
        let foreign_p50 = |turn: &Turn| turn.foreign.percentile(50);
        let foreign_p99 = |turn: &Turn| turn.foreign.percentile(99);
        table = table
            .row(
                &format!("{name}: foreign, p50, / nobody"),
                ratio(foreign_p50),
                ..,
            )
            .row(
                &format!("{name}: foreign, p99, / nobody"),
                ratio(foreign_p99),
                ..,
            )
            .row(
                &format!("{name}: foreign, p50, ms"),
                each(|turn| 1e3 * turn.foreign.percentile(50)),
                ..,
            )
            .row(
                &format!("{name}: foreign, p99, ms"),
                each(|turn| 1e3 * turn.foreign.percentile(99)),
                ..,
            )
            .row(
                &format!("{name}: guarded, p50, ms"),
                each(|turn| 1e3 * turn.guarded.percentile(50)),
                ..,
            )
            .row(
                &format!("{name}: guarded, p99, ms"),
                each(|turn| 1e3 * turn.guarded.percentile(99)),
                ..,
            )
            .row(&format!("{name}: carried out"), each(|turn| turn.done), ..)
            .row(&format!("{name}: refused"), each(|turn| turn.refused), ..)
            .row(&format!("{name}: failed"), each(|turn| turn.failed), ..=0.0);
    }
    Ok(table.print()?)
}
