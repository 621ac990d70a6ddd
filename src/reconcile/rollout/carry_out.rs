//! A step carried out: the grant first, from the judge that everyone asks, then the delete, which passes the webhook like anyone's.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::{Error, ResourceExt as _};
use serde_json::json;

use crate::judge::{Asker, DryRun, Judging as _, Question, Refusal, Sighting, Yes};
use crate::plan::{Departure, Step};
use crate::quorum::{Actor, ClusterRef, Grace, Reason};
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

/// Carries out a step of a cluster as it was seen. What is `seen` from then on has its permission in it.
pub(super) async fn carry_out(
    run: &Run,
    cluster: &ClusterRef,
    look: &Look,
    seen: &mut Sighting,
    step: &Step,
) -> Outcome {
    let Some(pod) = look.world.pod(&step.pod.name) else {
        return Outcome::Outdated;
    };
    match ask(run, cluster, step, *seen).await {
        Ok(Yes::Recorded { proof, .. }) => seen.last_seq = proof.seq(),
        Ok(Yes::Ungranted | Yes::DryRun(_) | Yes::Warned(_)) => {
            return Outcome::Failed("the judge gave no permission that can be used".into());
        }
        Err(Refusal::Wait(reason) | Refusal::Deny(reason)) => return Outcome::Refused(reason),
        // With a waiver it is no member any more, or not the one that was looked at.
        Ok(Yes::Waived(_)) | Err(Refusal::NoSuchPod | Refusal::Outdated) => {
            return Outcome::Outdated;
        }
    }
    // A leader has handed over by now: the judge does that before it says yes.
    let pods: Api<Pod> = Api::namespaced(run.client.clone(), &cluster.namespace);
    let gone = match step.action.departure() {
        Departure::Delete => delete(&pods, pod).await,
        Departure::Evict => evict(&pods, pod).await,
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

async fn ask(run: &Run, cluster: &ClusterRef, step: &Step, seen: Sighting) -> Result<Yes, Refusal> {
    let question = Question {
        namespace: cluster.namespace.clone(),
        pod: step.pod.name.clone(),
        shown: None,
        kind: step.kind(),
        asker: Asker {
            name: run.own_username.clone(),
            actor: Actor::Gate,
        },
        grace: Grace::Graceful,
        precondition: Some(step.pod.uid.clone()),
        dry_run: DryRun::No,
        deadline: run.clock.instant() + PATIENCE,
        seen: Some(seen),
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
