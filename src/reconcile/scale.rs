//! The number of one cluster's members: `spec.members.count` of the budget.
//!
//! Only the leader acts. It makes one step per look, as the planner says ([`crate::plan::scale`]),
//! and looks again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::time::Instant;

use super::condition::{self as conditions, ConditionText, find};
use super::deletion::delete_pod;
use super::look::{Look, ReconcileError, handover, mode, rolls_out, template_etcd, versions};
use super::member_list::{CALL, Refusals, any_of, others};
use super::operation::{
    Applied, Made, Operation, OperationContext, Permission, Permit, Plan, Report, Rest,
};
use super::run::Run;
use crate::api::{QuorumDisruptionBudget, condition};
use crate::causes::causes;
use crate::judge::Maintenance;
use crate::ledger::Page;
use crate::observe::{
    controlled_by, finds_others_elsewhere, first_ordinal, joining, joining_those, labels_enrol,
    membership,
};
use crate::plan::replacement::{MembershipBy, Place};
use crate::plan::scale::{Next, Refusal, ScaleInput, Step, next};
use crate::quorum::{ClaimState, ClusterRef, Ordinal, PodName, confirmed_list};
use crate::telemetry::events::{Notice, Severity};

/// The pauses: after a step, and while a new member joins or a member waits to leave.
const STEP: Duration = Duration::from_millis(100);
const WAITING: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(10);

/// The number of one cluster's members.
#[derive(Default)]
pub(super) struct Scale {
    refusals: Refusals,
}

/// The facts of the number of members.
pub(super) struct Input {
    /// `None` where the budget asks for no number any more.
    facts: Option<ScaleInput>,
    replicas: u32,
}

/// The reason why nothing is done.
pub(super) enum Wait {
    /// The budget asks for no number.
    Unasked,
    /// There are as many as asked for.
    Done,
    /// A step has to wait.
    For(Refusal),
    /// etcd refused to change the member list, with these words.
    Refused(String),
}

/// The number of members that a budget asks for.
fn count(budget: &QuorumDisruptionBudget) -> Option<u32> {
    budget
        .spec
        .members
        .count
        .and_then(|count| u32::try_from(count).ok())
}

/// The ordinals of the pods that are to have members, where the gate sees to their number.
pub(super) fn wanted(look: &Look) -> Option<Range<u32>> {
    let set = look.view.stateful_set()?;
    let by_gate = membership(look.page.budget(), Some(set)) == MembershipBy::Gate;
    let Ordinal(first) = first_ordinal(set);
    let may_scale = by_gate && is_labelled(set) && controlled_by(set).is_none();
    let count = count(look.page.budget()).filter(|_| may_scale)?;
    // A member that joins has no pod before the replicas grow, and nothing would make one.
    let count = count.min(look.snapshot.replicas);
    Some(first..first.saturating_add(count))
}

/// The pod of the member that is being replaced, or that others join after a loss of quorum.
fn replacing(page: &Page) -> Option<PodName> {
    let replaced = page.open_replacement().map(|open| &open.member);
    let recovered = page.open_recovery().map(|open| &open.member);
    replaced.or(recovered).map(PodName::new)
}

/// Whether the StatefulSet has the label without which the gate's account may not scale it.
fn is_labelled(set: &StatefulSet) -> bool {
    set.metadata.labels.as_ref().is_some_and(labels_enrol)
}

/// Whether the number of members is not known to be as asked for, by the status.
fn is_open(budget: &QuorumDisruptionBudget) -> bool {
    let conditions = budget
        .status
        .as_ref()
        .map(|status| status.conditions.as_slice());
    let shown = find(conditions.unwrap_or_default(), condition::SCALED);
    match count(budget) {
        Some(_) => shown.is_none_or(|shown| {
            shown.status != "True" || shown.observed_generation != budget.metadata.generation
        }),
        None => shown.is_some_and(|shown| shown.status != "True"),
    }
}

impl Operation for Scale {
    const NAME: &'static str = "scale";
    type Input = Input;
    type Step = Step;
    type Wait = Wait;

