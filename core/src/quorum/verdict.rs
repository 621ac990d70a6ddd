//! The answer to a disruption (allow, wait or deny) and the reason for it.

use std::fmt;
use std::time::Duration;

use super::circumstances::Teardown;
use super::disruption::InPlace;
use super::id::{ClusterRef, PodName};
use super::policy::SmallCluster;
use super::process::ProcessState;
use super::tolerance::majority;
use super::why::Why;

/// The answer of [`super::decide()`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The disruption may happen, once the conditions of the permission are met.
    Allow(Permission),
    /// The disruption may not happen now. The same request may pass later.
    Wait(Reason),
    /// The disruption may not happen. Repeating the request does not help.
    Deny(Reason),
}

/// The ground of a permission, on which it depends whether a grant has to be recorded first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    /// The disruption takes nothing from the cluster, so no grant is recorded.
    Waived(Waiver),
    /// A grant has to be recorded before anyone is told yes.
    Grant(Basis),
}

/// The reason why a disruption needs no grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Waiver {
    /// Rule 1: the pod belongs to no enrolled cluster.
    Foreign,
    /// Rule 2: the pod is terminating already.
    Terminating,
    /// Rule 3: the cluster is being torn down.
    Teardown(Teardown),
    /// Rule 4: the request is for another incarnation, so the API server answers 409.
    WrongIncarnation,
    /// The update restarts no member and ends no pod. The webhook gives this reason; no rule does.
    RestartsNothing,
}

/// The reason why a disruption may have a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
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
}

