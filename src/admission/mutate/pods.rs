//! `/mutate/pods`: members carry `cluster-autoscaler.kubernetes.io/safe-to-evict: "false"`, so that
//! cluster-autoscaler plans around them instead of starting drains that wait. An existing value
//! stays. An annotation of the gate's own says that it was asked.
//!
//! Members of a cluster that has formed join it and start none: etcd's `initial-cluster-state` is
//! set to `existing`. Where the gate sees to the number of members and etcd expects a new one in
//! the pod, `initial-cluster` is set to those that etcd lists. etcd ignores both where there is
//! data. A pod with another volume than its member had gets a scheduling gate
//! ([`crate::plan::replacement::guard()`]). One whose data is in a directory of a node is bound to
//! that node. The member that a person chose after a loss of quorum starts alone, with
//! `force-new-cluster`.

use futures::future::BoxFuture;
use json_patch::Patch;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use super::patch::{remove, replace, set};
use crate::admission::asked::{Context, ParsedReview, ReviewAction, ReviewContext, Subject};
use crate::admission::hook::Hook;
use crate::admission::malformed::Malformed;
use crate::admission::reads::{NoRead, Reads};
use crate::admission::review::{Metadata, Request};
use crate::admission::room::Readable;
use crate::api::names::{ASKED, IDENTITY, SAFE_TO_EVICT};
use crate::observe::{
    Change, EtcdContainer, Observer, StartGuard, bound_to, giver_of, is_stateful_set, joining,
    joining_those, starting_alone,
};
use crate::quorum::{ClusterRef, PodName};

/// A source of the enrolment of StatefulSets.
pub trait Enrolment: Send + Sync + 'static {
    /// Whether the StatefulSet is an etcd cluster that the gate guards. The error is a sentence.
    /// The answer is advice, so it may come from a cache.
    fn is_enrolled<'a>(
        &'a self,
        namespace: &'a str,
        stateful_set: &'a str,
    ) -> BoxFuture<'a, Result<bool, String>>;

    /// Whether a namespace is under the gate, by the watches. `None` where they cannot tell.
    fn is_gated(&self, _namespace: &str) -> Option<bool> {
        None
    }

    /// Whether the watches show that a pod of a namespace is nobody's.
    fn is_foreign(&self, _namespace: &str, _pod: &PodName) -> bool {
        false
    }

    /// How a member's pod starts that is about to be created, by the deadline. `None`: as its owner
    /// wants.
    fn start<'a>(
        &'a self,
        _namespace: &'a str,
        _stateful_set: &'a str,
        _pod: &'a str,
        _spec: &'a PodSpec,
        _deadline: Instant,
    ) -> BoxFuture<'a, Result<Option<StartGuard>, String>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// The enrolment that the API server shows now.
impl Enrolment for Observer {
    fn is_enrolled<'a>(
        &'a self,
        namespace: &'a str,
        stateful_set: &'a str,
    ) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            let set = ClusterRef::new(namespace, stateful_set);
            self.is_guarded(&set)
                .await
                .map_err(|error| error.to_string())
        })
    }

    fn is_gated(&self, namespace: &str) -> Option<bool> {
        (self.sights()?.is_gated)(namespace)
    }

    fn is_foreign(&self, namespace: &str, pod: &PodName) -> bool {
        self.shows_foreign(namespace, pod)
    }

    fn start<'a>(
        &'a self,
        namespace: &'a str,
        stateful_set: &'a str,
        pod: &'a str,
        spec: &'a PodSpec,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Option<StartGuard>, String>> {
        Box::pin(async move {
            let set = ClusterRef::new(namespace, stateful_set);
            self.start_of(&set, &PodName::new(pod), spec, deadline)
                .await
                .map_err(|error| error.to_string())
        })
    }
}

/// A pod that would be created.
#[derive(Debug, Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
}

