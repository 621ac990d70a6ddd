//! The number of members: one joins or leaves at a time, until there are as many as the budget asks
//! for.
//!
//! A new member joins as a learner, before its pod exists, and is promoted once it has caught up.
//! So at no moment does a voter count that cannot serve yet. A member that leaves hands leadership
//! over, is removed from etcd under a grant of its pod, and only then loses its pod.
//!
//! [`next`] is a function without a memory: what has been done is seen in etcd's member list and
//! in `spec.replicas`. So a gate that ends between any two steps loses nothing, and a change of
//! mind in the middle turns the work around.

use super::desired::Handover;
use super::hindrance::Hindrance;
use super::learner::{does_not_join, has_caught_up, runs_here};
use super::replacement::{
    MembershipBy, Mode, all_are_elsewhere, expected_in, like_those_of_others, named_like_the_others,
};
use super::version::{Defect, Version};
use crate::quorum::evidence::ListedMember;
use crate::quorum::{
    Disruption, GrantKind, Grants, Kind, MemberId, Ordinal, PodName, PodUid, Snapshot, TargetPod,
    decide, leader_to_move,
};
use std::collections::{BTreeMap, BTreeSet};

/// The facts of one look at a cluster, beside its snapshot and its grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleInput {
    /// The number of members that the budget asks for (`spec.members.count`).
    pub count: u32,
    /// The one who changes etcd's member list.
    pub membership: MembershipBy,
    /// The kind and the name of the StatefulSet's controller, which sets its replicas.
    pub owner: Option<String>,
    /// Whether the StatefulSet has the label that enrols it. The gate's account may scale no other.
    pub is_labelled: bool,
    /// Whether members are replaced, as one that was removed from etcd is unasked.
    pub replace: Mode,
    /// Whether refusals are only reported, so that nothing is set in new pods.
    pub only_warns: bool,
    /// The reason why new pods cannot be told whom they join.
    pub cannot_join: Option<String>,
    /// The ordinal of the first pod.
    pub first: Ordinal,
    /// Whether a rollout is under way.
    pub rolling_out: bool,
    /// The pod of the member that is being replaced.
    pub replacing: Option<PodName>,
    /// Whether leadership can be moved now.
    pub handover: Handover,
    /// etcd's member list, from a voter whose linearizable read passed before. `None` if there is
    /// no such list.
    pub list: Option<Vec<ListedMember>>,
    /// The versions that the members report. A member that does not answer is left out.
    pub versions: Vec<Version>,
    /// The pods whose member's volume is on record.
    pub recorded: BTreeSet<PodName>,
    /// The pods in which etcd has ended and was started again, over and over.
    pub failing_pods: BTreeSet<PodUid>,
    /// The claims that are there for pods that are not, by pod.
    pub left_claims: BTreeMap<PodName, String>,
}

/// The next thing to do about the number of members.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// There are as many members as the budget asks for.
    Done,
    /// There are not, and nothing can be done now.
    Wait(Refusal),
    /// The gate carries out this step. After it everything is observed again.
    Act(Step),
}

/// A single effect, which may have happened already. `Display` is a sentence.
#[derive(
    Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames, derive_more::Display,
)]
pub enum Step {
    /// Add the next member to etcd as a learner.
    #[display("add {pod} as a learner at {}", peer_urls.join(", "))]
    AddLearner {
        /// The pod that the member will have.
        pod: PodName,
        /// The peer URLs of the member.
        peer_urls: Vec<String>,
    },
    /// Set the replicas of the StatefulSet: one more for a member that etcd expects, one fewer for
    /// a pod whose member is gone.
    #[display("set the replicas to {_0}")]
    SetReplicas(u32),
    /// Promote the learner.
    #[display("promote member {id} of {pod}")]
    Promote {
        /// The pod of the member.
        pod: PodName,
        /// The id of the member.
        id: MemberId,
    },
    /// Delete the pod of a new member that does not join. The next one is told whom it joins.
    #[display("delete {}, whose member has never started", _0.name)]
    DeletePod(TargetPod),
    /// Move leadership away from the member that leaves.
    #[display("move leadership from {pod} to member {to}")]
    MoveLeader {
        /// The pod of the member.
        pod: PodName,
        /// The member that takes over.
        to: MemberId,
    },
    /// Remove the member from etcd, under a grant of its pod.
    #[display("remove member {id} of {} from etcd", pod.name)]
    RemoveMember {
        /// The pod of the member.
        pod: TargetPod,
        /// The id of the member.
        id: MemberId,
    },
    /// Remove a learner from etcd that has no pod and has never started.
    #[display("remove the learner {id} of {pod}, which has never started, from etcd")]
    Withdraw {
        /// The pod that the member would have had.
        pod: PodName,
        /// The id of the member.
        id: MemberId,
    },
}

