//! The answer to a disruption or to a change of a StatefulSet (allow, wait or deny) and the reason
//! for it.

use std::fmt;
use std::time::Duration;

use super::circumstances::{OutsideOrdinals, Teardown};
use super::disruption::InPlace;
use super::expected_voters::majority;
use super::id::{ClusterRef, MemberId, PodName, list};
use super::intent::Intent;
use super::log_end::WentBack;
use super::policy::SmallCluster;
use super::process::ProcessState;
use super::serving::Serving;
use super::why::Why;

/// The answer of [`super::decide()`] to a disruption, or of [`super::stateful_set::decide`] to a
/// change of a StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The request may pass, once the conditions of the permission are met.
    Allow(Allowance),
    /// The request may not pass now. The same request may pass later.
    Wait(Reason),
    /// The request may not pass. Repeating it does not help.
    Deny(Reason),
}

/// The ground of a permission, on which it depends whether it has to be recorded first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowance {
    /// The request takes nothing from the cluster, so nothing is recorded.
    Waived(Waiver),
    /// The grant, or the admitted change of the StatefulSet, has to be recorded before anyone is
    /// told yes.
    Grant(Basis),
}

/// The reason why a permission needs no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Waiver {
    /// Rule 1: the pod or the StatefulSet belongs to no enrolled cluster.
    Foreign,
    /// Rule 2: the pod or the StatefulSet is terminating already, or gone.
    Terminating,
    /// Rule 3: the cluster is being torn down.
    Teardown(Teardown),
    /// Rule 4: the request is for another incarnation, so the API server answers 409.
    WrongIncarnation,
    /// The update restarts no member and ends no pod. The webhook gives this reason; no rule does.
    RestartsNothing,
    /// The delete of the StatefulSet keeps its pods.
    Orphans,
    /// No ordinal leaves the StatefulSet.
    NothingLeaves,
    /// The update of the claim or of the volume takes no protection away.
    StaysProtected,
}

/// The reason for a permission that has to be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Basis {
    /// Rule 3: hibernation or a recorded scale-in.
    Teardown(Teardown),
    /// Rule 6: a valid override.
    Override,
    /// Rule 7: the pod is not a member. The grant is needed because it may become one before its
    /// delete takes effect.
    NotAMember,
    /// Rule 11: the cluster can spare the learner.
    Learner,
    /// Rule 12: the member is dead or has not started, and the others make no majority anyway. The
    /// disruption costs nothing.
    CostsNothing,
    /// Rule 13: quorum has been lost for the grace period, and the new revision may be the repair.
    Repair,
    /// Rule 13: the owner lets this revision go on without quorum.
    Proceed,
    /// Rule 14: the policy of a cluster of one.
    SingleMember,
    /// Rule 14: the policy of a cluster of two.
    TwoMembers,
    /// Rule 15: the others make the majority.
    Majority {
        /// The number of serving voters without this member and without every other one that has a
        /// grant.
        others: u32,
        /// The number of serving voters that is needed.
        majority: u32,
    },
    /// The member is removed from etcd for good, and every other voter serves.
    Removal,
    /// A person asked for a recovery: quorum is lost for good, and the member starts alone.
    Recovery,
    /// The change of the StatefulSet was announced (`quorumgate.io/intent`).
    Intent,
    /// The owner of the StatefulSet itself asks for no members.
    OwnerAsks,
    /// The budget allows a teardown that nobody announced.
    TeardownAllowed,
    /// No member of the StatefulSet that is torn down serves.
    NobodyServes,
    /// Rule 3, by the word of the garbage collector: the owner of the StatefulSet goes. The delete
    /// is recorded because the gate itself may not be able to read the owner when the pods follow.
    OwnerGone,
    /// etcd lists none of the members that leave.
    MembersRemoved,
}

impl Waiver {
    /// The stable identifier of the waiver, for metrics and audit annotations.
    pub fn slug(self) -> &'static str {
        if let Self::Teardown(teardown) = self {
            return torn_down(teardown);
        }
        self.into()
    }
}

