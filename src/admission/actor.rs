//! Who asks: the identity the API server authenticated, and what the rules make of it.

use crate::judge::Asker;
use crate::quorum::Actor;

use super::review::UserInfo;
use crate::telemetry::events::shortened;

/// As much of a user's name goes into logs, Events, budgets and answers. Authenticators set no limit.
const NAME_BYTES: usize = 256;

const NODE_PREFIX: &str = "system:node:";
/// The only group that decides anything.
pub(super) const NODE_GROUP: &str = "system:nodes";
/// Where the controller manager runs all its controllers under one name, pod GC is a stranger: that name is also the taint
/// eviction's and the StatefulSet controller's. It loses nothing by it, since what pod GC deletes has ended or its node is gone.
const POD_GC: &str = "system:serviceaccount:kube-system:pod-garbage-collector";
/// The garbage collector. Where the controller manager runs all its controllers under one name, it is a stranger too.
const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// Whether the garbage collector asks. It deletes an object only after it has read every owner itself, uncached, and found each of them gone, or
/// going with its dependents; and it insists on the incarnation that it looked at.
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

/// A name alone may be anybody's; the group is given by the authenticator.
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
