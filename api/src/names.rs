//! Labels, annotations and other names that quorumgate shares with people and other programs
//! through the Kubernetes API.

/// The API group.
pub const GROUP: &str = "quorumgate.io";

/// Label on a StatefulSet: `true` enrols it, `false` opts it out although other labels would enrol
/// it.
pub const ENROLL: &str = "quorumgate.io/enroll";

/// Label on a namespace: `true` makes the API server ask the gate about its pods. The gate sets it.
pub const GATED: &str = "quorumgate.io/gated";

/// The value of [`ENROLL`] and [`GATED`] that has an effect.
pub const TRUE: &str = "true";

/// The value of [`ENROLL`] that opts out.
pub const FALSE: &str = "false";

/// Annotation on a pod, a StatefulSet or a budget: the time (RFC 3339, at most 24 h ahead) until
/// which the gate allows what it would refuse.
pub const OVERRIDE_UNTIL: &str = "quorumgate.io/override-until";

/// Annotation beside [`OVERRIDE_UNTIL`]: why, for people. The gate does not read it.
pub const OVERRIDE_REASON: &str = "quorumgate.io/override-reason";

/// Label on a `ClusterRole` whose rules are added to the gate's own role, so that the gate may read
/// the owners of etcd StatefulSets.
pub const AGGREGATE_TO_OWNERS: &str = "quorumgate.io/aggregate-to-owners";

/// Annotation on a StatefulSet, by which a person confirms an intent: [`INTENT_DELETE`],
/// [`INTENT_SCALE_IN`] or [`INTENT_BOOTSTRAP`]. The last counts on a budget, too.
pub const INTENT: &str = "quorumgate.io/intent";

/// Annotation on a budget, by which a person accepts a loss of data: the time at which the gate
/// found it, as the condition says.
pub const ACCEPT_DATA_LOSS: &str = "quorumgate.io/accept-data-loss";

/// The value of [`INTENT`] that confirms a delete of the StatefulSet although its owner lives.
pub const INTENT_DELETE: &str = "delete";

/// The value of [`INTENT`] that confirms a scale-in although etcd still lists the members that
/// would go.
pub const INTENT_SCALE_IN: &str = "scale-in";

/// The value of [`INTENT`] that confirms that members start a new cluster with empty volumes,
/// although the budget knows a cluster.
pub const INTENT_BOOTSTRAP: &str = "bootstrap";

/// Annotation on a budget: the id, hexadecimal, of the member that is to be replaced. The request
/// is spent when no member has the id any more.
pub const REPLACE: &str = "quorumgate.io/replace";

/// Annotation on a budget: `ID@TIME`, the id, hexadecimal, of the member that is to start alone
/// after a permanent loss of quorum, and when somebody asked. It counts for an hour.
pub const RECOVER: &str = "quorumgate.io/recover";

/// Annotation on a claim, by the gate: the member whose data it has, the cluster, and since when
/// the cluster is guarded. It outlives the budget.
pub const HOLDS: &str = "quorumgate.io/holds";

/// Scheduling gate of a pod that must not start yet: it has another volume than its member had, and
/// would come back under the old identity.
pub const IDENTITY: &str = "quorumgate.io/identity";

/// Condition of a pod that waits for the scheduling gate [`IDENTITY`]: why it waits.
pub const HELD: &str = "quorumgate.io/Held";

/// Annotation on a StatefulSet whose update strategy the gate keeps at `OnDelete`: the
/// `spec.updateStrategy` that its owner asked for, as JSON. Only StatefulSets with this annotation
/// get their strategy back. The value `{"type":"OnDelete"}` makes `OnDelete` stay.
pub const PREVIOUS_UPDATE_STRATEGY: &str = "quorumgate.io/previous-update-strategy";

/// Annotation on a budget: the update revision whose rollout may go on without quorum.
pub const PROCEED_WITHOUT_QUORUM: &str = "quorumgate.io/proceed-without-quorum";

/// Annotation on a budget: the update revision that is rolled out although the preflight found
/// faults in its template.
pub const PROCEED: &str = "quorumgate.io/proceed";

/// Annotation on a budget: every new value asks for one defragmentation of all members.
pub const DEFRAGMENT: &str = "quorumgate.io/defragment";

/// Label on etcd-druid's objects: the program that manages them.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The value of [`MANAGED_BY`] on etcd-druid's objects.
pub const MANAGED_BY_DRUID: &str = "etcd-druid";

/// Label on etcd-druid's objects: their part in a cluster.
pub const COMPONENT: &str = "app.kubernetes.io/component";

/// The value of [`COMPONENT`] on etcd-druid's StatefulSets and their pods.
pub const COMPONENT_STATEFUL_SET: &str = "etcd-statefulset";

/// Label that the StatefulSet controller puts on every pod: the name of the pod.
pub const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";

/// Label that the StatefulSet controller puts on every pod: the revision of its template.
pub const REVISION: &str = "controller-revision-hash";

/// Finalizer on an owner that is deleted without its dependents.
pub const ORPHAN: &str = "orphan";

/// The finalizer with which Kubernetes protects a claim that a pod uses.
pub const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";

/// The finalizer with which Kubernetes protects a volume that is bound to a claim.
pub const PV_PROTECTION: &str = "kubernetes.io/pv-protection";

/// Taint on a node: a person has confirmed that the node is shut down.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Annotation on a member's pod: the gate was asked when the pod was created.
pub const ASKED: &str = "quorumgate.io/asked";

/// Annotation on pods that cluster-autoscaler leaves alone.
pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// The webhook that is asked about deletes of pods, in every installation of the gate.
pub const POD_WEBHOOK: &str = "pods.quorumgate.io";

/// The annotation in which helm names the release of an object that it installed.
pub const HELM_RELEASE: &str = "meta.helm.sh/release-name";

/// The annotation in which helm names the namespace of that release.
pub const HELM_NAMESPACE: &str = "meta.helm.sh/release-namespace";