impl Step {
    /// The stable identifier of the step, for metrics.
    pub fn slug(&self) -> &'static str {
        self.into()
    }
}

/// The reason why there are not yet as many members as asked for. `Display` is a sentence for
/// people.
#[derive(
    Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames, derive_more::Display,
)]
pub enum Refusal {
    /// A reason that holds back other work of the gate, too.
    #[display("{_0}")]
    Hindered(Hindrance),
    /// Others change the member list.
    #[display(
        "{} changes etcd's member list; add and remove members by it, and leave spec.members.count out",
        who(*_0)
    )]
    MembersByOthers(MembershipBy),
    /// The StatefulSet has an owner, which sets its replicas.
    #[display(
        "{owner} sets the replicas of the StatefulSet: change them there, and leave spec.members.count out"
    )]
    Owned {
        /// The kind and the name of the owner.
        owner: String,
    },
    /// The StatefulSet lacks the label that enrols it.
    #[display(
        "the StatefulSet has no label quorumgate.io/enroll=true, and the gate's account may scale no other"
    )]
    NotLabelled,
    /// The budget only warns.
    #[display("in Warn, the gate changes no member: set spec.enforcement to Enforce")]
    OnlyWarns,
    /// New pods cannot be told whom they join.
    #[display("new pods cannot be told whom they join: {because}")]
    CannotJoin {
        /// The reason.
        because: String,
    },
    /// No member list that proves anything could be read.
    #[display("no up-to-date member list could be read")]
    NoList,
    /// A member is being replaced, or has to be.
    #[display("{pod} has to be replaced first (see the condition DataProtected)")]
    Replacing {
        /// The pod of the member.
        pod: PodName,
    },
    /// Not all voters serve.
    #[display("{serving} of {voters} voters serve, and all have to before another one joins")]
    NotAllServing {
        /// The number of voters.
        voters: u32,
        /// The number of them that serve.
        serving: u32,
    },
    /// No member may go, so none joins either.
    #[display("no member may go now, and none joins either (see the condition QuorumHealthy)")]
    Withheld,
    /// A learner is there that somebody else has added.
    #[display("{member} is a learner of somebody else's, and etcd takes one at a time")]
    Learner {
        /// The name of the member.
        member: String,
    },
    /// A member of the list may run in this pod.
    #[display("etcd may list a member in {pod}, so its pod has to stay")]
    MayBeListed {
        /// The pod.
        pod: PodName,
    },
    /// A member that has to leave has no pod, so no grant can be given for it.
    #[display(
        "etcd lists {member} in {pod}, which has no pod: remove it by hand (etcdctl member remove {id})"
    )]
    NoPod {
        /// The name of the member.
        member: String,
        /// The pod.
        pod: PodName,
        /// The id of the member.
        id: MemberId,
    },
    /// The claim of a member that left is still there, and a new member would find its data.
    #[display(
        "the claim {claim} is left of an earlier member, on whose data no new one starts: delete it (kubectl -n {namespace} delete persistentvolumeclaim {claim})"
    )]
    ClaimLeft {
        /// The namespace of the claim.
        namespace: String,
        /// The name of the claim.
        claim: String,
    },
    /// The peer URLs of a new member cannot be told from those of the others.
    #[display(
        "the peer URLs of {pod} cannot be told from those of the others, which do not name their pods"
    )]
    #[strum(serialize = "PeerURLsUnknown")]
    PeerUrlsUnknown {
        /// The pod.
        pod: PodName,
    },
    /// The member leads, and no other can take over.
    #[display("{pod} leads, and no other member can take over")]
    NoHeir {
        /// The pod.
        pod: PodName,
    },
    /// The new member starts, joins or catches up.
    #[display("{}", joining(pod, *behind))]
    Joining {
        /// The pod of the member.
        pod: PodName,
        /// The entries that the learner is behind, if that is known.
        behind: Option<u64>,
    },
}