impl Basis {
    /// The stable identifier of the basis, for metrics and audit annotations.
    pub fn slug(self) -> &'static str {
        if let Self::Teardown(teardown) = self {
            return torn_down(teardown);
        }
        self.into()
    }
}

fn torn_down(teardown: Teardown) -> &'static str {
    match teardown {
        Teardown::Namespace => "TeardownNamespace",
        Teardown::StatefulSet => "TeardownStatefulSet",
        Teardown::Owner => "TeardownOwner",
        Teardown::Hibernation => "Hibernation",
        Teardown::ScaleIn => "ScaleIn",
    }
}

/// The reason why a request is refused, with its numbers. `Display` is the text of the refusal.
#[derive(
    Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames, derive_more::Display,
)]
pub enum Reason {
    /// Rule 1: the cluster is enrolled, and the budget that holds its grants does not exist yet.
    #[display(
        "the StatefulSet is enrolled but has no QuorumDisruptionBudget yet; the gate creates it in a moment, unless the namespace has as many clusters as may be enrolled, of which an Event of the StatefulSet tells (TooManyClusters)"
    )]
    NoLedger,
    /// Rule 1: the `CustomResourceDefinition` of budgets is missing.
    #[display(
        "the CustomResourceDefinition quorumdisruptionbudgets.quorumgate.io is missing; install it again (`quorumgate crds | kubectl apply -f -`)"
    )]
    NoDefinition,
    /// Rule 5: the forced delete of a pod that may still run.
    #[display(
        "{pod} may still run on a node that cannot be reached, and a second one must not start; make sure the node is off, then taint it node.kubernetes.io/out-of-service, or delete the Node"
    )]
    AtMostOnce {
        /// The pod.
        pod: PodName,
    },
    /// Rule 8: two budgets guard one etcd cluster.
    #[display(
        "the budget {other} reports the same etcd cluster id; one cluster needs exactly one budget"
    )]
    SharedCluster {
        /// The other budget.
        other: ClusterRef,
    },
    /// Rule 9: the ledger may lack open grants.
    #[display("{}", until_trusted(*remaining))]
    LedgerUntrusted {
        /// The time until the ledger may be trusted. `None` while the gate is not in force.
        remaining: Option<Duration>,
    },
    /// Rule 10: the pod's `PodDisruptionBudget` would refuse the eviction, or several select the
    /// pod.
    #[display("{}", refused_by(names))]
    DisruptionBudget {
        /// The names of the `PodDisruptionBudget`s.
        names: Vec<String>,
    },
    /// Rule 11: the cluster cannot spare the learner now.
    #[display("{} is a learner that may become a voter meanwhile: {_0}", _0.target)]
    Learner(Count),
    /// Rule 12: the member may be the one that completes a majority.
    #[display("{} is down, but may be the one that completes the majority when it comes back: {_0}; repair it, or allow its deletion by an override if it cannot come back", _0.target)]
    MayComplete(Count),
    /// Rule 13: quorum is lost, and the member is alive.
    #[display("quorum is lost and {} is alive, so it is needed to bring quorum back: {_0}{}", _0.target, repair_first(_0))]
    QuorumLost(Count),
    /// Rule 14: the policy of a small cluster excludes the asker.
    #[display("{}", too_small(*voters, *policy))]
    TooSmall {
        /// The number of voters: 1 or 2.
        voters: u32,
        /// The policy.
        policy: SmallCluster,
    },
    /// Rule 16: no voter could be asked.
    #[display(
        "no member gave evidence that counts{}; retry in a moment; if this lasts, let the gate reach their client ports, or override if none of them serves",
        causes(because)
    )]
    NoEvidence {
        /// The reasons, a line per member.
        because: Vec<String>,
    },
    /// Rule 16: all voters accept connections and answer nothing.
    #[display(
        "no member gave evidence that counts{}; all accept connections and answer nothing, as etcd does before it has found a quorum: \
         correct the pod template, and a rollout replaces one member after the other, each once that has lasted for {} s, or override",
        causes(because),
        grace.as_secs()
    )]
    Mute {
        /// The reasons, a line per member.
        because: Vec<String>,
        /// `spec.policy.quorumLossGracePeriod`.
        grace: Duration,
    },
    /// Rule 17: the cluster cannot spare the member.
    #[display("{} is needed: {_0}", _0.target)]
    NoHeadroom(Count),
    /// The member may go, but it leads, and leadership moved a moment ago.
    #[display("it leads the cluster, and leadership moved a moment ago; the new leader has to lead for 5 s first, so that writers are not interrupted twice: retry in {} s", remaining.as_secs().saturating_add(1))]
    LeadershipMoved {
        /// The time until leadership may move again.
        remaining: Duration,
    },
    /// Evidence could not be read, or the ledger not be written, in time. Mostly the shell gives
    /// this reason; rule 5 does where a node could not be read.
    #[display("{what}; retry in a moment")]
    Unavailable {
        /// The missing thing, in words.
        what: String,
    },
    /// The update would restart the member in place. A delete or an eviction has to take its place.
    #[display("{} at a moment of the kubelet's choosing; {}, which is allowed when its cluster can spare it (or set quorumgate.io/override-until)", would(*_0), instead(*_0))]
    RestartByDelete(InPlace),
    /// A teardown would take members that serve, or may serve, and nobody announced it.
    #[display("{_0}")]
    Unannounced(Box<Unannounced>),
    /// The owner of the StatefulSet could not be read, so nobody knows whether it asks for the
    /// teardown.
    #[display(
        "its owner {owner} could not be read ({why}), so whether it asks for this is unknown; delete the owner, which takes this along, or announce it: {}; to let the gate read such owners, grant it get on them by a ClusterRole with the label quorumgate.io/aggregate-to-owners=true",
        by.announcement(set, None)
    )]
    OwnerUnread {
        /// The StatefulSet.
        set: ClusterRef,
        /// The change.
        by: TeardownBy,
        /// The kind and the name of the owner.
        owner: String,
        /// The failure.
        why: String,
    },
    /// Members that would leave are still in etcd's list, and nobody announced the change.
    #[display("etcd still lists the members of {}; to repair one of them, replace it (annotation quorumgate.io/replace on the budget); to have fewer, have the gate remove them (`kubectl quorum scale {} -n {} --replicas=COUNT`), or remove them first (`etcdctl member remove`), or announce it: kubectl -n {} annotate --overwrite statefulset {} quorumgate.io/intent=scale-in{}", list(members), cluster.name, cluster.namespace, cluster.namespace, cluster.name, explain(ignored.as_deref()))]
    MembersListed {
        /// The cluster.
        cluster: ClusterRef,
        /// The pods of these members.
        members: Vec<PodName>,
        /// The reason why an announcement that exists does not count.
        ignored: Option<String>,
    },
    /// No member could be asked for etcd's list.
    #[display("no member could be asked which members etcd lists{}", causes(because))]
    MembersUnknown {
        /// The failures of the probes, a line per member.
        because: Vec<String>,
    },
    /// The claim holds the data of a member that serves.
    #[display(
        "{} from the volume of {claim}, and its data would be destroyed when the pod next goes; replace the member instead (annotate its budget with quorumgate.io/replace and the id of the member), or set quorumgate.io/override-until",
        serving(members)
    )]
    ClaimInUse {
        /// The name of the claim.
        claim: String,
        /// The pods of the members.
        members: Vec<PodName>,
    },
    /// The pod of the claim starts or is about to: its data would go now, or with its next end.
    #[display(
        "its pod is on its way, and would come back on a new, empty {claim} under its old identity, now or after its next end; replace the member instead: kubectl -n {} annotate --overwrite qdb {} quorumgate.io/replace={}",
        cluster.namespace, cluster.name, id.map_or_else(|| "ID".to_owned(), |id| id.to_string())
    )]
    ClaimAwaited {
        /// The cluster.
        cluster: ClusterRef,
        /// The name of the claim.
        claim: String,
        /// The id of the member, where it is known.
        id: Option<MemberId>,
    },
    /// The garbage collector deletes the claim of a pod that comes back.
    #[display(
        "{claim} has the data of {pod}, and names an owner that is gone, so Kubernetes deletes it, and creates no other pod on it; to keep the data: kubectl -n {0} patch pvc {claim} --type=json -p '[{{\"op\":\"remove\",\"path\":\"/metadata/ownerReferences\"}}]' && kubectl -n {0} annotate --overwrite statefulset {1} kubernetes.io/change-cause={claim}; to give it up, replace the member, or announce that all go (quorumgate.io/intent=delete)",
        cluster.namespace, cluster.name
    )]
    ClaimDisowned {
        /// The cluster.
        cluster: ClusterRef,
        /// The name of the claim.
        claim: String,
        /// The pod of the member.
        pod: PodName,
    },
    /// The update takes the protection off a claim that pods of members use.
    #[display(
        "{claim} is mounted by {}, and without the finalizer kubernetes.io/pvc-protection its data would be destroyed under a running etcd; leave the finalizer: Kubernetes removes it when no pod uses the claim",
        list(pods)
    )]
    ClaimProtected {
        /// The name of the claim.
        claim: String,
        /// The pods that mount the claim.
        pods: Vec<PodName>,
    },
    /// The volume of a claim that pods of members use is deleted, or taken from the claim.
    #[display(
        "{volume} is the volume of {claim}, which is mounted by {}, and its data would be destroyed under a running etcd; leave its claimRef and its finalizers, or replace the member",
        list(pods)
    )]
    VolumeInUse {
        /// The name of the volume.
        volume: String,
        /// The name of the claim.
        claim: String,
        /// The pods that mount the claim.
        pods: Vec<PodName>,
    },
    /// The data of the cluster went back, and nobody has accepted that yet.
    #[display(
        "data is lost: {_0}; find out why and restore it, or accept the loss with the annotation quorumgate.io/accept-data-loss that the condition DataIntact names"
    )]
    DataLost(WentBack),
    /// Members began without their data and serve under their old ids.
    #[display(
        "{} began without its data under its old id, and what emptied it may empty others; find out what did, then replace it, or accept the loss, as the condition DataIntact says", members.join(", ")
    )]
    Refilled {
        /// The names of the members.
        members: Vec<String>,
    },
    /// The data of the member is in its pod, and such members are to stay.
    #[display(
        "the data of {pod} is in its pod and would go with it, and spec.dataProtection.ephemeral is Refuse; set it to Replace, or replace the member"
    )]
    DataInPod {
        /// The pod of the member.
        pod: PodName,
    },
    /// The data of the member is in its pod, and too few others could give it back.
    #[display(
        "the data of {pod} is in its pod and would go with it, and a cluster of {voters} cannot bring it back; save a snapshot, and set spec.dataProtection.ephemeral: Allow or quorumgate.io/override-until"
    )]
    OnlyDataInPod {
        /// The pod of the member.
        pod: PodName,
        /// The number of voters: 1 or 2.
        voters: u32,
    },
    /// The pod would not be created again, and nobody announced that.
    #[display(
        "the StatefulSet keeps no pod for the ordinal of {pod}, which would not come back, and etcd may list its member; scale the StatefulSet back, or remove the member first (`etcdctl member remove`), or announce it: kubectl -n {} annotate --overwrite statefulset {} quorumgate.io/intent={}{}",
        outside.set.namespace, outside.set.name, <&str>::from(outside.needs), explain(outside.ignored.as_deref())
    )]
    OutsideOrdinals {
        /// The pod of the member.
        pod: PodName,
        /// The StatefulSet, and the announcement that is missing.
        outside: Box<OutsideOrdinals>,
    },
    /// The next pod would leave the cluster.
    #[display(
        "its next pod would leave the others and begin a cluster of its own, because the pod template has --force-new-cluster; take that out of the template, or set quorumgate.io/override-until"
    )]
    ForcesNewCluster,
    /// The data would be destroyed, and the others are too few to keep it.
    #[display("the data of {} would be destroyed, and it may be the last good copy: {_0}", _0.target)]
    LastCopy(Count),
}