/// The patch for the pod in a review.
pub(in crate::admission) async fn asked(
    body: Readable<'_>,
    context: Context<'_>,
    enrolment: &dyn Enrolment,
    reads: Reads<'_>,
) -> Result<ParsedReview, Malformed> {
    let mut request = body.read(|body| Request::<Pod>::read(Hook::MutatePods, body))?;
    let pod = request.take_object()?;
    let (namespace, name) = request.place(&pod.metadata)?;
    let subject = Subject::pod(namespace, name, None);
    let set = stateful_set_of(&pod.metadata);
    let may_read = set.is_some().then(|| reads.allowed_in(namespace));
    if let Some(Err(because @ NoRead::NoPlace)) = &may_read {
        warn!(namespace, pod = subject.name, %because, "pod starts unguarded");
    }
    let patch = match set.zip(may_read.and_then(Result::ok)) {
        Some((set, _place)) => {
            let place = (namespace, subject.name.as_str());
            let changed = changes(&pod, &set, place, enrolment, context.deadline);
            // The pod is created in any case: a missing member does harm.
            let changed = timeout_at(context.deadline, changed).await;
            if changed.is_err() {
                let because = "the API server did not answer in time";
                warn!(
                    namespace,
                    pod = subject.name,
                    because,
                    "pod starts unguarded"
                );
            }
            changed
                .unwrap_or_default()
                .filter(|patch| !patch.is_empty())
        }
        None => None,
    };
    Ok(ParsedReview {
        about: ReviewContext::new(&mut request, subject, context),
        what: ReviewAction::Patch(Ok(patch)),
    })
}

/// The changes of a pod of this StatefulSet. `None` if it is not that of a cluster, or nothing
/// could be found out.
async fn changes(
    pod: &Pod,
    set: &str,
    (namespace, name): (&str, &str),
    enrolment: &dyn Enrolment,
    deadline: Instant,
) -> Option<Patch> {
    if !enrolment.is_enrolled(namespace, set).await.ok()? {
        return None;
    }
    let mut patch = Patch::default();
    patch.0.extend(marks(&pod.metadata).0);
    // A spec that this version does not understand is started as it is.
    if let Ok(spec) = serde_json::from_value::<PodSpec>(pod.spec.clone()) {
        match enrolment.start(namespace, set, name, &spec, deadline).await {
            Ok(Some(guard)) => patch.0.extend(guarded(&spec, &guard).0),
            Ok(None) => {}
            // Without the mark the leader sees that the pod was not guarded.
            Err(because) => {
                warn!(namespace, pod = name, because, "pod starts unguarded");
                return None;
            }
        }
    }
    Some(patch)
}

/// The changes of a pod's spec by the identity guard.
fn guarded(spec: &PodSpec, start: &StartGuard) -> Patch {
    let guard = &start.guard;
    let mut patch = Patch::default();
    if let Some((at, container)) =
        etcd(spec, start.etcd_container.as_deref()).filter(|_| guard.existing)
    {
        let mut container = container.clone();
        let those = start.members.as_deref();
        let those = those.map(|members| joining_those(&container, members));
        let alone = start.alone.then(|| starting_alone(&container));
        for change in [those, alone, Some(joining(&container))] {
            if let Some(Ok(Some(change))) = change {
                patch.0.extend(joins(&at, &container, change.clone()).0);
                change.apply(&mut container);
            }
        }
    }
    // A pod with a scheduling gate may not name its node, and an affinity says the same.
    let named = spec.node_name.as_ref();
    let named = named.filter(|node| guard.hold.is_some() && !node.is_empty());
    if named.is_some() {
        patch.0.extend(remove(["spec", "nodeName"]).0);
    }
    if let Some(node) = start.node.as_ref().or(named) {
        // An existing value is replaced.
        patch
            .0
            .extend(set(["spec", "affinity"], json!(bound_to(spec, node))).0);
    }
    if guard.hold.is_some() {
        let gate = json!({"name": IDENTITY});
        let gates = spec.scheduling_gates.as_deref().unwrap_or_default();
        let more = match gates {
            [] => set(["spec", "schedulingGates"], json!([gate])),
            known if known.iter().any(|known| known.name == IDENTITY) => Patch::default(),
            _ => set(["spec", "schedulingGates", "-"], gate),
        };
        patch.0.extend(more.0);
    }
    patch
}

