//! A step carried out: the grant first, from the judge that everyone asks, then the delete, which passes the webhook like anyone's.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::{Error, ResourceExt as _};
use serde_json::json;

use crate::judge::{Asker, DryRun, Judging as _, Question, Refusal, Yes};
use crate::plan::{Action, Step};
use crate::quorum::{Actor, ClusterRef, Grace, Kind, Reason};
use crate::reconcile::Run;
use crate::reconcile::look::Look;

/// How long the judge may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of a step.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The pod is on its way out.
    Done,
    /// The pod or what was known of it has changed since it was looked at: look again.
    Outdated,
    /// Not now.
    Refused(Reason),
    /// The API server refused what the gate had permitted, or could not be asked.
    Failed(String),
}

/// Carries out a step of a cluster as it was seen.
pub(super) async fn carry_out(
    run: &Run,
    cluster: &ClusterRef,
    look: &Look,
    step: &Step,
) -> Outcome {
    let Some(pod) = look.world.pod(&step.pod.name) else {
        return Outcome::Outdated;
    };
    if step.action == Action::Evict
        && let Err(refusal) = ask(run, cluster, step, Kind::Evict, DryRun::Yes).await
    {
        // What a PodDisruptionBudget refuses must not hold the ledger.
        return refused(refusal);
    }
    match ask(run, cluster, step, Kind::RolloutStep, DryRun::No).await {
        Ok(Yes::Recorded { .. } | Yes::Waived(_)) => {}
        Ok(Yes::Ungranted | Yes::DryRun(_)) => {
            return Outcome::Failed("the judge gave no permission that can be used".into());
        }
        Err(refusal) => return refused(refusal),
    }
    // A leader has handed over by now: the judge does that before it says yes.
    let pods: Api<Pod> = Api::namespaced(run.client.clone(), &cluster.namespace);
    let gone = match step.action {
        Action::Delete | Action::MoveLeader { .. } => delete(&pods, pod).await,
        Action::Evict => evict(&pods, pod).await,
    };
    match gone {
        Ok(()) => Outcome::Done,
        Err(Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
            Outcome::Outdated
        }
        Err(Error::Api(status)) => Outcome::Failed(status.message),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

fn refused(refusal: Refusal) -> Outcome {
    match refusal {
        Refusal::Wait(reason) | Refusal::Deny(reason) => Outcome::Refused(reason),
        Refusal::NoSuchPod => Outcome::Outdated,
    }
}

async fn ask(
    run: &Run,
    cluster: &ClusterRef,
    step: &Step,
    kind: Kind,
    dry_run: DryRun,
) -> Result<Yes, Refusal> {
    let question = Question {
        namespace: cluster.namespace.clone(),
        pod: step.pod.name.clone(),
        shown: None,
        kind,
        asker: Asker {
            name: run.own_username.clone(),
            actor: Actor::Gate,
        },
        grace: Grace::Graceful,
        precondition: Some(step.pod.uid.clone()),
        dry_run,
        deadline: run.clock.instant() + PATIENCE,
    };
    run.judge.judge(question).await.outcome
}

/// This incarnation, and only as it was looked at: what does not run may run by now.
fn as_seen(pod: &Pod) -> Preconditions {
    Preconditions {
        uid: pod.uid(),
        resource_version: pod.resource_version(),
    }
}

async fn delete(pods: &Api<Pod>, pod: &Pod) -> Result<(), Error> {
    let only_this = DeleteParams::default().preconditions(as_seen(pod));
    pods.delete(&pod.name_any(), &only_this).await.map(drop)
}

async fn evict(pods: &Api<Pod>, pod: &Pod) -> Result<(), Error> {
    let Preconditions {
        uid,
        resource_version,
    } = as_seen(pod);
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name_any(), "namespace": pod.namespace()},
        "deleteOptions": {"preconditions": {"uid": uid, "resourceVersion": resource_version}},
    });
    pods.create_subresource::<_, serde_json::Value>(
        "eviction",
        &pod.name_any(),
        &PostParams::default(),
        &eviction,
    )
    .await
    .map(drop)
}
