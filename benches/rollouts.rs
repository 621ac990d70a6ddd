//! The cost of a rollout of three members, by the StatefulSet controller with its two algorithms
//! and by the gate, with all members healthy and with one broken. All run on one control plane,
//! with the same pods, in turns.

mod arena;
mod broken;
mod condition;
mod incarnations;
mod late;
mod majority;
mod plane;
mod promptness;
mod report;
mod restarts;
mod rolled;
mod spread;
mod table;

use std::time::Instant;

use anyhow::{Context as _, Result};
use quorumgate_testbed::Bed;
use quorumgate_testbed::control_plane::{ControlPlane, Tuning};
use serde_json::{Value, json};

use arena::Arena;
use condition::Condition;
use report::Report;
use rolled::Rolled;

const ROUNDS: usize = 3;

/// The algorithm of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The StatefulSet controller before Kubernetes 1.37: the highest ordinal first, whatever state
    /// the others are in.
    RollingUpdate,
    /// The StatefulSet controller of 1.37: pods that are not Ready go first, if pods start in
    /// parallel.
    MaxUnavailable,
    /// The gate.
    Quorumgate,
}

impl By {
    /// All algorithms. The first and the last need different settings of the control plane, and a
    /// change of those costs a restart.
    const ALL: [Self; 3] = [Self::RollingUpdate, Self::Quorumgate, Self::MaxUnavailable];

    fn name(self) -> &'static str {
        match self {
            Self::RollingUpdate => "RollingUpdate",
            Self::MaxUnavailable => "RollingUpdate, maxUnavailable: 1",
            Self::Quorumgate => "quorumgate",
        }
    }

    /// The update strategy of the StatefulSet.
    fn strategy(self) -> Value {
        match self {
            Self::RollingUpdate => json!({"type": "RollingUpdate", "rollingUpdate": null}),
            // Without `maxUnavailable` a broken pod is created with the old template and deleted
            // again, for ever.
            Self::MaxUnavailable => {
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}})
            }
            Self::Quorumgate => json!({"type": "OnDelete", "rollingUpdate": null}),
        }
    }
}

fn main() -> Result<()> {
    quorumgate::install_crypto_provider();
    plane::with(async |plane| Box::pin(measure(plane)).await)
}

async fn measure(plane: &ControlPlane) -> Result<()> {
    let start = Instant::now();
    let bed = Bed::up_with(plane.clone()).await?;
    let readiness = Condition::Healthy.readiness();
    let (mut plain, mut gated) =
        tokio::try_join!(Arena::plain(&bed, readiness), Arena::gated(&bed, readiness))?;
    let mut report = Report::default();
    for (condition, round) in Condition::ALL
        .into_iter()
        .flat_map(|condition| (0..ROUNDS).map(move |round| (condition, round)))
    {
        if condition == Condition::Healthy {
            report.restarts(restarts::sum(&plain).await?);
        }
        // Every other round has the reverse order, so that the control plane changes once a round.
        let mut turns = By::ALL;
        if round % 2 == 1 {
            turns.reverse();
        }
        for by in turns {
            let arena = match by {
                By::Quorumgate => &mut gated,
                By::RollingUpdate | By::MaxUnavailable => &mut plain,
            };
            choose_algorithm(plane, by).await?;
            let rolled = Rolled::out(arena, &by.strategy(), condition, round).await;
            let rolled =
                rolled.with_context(|| format!("{}, by {}", condition.name(), by.name()))?;
            report.rolled(condition, by, rolled);
        }
    }
    for round in 0..ROUNDS {
        let strategy = By::Quorumgate.strategy();
        let delay = late::delay(&mut gated, &strategy, round).await;
        report.late(delay.context("a long wait")?);
    }
    gated.close().await?;
    plain.close().await?;
    report.print(start.elapsed())
}

/// Makes the StatefulSet controller use this algorithm.
async fn choose_algorithm(plane: &ControlPlane, by: By) -> Result<()> {
    let controller_gates = match by {
        By::RollingUpdate => Some("MaxUnavailableStatefulSet=false"),
        By::MaxUnavailable => None,
        By::Quorumgate => return Ok(()),
    };
    let tuning = Tuning {
        controller_gates,
        ..plane.tuning
    };
    let plane = ControlPlane {
        tuning,
        ..plane.clone()
    };
    plane.up().await
}