/// The container of etcd and its path in the pod. It may be a native sidecar.
fn etcd<'a>(spec: &'a PodSpec, named: Option<&str>) -> Option<([String; 3], &'a Container)> {
    let etcd = EtcdContainer::find(spec, named).certain()?;
    let main = spec.containers.iter().enumerate();
    let main = main.map(|(n, container)| ("containers", n, container));
    let init = spec.init_containers.iter().flatten().enumerate();
    let init = init.map(|(n, container)| ("initContainers", n, container));
    let (list, n, _) = main.chain(init).find(|(.., c)| c.name == etcd.name)?;
    Some((["spec".to_owned(), list.to_owned(), n.to_string()], etcd))
}

/// The change of the container at this path.
fn joins(at: &[String; 3], container: &Container, change: Change) -> Patch {
    let path = at.iter().cloned();
    match change {
        Change::Word {
            list,
            at: index,
            word,
        } => {
            let word_at = [<&str>::from(list).to_owned(), index.to_string()];
            replace(path.chain(word_at), json!(word))
        }
        Change::Variable {
            at: index,
            name,
            value,
        } => {
            let variable = json!({"name": name, "value": value});
            match index {
                Some(index) => {
                    let variable_at = ["env".to_owned(), index.to_string()];
                    replace(path.chain(variable_at), variable)
                }
                None if container.env.as_ref().is_none_or(Vec::is_empty) => {
                    set(path.chain(["env".to_owned()]), json!([variable]))
                }
                None => set(path.chain(["env".to_owned(), "-".to_owned()]), variable),
            }
        }
    }
}

/// The StatefulSet that manages the pod. For a pod that nothing manages, the one that gives such
/// names: a pod made by hand in the place of a member starts as that member.
fn stateful_set_of(pod: &Metadata) -> Option<String> {
    let owners = pod.owner_references.as_deref().unwrap_or_default();
    match owners.iter().find(|owner| owner.controller) {
        None => giver_of(&PodName::new(&*pod.name)),
        Some(owner) => is_stateful_set(&owner.api_version, &owner.kind).then(|| owner.name.clone()),
    }
}

