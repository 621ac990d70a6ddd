//! The asker of a request: the identity that the API server authenticated, and its role in the
//! rules.

use super::checked::NODE_GROUP;
use super::review::UserInfo;
use crate::judge::Asker;
use crate::quorum::Actor;
use crate::telemetry::events::shortened;

/// The most bytes of a user's name in logs, Events, budgets and answers. Authenticators set no
/// limit.
const NAME_BYTES: usize = 256;

const NODE_PREFIX: &str = "system:node:";
/// The account of pod GC.
///
/// If the controller manager runs all its controllers under one name, pod GC counts as a stranger,
/// because the taint eviction and the StatefulSet controller have the same name. Pod GC loses
/// nothing by that: the pods that it deletes have ended, or their node is gone.
const POD_GC: &str = "system:serviceaccount:kube-system:pod-garbage-collector";
/// The account of the garbage collector. If the controller manager runs all its controllers under
/// one name, the garbage collector counts as a stranger too.
const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// The account of a controller manager that runs all its controllers under one name.
const CONTROLLERS: &str = "system:kube-controller-manager";

/// Whether the garbage collector may be the one who asks.
pub(super) fn may_be_garbage_collector(user: &UserInfo) -> bool {
    is_garbage_collector(user) || user.username == CONTROLLERS
}

/// Whether the garbage collector asks. Before it deletes an object, it reads every owner itself,
/// uncached, and finds each gone, or going together with its dependents. It insists on the UID of
/// the object that it looked at.
pub(super) fn is_garbage_collector(user: &UserInfo) -> bool {
    user.username == GARBAGE_COLLECTOR
}

/// The asker behind a request. `own` is the username under which the API server knows this process.
pub(super) fn asker(user: UserInfo, own: &str) -> Asker {
    let actor = if user.username == own && !own.is_empty() {
        Actor::Gate
    } else if user.username == POD_GC || is_kubelet(&user) {
        Actor::NodeOrPodGc
    } else {
        Actor::Stranger
    };
    Asker {
        name: shortened(user.username, NAME_BYTES),
        actor,
    }
}

/// Whether a kubelet asks. Any user may have such a name; the authenticator gives the group.
fn is_kubelet(user: &UserInfo) -> bool {
    let in_group = user.groups.iter().flatten().any(|g| g == NODE_GROUP);
    in_group
        && user
            .username
            .strip_prefix(NODE_PREFIX)
            .is_some_and(|n| !n.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "system:serviceaccount:quorumgate:quorumgate";

    fn actor(username: &str, groups: &[&str]) -> Actor {
        let user = UserInfo {
            username: username.to_owned(),
            groups: Some(groups.iter().map(|g| (*g).to_owned()).collect()),
        };
        asker(user, OWN).actor
    }

    #[test]
    fn a_kubelet_is_told_by_its_name_and_its_group() {
        assert_eq!(
            actor("system:node:a", &["system:nodes"]),
            Actor::NodeOrPodGc
        );
        assert_eq!(
            actor("system:node:a", &["system:authenticated"]),
            Actor::Stranger
        );
        assert_eq!(actor("system:node:", &["system:nodes"]), Actor::Stranger);
        assert_eq!(actor("mallory", &["system:nodes"]), Actor::Stranger);
    }

    #[test]
    fn a_long_name_is_cut_and_is_still_whose_it_is() {
        let user = |username: String| UserInfo {
            username,
            groups: Some(vec![NODE_GROUP.to_owned()]),
        };
        let kubelet = asker(user(format!("system:node:{}", "a".repeat(5000))), OWN);
        assert_eq!(kubelet.actor, Actor::NodeOrPodGc);
        assert!(kubelet.name.len() <= NAME_BYTES && kubelet.name.ends_with('…'));
        let own = OWN.repeat(100);
        assert_eq!(asker(user(own.clone()), &own).actor, Actor::Gate);
    }

    #[test]
    fn pod_gc_and_the_gate_are_told_by_their_service_accounts() {
        let pod_gc = "system:serviceaccount:kube-system:pod-garbage-collector";
        assert_eq!(actor(pod_gc, &[]), Actor::NodeOrPodGc);
        assert_eq!(actor(OWN, &[]), Actor::Gate);
        for stranger in [
            "kubernetes-admin",
            "system:kube-controller-manager",
            "system:serviceaccount:kube-system:statefulset-controller",
            "system:serviceaccount:default:quorumgate",
            "",
        ] {
            assert_eq!(
                actor(stranger, &["system:masters"]),
                Actor::Stranger,
                "{stranger}"
            );
        }
    }
}
