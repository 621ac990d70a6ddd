//! Every name that quorumgate shares with people and other programs through the Kubernetes API.

/// The API group.
pub const GROUP: &str = "quorumgate.io";

/// Label on a StatefulSet: `true` enrols it, `false` keeps it from being enrolled by anybody else's labels.
pub const ENROLL: &str = "quorumgate.io/enroll";

/// Label on a namespace: `true` puts its pods under the webhooks. Set by the controller.
pub const GATED: &str = "quorumgate.io/gated";

/// The value of [`ENROLL`] and [`GATED`] that counts.
pub const TRUE: &str = "true";

/// The value of [`ENROLL`] that opts out.
pub const FALSE: &str = "false";

/// Annotation on a pod, a StatefulSet or a budget: until when (RFC 3339, at most 24 h ahead) requests pass against the gate's advice.
pub const OVERRIDE_UNTIL: &str = "quorumgate.io/override-until";

/// Label of a `ClusterRole` that lets the gate read what owns etcd StatefulSets.
pub const AGGREGATE_TO_OWNERS: &str = "quorumgate.io/aggregate-to-owners";

/// Annotation on a StatefulSet: [`INTENT_DELETE`] or [`INTENT_SCALE_IN`].
pub const INTENT: &str = "quorumgate.io/intent";

/// The StatefulSet is meant to be deleted although its owner lives.
pub const INTENT_DELETE: &str = "delete";

/// The StatefulSet is meant to shrink although the members that would go are still in etcd's list.
pub const INTENT_SCALE_IN: &str = "scale-in";

/// Annotation on a StatefulSet whose update strategy the gate keeps at `OnDelete`: the `spec.updateStrategy` that its owner asked for, as JSON.
/// Only those with it get theirs back. Set it to `{"type":"OnDelete"}` to have `OnDelete` stay.
pub const PREVIOUS_UPDATE_STRATEGY: &str = "quorumgate.io/previous-update-strategy";

/// Annotation on a budget: the update revision that may roll on without quorum.
pub const PROCEED_WITHOUT_QUORUM: &str = "quorumgate.io/proceed-without-quorum";

/// Label of etcd-druid's objects that names what made them.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The value of [`MANAGED_BY`] on etcd-druid's objects.
pub const MANAGED_BY_DRUID: &str = "etcd-druid";

/// Label of etcd-druid's objects that names their part in a cluster.
pub const COMPONENT: &str = "app.kubernetes.io/component";

/// The value of [`COMPONENT`] on etcd-druid's StatefulSets and their pods.
pub const COMPONENT_STATEFUL_SET: &str = "etcd-statefulset";

/// Label that the StatefulSet controller puts on every pod it makes: the pod's own name.
pub const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";

/// Label that the StatefulSet controller puts on every pod it makes: the revision of the template it was made from.
pub const REVISION: &str = "controller-revision-hash";

/// Finalizer of an owner that is deleted without its dependents.
pub const ORPHAN: &str = "orphan";

/// Taint of a node of which somebody vouches that it is off.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// cluster-autoscaler's annotation on pods that it leaves alone.
pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