/// The data of members that a change of their StatefulSet takes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataTaken {
    /// The claims, which the retention policy deletes.
    Claims,
    /// The claims, which the garbage collector deletes because they name the StatefulSet as their
    /// owner. Its retention policy may say otherwise by now.
    OwnedClaims,
    /// The data that is in the pods.
    InPods,
}

/// The change of a StatefulSet that takes every member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TeardownBy {
    /// The StatefulSet is deleted with its pods.
    Delete,
    /// `spec.replicas` becomes 0.
    Hibernation,
}

impl TeardownBy {
    /// The announcement of the change. Members that are stopped come back, unless their data goes
    /// with them: that is a delete by another name.
    pub fn announced_by(self, takes_data: Option<DataTaken>) -> Intent {
        match (self, takes_data) {
            (Self::Hibernation, None) => Intent::Hibernate,
            (Self::Delete, _) | (Self::Hibernation, Some(_)) => Intent::Delete,
        }
    }

    /// The command that announces the change.
    fn announcement(self, set: &ClusterRef, takes_data: Option<DataTaken>) -> String {
        let ClusterRef { namespace, name } = set;
        let intent: &str = self.announced_by(takes_data).into();
        format!(
            "kubectl -n {namespace} annotate --overwrite statefulset {name} quorumgate.io/intent={intent}"
        )
    }
}