impl From<Hindrance> for Refusal {
    fn from(hindrance: Hindrance) -> Self {
        Self::Hindered(hindrance)
    }
}

impl Refusal {
    /// The stable identifier of the reason, for the status.
    pub fn slug(&self) -> &'static str {
        if let Self::Hindered(hindrance) = self {
            return hindrance.slug();
        }
        self.into()
    }
}

fn who(membership: MembershipBy) -> &'static str {
    match membership {
        MembershipBy::Gate => "the gate",
        MembershipBy::Pod => "the member's own pod",
        MembershipBy::Sidecar => "a sidecar of the member",
        MembershipBy::Owner => "the owner of the StatefulSet",
    }
}

fn joining(pod: &PodName, behind: Option<u64>) -> String {
    match behind {
        Some(behind) => format!("{pod} catches up and is {behind} entries behind"),
        None => format!("{pod} starts and joins as a learner"),
    }
}

/// The next step towards the number of members that the budget asks for, while the given grants are
/// open.
pub fn next(snapshot: &Snapshot, grants: &Grants, input: &ScaleInput) -> Next {
    let case = Case {
        snapshot,
        grants,
        input,
    };
    match case.step() {
        Ok(Some(step)) => Next::Act(step),
        Ok(None) => Next::Done,
        Err(because) => Next::Wait(because),
    }
}

struct Case<'a> {
    snapshot: &'a Snapshot,
    grants: &'a Grants,
    input: &'a ScaleInput,
}