/// The reason why a disruption is refused, with its numbers. `Display` is the text of the refusal.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Reason {
    /// Rule 1: the cluster is enrolled, and the budget that holds its grants does not exist yet.
    NoLedger,
    /// Rule 1: the `CustomResourceDefinition` of budgets is missing.
    NoDefinition,
    /// Rule 5: the forced delete of a pod that may still run.
    AtMostOnce {
        /// The pod.
        pod: PodName,
    },
    /// Rule 8: two budgets guard one etcd cluster.
    SharedCluster {
        /// The other budget.
        other: ClusterRef,
    },
    /// Rule 9: the ledger may lack open grants.
    LedgerCold {
        /// The time until the ledger may be warm. `None` while the gate is not in force.
        remaining: Option<Duration>,
    },
    /// Rule 10: the pod's `PodDisruptionBudget` would refuse the eviction, or several select the
    /// pod.
    DisruptionBudget {
        /// The names of the `PodDisruptionBudget`s.
        names: Vec<String>,
    },
    /// Rule 11: the cluster cannot spare the learner now.
    Learner(Count),
    /// Rule 12: the member may be the one that completes a majority.
    MayComplete(Count),
    /// Rule 13: quorum is lost, and the member is alive.
    QuorumLost(Count),
    /// Rule 14: the policy of a small cluster excludes the asker.
    TooSmall {
        /// The number of voters: 1 or 2.
        voters: u32,
        /// The policy.
        policy: SmallCluster,
    },
    /// Rule 16: no voter could be asked.
    NoEvidence {
        /// The reasons, a line per member.
        because: Vec<String>,
    },
    /// Rule 17: the cluster cannot spare the member.
    NoHeadroom(Count),
    /// The member may go, but it leads, and leadership moved a moment ago.
    LeadershipMoved {
        /// The time until leadership may move again.
        remaining: Duration,
    },
    /// Evidence could not be read, or the ledger not be written, in time. Mostly the shell gives
    /// this reason; rule 5 does where a node could not be read.
    Unavailable {
        /// The missing thing, in words.
        what: String,
    },
    /// The update would restart the member in place. A delete or an eviction has to take its place.
    RestartByDelete(InPlace),
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLedger => f.write_str(
                "its StatefulSet is enrolled but has no QuorumDisruptionBudget yet; the gate is creating it, retry in a moment",
            ),
            Self::NoDefinition => f.write_str(
                "the CustomResourceDefinition quorumdisruptionbudgets.quorumgate.io is missing; install it again (`quorumgate crds | kubectl apply -f -`)",
            ),
            Self::AtMostOnce { pod } => write!(
                f,
                "{pod} may still run on a node that cannot be reached, and a second one must not start; make sure the node is off, then taint it node.kubernetes.io/out-of-service, or delete the Node",
            ),
            Self::SharedCluster { other } => {
                write!(f, "the budget {other} reports the same etcd cluster id; one cluster needs exactly one budget")
            }
            Self::LedgerCold { remaining: Some(remaining) } => write!(
                f,
                "the budget is new or was not in force, so earlier permissions may still be open; it is trusted in {} s",
                remaining.as_secs().max(1),
            ),
            Self::LedgerCold { remaining: None } => f.write_str(
                "the gate is not asked about everything in this namespace (see the budget's condition GateActive), so permissions may be given past it; mend that, then it is trusted after the settle time",
            ),
            Self::DisruptionBudget { names } => match names.as_slice() {
                [one] => write!(f, "the PodDisruptionBudget {one} allows no disruption now"),
                many => write!(
                    f,
                    "{} PodDisruptionBudgets select this pod ({}), and the API server evicts only pods with at most one",
                    many.len(),
                    many.join(", "),
                ),
            },
            Self::Learner(count) => write!(
                f,
                "{} is a learner that may become a voter meanwhile: {count}",
                count.target
            ),
            Self::MayComplete(count) => write!(
                f,
                "{} is down, but may be the one that completes the majority when it comes back: {count}; repair it, or let it go by an override if it cannot come back",
                count.target,
            ),
            Self::QuorumLost(count) => {
                write!(f, "quorum is lost and {} is alive, so it is needed to bring quorum back: {count}", count.target)?;
                if count.not_serving.iter().any(|other| other.process.is_down()) {
                    f.write_str("; repair the members that are down first")?;
                }
                Ok(())
            }
            Self::TooSmall { voters, policy } => {
                let field = if *voters == 1 { "singleMember" } else { "twoMembers" };
                write!(f, "a cluster of {voters} cannot spare a member, and policy.{field} of its budget lets ")?;
                match policy {
                    SmallCluster::AllowRollout => f.write_str("only a rollout take one"),
                    SmallCluster::Allow | SmallCluster::Never => f.write_str("nobody take one"),
                }
            }
            Self::NoEvidence { because } => {
                f.write_str("no member gave evidence that counts")?;
                if !because.is_empty() {
                    write!(f, ": {}", because.join("; "))?;
                }
                Ok(())
            }
            Self::NoHeadroom(count) => write!(f, "{} has to stay: {count}", count.target),
            Self::LeadershipMoved { remaining } => write!(
                f,
                "it leads the cluster, and leadership moved a moment ago; the new leader has to lead for 5 s first, so that writers are not interrupted twice: retry in {} s",
                remaining.as_secs().saturating_add(1),
            ),
            Self::Unavailable { what } => write!(f, "{what}; retry in a moment"),
            Self::RestartByDelete(by) => write!(
                f,
                "{} at a moment of the kubelet's choosing; {}, which goes when its cluster can spare it (or set quorumgate.io/override-until)",
                would(*by),
                instead(*by),
            ),
        }
    }
}

fn would(by: InPlace) -> &'static str {
    match by {
        InPlace::Image => "a new image would restart etcd",
        InPlace::Deadline => "activeDeadlineSeconds would end the pod",
        InPlace::Resize => {
            "this resize would restart etcd (the resizePolicy says RestartContainer)"
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
            let names: Vec<&str> = in_flight.iter().map(PodName::as_str).collect();
            write!(f, "; already permitted to go: {}", names.join(", "))?;
        }
        if !not_serving.is_empty() {
            let members: Vec<String> = not_serving.iter().map(NotServing::to_string).collect();
            write!(f, "; not serving: {}", members.join(", "))?;
        }
        if *missing > 0 {
            write!(f, "; {missing} more counted before and cannot be found now")?;
        }
        Ok(())
    }
}