/// A teardown that nobody announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unannounced {
    /// The StatefulSet.
    pub set: ClusterRef,
    /// The change.
    pub by: TeardownBy,
    /// The members that it takes.
    pub serving: Serving,
    /// Whether the change deletes the claims too.
    pub takes_data: Option<DataTaken>,
    /// The owner that the StatefulSet names.
    pub owner: Option<NamedOwner>,
    /// The reason why an announcement that exists does not count.
    pub ignored: Option<String>,
}

/// An owner that a StatefulSet names, by its kind and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedOwner {
    /// The owner lives.
    Lives(String),
    /// The owner is gone, and was never seen alive. The garbage collector deletes the StatefulSet
    /// for it over and over.
    NeverSeen(String),
}

impl fmt::Display for Unannounced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            set,
            by,
            serving,
            takes_data,
            owner,
            ignored,
        } = self;
        let does = match by {
            TeardownBy::Delete => "this deletes all members",
            TeardownBy::Hibernation => "this stops all members",
        };
        match serving {
            Serving::Members(members) => write!(f, "{does}, and {} serve", list(members))?,
            Serving::Unknown { because } => write!(
                f,
                "{does}, and whether they serve is unknown ({})",
                because.join("; ")
            )?,
            Serving::Nobody => write!(f, "{does}")?,
        }
        match takes_data {
            Some(DataTaken::Claims) => {
                let policy = match by {
                    TeardownBy::Delete => "whenDeleted",
                    TeardownBy::Hibernation => "whenScaled",
                };
                write!(
                    f,
                    ", and deletes their claims with the data (persistentVolumeClaimRetentionPolicy.{policy}: Delete)"
                )?;
            }
            Some(DataTaken::OwnedClaims) => f.write_str(
                ", and deletes their claims with the data, whatever its retention policy says: they name it as their owner (metadata.ownerReferences)",
            )?,
            Some(DataTaken::InPods) => {
                f.write_str(", and their data is in their pods and goes with them")?;
            }
            None => {}
        }
        let again = match by {
            TeardownBy::Delete => "delete it",
            TeardownBy::Hibernation => "scale it to 0",
        };
        write!(
            f,
            "; if you want that, announce it and then {again} again: {}{}",
            by.announcement(set, *takes_data),
            explain(ignored.as_deref())
        )?;
        if *by == TeardownBy::Delete {
            let ClusterRef { namespace, name } = set;
            write!(
                f,
                "; to keep the members: kubectl -n {namespace} delete statefulset {name} --cascade=orphan"
            )?;
        }
        if *by == TeardownBy::Hibernation && *takes_data == Some(DataTaken::Claims) {
            f.write_str("; to keep the data, set whenScaled to Retain first")?;
        }
        match owner {
            None => {}
            // An owner is not heard where the data would go too.
            Some(NamedOwner::Lives(_))
                if *by == TeardownBy::Hibernation && takes_data.is_some() => {}
            Some(NamedOwner::Lives(owner)) => {
                let instead = match by {
                    TeardownBy::Delete => "delete the owner",
                    TeardownBy::Hibernation => "set the replicas of the owner to 0",
                };
                write!(f, "; its owner {owner} lives, so you can also {instead}")?;
            }
            Some(NamedOwner::NeverSeen(owner)) => {
                let ClusterRef { namespace, name } = set;
                write!(
                    f,
                    "; it names the owner {owner}, which was never seen, and the garbage collector deletes it for that until you take the name out: kubectl -n {namespace} patch statefulset {name} --type=json -p='[{{\"op\": \"remove\", \"path\": \"/metadata/ownerReferences\"}}]'"
                )?;
            }
        }
        f.write_str(
            "; to allow it for good: spec.policy.teardown: Allow in the QuorumDisruptionBudget",
        )
    }
}