impl Case<'_> {
    fn step(&self) -> Result<Option<Step>, Refusal> {
        let (replicas, count) = (self.snapshot.replicas, self.input.count);
        if replicas == 0 {
            // The cluster sleeps, and wakes with as many as it had.
            return Ok(None);
        }
        let Some(list) = &self.input.list else {
            return Err(Refusal::NoList);
        };
        let mut listed: Vec<(u32, &ListedMember)> = list
            .iter()
            .filter_map(|one| Some((Ordinal::from_pod(&self.pod_of(one)?)?.0, one)))
            .collect();
        listed.sort_by_key(|(ordinal, _)| *ordinal);
        let wanted = self.first()..self.first().saturating_add(count);
        let is_listed = |ordinal: &u32| listed.iter().any(|(other, _)| other == ordinal);
        let missing = wanted.clone().find(|ordinal| !is_listed(ordinal));
        let leaving = listed.iter().rev().find(|(n, _)| !wanted.contains(n));
        let learner = list.iter().find(|one| one.learner);
        let is_whole = missing.is_none() && leaving.is_none() && learner.is_none();
        if replicas == count && is_whole {
            return Ok(None);
        }
        self.may_change()?;
        if let Some(learner) = learner {
            let here = listed.iter().find(|(_, one)| one.id == learner.id);
            match here {
                Some((ordinal, _)) if wanted.contains(ordinal) => {
                    return self.join(*ordinal, learner).map(Some);
                }
                Some(_) => {}
                None => {
                    let member = learner.id.to_string();
                    return Err(Refusal::Learner { member });
                }
            }
        }
        let next = self.first().saturating_add(replicas);
        if wanted.contains(&next) && is_listed(&next) {
            return Ok(Some(Step::SetReplicas(replicas.saturating_add(1))));
        }
        // Pods without members go from the top. Where a member was removed, its pod goes before
        // another member joins in its place: etcd never starts on the data of a removed one.
        let top = self.first().saturating_add(replicas).saturating_sub(1);
        let voters = list.iter().filter(|one| !one.learner).count();
        let was_removed = u32::try_from(voters).is_ok_and(|n| n < self.snapshot.expected.voters);
        let pod = self.pod(top);
        let was_known = self.input.recorded.contains(&pod) && self.snapshot.pod(&pod).is_some();
        if replicas <= count && was_known && !is_listed(&top) && self.input.replace == Mode::Auto {
            return Err(Refusal::Replacing { pod });
        }
        let is_left = (was_removed || was_known) && replicas > 1;
        if (replicas > count || is_left) && !is_listed(&top) {
            return self.without_pod(top, list).map(Some);
        }
        if let Some((ordinal, member)) = leaving {
            return self.leave(*ordinal, member, list).map(Some);
        }
        missing.map_or(Ok(None), |ordinal| self.add(ordinal, list).map(Some))
    }

    /// The ordinal of the first pod.
    fn first(&self) -> u32 {
        self.input.first.0
    }

    fn pod(&self, ordinal: u32) -> PodName {
        PodName::new(format!("{}-{ordinal}", self.snapshot.cluster.name))
    }

    /// The pod of an entry of the member list: by the member that was seen, or else by its name and
    /// its peer URLs.
    fn pod_of(&self, listed: &ListedMember) -> Option<PodName> {
        let set = &self.snapshot.cluster.name;
        let mut members = self.snapshot.members.iter();
        let seen = members.find(|member| member.id == Some(listed.id));
        let seen = seen.and_then(|member| member.pod_name().cloned());
        let by_url = || {
            listed
                .peer_urls
                .iter()
                .find_map(|url| PodName::of_url(set, url))
        };
        seen.or_else(|| PodName::of_member(set, &listed.name))
            .or_else(by_url)
    }

    /// Whether the gate may change the number of members at all.
    fn may_change(&self) -> Result<(), Refusal> {
        let input = self.input;
        if input.membership != MembershipBy::Gate {
            return Err(Refusal::MembersByOthers(input.membership));
        }
        if let Some(owner) = &input.owner {
            let owner = owner.clone();
            return Err(Refusal::Owned { owner });
        }
        if !input.is_labelled {
            return Err(Refusal::NotLabelled);
        }
        if input.only_warns {
            return Err(Refusal::OnlyWarns);
        }
        if let Some(pod) = &input.replacing {
            let pod = pod.clone();
            return Err(Refusal::Replacing { pod });
        }
        Hindrance::of_evidence(self.snapshot).map_or(Ok(()), |because| Err(because.into()))
    }

    /// Nothing else is under way, besides the work on `own`.
    fn quiet(&self, own: &PodName) -> Result<(), Refusal> {
        let pods = self.snapshot.pods.iter().filter(|pod| pod.name != *own);
        let hindrance = Hindrance::of_others(self.grants, own, pods, self.input.rolling_out);
        hindrance.map_or(Ok(()), |because| Err(because.into()))
    }

    /// All voters serve but for the member that joins, which may have a grant: somebody deleted the
    /// claim that its pod would have found. Nothing is withheld.
    fn sound(&self, joins: &PodName) -> Result<(), Refusal> {
        if self.snapshot.tolerance(self.grants).is_withheld {
            return Err(Refusal::Withheld);
        }
        let voters = self.snapshot.voters(self.grants, Some(joins));
        let serving = self.snapshot.serving(self.grants, Some(joins));
        if serving < voters {
            return Err(Refusal::NotAllServing { voters, serving });
        }
        Ok(())
    }

    /// Whether somebody may delete the pod.
    fn may_go(&self, pod: &PodName) -> bool {
        let mut causes = self.grants.get(pod).into_iter().flat_map(|g| &g.causes);
        causes.any(|cause| matches!(cause.what, GrantKind::Delete { .. }))
    }

    /// The next step for a learner that is to be a voter: its pod, and its promotion.
    fn join(&self, ordinal: u32, learner: &ListedMember) -> Result<Step, Refusal> {
        let (pod, replicas) = (self.pod(ordinal), self.snapshot.replicas);
        if ordinal == self.first().saturating_add(replicas) {
            return Ok(Step::SetReplicas(replicas.saturating_add(1)));
        }
        let member = self
            .snapshot
            .member(&pod)
            .filter(|m| m.id == Some(learner.id));
        let ready = member.filter(|m| runs_here(m) && has_caught_up(m, self.snapshot));
        if ready.is_none() {
            if let Some(pod) = self.lost(&pod).filter(|_| learner.name.is_empty()) {
                return Ok(Step::DeletePod(pod));
            }
            let behind = member.and_then(|member| member.lag);
            return Err(Refusal::Joining { pod, behind });
        }
        // A rollout may wait for just this voter.
        self.sound(&pod)?;
        if self.may_go(&pod) {
            let pods = vec![pod];
            return Err(Hindrance::Granted { pods }.into());
        }
        let id = learner.id;
        Ok(Step::Promote { pod, id })
    }

    /// The pod, where its member does not join: it was made while nobody told it whom it joins.
    fn lost(&self, name: &PodName) -> Option<TargetPod> {
        let pod = self.snapshot.pod(name).filter(|pod| !pod.terminating)?;
        does_not_join(pod, self.snapshot, &self.input.failing_pods).then(|| TargetPod {
            name: name.clone(),
            uid: pod.uid.clone(),
        })
    }

    /// The next step for the pod with the highest ordinal, in which etcd lists nobody.
    fn without_pod(&self, ordinal: u32, list: &[ListedMember]) -> Result<Step, Refusal> {
        self.is_nobodys(&self.pod(ordinal), list)?;
        Ok(Step::SetReplicas(self.snapshot.replicas.saturating_sub(1)))
    }

    /// No member of this list is in the pod, nor expected in it.
    fn is_nobodys(&self, pod: &PodName, list: &[ListedMember]) -> Result<(), Refusal> {
        let set = &self.snapshot.cluster.name;
        if all_are_elsewhere(list, self.snapshot, pod) && expected_in(set, pod, list).is_none() {
            return Ok(());
        }
        let pod = pod.clone();
        Err(Refusal::MayBeListed { pod })
    }

    /// The next step for a member that leaves: leadership, and its removal from etcd.
    fn leave(
        &self,
        ordinal: u32,
        listed: &ListedMember,
        list: &[ListedMember],
    ) -> Result<Step, Refusal> {
        let (name, id) = (self.pod(ordinal), listed.id);
        // A learner takes no vote with it, and others may wait for its end.
        if !listed.learner {
            self.quiet(&name)?;
        }
        // Once it is out, nothing else may keep its pod.
        let rest: Vec<ListedMember> = list.iter().filter(|one| one.id != id).cloned().collect();
        self.is_nobodys(&name, &rest)?;
        let Some(here) = self.snapshot.pod(&name) else {
            let has_started = !listed.name.is_empty();
            if listed.learner && !has_started {
                return Ok(Step::Withdraw { pod: name, id });
            }
            let member = listed.name.clone();
            return Err(Refusal::NoPod {
                member,
                pod: name,
                id,
            });
        };
        let pod = TargetPod {
            name: name.clone(),
            uid: here.uid.clone(),
        };
        let removal = Disruption::of_gate(pod.clone(), Kind::Remove);
        if self
            .snapshot
            .member(&name)
            .is_some_and(|member| member.leader)
        {
            if let Some(hindrance) = Hindrance::of_handover(self.input.handover) {
                return Err(hindrance.into());
            }
            let to = leader_to_move(self.snapshot, self.grants, &removal);
            let pod = name;
            return match to {
                Some(to) => Ok(Step::MoveLeader { pod, to }),
                None => Err(Refusal::NoHeir { pod }),
            };
        }
        let verdict = decide(self.snapshot, self.grants, &removal);
        match Hindrance::of_verdict(verdict) {
            Some(because) => Err(because.into()),
            None => Ok(Step::RemoveMember { pod, id }),
        }
    }

    /// The next step for a pod that is to have a member: a learner, before the pod exists.
    fn add(&self, ordinal: u32, list: &[ListedMember]) -> Result<Step, Refusal> {
        let pod = self.pod(ordinal);
        if self.input.recorded.contains(&pod) && self.snapshot.pod(&pod).is_some() {
            return Err(Refusal::Replacing { pod });
        }
        if let Some(because) = &self.input.cannot_join {
            let because = because.clone();
            return Err(Refusal::CannotJoin { because });
        }
        self.quiet(&pod)?;
        if self.grants.holds(&pod) {
            let pods = vec![pod];
            return Err(Hindrance::Granted { pods }.into());
        }
        self.sound(&pod)?;
        let defect = Defect::PROMOTION_NOT_PERSISTED;
        if let Some(version) = self.input.versions.iter().find(|v| defect.affects(**v)) {
            let version = *version;
            return Err(Hindrance::Defect { version, defect }.into());
        }
        if let Some(claim) = self.input.left_claims.get(&pod) {
            let (namespace, claim) = (self.snapshot.cluster.namespace.clone(), claim.clone());
            return Err(Refusal::ClaimLeft { namespace, claim });
        }
        let Some(peer_urls) = like_those_of_others(self.snapshot, list, &pod) else {
            return Err(Refusal::PeerUrlsUnknown { pod });
        };
        if named_like_the_others(&self.snapshot.cluster.name, &pod, list).is_none() {
            let because = "no member is named after its pod".to_owned();
            return Err(Refusal::CannotJoin { because });
        }
        Ok(Step::AddLearner { pod, peer_urls })
    }
}

#[cfg(test)]
mod tests;
