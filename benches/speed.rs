//! The speed of quorumgate and its peers. Open Policy Agent, Gatekeeper and Kyverno have a policy
//! each that keeps pods by their names, OpenKruise its budgets for pods.
//!
//! All answer the same reviews, byte for byte but the uid: the DELETE and the eviction of a
//! Deployment's pod that exists, and the eviction of one that is named as a StatefulSet's are. The
//! servers are processes, and take turns on the machine that the callers also run on. All but OPA,
//! which needs none, share a control plane, which is idle. OPA and Gatekeeper log errors only,
//! Kyverno also what it does at its start, quorumgate and OpenKruise as they do by default.
//!
//! In the end quorumgate and OpenKruise permit what they guard ([`guarded`]).
//!
//! The processor time is that of the server's threads, so that the callers' share is left out.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use quorumgate_testbed::Bed;
use quorumgate_testbed::control_plane::ControlPlane;
use serde_json::Value;

use crate::foreign::Foreign;
use crate::guarded;
use crate::population;
use crate::racers::Racer;
use crate::reviews::Reviews;
use crate::spread::Spread;
use crate::table::Table;
use crate::turn::{Serves as _, Turn};

const CONNECTIONS: [usize; 3] = [1, 16, 128];
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(3);
/// The number of calls after which memory is measured again, over this many connections.
const CALLS: usize = 100_000;
const CALLERS: usize = 16;

pub(crate) async fn race(plane: &ControlPlane) -> Result<()> {
    let bed = Bed::up_with(plane.clone()).await?;
    let mut sandbox = bed.sandbox("race").await?;
    let directory = tempfile::tempdir()?;
    let Foreign {
        delete,
        eviction,
        of_numbered,
        ..
    } = Foreign::create(&bed).await?;
    let racers = [
        Racer::quorumgate(&sandbox, &delete).await?,
        Racer::opa(directory.path(), &delete).await?,
        Racer::gatekeeper(&bed, directory.path(), &delete).await?,
        Racer::kyverno(&bed, directory.path(), &delete).await?,
        Racer::openkruise(&bed, directory.path(), &delete).await?,
    ];
    let idle: Vec<_> = racers.iter().map(Racer::memory).collect::<Result<_>>()?;
    for racer in &racers {
        Turn::take(racer, &racer.reviews(&delete)?, CALLERS, WARM_UP).await?;
    }
    for (what, review) in [
        ("the delete of a Deployment's pod", &delete),
        ("the eviction of a Deployment's pod", &eviction),
        (
            "the eviction of a foreign pod with an ordinal",
            &of_numbered,
        ),
    ] {
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
    let [ours, _, _, _, kruise] = &racers;
    guarded::race(plane, &mut sandbox, ours, kruise).await?;
    for racer in racers {
        racer.close().await?;
    }
    population::leave(sandbox);
    Ok(())
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
        "Reviews of {what}, {bytes} bytes, {connections} connections, {ROUNDS} rounds in turns"
    );
    let mut table = Table::new(title);
    let (ours, peers) = turns.split_first().context("no racers")?;
    let per_processor = |turn: &Turn| turn.calls / turn.processor;
    for (racer, theirs) in racers.iter().skip(1).zip(peers) {
        let ratio = |number: fn(&Turn) -> f64| {
            Spread::from_numbers(
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
        let each = |number: fn(&Turn) -> f64| Spread::from_numbers(turns.iter().map(number));
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