/// The numbers and names behind a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Count {
    /// The member that the request is about.
    pub target: String,
    /// The number of voters that count.
    pub voters: u32,
    /// The number of serving voters without a grant, the target included.
    pub serving: u32,
    /// The number of them that would be left without the target.
    pub left: u32,
    /// The number of serving voters that is needed: the majority, or the majority of one voter more
    /// while a voter may join.
    pub needed: u32,
    /// The number of voters that count although etcd does not list them and no pod is theirs. They
    /// are members that the cluster has lost.
    pub missing: u32,
    /// The members with an open grant.
    pub in_flight: Vec<PodName>,
    /// The voters that do not serve.
    pub not_serving: Vec<NotServing>,
}

/// A voter that does not serve, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotServing {
    /// The name of the member.
    pub member: String,
    /// The state of the member's process.
    pub process: ProcessState,
    /// The reason why the member does not serve.
    pub why: Why,
}

impl fmt::Display for NotServing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            member,
            process,
            why,
        } = self;
        if process.is_down() {
            write!(f, "{member} ({process}: {why})")
        } else {
            write!(f, "{member} ({why})")
        }
    }
}

impl Reason {
    /// The stable identifier of the reason, for metrics, audit annotations and causes.
    pub fn slug(&self) -> &'static str {
        self.into()
    }
}