    fn is_at_work(&mut self, run: &Run, cluster: &ClusterRef, leads: bool) -> bool {
        let budget = run.watches.budgets.of_cluster(cluster);
        leads && budget.is_some_and(|budget| is_open(&budget))
    }

    async fn gather(
        &mut self,
        context: &OperationContext<'_>,
    ) -> Result<Option<Input>, ReconcileError> {
        let (run, look) = (context.run, context.look);
        let budget = look.page.budget();
        let Some(set) = look.view.stateful_set() else {
            return Ok(None);
        };
        let replicas = look.snapshot.replicas;
        let Some(count) = count(budget) else {
            let input = Input {
                facts: None,
                replicas,
            };
            return Ok(is_open(budget).then_some(input));
        };
        let stays = self.refusals.leadership_stays(run.clock.instant());
        let list = confirmed_list(&look.snapshot, &look.round);
        let first = first_ordinal(set);
        let (left_claims, on_node) = if count > replicas {
            next_claim(context, first, replicas).boxed().await?
        } else {
            (BTreeMap::new(), None)
        };
        let cannot_join = forgets_others(look)
            .or_else(|| cannot_join(look))
            .or(on_node);
        let facts = ScaleInput {
            count,
            membership: membership(budget, Some(set)),
            owner: controlled_by(set),
            is_labelled: is_labelled(set),
            only_warns: budget.only_warns(),
            replace: mode(budget),
            cannot_join,
            first,
            rolling_out: rolls_out(budget, Some(set)),
            replacing: replacing(&look.page),
            handover: handover(run, look, stays),
            list,
            versions: versions(look),
            recorded: look.page.volume_records().into_keys().collect(),
            failing_pods: look.view.failing_pods(),
            left_claims,
        };
        Ok(Some(Input {
            facts: Some(facts),
            replicas,
        }))
    }

    fn next(&self, context: &OperationContext<'_>, input: &Input) -> Plan<Step, Wait> {
        let Some(facts) = &input.facts else {
            return Plan::Wait(Wait::Unasked);
        };
        match next(&context.look.snapshot, &context.look.page.grants, facts) {
            Next::Done => Plan::Wait(Wait::Done),
            Next::Wait(because) => Plan::Wait(Wait::For(because)),
            Next::Act(step) => match self.refused(&step, context.run.clock.instant()) {
                Some(because) => Plan::Wait(Wait::Refused(because.to_owned())),
                None => Plan::Act(vec![step]),
            },
        }
    }

    fn permit(&self, _: &OperationContext<'_>, _: &Input, step: &Step) -> Option<Permit> {
        let Step::RemoveMember { pod, .. } = step else {
            return None;
        };
        let pod = pod.clone();
        Some(Permit::Maintenance(Box::new(Maintenance::Remove { pod })))
    }

    async fn apply(
        &mut self,
        context: &OperationContext<'_>,
        _: &Input,
        step: &Step,
        permission: Option<Permission>,
    ) -> Result<Applied, ReconcileError> {
        let (run, look) = (context.run, context.look);
        let now = run.clock.instant();
        let (admin, deadline) = (run.judge.admin(), now + CALL);
        let applied = match step {
            Step::AddLearner { pod, peer_urls } => {
                let add = |voter| admin.add_learner(voter, peer_urls, deadline);
                let added = any_of(others(look, pod), add).await;
                self.refusals.noted(added, now)
            }
            Step::Promote { pod, id } => {
                let promote = |voter| admin.promote(voter, *id, deadline);
                let promoted = any_of(others(look, pod), promote).await;
                self.refusals.noted(promoted, now)
            }
            Step::MoveLeader { pod, to } => self.refusals.move_leader(context, pod, *to).await?,
            Step::RemoveMember { pod, id } => {
                let removed = self.refusals.remove(context, &pod.name, *id, permission);
                removed.await
            }
            Step::Withdraw { pod, id } => {
                let remove = |voter| admin.remove_member(voter, *id, deadline);
                let removed = any_of(others(look, pod), remove).await;
                self.refusals.noted(removed, now)
            }
            Step::DeletePod(pod) => delete_pod(context, &pod.name, &pod.uid).boxed().await,
            Step::SetReplicas(replicas) => set_replicas(context, *replicas).boxed().await,
        };
        if matches!(applied, Applied::Done) {
            run.metrics.scale_step(step.slug());
            say(context, step);
        }
        Ok(applied)
    }