fn marks(pod: &Metadata) -> Patch {
    let Some(known) = &pod.annotations else {
        let both = json!({ASKED: "true", SAFE_TO_EVICT: "false"});
        return set(["metadata", "annotations"], both);
    };
    let mut patch = set(["metadata", "annotations", ASKED], json!("true"));
    if !known.contains_key(SAFE_TO_EVICT) {
        let word = set(["metadata", "annotations", SAFE_TO_EVICT], json!("false"));
        patch.0.extend(word.0);
    }
    patch
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::replacement::{Guard, Hold};
    use crate::quorum::Difference;

    fn annotated(mut pod: serde_json::Value) -> serde_json::Value {
        let read: Pod = serde_json::from_value(pod.clone()).unwrap();
        json_patch::patch(&mut pod, &marks(&read.metadata)).unwrap();
        pod["metadata"]["annotations"].clone()
    }

    #[test]
    fn the_annotations_are_added_beside_others_and_an_owners_own_word_stays() {
        let autoscaler = "cluster-autoscaler.kubernetes.io/safe-to-evict";
        let alone = json!({"quorumgate.io/asked": "true", autoscaler: "false"});
        assert_eq!(annotated(json!({"metadata": {}})), alone);
        assert_eq!(annotated(json!({"metadata": {"annotations": null}})), alone);
        assert_eq!(
            annotated(json!({"metadata": {"annotations": {"a": "b"}}})),
            json!({"a": "b", "quorumgate.io/asked": "true", autoscaler: "false"})
        );
        assert_eq!(
            annotated(json!({"metadata": {"annotations": {autoscaler: "true"}}})),
            json!({"quorumgate.io/asked": "true", autoscaler: "true"})
        );
    }

    #[test]
    fn a_pod_that_nothing_manages_is_that_of_the_set_which_gives_such_names() {
        let set = |name: &str, owner: Option<(&str, &str)>| {
            let owners = owner.map(|(kind, version)| {
                json!([{"kind": kind, "apiVersion": version, "name": "owner", "uid": "u",
                    "controller": true}])
            });
            let metadata = json!({"name": name, "ownerReferences": owners});
            stateful_set_of(&serde_json::from_value(metadata).unwrap())
        };
        assert_eq!(set("etcd-0", None).as_deref(), Some("etcd"));
        for no_ordinal in ["etcd", "etcd-01", "etcd-a", ""] {
            assert_eq!(set(no_ordinal, None), None, "{no_ordinal}");
        }
        let of_set = set("etcd-0", Some(("StatefulSet", "apps/v1")));
        assert_eq!(of_set.as_deref(), Some("owner"));
        assert_eq!(set("etcd-0", Some(("Job", "batch/v1"))), None);
    }

    #[test]
    fn a_pod_of_a_formed_cluster_joins_it_and_waits_with_another_volume() {
        let held = Guard {
            existing: true,
            hold: Some(Hold {
                difference: Difference::NewClaim,
            }),
        };
        let start = |guard: &Guard, members: Option<&str>, spec: serde_json::Value| {
            let mut pod = json!({"spec": spec});
            let spec: PodSpec = serde_json::from_value(pod["spec"].clone()).unwrap();
            let guard = StartGuard {
                guard: guard.clone(),
                etcd_container: None,
                node: None,
                members: members.map(str::to_owned),
                alone: false,
            };
            json_patch::patch(&mut pod, &guarded(&spec, &guard)).unwrap();
            pod["spec"].take()
        };
        let containers = |etcd: serde_json::Value| json!([{"name": "sidecar"}, etcd]);
        let flag = |state: &str| json!({"name": "etcd", "args": ["--name=a", format!("--initial-cluster-state={state}")]});
        let after = start(&held, None, json!({"containers": containers(flag("new"))}));
        assert_eq!(after["containers"], containers(flag("existing")));
        let gates = json!([{"name": "quorumgate.io/identity"}]);
        assert_eq!(after["schedulingGates"], gates);
        let again = start(&held, None, after.clone());
        assert_eq!(again, after);

        let joins = Guard {
            hold: None,
            ..held.clone()
        };
        let env = json!([{"name": "A", "value": "b"}]);
        let plain = json!({"containers": [{"name": "etcd", "env": env}], "schedulingGates": [{"name": "other"}]});
        let after = start(&joins, None, plain.clone());
        assert_eq!(after["containers"][0]["env"][1]["value"], "existing");
        assert_eq!(after["schedulingGates"], plain["schedulingGates"]);
        let after = start(&held, None, plain);
        assert_eq!(
            after["schedulingGates"],
            json!([{"name": "other"}, {"name": "quorumgate.io/identity"}])
        );

        let those = Some("a=http://a:2380");
        let after = start(&joins, those, json!({"containers": [{"name": "etcd"}]}));
        let variable = |n: usize| after["containers"][0]["env"][n]["name"].as_str();
        let both = ["ETCD_INITIAL_CLUSTER", "ETCD_INITIAL_CLUSTER_STATE"];
        assert_eq!([variable(0), variable(1)], both.map(Some), "{after}");

        let native = json!({"containers": [{"name": "backup"}], "initContainers": [
            {"name": "etcd", "restartPolicy": "Always", "env": env},
        ]});
        let after = start(&joins, None, native);
        let joining = &after["initContainers"][0]["env"][1]["value"];
        assert_eq!(joining, "existing", "{after}");

        let named = json!({"containers": [], "nodeName": "node-2"});
        let after = start(&held, None, named.clone());
        assert_eq!(after["nodeName"], serde_json::Value::Null);
        let wanted = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0";
        let wanted = after.pointer(wanted).unwrap();
        assert_eq!(wanted["values"], json!(["node-2"]), "{after}");
        assert_eq!(start(&joins, None, named.clone()), named);

        let free = Guard {
            existing: false,
            hold: None,
        };
        let spec = json!({"containers": [{"name": "etcd"}]});
        assert_eq!(start(&free, None, spec.clone()), spec);
    }
}
