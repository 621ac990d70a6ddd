//! `/validate/pods`: may this pod be deleted, or be called failed?
//!
//! Where a Node is deleted, the garbage collector of pods writes the phase `Failed` before it
//! deletes the pods. A kubelet that still runs ends their containers by the phase alone. So the
//! write is judged as the delete that follows it.

use serde::Deserialize;

use super::asked::{Context, ParsedReview, ReviewAction, ReviewContext, Subject};
use super::hook::{Hook, Operation};
use super::malformed::Malformed;
use super::review::{Metadata, Options, Request};
use crate::judge::Question;
use crate::quorum::{Actor, Grace, Kind, Waiver};

/// A pod as a review shows it. The API server may take it from a cache, so only its identity
/// decides.
#[derive(Debug, Clone, Default, Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: Metadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Status {
    phase: Option<String>,
}

impl Pod {
    /// Whether a delete with these options removes the object at once, or lets the kubelet end the
    /// containers first.
    ///
    /// A 0 in the options of a review may come from `--force`, from the pod's own
    /// `terminationGracePeriodSeconds`, or from the API server, for a pod that is unscheduled or in
    /// a final phase. The source makes no difference to a second incarnation that starts beside the
    /// first, so only the effect counts. Two pods are special:
    ///
    /// - A pod without a node runs nowhere, so it is never forced.
    /// - A pod with a final phase may still run, because pod GC writes `Failed` without asking the
    ///   kubelet. The rules judge that by the node and the containers.
    ///
    /// In a collection delete the options are as the caller sent them, so the defaults of the API
    /// server are applied here.
    fn grace(&self, options: &Options) -> Grace {
        let spec = self.spec.as_ref();
        let node = spec.and_then(|spec| spec.node_name.as_deref());
        if node.is_none_or(str::is_empty) {
            return Grace::Graceful;
        }
        let phase = self.status.as_ref().and_then(|s| s.phase.as_deref());
        let default = match phase {
            Some("Failed" | "Succeeded") => Some(0),
            _ => spec.and_then(|spec| spec.termination_grace_period_seconds),
        };
        Options::grace_of(options.grace_period_seconds.or(default))
    }
}

/// The question of a review.
pub(super) fn asked(body: &[u8], context: Context<'_>) -> Result<ParsedReview, Malformed> {
    let mut request = Request::<Pod>::read(Hook::Pods, body)?;
    let pod = request.take_old_object()?;
    let (namespace, name) = request.identity(&pod.metadata)?;
    let is_delete = request.operation == Operation::Delete;
    let (grace, precondition) = if is_delete {
        let precondition = request.options.precondition().map(Into::into);
        (pod.grace(&request.options), precondition)
    } else {
        (Grace::Forced, pod.metadata.uid.as_deref().map(Into::into))
    };
    let terminates = pod.metadata.deletion_timestamp.is_some();
    let subject = Subject::pod(&namespace, &name, pod.metadata.uid.as_deref());
    let about = ReviewContext::new(&mut request, subject, context);
    let what = if terminates && may_finish(grace, about.asker.actor) {
        ReviewAction::Nothing(Waiver::Terminating)
    } else {
        ReviewAction::Pod(Question {
            namespace,
            pod: name.as_str().into(),
            shown: Some(pod.metadata.belonging()),
            kind: Kind::Delete,
            asker: about.asker.clone(),
            grace,
            precondition,
            dry_run: about.dry_run,
            deadline: context.deadline,
            only_if_etcd_is: Vec::new(),
            seen: None,
        })
    };
    Ok(ParsedReview { about, what })
}

/// Rule 2, without a question, so that terminating pods finish whatever else is down. A stale copy
/// of the pod does no harm: an incarnation that terminates never stops to terminate.
fn may_finish(grace: Grace, actor: Actor) -> bool {
    match (grace, actor) {
        (Grace::Graceful, _) | (Grace::Forced, Actor::NodeOrPodGc) => true,
        (Grace::Forced, Actor::Stranger | Actor::Gate) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn grace(options: serde_json::Value, pod: serde_json::Value) -> Grace {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        pod.grace(&serde_json::from_value(options).unwrap())
    }

    #[test]
    fn grace_0_of_a_scheduled_pod_is_forced_whoever_meant_it() {
        let running = json!({"spec": {"nodeName": "a", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}});
        let failed = json!({"spec": {"nodeName": "a"}, "status": {"phase": "Failed"}});
        let at_once = json!({"spec": {"nodeName": "a", "terminationGracePeriodSeconds": 0}});
        assert_eq!(
            grace(json!({"gracePeriodSeconds": 0}), running.clone()),
            Grace::Forced
        );
        assert_eq!(
            grace(json!({"gracePeriodSeconds": 30}), running.clone()),
            Grace::Graceful
        );
        assert_eq!(
            grace(json!({"gracePeriodSeconds": 0}), failed.clone()),
            Grace::Forced
        );
        // A collection delete: nothing is defaulted.
        assert_eq!(grace(json!({}), running), Grace::Graceful);
        assert_eq!(grace(json!({}), failed), Grace::Forced);
        assert_eq!(grace(json!({}), at_once), Grace::Forced);
    }

    #[test]
    fn an_unscheduled_pod_is_never_forced() {
        let pending = json!({"spec": {}, "status": {"phase": "Pending"}});
        assert_eq!(
            grace(json!({"gracePeriodSeconds": 0}), pending.clone()),
            Grace::Graceful
        );
        let empty = json!({"spec": {"nodeName": ""}});
        assert_eq!(
            grace(json!({"gracePeriodSeconds": 0}), empty),
            Grace::Graceful
        );
    }
}