fn until_trusted(remaining: Option<Duration>) -> String {
    match remaining {
        Some(remaining) => format!(
            "the budget is new or was not in force, refusals were only reported, or an override could not be recorded, so earlier permissions may still be open; it is trusted in {} s",
            remaining.as_secs().max(1),
        ),
        None => "disruptions may pass without a grant, because the gate is not asked about everything in this namespace, or has not seen yet that it is; fix what the budget's condition GateActive says; the ledger is trusted again a settle time later".to_owned(),
    }
}

fn refused_by(names: &[String]) -> String {
    match names {
        [one] => format!("the PodDisruptionBudget {one} allows no disruption now"),
        many => format!(
            "{} PodDisruptionBudgets select this pod ({}), and the API server evicts only pods with at most one",
            many.len(),
            many.join(", "),
        ),
    }
}

fn repair_first(count: &Count) -> &'static str {
    if count
        .not_serving
        .iter()
        .any(|other| other.process.is_down())
    {
        "; repair the members that are down first"
    } else {
        ""
    }
}

fn too_small(voters: u32, policy: SmallCluster) -> String {
    let field = if voters == 1 {
        "singleMember"
    } else {
        "twoMembers"
    };
    let whom = match policy {
        SmallCluster::AllowRollout => "only a rollout",
        SmallCluster::Allow | SmallCluster::Never => "nobody",
    };
    format!(
        "a cluster of {voters} cannot spare a member, and policy.{field} of its budget lets {whom} take one"
    )
}