    fn report(
        &self,
        context: &OperationContext<'_>,
        input: &Input,
        next: &Plan<Step, Wait>,
        made: &Made<'_, Step>,
    ) -> Option<Report> {
        // Without a list nothing new is known about a number that was reached.
        let facts = input.facts.as_ref();
        let is_as_asked = facts.is_some_and(|facts| facts.count == input.replicas);
        if matches!(next, Plan::Wait(Wait::For(Refusal::NoList))) && is_as_asked {
            return None;
        }
        let said = match (next, made.failure()) {
            (_, Some((step, because))) => {
                let text = format!("tried again: {step}. It failed: {because}.");
                ("False", "Failing", text)
            }
            (Plan::Act(steps), None) => {
                let step = steps.first()?;
                ("False", "Scaling", format!("next: {step}"))
            }
            (Plan::Wait(wait), None) => waiting(wait, input),
        };
        let had_cause = input.facts.is_some();
        Some(conditions::report(
            context,
            condition::SCALED,
            said,
            had_cause,
        ))
    }

    fn rest(
        &mut self,
        _: &OperationContext<'_>,
        _: &Input,
        next: &Plan<Step, Wait>,
        made: &Made<'_, Step>,
    ) -> Rest {
        match next {
            Plan::Act(_) if made.done.is_some() => Rest::NotBefore(STEP),
            Plan::Act(_) => Rest::NotBefore(WAITING),
            Plan::Wait(Wait::For(Refusal::Joining { .. })) => Rest::Within(WAITING),
            Plan::Wait(Wait::For(_) | Wait::Refused(_)) => Rest::Within(LONG),
            Plan::Wait(Wait::Done | Wait::Unasked) => Rest::Idle,
        }
    }
}

impl Scale {
    /// The words with which etcd refused such a step a short time ago. A grant that is renewed for
    /// a removal which never happens would keep the member out for ever.
    fn refused(&self, step: &Step, now: Instant) -> Option<&str> {
        let changes_members = !matches!(
            step,
            Step::SetReplicas(_) | Step::DeletePod(_) | Step::MoveLeader { .. }
        );
        let stay = self.refusals.members_stay(now);
        stay.filter(|_| changes_members)
    }
}

/// The pod in which etcd forgets whoever has joined whenever it starts.
fn forgets_others(look: &Look) -> Option<String> {
    let mut pods = look.snapshot.pods.iter();
    let forced = pods.find(|pod| look.view.is_forced(&pod.name))?;
    let name = &forced.name;
    Some(format!(
        "etcd in {name} forgets all others whenever it starts (--force-new-cluster)"
    ))
}

/// The reason why new pods cannot be told whom they join.
pub(super) fn cannot_join(look: &Look) -> Option<String> {
    let etcd = match template_etcd(look)? {
        Ok(etcd) => etcd,
        Err(because) => return Some(because),
    };
    if finds_others_elsewhere(etcd) {
        return Some("they find each other by etcd's discovery".to_owned());
    }
    joining_those(etcd, "").and_then(|_| joining(etcd)).err()
}

