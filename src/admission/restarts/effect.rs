//! The effect of an update of a running pod on its etcd. Pure.
//!
//! A kubelet starts a container anew when its image changes, whatever any policy says, and when a
//! resource changes for which the `resizePolicy` says so. It does not run init containers again
//! that have run, and ephemeral containers cannot be changed. A container whose end restarts all
//! others (`restartPolicyRules`) takes etcd along.
//!
//! A memory limit that shrinks without a restart is left to the kubelet, which does not go below
//! the memory in use.

use super::quantity;
use super::spec::{Container, Resources, Spec};
use crate::api::names::IDENTITY;
use crate::observe::EtcdContainer;
use crate::quorum::InPlace;

/// The resources that can be changed in place.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// The way in which an update takes a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Effect {
    /// The way.
    pub(super) by: InPlace,
    /// The containers that restart, none of which is etcd's by its signs. The member goes only if
    /// the budget names one of them as etcd's. Empty: the member goes in any case.
    pub(super) only_of: Vec<String>,
}

/// The way in which the update takes the member. `None` if it restarts nothing and ends no pod.
pub(super) fn compare(old: &Spec, new: &Spec) -> Option<Effect> {
    let certain = |by| Effect {
        by,
        only_of: Vec::new(),
    };
    if is_held(old) && !is_held(new) {
        return Some(certain(InPlace::Start));
    }
    if ends_sooner(old.active_deadline_seconds, new.active_deadline_seconds) {
        return Some(certain(InPlace::Deadline));
    }
    // An update adds no container and takes none away.
    let pod = old.outline();
    let etcd = EtcdContainer::find(&pod, None);
    let restarting = lasting(new).filter_map(|container| {
        let before = lasting(old).find(|before| before.name == container.name);
        let by = match before.filter(|before| before.image == container.image) {
            None => InPlace::Image,
            Some(before) if resize_restarts((old, before), (new, container)) => InPlace::Resize,
            Some(_) => return None,
        };
        // If the container of etcd is not known, it may be any.
        let takes_etcd = etcd.may_be(&container.name) || restarts_all(container);
        Some((by, takes_etcd, container.name.clone()))
    });
    let restarting: Vec<(InPlace, bool, String)> = restarting.collect();
    let first_by = |takes_etcd: bool| {
        let mut ways = restarting
            .iter()
            .filter(|(_, takes, _)| *takes == takes_etcd);
        let image = ways.clone().find(|(by, ..)| *by == InPlace::Image);
        image.or_else(|| ways.next()).map(|(by, ..)| *by)
    };
    if let Some(by) = first_by(true) {
        return Some(certain(by));
    }
    let by = first_by(false)?;
    let only_of = restarting.into_iter().map(|(_, _, name)| name).collect();
    Some(Effect { by, only_of })
}

/// Whether the pod waits with the gate's scheduling gate.
fn is_held(spec: &Spec) -> bool {
    spec.scheduling_gates
        .iter()
        .any(|gate| gate.name == IDENTITY)
}

fn ends_sooner(old: Option<i64>, new: Option<i64>) -> bool {
    match (old, new) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => new < old,
    }
}

/// The main containers and the sidecars.
fn lasting(spec: &Spec) -> impl Iterator<Item = &Container> {
    let sidecars = spec.init_containers.iter().filter(|c| is_sidecar(c));
    spec.containers.iter().chain(sidecars)
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Whether the end of the container restarts all others. The exit code of a killed container is not
/// known in advance, so any rule counts.
fn restarts_all(container: &Container) -> bool {
    let mut rules = container.restart_policy_rules.iter();
    rules.any(|rule| rule.action == "RestartAllContainers")
}

type InPod<'a> = (&'a Spec, &'a Container);

fn resize_restarts(old: InPod<'_>, new: InPod<'_>) -> bool {
    let changes = |resource: &str| {
        let same_request = quantity::same(request(old, resource), request(new, resource));
        let same_limit = quantity::same(limit(old, resource), limit(new, resource));
        !(same_request && same_limit)
    };
    RESIZABLE
        .into_iter()
        .any(|resource| restarts_for(new.1, resource) && changes(resource))
}

/// Whether a change of the resource restarts the container. Without a policy it does not.
fn restarts_for(container: &Container, resource: &str) -> bool {
    let mut policies = container.resize_policy.iter();
    let policy = policies.find(|policy| policy.resource_name == resource);
    policy.is_some_and(|policy| policy.restart_policy == "RestartContainer")
}

fn request<'a>((_, container): InPod<'a>, resource: &str) -> Option<&'a str> {
    let requests = &container.resources.requests;
    requests.get(resource).map(String::as_str)
}

/// The limit of the container, or else the limit that all containers of the pod share.
fn limit<'a>((spec, container): InPod<'a>, resource: &str) -> Option<&'a str> {
    let of = |resources: &'a Resources| {
        let limit = resources.limits.get(resource).map(String::as_str);
        limit.filter(|limit| !quantity::same(Some(limit), None))
    };
    of(&container.resources).or_else(|| of(&spec.resources))
}

#[cfg(test)]
mod tests;
