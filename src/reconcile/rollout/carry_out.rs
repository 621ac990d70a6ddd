//! The execution of a step: first the grant, from the judge that all requests go to, and then the
//! delete, which passes the webhook like any other.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::{Error, ResourceExt as _};
use serde_json::json;

use crate::judge::{
    Asker, Decision, DryRun, Ground, Judging as _, Question, Refused, SeenVersions,
};
use crate::plan::{Departure, Step};
use crate::quorum::{Actor, ClusterRef, Grace, Reason};
use crate::reconcile::Run;
use crate::reconcile::look::Look;

/// The time limit of the judge.
const PATIENCE: Duration = Duration::from_secs(10);

/// The result of a step.
#[derive(Debug)]
pub(super) enum StepOutcome {
    /// The pod is being deleted.
    Done,
    /// The pod, or the facts about it, have changed since the look.
    Outdated,
    /// The judge refused the step for now.
    Refused(Reason),
    /// The API server refused what the gate had permitted, or did not answer.
    Failed(String),
}

/// Carries out a step of a cluster. `seen` is the cluster at the last look, and holds the new grant
/// afterwards.
pub(super) async fn carry_out(
    run: &Run,
    cluster: &ClusterRef,
    look: &Look,
    seen: &mut SeenVersions,
    step: &Step,
) -> StepOutcome {
    let Some(pod) = look.world.pod(&step.pod.name) else {
        return StepOutcome::Outdated;
    };
    let allowed = match ask(run, cluster, step, *seen).await {
        Ok(allowed) => allowed,
        Err(Refused::Wait(reason) | Refused::Deny(reason)) => return StepOutcome::Refused(reason),
        Err(Refused::NoSuchPod | Refused::Outdated) => return StepOutcome::Outdated,
    };
    match allowed.ground() {
        Ground::Recorded(_, proof) => seen.last_seq = proof.seq(),
        // With a waiver the pod runs no member any more, or is not the incarnation that was seen.
        Ground::Waived(_) => return StepOutcome::Outdated,
        Ground::Ungranted | Ground::Unrecorded | Ground::DryRun(_) | Ground::Warned(_) => {
            return StepOutcome::Failed("the judge gave no permission that can be used".into());
        }
    }
    // A leader has handed over by now, since the judge makes that happen before it permits.
    let pods: Api<Pod> = Api::namespaced(run.client.clone(), &cluster.namespace);
    let gone = match step.action.departure() {
        Departure::Delete => delete(&pods, pod).await,
        Departure::Evict => evict(&pods, pod).await,
    };
    match gone {
        Ok(()) => StepOutcome::Done,
        Err(Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
            StepOutcome::Outdated
        }
        Err(Error::Api(status)) => StepOutcome::Failed(status.message),
        Err(error) => StepOutcome::Failed(error.to_string()),
    }
}

async fn ask(run: &Run, cluster: &ClusterRef, step: &Step, seen: SeenVersions) -> Decision {
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
        only_if_etcd_is: Vec::new(),
        seen: Some(seen),
    };
    run.judge.judge(question).await.decision
}

/// The preconditions for exactly the incarnation and version that were seen. A member that did not
/// run may run by now.
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