/// The condition while nothing is done.
fn waiting(wait: &Wait, input: &Input) -> ConditionText {
    let replicas = input.replicas;
    match wait {
        Wait::Unasked => {
            let text =
                "spec.members.count is not set, so the gate leaves the number of members alone";
            ("True", "NotAsked", text.to_owned())
        }
        Wait::Done if replicas == 0 => {
            let text = "the StatefulSet is scaled to 0; it gets back the replicas that you set";
            ("True", "Hibernated", text.to_owned())
        }
        Wait::Refused(because) => {
            let text = format!(
                "etcd refuses to change its members for the gate's user, which needs the role root: {because}"
            );
            ("False", "Failing", text)
        }
        Wait::Done => {
            let text = format!("{replicas} members, as spec.members.count asks for");
            ("True", "AsAsked", text)
        }
        Wait::For(because @ Refusal::Joining { .. }) => {
            ("False", because.slug(), because.to_string())
        }
        Wait::For(because) => {
            let count = input.facts.as_ref().map_or(replicas, |facts| facts.count);
            let text = format!("{count} members are asked for: {because}");
            ("False", because.slug(), text)
        }
    }
}

/// The claim that is there for the next pod, before that pod is, and the reason why no member can
/// join where the data is on nodes.
async fn next_claim(
    context: &OperationContext<'_>,
    Ordinal(first): Ordinal,
    replicas: u32,
) -> Result<(BTreeMap<PodName, String>, Option<String>), ReconcileError> {
    let (run, cluster) = (context.run, context.cluster);
    let view = &context.look.view;
    let pod = |ordinal| PodName::new(format!("{}-{ordinal}", cluster.name));
    let claim = async |pod: &PodName| {
        let claim = run.observer.member_claim(cluster, view, pod).await;
        claim.map_err(ReconcileError::Gather)
    };
    let own = claim(&pod(first)).await?;
    if own.as_ref().is_some_and(|own| own.place == Place::Node) {
        let because = "the data is in directories of nodes, where a new member may find that of an earlier one";
        return Ok((BTreeMap::new(), Some(because.to_owned())));
    }
    let next = pod(first.saturating_add(replicas));
    let here = claim(&next).await?.filter(|claim| {
        let is_shared = own.as_ref().is_some_and(|own| own.name == claim.name);
        let is_here = matches!(claim.state, ClaimState::Here { .. });
        is_here && !is_shared && view.pod(&next).is_none()
    });
    let left = here.map(|claim| (next, claim.name));
    Ok((left.into_iter().collect(), None))
}

/// Sets the replicas of the StatefulSet that was looked at. The webhook asks the gate about fewer
/// of them as about anybody's.
async fn set_replicas(context: &OperationContext<'_>, replicas: u32) -> Applied {
    let Some(set) = context.look.view.stateful_set() else {
        return Applied::Outdated;
    };
    let change = json!({
        "metadata": {"uid": set.uid(), "resourceVersion": set.resource_version()},
        "spec": {"replicas": replicas},
    });
    let namespace = &context.cluster.namespace;
    let sets: Api<StatefulSet> = Api::namespaced(context.run.client.clone(), namespace);
    let (params, change) = (PatchParams::default(), Patch::Merge(change));
    let patched = sets.patch(&context.cluster.name, &params, &change).await;
    match patched {
        Ok(_) => Applied::Done,
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
            Applied::Outdated
        }
        Err(kube::Error::Api(status)) => Applied::Failed(status.message),
        Err(error) => Applied::Failed(causes(&error)),
    }
}

/// Says on the budget what was changed for good.
fn say(context: &OperationContext<'_>, step: &Step) {
    let (reason, note) = match step {
        Step::AddLearner { pod, .. } => ("MemberAdded", format!("{pod} joins as a learner")),
        Step::Promote { pod, .. } => ("MemberPromoted", format!("{pod} is a voter")),
        Step::RemoveMember { pod, .. } => {
            let pod = &pod.name;
            ("MemberRemoved", format!("{pod} left the cluster"))
        }
        Step::Withdraw { pod, .. } => ("MemberRemoved", format!("{pod} left the cluster")),
        Step::SetReplicas(_) | Step::MoveLeader { .. } | Step::DeletePod(_) => return,
    };
    context.run.events.notify(Notice {
        regarding: context.look.page.budget().object_ref(&()),
        severity: Severity::Normal,
        reason: reason.to_owned(),
        action: "Scale",
        note,
    });
}
