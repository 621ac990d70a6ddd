//! Who may go, and in which order a rollout goes, under each of the policies that are compared.

use std::cmp::Reverse;

use crate::gate::Gate;
use crate::world::{Member, World};

/// A request that may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Eviction,
    Delete,
}

/// The policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumIter, strum::Display)]
pub(crate) enum Kind {
    /// Nothing may ever go and nothing is rolled out: what the faults alone cost.
    #[strum(serialize = "faults alone")]
    FaultsAlone,
    #[strum(serialize = "no guard")]
    NoGuard,
    #[strum(serialize = "PodDisruptionBudget")]
    Budget,
    #[strum(serialize = "the same, maxUnavailable: 1 (1.37)")]
    BudgetMaxUnavailable,
    #[strum(serialize = "the same, DEP-06")]
    Dep06,
    #[strum(serialize = "the same, DEP-07")]
    Dep07,
    #[strum(serialize = "quorumgate")]
    Gate,
}

/// A policy with what it remembers.
pub(crate) struct Policy {
    kind: Kind,
    gate: Gate,
}

impl Policy {
    pub(crate) fn new(kind: Kind, members: usize) -> Self {
        let gate = Gate::new(members);
        Self { kind, gate }
    }

    /// Whether the pod may go. A yes is carried out at once.
    pub(crate) fn lets_go(&mut self, world: &World, member: usize, by: By) -> bool {
        match (self.kind, by) {
            (Kind::Gate, _) => self.gate.lets_go(world, member, by),
            (Kind::FaultsAlone, _) => false,
            (Kind::NoGuard, _) | (_, By::Delete) => true,
            (_, By::Eviction) => budget_permits(world, member),
        }
    }

    /// The pods that a rollout deletes now, in order.
    pub(crate) fn steps(&mut self, world: &World) -> Vec<usize> {
        match self.kind {
            Kind::FaultsAlone => Vec::new(),
            Kind::NoGuard | Kind::Budget => by_ordinals(world),
            Kind::BudgetMaxUnavailable => by_ordinals_counting(world),
            Kind::Dep06 => dep_06(world),
            Kind::Dep07 => dep_07(world),
            Kind::Gate => self.gate.steps(world),
        }
    }
}

/// The Eviction API with `minAvailable` at the majority: Ready pods count, and one that is not
/// Ready goes while the budget is met.
fn budget_permits(world: &World, member: usize) -> bool {
    let ready = world
        .members
        .iter()
        .filter(|m| m.stays() && m.ready)
        .count();
    let is_ready = world.members.get(member).is_some_and(|m| m.ready);
    ready - usize::from(is_ready) >= world.majority()
}

fn is_outdated(world: &World, member: &Member) -> bool {
    member.revision != world.revision
}

/// `RollingUpdate` before Kubernetes 1.37, pods in parallel: from the highest ordinal down, the next
/// one when all above it are Ready. Those below do not count.
fn by_ordinals(world: &World) -> Vec<usize> {
    for (ordinal, member) in world.members.iter().enumerate().rev() {
        if !member.stays() {
            return Vec::new();
        }
        if is_outdated(world, member) {
            return vec![ordinal];
        }
        if !member.ready {
            return Vec::new();
        }
    }
    Vec::new()
}

/// `RollingUpdate` with `maxUnavailable: 1`, as of Kubernetes 1.37: pods that are not Ready count
/// wherever they are, and go first if they are outdated.
fn by_ordinals_counting(world: &World) -> Vec<usize> {
    let unavailable = world
        .members
        .iter()
        .filter(|m| !m.stays() || !m.ready)
        .count();
    let outdated = |(_, member): &(usize, &Member)| member.stays() && is_outdated(world, member);
    let mut outdated = world.members.iter().enumerate().rev().filter(outdated);
    let next = match unavailable {
        0 => outdated.next(),
        _ => outdated.find(|(_, member)| !member.ready),
    };
    next.map(|(ordinal, _)| ordinal).into_iter().collect()
}

/// DEP-06: all outdated pods at once that do not take part; then, while every updated pod takes
/// part, one follower after the other by eviction, and the leader.
fn dep_06(world: &World) -> Vec<usize> {
    let idle = outdated_and_unready(world);
    if !idle.is_empty() {
        return idle;
    }
    let next = next_that_takes_part(world);
    next.into_iter()
        .filter(|member| budget_permits(world, *member))
        .collect()
}

/// DEP-07: one outdated pod that does not take part, dead ones first; then, while every updated pod
/// takes part, one follower after the other, and the leader.
fn dep_07(world: &World) -> Vec<usize> {
    let mut idle = outdated_and_unready(world);
    idle.sort_by_key(|index| {
        let member = world.members.get(*index);
        Reverse(member.is_some_and(|member| member.crashed_until > world.now))
    });
    let next = idle.into_iter().next();
    next.or_else(|| next_that_takes_part(world))
        .into_iter()
        .collect()
}

fn outdated_and_unready(world: &World) -> Vec<usize> {
    let members = world.members.iter().enumerate();
    let idle = members.filter(|(_, m)| m.stays() && !m.ready && is_outdated(world, m));
    idle.map(|(index, _)| index).collect()
}

fn next_that_takes_part(world: &World) -> Option<usize> {
    let updated_are_ready = |member: &Member| {
        let updated = !is_outdated(world, member);
        member.stays() && (!updated || member.ready)
    };
    if !world.members.iter().all(updated_are_ready) {
        return None;
    }
    let members = world.members.iter().enumerate();
    let outdated = members.filter(|(_, member)| is_outdated(world, member));
    let ready = outdated.filter(|(_, member)| member.ready);
    let next = ready.max_by_key(|(index, _)| (world.leader != Some(*index), *index));
    next.map(|(index, _)| index)
}