fn causes(because: &[String]) -> String {
    if because.is_empty() {
        return String::new();
    }
    format!(": {}", because.join("; "))
}

fn serving(members: &[PodName]) -> String {
    let verb = if members.len() == 1 {
        "serves"
    } else {
        "serve"
    };
    format!("{} {verb}", list(members))
}

fn explain(ignored: Option<&str>) -> String {
    ignored.map_or_else(String::new, |why| format!(" ({why})"))
}

fn would(by: InPlace) -> &'static str {
    match by {
        InPlace::Image => "a new image would restart etcd",
        InPlace::Deadline => "activeDeadlineSeconds would end the pod",
        InPlace::Resize => {
            "this resize would restart etcd (the resizePolicy says RestartContainer)"
        }
        InPlace::Start => {
            "without the scheduling gate quorumgate.io/identity the member would start under its old identity and without its data"
        }
    }
}

fn instead(by: InPlace) -> &'static str {
    match by {
        InPlace::Image => "set it in the template of the StatefulSet, and delete or evict the pod",
        InPlace::Deadline => "delete or evict the pod instead",
        InPlace::Resize => {
            "set the resources in the template of the StatefulSet, and delete or evict the pod"
        }
        InPlace::Start => {
            "leave it: it goes when the member is replaced, and DataProtected of the budget says what that waits for;"
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            target: _,
            voters,
            serving,
            left,
            needed,
            missing,
            in_flight,
            not_serving,
        } = self;
        let serve = if *serving == 1 { "serves" } else { "serve" };
        let are = if *needed == 1 { "is" } else { "are" };
        write!(f, "{serving} of {voters} voters {serve}")?;
        if left < serving {
            write!(f, ", {left} without it,")?;
        }
        write!(f, " and {needed} {are} needed")?;
        if *needed > majority(*voters) {
            f.write_str(" because another voter may join")?;
        }
        if !in_flight.is_empty() {
            write!(f, "; already permitted: {}", list(in_flight))?;
        }
        if !not_serving.is_empty() {
            write!(f, "; not serving: {}", list(not_serving))?;
        }
        if *missing > 0 {
            write!(f, "; {missing} more counted before and cannot be found now")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_teardown_has_the_same_word_with_and_without_a_record() {
        for (teardown, word) in [
            (Teardown::Namespace, "TeardownNamespace"),
            (Teardown::StatefulSet, "TeardownStatefulSet"),
            (Teardown::Owner, "TeardownOwner"),
            (Teardown::Hibernation, "Hibernation"),
            (Teardown::ScaleIn, "ScaleIn"),
        ] {
            assert_eq!(Waiver::Teardown(teardown).slug(), word);
            assert_eq!(Basis::Teardown(teardown).slug(), word);
        }
        assert_eq!(Waiver::WrongIncarnation.slug(), "WrongIncarnation");
        assert_eq!(Basis::CostsNothing.slug(), "CostsNothing");
    }

    #[test]
    fn a_refused_scale_in_leads_to_the_replacement_and_says_what_announces_it() {
        let listed = |ignored: Option<&str>| {
            let reason = Reason::MembersListed {
                cluster: ClusterRef::new("db", "etcd"),
                members: vec!["etcd-2".into()],
                ignored: ignored.map(str::to_owned),
            };
            reason.to_string()
        };
        assert!(listed(None).contains("quorumgate.io/replace"));
        assert!(listed(None).contains("kubectl quorum scale etcd -n db --replicas="));
        assert!(listed(None).ends_with("quorumgate.io/intent=scale-in"));
        let old = listed(Some("it is older than 24 h"));
        assert!(
            old.ends_with("intent=scale-in (it is older than 24 h)"),
            "{old}"
        );
    }
}
