//! The gate: the shipped decision, grants, settlement and planner, on what it would see of a
//! cluster.

use std::time::Duration;

use quorumgate_core::plan::{Desired, Next, next_step};
use quorumgate_core::quorum::evidence::{Probe, Target, Unanswered};
use quorumgate_core::quorum::pod::{self, Containers, Node};
use quorumgate_core::quorum::{
    Actor, Allowance, CauseState, Disruption, Grace, GrantKind, Grants, Incarnation, Kind,
    MemberId, Observation, PodName, PodRead, PodUid, Settlement, Snapshot, TargetPod, Verdict,
    decide, example, settlement,
};

use crate::incidents::Ms;
use crate::policy::By;
use crate::world::{Member, Pod, World};

/// The time after which a lost quorum is believed, as in the gate.
const BELIEVED_AFTER: Ms = 7_000;

/// What the gate remembers of a cluster.
pub(crate) struct Gate {
    grants: Grants,
    healthy: Observation,
    names: Vec<PodName>,
    soak: Duration,
}

impl Gate {
    pub(crate) fn new(members: usize) -> Self {
        let voters = u32::try_from(members).unwrap_or_default();
        let healthy = Observation {
            formed: true,
            ..example::healthy("etcd", voters)
        };
        Self {
            grants: Grants::default(),
            names: healthy.pods.iter().map(|pod| pod.name.clone()).collect(),
            healthy,
            soak: Duration::ZERO,
        }
    }

    /// The same, which lets an updated member serve for so long before the next one goes.
    pub(crate) fn with_soak(self, soak: Duration) -> Self {
        Self { soak, ..self }
    }

    /// Judges a request, and records a yes.
    pub(crate) fn lets_go(&mut self, world: &World, member: usize, by: By) -> bool {
        let kind = match by {
            By::Delete => Kind::Delete,
            By::Eviction => Kind::Evict,
        };
        let snapshot = self.look(world);
        let Some(target) = self.target(world, member) else {
            return false;
        };
        let asked = Disruption {
            target,
            kind,
            actor: Actor::Stranger,
            grace: Grace::Graceful,
            precondition: None,
        };
        self.judge(&snapshot, &asked)
    }

    /// The pods that a rollout deletes now. Each has a permission.
    pub(crate) fn steps(&mut self, world: &World) -> Vec<usize> {
        let snapshot = self.look(world);
        let out = self.names.iter().zip(&world.members);
        let out = out.filter(|(_, member)| !member.takes_part);
        let desired = Desired {
            out_for: out
                .map(|(name, m)| (name.clone(), Duration::from_millis(world.now - m.since)))
                .collect(),
            soak: self.soak,
            ..Desired::by_default()
        };
        let Next::Act(steps) = next_step(&snapshot, &self.grants, &desired) else {
            return Vec::new();
        };
        let mut permitted = Vec::new();
        for step in &steps {
            if self.judge(&snapshot, &step.disruption()) {
                let of_pod = |name: &PodName| *name == step.pod.name;
                permitted.extend(self.names.iter().position(of_pod));
            }
        }
        permitted
    }

    fn judge(&mut self, snapshot: &Snapshot, asked: &Disruption) -> bool {
        match decide(snapshot, &self.grants, asked) {
            Verdict::Allow(Allowance::Waived(_)) => true,
            Verdict::Allow(Allowance::Grant(_)) => {
                let delete = GrantKind::Delete {
                    uid: asked.target.uid.clone(),
                    rollout: asked.kind.is_rollout_step(),
                };
                let name = &asked.target.name;
                self.grants = self
                    .grants
                    .issue(name, delete, String::new(), String::new());
                true
            }
            Verdict::Wait(_) | Verdict::Deny(_) => false,
        }
    }

    fn target(&self, world: &World, member: usize) -> Option<TargetPod> {
        Some(TargetPod {
            name: self.names.get(member)?.clone(),
            uid: uid(member, world.members.get(member)?),
        })
    }

