//! `kubectl quorum rollout`: how a rollout goes, and to stop it or let it go on.

use anyhow::{Result, bail};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Api;
use quorumgate::api::names::PROCEED_WITHOUT_QUORUM;
use quorumgate::api::{QuorumDisruptionBudget, Updater};
use serde_json::json;

use crate::End;
use crate::change::{annotate, change, confirm};
use crate::cli;
use crate::cluster::{Cluster, Rollout, RolloutState};
use crate::connect::{Kubernetes, budget, failed};
use crate::show::{Paint, print};

pub(crate) async fn run(of: &Kubernetes, command: &cli::Rollout, paint: Paint) -> Result<End> {
    match command {
        cli::Rollout::Status(cluster) => status(of, &cluster.name, paint).await,
        cli::Rollout::Pause(cluster) => pause(of, &cluster.name, true).await,
        cli::Rollout::Resume(cluster) => pause(of, &cluster.name, false).await,
        cli::Rollout::Proceed { cluster, yes } => proceed(of, &cluster.name, yes).await,
    }
}

async fn status(of: &Kubernetes, name: &str, paint: Paint) -> Result<End> {
    let cluster = Cluster::of(&budget(of, name).await?);
    let mut told = words(&cluster.rollout);
    told += &cluster.member_table(paint);
    print(&told)?;
    let done = matches!(
        cluster.rollout.state,
        RolloutState::Done | RolloutState::None
    );
    Ok(if done { End::Well } else { End::No })
}

/// A rollout in words.
fn words(rollout: &Rollout) -> String {
    let Rollout {
        updated, targets, ..
    } = rollout;
    let revision = rollout.revision.as_deref().unwrap_or("its revision");
    let mut told = match rollout.state {
        RolloutState::Done => "Every pod is up to date.\n".to_owned(),
        RolloutState::None => "There is no rollout.\n".to_owned(),
        RolloutState::UnderWay => format!("{updated} of {targets} pods have {revision}.\n"),
        RolloutState::Paused => format!(
            "Paused: {updated} of {targets} pods have {revision}. It goes on by `kubectl quorum rollout resume`.\n"
        ),
        RolloutState::Waiting => {
            format!("It waits: {updated} of {targets} pods have {revision}.\n")
        }
    };
    if let Some(waits_for) = &rollout.waits_for {
        told += &format!("  waits for  {waits_for}\n");
    }
    if let Some(step) = &rollout.last_step {
        told += &format!("  last step  {step}\n");
    }
    told += match rollout.updated_by {
        Some(Updater::Gate) => "  updated by the gate\n",
        Some(Updater::StatefulSetController) => {
            "  updated by the StatefulSet controller, in the order of ordinals: the gate's feature QuorumAwareUpdatesWithOnDelete is off\n"
        }
        Some(Updater::Nobody) => {
            "  updated by nobody: an outdated pod is replaced when somebody deletes it\n"
        }
        None => "",
    };
    told
}

async fn pause(of: &Kubernetes, name: &str, paused: bool) -> Result<End> {
    budget(of, name).await?;
    let patch = json!({"spec": {"paused": paused}});
    change::<QuorumDisruptionBudget>(of, name, &patch).await?;
    print(&if paused {
        format!(
            "Rollouts of {name} are paused: no new step is begun. A step that has begun is finished.\n"
        )
    } else {
        format!("Rollouts of {name} are not paused.\n")
    })?;
    Ok(End::Well)
}

async fn proceed(of: &Kubernetes, name: &str, yes: &cli::Yes) -> Result<End> {
    let cluster = Cluster::of(&budget(of, name).await?);
    let sets = Api::<StatefulSet>::namespaced(of.client.clone(), &of.namespace);
    let set = sets.get(name).await;
    let set = set.map_err(|error| failed("StatefulSets", error))?;
    let status = set.status.unwrap_or_default();
    let Some(revision) = status.update_revision else {
        bail!("the StatefulSet {name} has no update revision yet");
    };
    if matches!(
        cluster.rollout.state,
        RolloutState::Done | RolloutState::None
    ) {
        bail!("nothing is being rolled out in {name}");
    }
    confirm(
        &format!(
            "{}\nThe revision {revision} is rolled out member by member although old and new members form no quorum. Writers stop until a majority is updated. It counts only while the change is one that old and new members cannot live through together.",
            words(&cluster.rollout)
        ),
        yes,
    )?;
    let annotations = json!({ PROCEED_WITHOUT_QUORUM: revision });
    annotate::<QuorumDisruptionBudget>(of, name, &annotations).await?;
    print(&format!(
        "{name} may go on with {revision} without quorum.\n"
    ))?;
    Ok(End::Well)
}