    /// Settles what is over, and looks at the cluster.
    fn look(&mut self, world: &World) -> Snapshot {
        for (index, (name, member)) in self.names.iter().zip(&world.members).enumerate() {
            let Some(cause) = self.grants.get(name).and_then(|g| g.causes.first()) else {
                continue;
            };
            let GrantKind::Delete { uid: permitted, .. } = &cause.what else {
                continue;
            };
            let seen = Incarnation::read(permitted, &read(index, member));
            // A permission is used at once here, so none grows old.
            let (seen, age) = (CauseState::Incarnation(seen), Duration::ZERO);
            if settlement(cause, seen, age, Duration::MAX) != Settlement::Keep
                && let Some(settled) = self.grants.settle(name, cause.seq)
            {
                self.grants = settled;
            }
        }
        Snapshot::assemble(&self.observe(world))
    }

    fn observe(&self, world: &World) -> Observation {
        let mut seen = self.healthy.clone();
        seen.update_revision = Some(world.revision.to_string());
        if world.able() < world.majority() {
            let since = world.members.iter().map(|member| member.since).max();
            let lost_for = world.now - since.unwrap_or_default();
            seen.quorum_lost_for =
                (lost_for >= BELIEVED_AFTER).then(|| Duration::from_millis(lost_for));
        }
        let leader = world.leader.and_then(|leader| {
            let probe = self.healthy.round.probes.get(leader)?;
            Some(probe.status.as_ref().ok()?.member_id)
        });
        let healthy = std::mem::take(&mut seen.pods);
        let healthy = healthy
            .into_iter()
            .zip(std::mem::take(&mut seen.round.probes));
        for (index, (healthy, member)) in healthy.zip(&world.members).enumerate() {
            if !matches!(member.pod, Pod::Absent { .. }) {
                let (pod, probe) = observe_member(world.now, index, member, leader, healthy);
                seen.pods.push(pod);
                seen.round.probes.push(probe);
            }
        }
        seen
    }
}

/// A pod as the API server shows it, and the answers of its member. `healthy` is both, of a member
/// that serves.
fn observe_member(
    now: Ms,
    index: usize,
    member: &Member,
    leader: Option<MemberId>,
    (mut pod, mut probe): (pod::Pod, Probe),
) -> (pod::Pod, Probe) {
    pod.uid = uid(index, member);
    pod.terminating = !member.stays();
    pod.ready = member.ready;
    pod.etcd_ready = member.ready;
    pod.revision = Some(member.revision.to_string());
    pod.ready_for =
        (member.ready && member.takes_part).then(|| Duration::from_millis(now - member.since));
    if member.is_node_unready(now) {
        pod.node = Node::NotReady;
    }
    let target = Target::Pod(pod.uid.clone());
    if member.lost_until > now || member.hung_until > now {
        probe = Probe::unanswered(target, Unanswered::Deadline);
    } else if member.crashed_until > now {
        let reason = "CrashLoopBackOff".to_owned();
        pod.containers = Containers::EtcdFailed { reason };
        probe = Probe::unanswered(target, Unanswered::Refused);
    } else if member.listens_from > now || !member.stays() {
        pod.containers = Containers::Creating;
        probe = Probe::unanswered(target, Unanswered::Refused);
    } else {
        let knows_leader = leader.filter(|_| member.takes_part);
        if let Ok(status) = &mut probe.status {
            status.leader = knows_leader;
        }
        probe.read = knows_leader.map(drop).ok_or(Unanswered::NoLeader);
        probe.target = target;
    }
    (pod, probe)
}

/// A read of the pod by its name.
fn read(index: usize, member: &Member) -> PodRead {
    match member.pod {
        Pod::Absent { .. } => PodRead::Gone,
        Pod::Here | Pod::Terminating { .. } => PodRead::Here {
            uid: uid(index, member),
            terminating: !member.stays(),
        },
    }
}

fn uid(index: usize, member: &Member) -> PodUid {
    PodUid::new(format!("{index}-{}", member.incarnation))
}
